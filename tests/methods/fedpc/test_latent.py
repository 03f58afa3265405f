"""A latent tree over the columns of many parties: what it learns, what it costs, what crosses."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, MessageError, PartyLostError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.methods.fedpc.latent import UNJOINED
from fedcircuits.methods.fedpc.planning import FedPCPlan
from fedcircuits.methods.fedpc.views import CellPlan, CellTask
from tests.methods.fedpc.sending import of_columns
from tests.methods.watched import Watched, read


def mixed(rows: int = 400, columns: int = 20, seed: int = 0) -> fc.Table:
    """Numbers and names that hang together by a class and a factor."""
    rng = np.random.default_rng(seed)
    kind, factor = rng.integers(4, size=rows), rng.normal(size=rows)
    centres = rng.normal(size=(4, columns)) * 1.5
    x = centres[kind] + 0.8 * factor[:, None] + rng.normal(size=(rows, columns)) * 0.5
    frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(columns - 2)})
    frame["size"] = np.array(["small", "medium", "large"])[np.digitize(x[:, -2], [-0.7, 0.7])]
    frame["kind"] = np.array(list("abcd"))[kind]
    return fc.Table.of(frame)


@functools.cache
def usual() -> tuple[fc.Table, fc.Table]:
    return halves(mixed())


def halves(table: fc.Table) -> tuple[fc.Table, fc.Table]:
    return table.rows(np.arange(0, len(table), 2)), table.rows(np.arange(1, len(table), 2))


@functools.cache
def one_cause() -> tuple[fc.Table, fc.Table]:
    """Twenty numbers of correlation 0.64, and classes by their cause."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(800, 1))
    frame = pd.DataFrame(0.8 * z + 0.6 * rng.normal(size=(800, 20)))
    frame.columns = [f"x{i}" for i in range(20)]
    frame["kind"] = np.where(z[:, 0] + 0.5 * rng.normal(size=800) > 0, "a", "b")
    return halves(fc.Table.of(frame))


@functools.cache
def apart_of_usual() -> float:
    return apart(*usual())


def apart(train: fc.Table, test: fc.Table) -> float:
    """Every column by itself."""
    columns = [[name] for name in train.names]
    alone = [
        fc.LearnSPN(random_state=0).fit(train.select(c)).score(test.select(c)) for c in columns
    ]
    return float(sum(alone))


def learned(train: fc.Table, parties: int, **how: object) -> fc.FedPC:
    split = {"by": "columns", "target": "kind"} | how
    return fc.FedPC(target="kind", random_state=0).fit(fc.split(train, parties, **split))  # type: ignore[arg-type]


def tags(model: fc.FedPC) -> set[str]:
    return {entry.tag for entry in model.ledger_}


# ---------------------------------------------------------------------- what it learns


HOLDERS = 2, 3, 4, 8, 20


@functools.cache
def of_one_cause(holders: int) -> fc.FedPC:
    return learned(one_cause()[0], holders)


@pytest.mark.parametrize("parties", HOLDERS)
def test_the_default_is_near_one_place(parties: int) -> None:
    train, test = one_cause()
    model, one = of_one_cause(parties), fc.LearnSPN(target="kind", random_state=0).fit(train)
    assert "count/cells" in tags(model) and "count/clusters" not in tags(model)
    assert model.score(test) > one.score(test) - 0.3
    assert model.score(test) > apart(train, test) + 5
    right = model.predict(test) == test.column("kind")
    assert right.mean() > (one.predict(test) == test.column("kind")).mean() - 0.03


def test_it_is_about_the_same_for_any_number_of_parties() -> None:
    """What parties learn alone says more where they have many columns; the tree is the same."""
    scores = [of_one_cause(parties).score(one_cause()[1]) for parties in HOLDERS]
    assert max(scores) - min(scores) < 0.4
    assert scores[0] > scores[-1] - 0.3


@functools.cache
def collinear() -> tuple[fc.Table, fc.Table]:
    """Three measures of one size, whose correlations are about 0.995, and others."""
    rng = np.random.default_rng(3)
    size, other = rng.normal(size=800), rng.normal(size=800)
    near = {f"size {i}": np.exp(0.3 * (size + 0.1 * rng.normal(size=800))) for i in range(3)}
    more = {"depth": other, "weight": 0.7 * size + other + 0.5 * rng.normal(size=800)}
    kind = np.where(size + rng.normal(size=800) > 0, "a", "b")
    return halves(fc.Table.of(pd.DataFrame(near | more).assign(kind=kind)))


