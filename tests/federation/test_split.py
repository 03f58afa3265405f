"""One table cut up: who gets what, how uneven it is, and that a seed repeats it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError

RNG = np.random.default_rng(0)
N = 900
LABEL = RNG.integers(3, size=N)
TABLE = fc.Table.of(
    {
        **{f"x{i}": RNG.normal(size=N) + 5 * LABEL for i in range(6)},
        "label": np.array(["a", "b", "c"])[LABEL],
    }
)


def ids(parties: fc.Federation) -> list[set[int]]:
    return [set(p.table.row_ids.tolist()) for p in parties]  # type: ignore[union-attr]


def cells(parties: fc.Federation) -> None:
    """Every cell of every party is the whole table's."""
    for party in parties:
        assert party.table.row_ids is not None
        columns = np.array([TABLE.schema.index(n) for n in party.table.names])
        expected = TABLE.values[np.ix_(party.table.row_ids.astype(int), columns)]
        assert np.array_equal(party.table.values, expected)


def shares(parties: fc.Federation) -> np.ndarray:
    """(parties, classes), rows of each class."""
    codes = [p.table.values[:, p.table.schema.index("label")].astype(int) for p in parties]
    return np.array([np.bincount(c, minlength=3) for c in codes])


def test_by_rows() -> None:
    parties = fc.split(TABLE, 4)
    assert parties.kind == "horizontal" and parties.names == tuple(
        f"party {i}" for i in range(1, 5)
    )
    found = ids(parties)
    assert [len(f) for f in found] == [225] * 4 and set().union(*found) == set(range(N))
    cells(parties)
    assert all(p.allow_collect for p in parties)
    assert not any(p.allow_collect for p in fc.split(TABLE, 4, allow_collect=False))


@pytest.mark.parametrize("overlap", [0.0, 0.25, 1.0])
def test_rows_that_two_parties_hold(overlap: float) -> None:
    parties = fc.split(TABLE, 3, overlap=overlap)
    held = np.zeros(N, int)
    for own in ids(parties):
        held[list(own)] += 1
    assert set(held) <= {1, 2}
    assert (held == 2).mean() == pytest.approx(overlap, abs=0.05)
    cells(parties)


@pytest.mark.parametrize("overlap", [0.0, 0.4])
def test_by_columns(overlap: float) -> None:
    parties = fc.split(TABLE, ["u", "v"], by="columns", overlap=overlap, target="label")
    assert parties.kind == ("hybrid" if overlap else "vertical")
    names = [set(p.table.names) for p in parties]
    assert set().union(*names) == set(TABLE.names)
    assert len(names[0] & names[1]) == np.ceil(overlap * 6)
    assert "label" in names[1] and "label" not in names[0]
    assert ids(parties) == [set(range(N))] * 2
    for party in parties:  # columns in the table's order
        assert list(party.table.names) == [n for n in TABLE.names if n in party.table.names]
    cells(parties)


def test_by_both() -> None:
    parties = fc.split(TABLE, 3, by="both", target="label")
    assert parties.kind == "hybrid"
    assert [len(f) for f in ids(parties)] == [540] * 3
    assert len(set.intersection(*(set(p.table.names) for p in parties))) == 1
    assert ids(parties)[0] != ids(parties)[1]
    cells(parties)


def test_as_many_parties_as_columns() -> None:
    parties = fc.split(TABLE, 7, by="columns", target="label")
    assert all(len(p.table.names) == 1 for p in parties)


def test_label_skew() -> None:
    """Parties of about the same size that prefer other classes."""
    counts = shares(fc.split(TABLE, 3, skew="label", target="label"))
    assert (counts.sum(axis=1) > 0.8 * N / 3).all() and (counts.sum(axis=1) < 1.2 * N / 3).all()
    assert sorted(counts.argmax(axis=1)) == [0, 1, 2]
    main = counts.max(axis=1) / counts.sum(axis=1)
    assert (main > 0.65).all() and (main < 0.9).all() and (counts > 0).all()
    plain = shares(fc.split(TABLE, 3))
    assert (plain.max(axis=1) / plain.sum(axis=1) < 0.45).all()


