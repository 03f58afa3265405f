"""Tables by class of pairs that were counted without classes."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.learning.pairs.classes import by_classes
from fedcircuits.learning.pairs.tables import StateCounts


def counted(rows: np.ndarray) -> tuple[StateCounts, StateCounts, StateCounts]:
    """A pair of which the classes (classes, states, states) are unknown, and both its columns."""
    unknown = np.zeros((len(rows) + 1, *rows.shape[1:]))
    unknown[-1] = rows.sum(axis=0)
    groups = tuple(np.arange(size) for size in rows.shape[1:])
    none = np.zeros((1, *rows.shape[1:]))
    known = np.concatenate([rows, none])
    return (
        StateCounts(unknown, groups),
        StateCounts(known.sum(axis=2), groups[:1]),
        StateCounts(known.sum(axis=1), groups[1:]),
    )


def test_what_is_known_of_pairs_and_of_columns_holds() -> None:
    rows = np.random.default_rng(0).integers(0, 40, (3, 4, 5)).astype(float)
    pair, first, second = counted(rows)
    found = by_classes(pair, first, second).rows
    assert found.sum(axis=0) == pytest.approx(pair.rows.sum(axis=0), abs=3)
    assert found.sum(axis=2) == pytest.approx(first.rows, abs=3)
    assert found.sum(axis=1) == pytest.approx(second.rows, abs=3)
    assert found.sum() == rows.sum() and (found == np.round(found)).all() and (found >= 0).all()


def test_where_the_class_says_nothing_of_both_together_tables_are_found() -> None:
    """Columns that hang together alike in every class."""
    rng = np.random.default_rng(1)
    joint = np.exp(rng.normal(size=(1, 3, 4)))
    joint = joint * np.exp(rng.normal(size=(2, 3, 1))) * np.exp(rng.normal(size=(2, 1, 4)))
    rows = np.round(1e6 * joint)
    assert by_classes(*counted(rows)).rows[:-1] == pytest.approx(rows, rel=0.02, abs=20)


def test_states_of_columns_are_gathered_in_the_groups_of_the_pair() -> None:
    rows = np.random.default_rng(2).integers(5, 40, (2, 4, 2)).astype(float)
    pair, first, second = counted(rows)
    groups = np.array([0, 0, 1, 1])
    few = np.stack([pair.rows[:, :2].sum(axis=1), pair.rows[:, 2:].sum(axis=1)], axis=1)
    found = by_classes(StateCounts(few, (groups, pair.groups[1])), first, second)
    assert found.rows.sum(axis=0) == pytest.approx(few.sum(axis=0), abs=2)
    assert found.rows[:, 0].sum(axis=1) == pytest.approx(
        [*rows[:, :2].sum(axis=(1, 2)).tolist(), 0], abs=2
    )


def test_rows_of_unknown_class_stay_so() -> None:
    pair, first, second = counted(np.full((2, 2, 2), 10.0))
    first.rows[-1] = first.rows[0] = first.rows[0] / 2
    second.rows[-1] = second.rows[0] = second.rows[0] / 2
    found = by_classes(pair, first, second).rows
    assert found.sum(axis=(1, 2)) == pytest.approx([20, 40, 20], abs=2)
