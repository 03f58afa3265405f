"""Tables of pairs: counts are parted, turned and put together without loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.learning.pairs.tables import StateCounts, TablesOfPairs, completed_single
from tests.learning.pairs.counting import counted

SIZES, ORDERED = (3, 6, 2, 4), (False, True, False, True)


def some_rows(rows: int = 200, seed: int = 0, gaps: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    states = rng.integers(SIZES, size=(rows, 4))
    return np.where(rng.random(states.shape) < gaps, -1, states)


@given(st.integers(2, 6), st.integers(0, 60), st.sampled_from([None, 0, 2]))
def test_folds_part_the_counts_exactly(folds: int, rows: int, known: int | None) -> None:
    whole = counted(some_rows(rows), SIZES, ORDERED, known)
    parts = list(whole.folds(np.random.default_rng(rows), folds))
    assert len(parts) == folds
    for key in [*whole.singles, *whole.pairs]:
        every = [of(tables, key) for _, tables in parts]
        assert (np.sum([own.rows for own in every], axis=0) == of(whole, key).rows).all()
        sizes = [own.rows.sum() for own in every]
        assert max(sizes) - min(sizes) <= 1
        for (rest, _), own in zip(parts, every, strict=True):
            assert (own.rows >= 0).all() and (own.rows == own.rows.round()).all()
            assert (of(rest, key).rows + own.rows == of(whole, key).rows).all()
            assert all(map(np.array_equal, own.groups, of(whole, key).groups))
    assert all(held.columns == whole.columns for _, held in parts)


def of(tables: TablesOfPairs, key: int | tuple[int, int]) -> StateCounts:
    return tables.singles[key] if isinstance(key, int) else tables.pairs[key]


@pytest.mark.parametrize("known", [None, 0, 2])
def test_pairs_are_contingency_tables_whichever_comes_first(known: int | None) -> None:
    states = some_rows()
    tables = counted(states, SIZES, ORDERED, known)
    for i in range(4):
        for j in range(4):
            if i == j:
                continue
            expected = np.zeros((SIZES[i], SIZES[j]))
            both = (states[:, [i, j]] >= 0).all(axis=1)
            np.add.at(expected, (states[both, i], states[both, j]), 1.0)
            assert (tables.pair(i, j, by_class=False).rows == expected).all()


def test_by_class_rows_of_unknown_class_do_not_count() -> None:
    states = some_rows()
    tables = counted(states, SIZES, ORDERED, known=2)
    for kind in range(2):
        own = states[states[:, 2] == kind]
        alone = counted(own, SIZES, ORDERED)
        assert (tables.pair(1, 3, True).rows[kind] == alone.pair(1, 3, False).rows[0]).all()
        assert (tables.single(1, True).rows[kind] == alone.single(1, False).rows[0]).all()
    assert tables.of_classes.tolist() == [(states[:, 2] == kind).sum() for kind in range(2)]
    assert tables.shares(1, True).sum(axis=1) == pytest.approx(1)


def test_states_in_parts_share_their_rows_evenly() -> None:
    """Groups keep their counts, and the parts of a state are in its group."""
    groups = {1: np.array([0, 0, 0, 1, 1, 2])}
    coarse = counted(some_rows(400, gaps=0.0), SIZES, ORDERED, groups=groups)
    fine = coarse.finer({1: 3})
    assert fine.columns[1].rows == pytest.approx(np.repeat(coarse.columns[1].rows / 3, 3))
    assert fine.pair(1, 3, False).groups[0].tolist() == np.repeat(groups[1], 3).tolist()
    assert fine.single(1, False).groups[0].tolist() == np.repeat(groups[1], 3).tolist()
    assert (fine.pair(1, 3, False).rows == coarse.pair(1, 3, False).rows).all()
    assert fine.columns[3].rows.tolist() == coarse.columns[3].rows.tolist()


def test_rows_are_those_that_pairs_are_counted_in() -> None:
    states = some_rows(100, gaps=0.0)
    assert counted(states, SIZES, ORDERED).rows == 100
    assert counted(states[:, :1], SIZES[:1], ORDERED[:1]).rows == 100
    assert counted(states[:, :1], SIZES[:1], ORDERED[:1], known=0).rows == 0


def test_rows_left_out_for_their_class_are_put_back_by_what_is_known() -> None:
    """Two states of few rows of a class were left out: they are no rarer in it than elsewhere."""
    whole = np.array([[30.0, 4.0, 3.0], [60.0, 8.0, 6.0]])
    seen = np.array([[30.0, 0.0, 0.0], [60.0, 8.0, 6.0], [0.0, 0.0, 0.0]])
    single = StateCounts(seen, (np.arange(3),))
    found = completed_single(single, whole.sum(axis=0), whole.sum(axis=1))
    assert found.rows[:-1].tolist() == whole.tolist() and not found.rows[-1].any()
    missing = completed_single(single, seen.sum(axis=0), whole.sum(axis=1))  # gaps of its own
    assert (missing.rows == seen).all()