@pytest.mark.parametrize("parties", [2, 6])
def test_columns_that_nearly_determine_each_other(parties: int) -> None:
    """Of one party or of two: cells are too coarse for them, and their parts are not."""
    train, test = collinear()
    model = learned(train, parties)
    one = fc.LearnSPN(target="kind", random_state=0).fit(train)
    assert model.score(test) > one.score(test) - 0.5


def test_few_rows_of_several_classes() -> None:
    """Two columns of one party are in few cells there, so that few parties know them less well."""
    train, test = usual()
    models = [learned(train, parties) for parties in (2, 20)]
    scores = [model.score(test) for model in models]
    assert scores[0] > scores[1] - 1.5
    assert min(scores) > apart_of_usual() + 5
    one = fc.LearnSPN(target="kind", random_state=0).fit(train)
    for model in models:
        right = model.predict(test) == test.column("kind")
        assert right.mean() > (one.predict(test) == test.column("kind")).mean() - 0.03


@pytest.mark.parametrize(("parties", "overlap"), [(5, 0.6), (15, 0.2)])
def test_rows_that_some_parties_lack_count(parties: int, overlap: float) -> None:
    train, test = usual()
    model = learned(train, parties, by="both", overlap=overlap)
    assert model.kind_ == "hybrid"
    assert model.score(test) > apart_of_usual() + 3


def test_where_columns_have_nothing_to_do_with_each_other() -> None:
    rng = np.random.default_rng(0)
    table, test = halves(fc.Table.of(rng.normal(size=(600, 6))))
    model = fc.FedPC(random_state=0).fit(fc.split(table, 6, by="columns"))
    assert model.notes_ == () and model.score(test) > apart(table, test) - 0.1


@pytest.mark.parametrize("columns", [1, 3])
def test_parties_that_share_no_row_are_independent(columns: int) -> None:
    """Exactly, and it is said."""
    x = np.random.default_rng(0).normal(size=(100, columns))
    parties = {
        "north": {"id": np.arange(100)} | {f"a{i}": own for i, own in enumerate(x.T)},
        "south": {"id": np.arange(100, 200)} | {f"b{i}": own for i, own in enumerate(x.T)},
    }
    with pytest.warns(UserWarning, match="no row is held by two parties"):
        model = fc.FedPC(random_state=0).fit(fc.Federation(parties, row_id="id"))
    assert model.notes_ == (UNJOINED,)
    for a, b in (("a0 > 0.3", "b0 > 0.3"), (f"a{columns - 1} < -1", "b0 > 1")):
        both = model.probability(f"{a} and {b}")
        assert both == pytest.approx(model.probability(a) * model.probability(b), rel=1e-9)


def test_questions_are_those_of_the_whole_circuit() -> None:
    train, test = halves(mixed(200, 8))
    model = learned(train, 8)
    whole, rows = model.collect(), test.rows(np.arange(12))
    assert np.allclose(model.score_samples(rows), whole.score_samples(rows))
    few = rows.select(["x0", "x3"])
    assert np.allclose(model.score_samples(few), whole.score_samples(few))
    assert np.allclose(model.predict_proba(rows, "kind"), whole.predict_proba(rows, "kind"))
    asked = "x1 > 0.5 and kind = a", "x2 < 1"
    assert np.isclose(model.probability(*asked), whole.probability(*asked))
    assert set(model.sample(5).columns) == set(train.names)
    assert len(model.explain(few).values) == 12


# ---------------------------------------------------------------------- odd parties


def test_parties_of_one_column_each() -> None:
    train, test = halves(mixed(200, 5))
    model = learned(train, 5)
    assert model.score(test) > apart(train, test) + 0.5


def test_all_columns_at_one_party_and_the_class_at_the_other() -> None:
    train, test = one_cause()
    names = [name for name in train.names if name != "kind"]
    rows = np.arange(len(train))
    parties = {"north": of_columns(train, names, rows), "south": of_columns(train, ["kind"], rows)}
    model = fc.FedPC(target="kind", random_state=0).fit(fc.Federation(parties))
    one = fc.LearnSPN(target="kind", random_state=0).fit(train)
    assert "count/cells" in tags(model)
    right = model.predict(test) == test.column("kind")
    assert right.mean() > (one.predict(test) == test.column("kind")).mean() - 0.03
    assert model.score(test) > one.score(test) - 0.3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parties", [2, 4])
