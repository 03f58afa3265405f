"""Divisions of variables between holders: one owner each, every party first in one of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.federation.federation import Subspace, subspaces
from fedcircuits.methods.fedpc.planning import by_party, by_rows_held, numbered

ALL = np.ones((5, 2), bool)


def owners(division: list[Subspace]) -> dict[str, str]:
    return {v: s.holders[0] for s in division for v in s.variables}


def test_columns_have_one_division() -> None:
    spaces = subspaces({"a": ["x"], "b": ["y", "z"]}, ["x", "y", "z"])
    [found] = by_rows_held(spaces, ["a", "b"], ALL)
    assert owners(found) == {"x": "a", "y": "b", "z": "b"}


def test_rows_have_one_a_party() -> None:
    spaces = subspaces({"a": ["x", "y"], "b": ["x", "y"]}, ["x", "y"])
    found = by_party(spaces, ["a", "b"])
    assert [owners(d) for d in found] == [{"x": "a", "y": "a"}, {"x": "b", "y": "b"}]
    assert found == by_rows_held(spaces, ["a", "b"], np.array([[True, False], [False, True]]))


def test_shared_columns_go_to_each_holder_in_turn() -> None:
    spaces = subspaces({"a": ["x", "s"], "b": ["s", "y"]}, ["x", "s", "y"])
    found = by_rows_held(spaces, ["a", "b"], ALL)
    assert [owners(d) for d in found] == [
        {"x": "a", "s": "a", "y": "b"},
        {"x": "a", "s": "b", "y": "b"},
    ]


def test_partners_are_those_with_shared_rows() -> None:
    """A bank and two telcos of other regions; another bank shares rows with the second only."""
    held = {"bank": ["loan"], "east": ["calls"], "west": ["calls"], "credit": ["loan"]}
    spaces = subspaces(held, ["loan", "calls"])
    rows = np.zeros((100, 4), bool)
    rows[:50, [0, 1]] = True
    rows[50:80, [0, 2]] = True
    rows[80:90, [3, 2]] = True
    rows[90:, 3] = True
    found = [set(owners(d).values()) for d in by_rows_held(spaces, list(held), rows)]
    assert found == [{"bank", "east"}, {"bank", "west"}, {"credit", "west"}]


def test_no_row_with_all_variables() -> None:
    spaces = subspaces({"a": ["x"], "b": ["y"]}, ["x", "y"])
    assert by_rows_held(spaces, ["a", "b"], np.array([[True, False], [False, True]])) == []


def test_several_circuits_have_groups_of_their_own() -> None:
    alone = [Subspace(("c",), ("x", "y"))]
    apart = [Subspace(("a",), ("x",)), Subspace(("b",), ("y",))]
    found = numbered([alone, apart], times=2)
    assert [(d.first, d.turn, d.parties) for d in found] == [
        (0, 0, ("c",)),
        (1, 0, ("a", "b")),
        (3, 1, ("a", "b")),
    ]
    assert found[2].groups("b") == {4: apart[1]} and found[0].groups("a") == {}


@given(st.integers(0, 10**6))
def test_every_variable_has_one_owner_who_holds_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parties = [f"p{i}" for i in range(rng.integers(2, 6))]
    names = [f"v{i}" for i in range(rng.integers(1, 7))]
    matrix = rng.random((len(parties), len(names))) < 0.5
    matrix[rng.integers(len(parties), size=len(names)), np.arange(len(names))] = True
    held = {p: [v for v, m in zip(names, row, strict=True) if m]
            for p, row in zip(parties, matrix, strict=True)}  # fmt: skip
    rows = rng.random((30, len(parties))) < 0.7
    found = by_rows_held(subspaces(held, names), parties, rows)
    for division in found:
        assert sorted(owners(division)) == sorted(names)
        assert all(v in held[p] for v, p in owners(division).items())
        where = [parties.index(p) for p in set(owners(division).values())]
        assert rows[:, where].all(axis=1).any()
    covered = [p for i, p in enumerate(parties)
               if any(all(any(row[j] and v in held[q] for j, q in enumerate(parties))
                          for v in names) for row in rows[rows[:, i]])]  # fmt: skip
    first = [p for p in covered
             if any(all(owners(d)[v] == p for v in held[p]) for d in found)]  # fmt: skip
    assert [p for p in covered if held[p]] == [p for p in first if held[p]]
