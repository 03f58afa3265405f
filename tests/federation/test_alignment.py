"""Rows that all parties hold: whatever their order, however few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.errors import FederationError
from fedcircuits.federation.alignment import align, common, restricted
from fedcircuits.federation.federation import Federation
from fedcircuits.tables.table import Table

IDS = st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True)


def federation(ids: list[list[object]], **options: bool) -> Federation:
    """Every party's column is a number for every row, so that rows can be told apart."""
    parties = {
        f"p{i}": {"id": own, f"x{i}": [float(str(v)) + i / 10 for v in own]}
        for i, own in enumerate(ids)
    }
    return Federation(parties, row_id="id", **options)


@given(st.lists(IDS, min_size=1, max_size=4))
def test_all_and_only_shared_rows(ids: list[list[object]]) -> None:
    found = align(federation(ids))
    expected = sorted(set.intersection(*map(set, ids)))  # type: ignore[type-var]
    for i, own in enumerate(ids):
        assert [own[k] for k in found[f"p{i}"]] == expected


@given(IDS, IDS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    a: list[object], b: list[object], random: object
) -> None:
    shared = set(a) & set(b)
    shuffled = sorted(b, key=lambda _: random.random())  # type: ignore[attr-defined]
    if not shared:
        with pytest.raises(FederationError, match="no row id is held by all parties"):
            restricted(federation([a, b]), align(federation([a, b])))
        return
    one = restricted(federation([a, b]), align(federation([a, b])))
    two = restricted(federation([a, shuffled]), align(federation([a, shuffled])))
    for name in one.names:
        assert np.array_equal(one[name].table.values, two[name].table.values)
    assert np.allclose(one["p1"].table.values - one["p0"].table.values, 0.1)


def test_numbers_and_texts_are_the_same_ids() -> None:
    rows = align(federation([[3, 10, 2], ["2", "3", "7"]]))
    assert {n: r.tolist() for n, r in rows.items()} == {"p0": [2, 0], "p1": [0, 1]}


def test_numbers_stand_in_their_order() -> None:
    assert common([["10", "9", "100"], ["100", "9", "10"]]) == ["9", "10", "100"]


def test_permissions_stay() -> None:
    parties = federation([[1, 2], [2, 3]], allow_collect=True)
    assert all(p.allow_collect for p in restricted(parties, align(parties)))


def test_bad_ids() -> None:
    with pytest.raises(FederationError, match="p1 has no row ids: name the column"):
        align(Federation({"p0": Table.of({"i": [1], "x": [1.0]}, row_id="i"), "p1": {"y": [1.0]}}))
    plain = Table.of({"x": [1.0, 2.0]})
    twice = Table(plain.schema, plain.values, np.array([1, 1]))
    with pytest.raises(FederationError, match="two rows have one id"):
        align(Federation({"p0": twice}))