@pytest.mark.parametrize("odd", ["constant", "missing", "few", "one value often", "one class"])
def test_a_column_that_says_little(odd: str, parties: int) -> None:
    """Constant, all missing, with fewer values than the least count, or of few different ones."""
    table = mixed(120, 6)
    values, at = table.values.copy(), table.names.index("x1")
    if odd == "one class":
        values[:, table.names.index("kind")] = 0
    elif odd == "constant":
        values[:, at] = 2.5
    else:
        values[{"missing": 0, "few": 3, "one value often": 9}[odd] :, at] = (
            2.5 if odd == "one value often" else np.nan
        )
    train = fc.Table(table.schema, values)
    model = learned(train, parties)
    assert "count/cells" in tags(model)
    assert np.isfinite(model.score_samples(train.rows(np.arange(60)))).all()
    assert model.score(mixed(100, 6, seed=0).select([n for n in table.names if n != "x1"])) > -20


@pytest.mark.filterwarnings("ignore")
def test_a_column_of_which_no_cell_can_be_sent() -> None:
    """Rows are too few for any of its cells to have the least count of rows in a view."""
    rng = np.random.default_rng(1)
    columns: dict[str, object] = {
        f"x{i}": rng.normal(size=20) if i % 3 else [f"c{v}" for v in rng.integers(0, 5, 20)]
        for i in range(15)
    }
    table = fc.Table.of({**columns, "y": [f"k{v}" for v in rng.integers(0, 3, 20)]})
    parties = fc.split(table, 5, by="columns", target="y")
    model = fc.FedPC(target="y", random_state=0).fit(parties)
    assert np.isfinite(model.score_samples(table)).all()


@pytest.mark.filterwarnings("ignore")
def test_more_columns_than_there_are_views_for() -> None:
    train, rows = fc.Table.of(np.random.default_rng(0).normal(size=(40, 203))), np.arange(40)
    parties = {
        "north": of_columns(train, list(train.names[:-2]), rows),
        "south": of_columns(train, list(train.names[-2:]), rows),
    }
    model = fc.FedPC(random_state=0).fit(fc.Federation(parties))
    assert "count/clusters" in tags(model) and "count/cells" not in tags(model)


# ---------------------------------------------------------------------- what crosses


def test_messages_are_linear_in_the_parties() -> None:
    train = mixed(36, 12)  # too few to choose models by: messages are the same
    counts = {p: len(learned(train, p).ledger_) for p in (4, 8, 12)}
    assert counts[8] - counts[4] == counts[12] - counts[8] == 4 * 8


def test_only_the_coordinator_reads_cells() -> None:
    ledger = learned(mixed(36, 8), 4).ledger_
    assert {e.receiver for e in ledger if e.tag == "count/cells"} == {COORDINATOR}
    told = {e.tag for e in ledger if e.sender == COORDINATOR}
    assert told == {"agree/plan", "rows/plan", "graph/leaves"}


@functools.cache
def watched() -> Watched:
    """A fit by class with gaps and rows that some lack."""
    table, engine = mixed(300, 8), Watched()
    values = table.values.copy()
    values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    split = fc.split(fc.Table(table.schema, values), 3, by="both", overlap=0.5, target="kind")
    fc.FedPC(target="kind", random_state=0).fit(split, engine=engine)
    return engine


def crossed(engine: Watched, tag: str) -> dict[str, Any]:
    """By sender, or by receiver of what the coordinator sent, the fields of messages."""
    return {
        m.party if p == COORDINATOR else p: read(m.data)
        for p, m in engine.messages if m.tag == tag
    }  # fmt: skip


def test_what_is_sent_in_a_fit_has_the_least_count_of_rows() -> None:
    """And a token that no other row or view of the party has."""
    engine = watched()
    sent, asked = crossed(engine, "count/cells"), crossed(engine, "rows/plan")
    assert len(sent) == 3
    for party, fields in sent.items():
        views = len(msgspec.convert(asked[party]["cells"], CellPlan).views())
        tokens, codes = (np.asarray(fields[k]).reshape(views, -1) for k in ("tokens", "codes"))
        assert views > 1 and len(np.unique(tokens)) == tokens.size
        assert (tokens[:, 1:] > tokens[:, :-1]).all()
        for own in codes:
            assert np.unique(own, return_counts=True)[1].min() >= 5
        assert all(min(cells["rows"]) >= 5 for cells in fields["finest"].values())


