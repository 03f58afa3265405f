"""Edges of cells: on a public grid, of no row, with enough rows on either side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.federation.sums.checked import CheckedSums
from fedcircuits.federation.sums.collectives import TreeSum
from fedcircuits.federation.sums.topology import star
from fedcircuits.methods.trees import edges
from fedcircuits.methods.trees.gradient_trees import Cells
from fedcircuits.methods.trees.growing import TreesPlan
from tests.methods.trees.cases import programs


def alone(x: Array, least: int = 5) -> list[Array]:
    """The edges of every column, of one party."""
    rows = fc.Table(fc.Schema.real([f"x{i}" for i in range(x.shape[1])]), x)
    sums = CheckedSums(TreeSum("alone", star(("alone",), "alone")), ["alone"])
    with pytest.raises(StopIteration) as stop:
        next(edges.edges_of(rows, sums, len(x), least))
    return stop.value.value  # type: ignore[no-any-return]


def odd_numbers(rows: int) -> dict[str, Any]:
    """Numbers with all digits of single precision: none is round by chance."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 3)) * [1.0, 40.0, 0.5] + [0.0, 1987.0, 48.1]
    y = np.where(x[:, 0] + x[:, 1] > 1987.0, "high", "low")
    return {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "risk": y}


def told_numbers(model: fc.FedTrees) -> Array:
    """The numbers that questions of the trees ask for."""
    trees = [t.to_arrays() for t in model.views_["party 1"].predictors.values()]
    return np.concatenate([t["threshold"][t["children"][:, 0] >= 0] for t in trees])


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Secret()])
def test_no_edge_is_the_value_of_a_row(summation: Any) -> None:
    """What all parties get: 23 of 37 edges were values of others' rows before."""
    table = fc.Table.of(odd_numbers(1500))
    parties = fc.split(table, 3, target="risk")
    model = fc.FedTrees(target="risk", grow="together", trees=10, summation=summation).fit(parties)
    asked = told_numbers(model).astype(np.float32)
    values = table.values[:, :3].astype(np.float32)
    assert len(np.unique(asked)) > 10 and not np.isin(asked, values).any()


def test_edges_have_enough_rows_on_either_side() -> None:
    x = np.column_stack([odd_numbers(700)[n] for n in "abc"])
    for least in (5, 40):
        found = alone(x, least)
        for column, own in zip(x.T, found, strict=True):
            counts = np.diff(np.searchsorted(np.sort(column), [-np.inf, *own, np.inf], "right"))
            assert counts.min() >= max(least, edges.LEAST_ROWS) and len(own) > 5


def test_single_rows_far_away_have_no_edge_of_their_own() -> None:
    x = np.append(np.random.default_rng(0).random(500), [7e8, -3e5])[:, None]
    (found,) = alone(x)
    assert found.min() > 0 and found.max() < 1
    assert np.array_equal(found, alone(x[:-2])[0])


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_places_are_in_the_order_of_values(values: list[float]) -> None:
    x = np.sort(np.array(values)) + 0.0
    places = edges.places_of(x)
    assert (np.diff(places) >= 0).all() and np.array_equal(np.diff(places) == 0, np.diff(x) == 0)
    assert np.array_equal(edges._numbers(places + 1), x)


def test_blocks_end_with_round_numbers() -> None:
    for value, end in ((0.3, 0.5), (1.0, 1.0), (1.0001, 2.0), (-0.3, -0.25), (0.0, 0.0)):
        place = int(edges.places_of(np.array([value]))[0])
        block = (place >> 23) + 1 << 23  # sign and exponent
        assert edges._numbers(np.array([block]))[0] == (end if value else 0.0)


def test_edges_are_quantiles_and_frequent_values_do_not_hide_others() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(20_000) < 0.9, 0.0, rng.exponential(size=20_000))[:, None]
    (found,) = alone(x)
    counts = np.bincount(Cells.of(fc.Schema.real(["gain"]), [found]).codes(x)[:, 0])
    assert found[0] == 0.0 and 25 <= len(found) <= 2 * edges.CELLS
    assert counts[0] == (x == 0).sum() and counts[1:-1].max() < 2 * 20_000 / edges.BLOCKS


@given(st.integers(0, 1000), st.sampled_from([1, 5, 30]))
@settings(max_examples=30)
def test_cells_are_joined_until_they_have_enough(seed: int, least: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 40, 50).astype(float)
    ends = edges.chosen_ends(counts, counts.sum(), least)
    cells = np.add.reduceat(counts, [0, *(np.flatnonzero(ends[:-1]) + 1)])
    assert len(cells) == 1 or cells.min() >= least


def test_few_rows_or_none_have_no_edges() -> None:
    assert [len(e) for e in alone(np.full((3, 1), np.nan))] == [0]
    assert [len(e) for e in alone(np.arange(20.0)[:, None])] == [0]


def test_a_party_keeps_its_least_count() -> None:
    parties = fc.split(fc.Table.of(odd_numbers(90)), 2, target="risk")
    strict = fc.Federation(
        {p.name: p.table for p in parties}, allow_collect=True, least_count={"party 2": 30}
    )
    lost = memory.run(programs(strict, TreesPlan("risk", grow="together"))).lost
    assert "party 2 has least_count=30" in str(lost["party 2"])
    model = fc.FedTrees(target="risk", grow="together", trees=3).fit(strict)
    assert len(told_numbers(model)) > 0
