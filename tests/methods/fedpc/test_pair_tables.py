"""Tables of pairs, as the coordinator makes them from what parties send in views."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.learning.pairs.tables import TablesOfPairs
from fedcircuits.methods.fedpc.latent import _ViewTables
from tests.methods.fedpc.sending import of_columns, plans_of, sent_by


def coded(rows: int, gaps: float = 0.1) -> fc.Table:
    """Columns of few values: categories, numbers, and a class; some are missing."""
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=(rows, 1))
    x = np.where(rng.random((rows, 6)) < 0.5, z, rng.integers(3, size=(rows, 6))).astype(float)
    x[rng.random(x.shape) < gaps] = np.nan
    names = [f"n{i}" for i in range(3)] + [f"c{i}" for i in range(3)]
    values: dict[str, object] = {name: x[:, i] for i, name in enumerate(names[:3])}
    for i, name in enumerate(names[3:], 3):
        values[name] = pd.Series(["pqr"[int(v)] if v == v else None for v in x[:, i]])
    return fc.Table.of(pd.DataFrame({**values, "kind": np.array(list("uvw"))[z[:, 0]]}))


def tables_of(parties: fc.Federation, schema: fc.Schema, target: str | None) -> TablesOfPairs:
    plans = plans_of(parties, schema, target)
    sent = sent_by(parties, plans, 1)
    for party, message in sent.items():
        message.check(plans[party], schema, party, len(parties[party].table))
    models = {t.column: p for p, plan in plans.items() for t in plan.tasks if t.models}
    return _ViewTables(sent, plans, schema, {n: models[n] for n in schema.names}).all()


def expected_pair(table: fc.Table, i: str, j: str, kind: int | None) -> np.ndarray:
    values = {name: table.values[:, table.names.index(name)] for name in (i, j, "kind")}
    both = ~np.isnan(values[i]) & ~np.isnan(values[j])
    if kind is not None:
        both &= values["kind"] == kind
    counts = np.zeros((3, 3))
    np.add.at(counts, tuple(values[n][both].astype(int) for n in (i, j)), 1.0)
    return counts


@pytest.mark.parametrize("gaps", [0.0, 0.1])
@pytest.mark.parametrize("target", [None, "kind"])
@pytest.mark.parametrize("parties", [2, 3, 7])
def test_tables_are_those_of_the_pooled_rows(parties: int, target: str | None, gaps: float) -> None:
    """Of columns of one party only without gaps: cells may be left out there, and are filled in."""
    table = coded(600, gaps)
    split = fc.split(table, parties, by="columns", target="kind")
    found = tables_of(split, table.schema, target)
    names, exact = list(table.schema.names), 0
    assert found.known == (None if target is None else names.index("kind"))
    for a, i in enumerate(names):
        known = np.isfinite(table.values[:, a])
        assert found.columns[a].rows.sum() in (600, known.sum())
        for b, j in enumerate(names):
            if a == b or (gaps and any({i, j} <= {*p.table.names} for p in split)):
                continue
            rows = found.pair(a, b, by_class=False).rows
            assert (rows[0] == expected_pair(table, i, j, None)).all(), (i, j)
            exact += 1
            if target is not None and "kind" not in (i, j):
                rows = found.pair(a, b, by_class=True).rows
                for kind in range(3):
                    assert (rows[kind] == expected_pair(table, i, j, kind)).all(), (i, j)
    assert exact == 42 if not gaps else exact >= 12


def test_tables_are_of_the_rows_that_both_parties_hold() -> None:
    """Rows that a third lacks count for the two."""
    table, rows = coded(600), np.arange(600)
    held = {"north": rows[rows < 500], "east": rows[rows >= 100], "south": rows[rows % 2 == 0]}
    own = {"north": ["n0", "c0"], "east": ["n1", "c1", "kind"], "south": ["n2", "c2"]}
    parties = fc.Federation({p: of_columns(table, own[p], held[p]) for p in held})
    schema = table.schema
    found = tables_of(parties, schema, "kind")
    for i, j, p, q in (("n0", "c1", "north", "east"), ("c0", "c2", "north", "south"),
                       ("c1", "n2", "east", "south"), ("n1", "c0", "east", "north")):  # fmt: skip
        common = table.rows(np.intersect1d(held[p], held[q]))
        counts = found.pair(schema.index(i), schema.index(j), by_class=False).rows[0]
        assert (counts == expected_pair(common, i, j, None)).all()


def test_a_column_of_two_parties_is_completed_from_either() -> None:
    """Codes and ranks mean the same at both, so rows of both count."""
    table, rows = coded(600), np.arange(600)
    held = {"north": rows[:400], "east": rows[300:], "south": rows}
    own = {"north": ["n0", "c0", "n1"], "east": ["n0", "c0", "c1"], "south": ["n2", "c2", "kind"]}
    parties = fc.Federation({p: of_columns(table, own[p], held[p]) for p in held})
    schema = table.schema.select(sorted({n for names in own.values() for n in names}))
    found = tables_of(parties, schema, "kind")
    for i, j in (("n0", "n2"), ("c0", "n2"), ("c0", "c2"), ("n0", "c2"), ("n0", "c0")):
        counts = found.pair(schema.index(i), schema.index(j), by_class=False).rows[0]
        assert (counts == expected_pair(table, i, j, None)).all(), (i, j)


def test_a_party_without_classes_is_told_by_the_tokens_of_others() -> None:
    """Rows of which nobody knows the class count in all rows only."""
    table, rows = coded(600, gaps=0.0), np.arange(600)
    parties = fc.Federation({
        "north": of_columns(table, ["n0", "n1"], rows),
        "south": of_columns(table, ["c0", "kind"], rows[:200]),
    })  # fmt: skip
    schema = table.schema.select(["n0", "n1", "c0", "kind"])
    found = tables_of(parties, schema, "kind")
    pair = schema.index("n0"), schema.index("n1")
    counts = found.pair(*pair, by_class=False).rows[0]
    assert (counts == expected_pair(table, "n0", "n1", None)).all()
    known = table.rows(rows[:200])
    for kind, own in enumerate(found.pair(*pair, by_class=True).rows):
        assert (own == expected_pair(known, "n0", "n1", kind)).all()


@pytest.mark.parametrize("gaps", [0.0, 0.2, 0.5])
def test_gaps_of_a_party_are_not_filled_in(gaps: float) -> None:
    """Only what it left out is: or columns with gaps would seem to depend the less."""
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=(2_000, 1))
    x = np.where(rng.random((2_000, 3)) < 0.8, z, rng.integers(3, size=(2_000, 3))).astype(float)
    x[rng.random(x.shape) < gaps] = np.nan
    table = fc.Table(fc.Schema.real(["a", "b", "c"]), x)
    own, rows = {"north": ["a", "b"], "south": ["c"]}, np.arange(2_000)
    parties = fc.Federation({p: of_columns(table, names, rows) for p, names in own.items()})
    counts = tables_of(parties, table.schema, None).pair(0, 1, by_class=False).rows[0]
    assert np.trace(counts) / counts.sum() == pytest.approx(0.76, abs=0.05)


def test_a_column_that_is_coarse_at_one_of_its_parties_is_coarse() -> None:
    """East has two columns in a view, north one of them: cells of north are put together."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1_080)
    table = fc.Table.of(
        {"x": x, "y": x + 0.5 * rng.normal(size=1_080), "z": rng.normal(size=1_080)}
    )
    held = {"north": np.arange(720), "east": np.arange(360, 1_070)}
    own = {"north": ["x", "z"], "east": ["x", "y"]}
    parties = fc.Federation({p: of_columns(table, own[p], held[p]) for p in held})
    counts = tables_of(parties, table.schema, None).pair(0, 1, by_class=False).rows[0]
    assert counts.sum() == 710 and len(counts) <= 8
    lower, upper = counts[: len(counts) // 2], counts[-(len(counts) // 2) :]
    half = counts.shape[1] // 2
    assert lower[:, :half].sum() > 3 * lower[:, -half:].sum()
    assert upper[:, -half:].sum() > 3 * upper[:, :half].sum()