def test_no_token_of_a_view_is_one_of_the_list() -> None:
    engine = watched()
    lists, views = (crossed(engine, tag) for tag in ("rows/tokens", "count/cells"))
    listed = np.concatenate([fields["tokens"] for fields in lists.values()])
    assert not np.isin(np.concatenate([v["tokens"] for v in views.values()]), listed).any()


# ---------------------------------------------------------------------- what is refused

ASKED = CellPlan((CellTask("x", 9, True, 0), CellTask("y", 9, True, 1)), 2)


def test_a_party_refuses_cells_that_are_not_planned() -> None:
    plan = FedPCPlan(("a", "b"), dependence="pairs")
    plan.check_cells(ASKED, ["y", "x"])
    hidden = replace(plan, summation=fc.Secret()), replace(plan, answers="root")
    for other in (FedPCPlan(("a", "b")), *hidden):
        other.check_cells(CellPlan((), 0), ["x", "y"])
        with pytest.raises(MessageError, match="expected no cells"):
            other.check_cells(ASKED, ["x", "y"])
    with pytest.raises(MessageError, match="expected every column once"):
        plan.check_cells(ASKED, ["x", "y", "z"])


def asking(**changes: Any) -> Any:
    """Of a party's plan of cells, other fields."""
    return lambda work: {**work, "cells": {**work["cells"], **changes}}


def of_tasks(change: Any) -> Any:
    return lambda work: asking(tasks=change([*work["cells"]["tasks"]]))(work)


PLANS: dict[str, tuple[Any, str]] = {
    "two columns in a block": (
        of_tasks(lambda own: [*own[:-1], {**own[-1], "block": own[-2]["block"]}]),
        "one column in a block",
    ),
    "other classes": (
        of_tasks(lambda own: [*own[:-1], {**own[-1], "block": None}]), "no classes but the target",
    ),
    "fine cells of two columns": (asking(coarse=9), "2 to 8 coarse cells"),
    "too many blocks": (asking(blocks=201), "200 blocks at most"),
    "a block that is not there": (asking(blocks=1), "200 blocks at most"),
    "a column less": (of_tasks(lambda own: own[1:]), "every column once"),
    "a column twice": (of_tasks(lambda own: [*own, own[0]]), "every column once"),
    "many cells": (
        of_tasks(lambda own: [*own[:-1], {**own[-1], "most": 25}]), "2 to 24 cells",
    ),
    "no row": (asking(thinned=0), "one row in one or more"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_a_party_refuses_a_plan_that_shows_more(name: str) -> None:
    change, expected = PLANS[name]
    engine = Watched({(COORDINATOR, "rows/plan"): change})
    split = fc.split(mixed(60, 6), 2, by="columns", target="kind", seed=0)
    with pytest.raises(PartyLostError, match=expected):
        fc.FedPC(target="kind", random_state=0).fit(split, engine=engine)


def test_combinations_remain() -> None:
    train, _ = halves(mixed(200, 6))
    split = fc.split(train, 3, by="columns", target="kind")
    model = fc.FedPC(dependence="combinations", target="kind", random_state=0).fit(split)
    assert "count/clusters" in tags(model) and "count/cells" not in tags(model)


@pytest.mark.parametrize("how", [{"clusters": 2}, {"summation": fc.Secret()}, {"answers": "root"}])
def test_what_shapes_clusters_or_hides_cells_takes_combinations(how: dict[str, Any]) -> None:
    split = fc.split(mixed(60, 6), 3, by="columns", target="kind")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fc.FedPC(target="kind", random_state=0, **how).fit(split)
    assert "count/cells" not in tags(model)


@pytest.mark.parametrize("hidden", [{"summation": fc.Secret()}, {"answers": "root"}])
def test_what_hides_cells_refuses_pairs(hidden: dict[str, Any]) -> None:
    split = fc.split(mixed(100, 6), 3, by="columns")
    with pytest.raises(FederationError, match="dependence='pairs' needs tables of pairs"):
        fc.FedPC(dependence="pairs", **hidden).fit(split)