def test_cluster_skew() -> None:
    """Classes are clusters here, so that parties get whole classes without looking at them."""
    parties = fc.split(TABLE.select([f"x{i}" for i in range(6)]), 3, skew="cluster")
    sizes = [len(p.table) for p in parties]
    assert sum(sizes) == N and min(sizes) > 100
    means = np.array([p.table.values.mean() for p in parties])
    spread = np.array([p.table.values.std() for p in parties])
    assert means.std() > 1 and spread.min() < TABLE.values[:, :6].std() / 2


def test_dirichlet_skew() -> None:
    def unevenness(beta: float) -> float:
        skew = fc.dirichlet(beta)
        found = [shares(fc.split(TABLE, 5, skew=skew, target="label", seed=s)) for s in range(5)]
        return float(np.mean([(c / c.sum(axis=0)).std() for c in found]))

    few, some, many = unevenness(0.05), unevenness(1.0), unevenness(1000.0)
    assert few > 1.3 * some > 2 * many and many < 0.05


@given(
    parties=st.integers(1, 6),
    more=st.integers(0, 20),
    seed=st.integers(0, 1000),
    skew=st.sampled_from([None, "label", fc.dirichlet(0.01), fc.dirichlet(1.0)]),
)
def test_nobody_is_left_without_rows(parties: int, more: int, seed: int, skew: Any) -> None:
    rows = 2 * parties + more
    found = fc.split(TABLE.rows(slice(0, rows)), parties, skew=skew, target="label", seed=seed)
    assert min(len(p.table) for p in found) >= 2
    assert sum(len(p.table) for p in found) == rows


@pytest.mark.parametrize(
    "how",
    [{"by": "rows", "overlap": 0.3}, {"by": "columns"}, {"by": "both"},
     {"skew": "cluster"}, {"skew": fc.dirichlet(0.5), "target": "label"}],
)  # fmt: skip
def test_seeds_repeat(how: dict[str, Any]) -> None:
    def found(seed: int) -> list[Any]:
        parties = fc.split(TABLE, 3, seed=seed, **how)
        return [(p.table.names, p.table.row_ids.tolist()) for p in parties]  # type: ignore[union-attr]

    assert found(4) == found(4) and found(4) != found(5)


def test_own_row_ids_are_kept() -> None:
    own = fc.Table(TABLE.schema, TABLE.values, np.array([f"patient {i}" for i in range(N)]))
    parties = fc.split(own, 2, by="both")
    assert all(str(i).startswith("patient ") for i in ids(parties)[0])


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"by": "cells"}, "by must be one of 'rows', 'columns', 'both', got 'cells'"),
        ({"parties": 0}, "parties must be a number from 1, or different names"),
        ({"parties": ["a", "a"]}, "parties must be a number from 1, or different names"),
        ({"overlap": 1.5}, "overlap must be a share from 0 to 1, got 1.5"),
        ({"skew": "rows"}, "skew must be None, 'label', 'cluster' or dirichlet"),
        ({"skew": "cluster", "by": "columns"}, "skew applies to rows: it needs by='rows'"),
        ({"skew": "label"}, "this skew needs target='…', a category or boolean"),
        ({"skew": "label", "target": "x1"}, "this skew needs target='…', a category or boolean"),
        ({"parties": 8, "by": "columns"}, "7 columns cannot be split over 8 parties"),
        ({"parties": 451}, "900 rows cannot be split over 451 parties"),
    ],
)
def test_errors(how: dict[str, Any], text: str) -> None:
    with pytest.raises(FederationError, match=text):
        fc.split(TABLE, **{"parties": 2, **how})


def test_unknown_targets_and_shares_that_are_none() -> None:
    ways: tuple[Any, ...] = ("rows", "columns", "both")
    for by in ways:
        with pytest.raises((FederationError, QueryError), match=r"'lable': did you mean 'label'"):
            fc.split(TABLE, 2, by=by, target="lable")
    for beta in (0.0, -1.0, float("nan")):
        with pytest.raises(FederationError, match="beta must be a number above 0"):
            fc.split(TABLE, 2, skew=fc.dirichlet(beta), target="label")
