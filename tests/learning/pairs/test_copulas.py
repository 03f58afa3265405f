"""Normal copulas: tables of any states from one correlation, and the correlation from counts."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.learning.pairs.copulas import States, copula, correlation, correlations
from fedcircuits.learning.pairs.forests import joint_of
from fedcircuits.learning.pairs.states import grouped


def normals(r: float, rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multivariate_normal([0, 0], [[1, r], [r, 1]], size=rows)


def table_of_cells(x: np.ndarray, cells: int) -> np.ndarray:
    """Counts of pairs of cells with equally many rows each."""
    ranks = x.argsort(axis=0).argsort(axis=0) * cells // len(x)
    table = np.zeros((cells, cells))
    np.add.at(table, (ranks[:, 0], ranks[:, 1]), 1.0)
    return table


@pytest.mark.parametrize("r", [-0.99, -0.5, 0.0, 0.3, 0.8, 0.95])
def test_tables_are_the_frequencies_of_normal_variables(r: float) -> None:
    even = np.full(6, 1 / 6)
    seen = table_of_cells(normals(r, 400_000, 0), 6) / 400_000 * 6
    assert copula(r, even, even) == pytest.approx(seen, abs=0.02)


@pytest.mark.parametrize("r", [-0.98, 0.3, 0.7, 0.9, 0.98, 0.995])
@pytest.mark.parametrize("cells", [5, 16])
def test_a_strong_correlation_is_found_from_coarse_cells(r: float, cells: int) -> None:
    even = np.full(cells, 1 / cells)
    found = correlation(table_of_cells(normals(r, 2_000, 1), cells), even, even)
    assert np.arctanh(found) == pytest.approx(np.arctanh(r), abs=0.15)


def test_components_of_few_rows_lean_on_the_others() -> None:
    tables = [table_of_cells(normals(0.9, rows, 2), 6) for rows in (1_000, 12)]
    state = States(np.full(6, 1 / 6), np.arange(6), True)
    many, few = correlations(np.stack(tables), [(state, state)] * 2)
    alone = correlation(tables[1], state.whole, state.whole)
    assert abs(np.arctanh(few) - np.arctanh(many)) < 0.5 * abs(np.arctanh(alone) - np.arctanh(many))
    free = States(state.shares, state.groups, False)
    assert correlations(np.stack(tables), [(state, free)] * 2) == [0.0, 0.0]


def test_finer_states_of_two_columns_follow_their_copula() -> None:
    """Counted in 8 cells each; states are 6 parts of a cell. Cells keep their probability."""
    x = normals(0.98, 20_000, 3)
    cells = States(np.full(48, 1 / 48), np.repeat(np.arange(8), 6), True)
    counts, truth = table_of_cells(x[:2_000], 8), table_of_cells(x, 48) / len(x)
    joint = joint_of(counts, cells, cells, correlation(counts, cells.whole, cells.whole))
    coarse = grouped(grouped(joint, cells.groups).T, cells.groups).T
    assert joint.sum() == pytest.approx(1)
    assert coarse == pytest.approx(counts / counts.sum(), abs=0.01)
    even = coarse[cells.groups][:, cells.groups] / 36
    gains = [float((truth * np.log(model)).sum()) for model in (joint, even)]
    best = float((truth[truth > 0] * np.log(truth[truth > 0])).sum())
    assert gains[0] > best - 0.05 and gains[1] < best - 0.3
