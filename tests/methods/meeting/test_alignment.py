"""Rows that all parties hold: whatever their order, however few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.errors import FederationError
from fedcircuits.estimators.alignment import aligned
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.flow import Compute
from fedcircuits.methods.meeting.alignment import AlignmentPlan, id_texts, member
from fedcircuits.methods.meeting.intersection import common
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
    expected = sorted(set.intersection(*map(set, ids)))  # type: ignore[type-var]
    if expected:
        for party in aligned(federation(ids)):
            assert id_texts(party) == [str(i) for i in expected]


@given(IDS, IDS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    a: list[object], b: list[object], random: object
) -> None:
    shared = set(a) & set(b)
    shuffled = sorted(b, key=lambda _: random.random())  # type: ignore[attr-defined]
    if not shared:
        with pytest.raises(FederationError, match="no row id occurs at all parties"):
            aligned(federation([a, b]))
        return
    one = aligned(federation([a, b]))
    two = aligned(federation([a, shuffled]))
    for name in one.names:
        assert np.array_equal(one[name].table.values, two[name].table.values)
    assert np.allclose(one["p1"].table.values - one["p0"].table.values, 0.1)


def test_numbers_and_texts_are_the_same_ids() -> None:
    found = aligned(federation([[3, 10, 2], ["2", "3", "7"]]))
    assert {p.name: id_texts(p) for p in found} == {"p0": ["2", "3"], "p1": ["2", "3"]}


@pytest.mark.parametrize("rule", ["private", "Tokens", "", None, 0])
def test_rules_that_are_not_tokens_send_none(rule: object) -> None:
    """A site with private_rows refuses "tokens": no other word may mean the same."""
    party = federation([[1, 2], [2, 3]])["p0"]
    plan = AlignmentPlan(("p0", "p1"), rule)  # type: ignore[arg-type]
    first = next(member(party, plan, bytes(range(32))))
    assert isinstance(first, Compute) and first.step == "sealing its row ids"


def test_numbers_stand_in_their_order() -> None:
    assert common([["10", "9", "100"], ["100", "9", "10"]]) == ["9", "10", "100"]


def test_permissions_stay() -> None:
    parties = federation([[1, 2], [2, 3]], allow_collect=True)
    assert all(p.allow_collect for p in aligned(parties))


def test_bad_ids() -> None:
    with pytest.raises(FederationError, match="p1 has no row ids: name the column"):
        aligned(
            Federation({"p0": Table.of({"i": [1], "x": [1.0]}, row_id="i"), "p1": {"y": [1.0]}})
        )
    plain = Table.of({"x": [1.0, 2.0]})
    twice = Table(plain.schema, plain.values, np.array([1, 1]))
    with pytest.raises(FederationError, match="two rows have the same id"):
        aligned(Federation({"p0": twice}))
