"""A latent tree over the columns of many parties: what it learns, what it costs, what crosses."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, MessageError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.methods.fedpc.cells import CellTask
from fedcircuits.methods.fedpc.latent import UNJOINED
from fedcircuits.methods.fedpc.planning import FedPCPlan


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
    return fc.FedPC(target="kind", dependence="tree", random_state=0).fit(
        fc.split(train, parties, **split)
    )  # type: ignore[arg-type]


def test_it_is_about_the_same_for_any_number_of_parties() -> None:
    """What parties learn alone says more where they have many columns; the tree is the same."""
    train, test = usual()
    models = [learned(train, parties) for parties in (2, 20)]
    scores = [model.score(test) for model in models]
    assert scores[0] > scores[1] - 0.3
    assert min(scores) > apart_of_usual() + 5
    one = fc.LearnSPN(target="kind", random_state=0).fit(train)
    right = models[1].predict(test) == test.column("kind")
    assert right.mean() > (one.predict(test) == test.column("kind")).mean() - 0.03


def test_messages_are_linear_in_the_parties() -> None:
    train = mixed(36, 12)  # too few to choose models by: messages are the same
    counts = {p: len(learned(train, p).ledger_) for p in (4, 8, 12)}
    assert counts[8] - counts[4] == counts[12] - counts[8] == 4 * 8


@pytest.mark.parametrize(("parties", "overlap"), [(5, 0.6), (15, 0.2)])
def test_rows_that_some_parties_lack_count(parties: int, overlap: float) -> None:
    train, test = usual()
    model = learned(train, parties, by="both", overlap=overlap)
    assert model.kind_ == "hybrid"
    assert model.score(test) > apart_of_usual() + 3


def test_only_the_coordinator_reads_cells() -> None:
    ledger = learned(mixed(36, 8), 4).ledger_
    assert {e.receiver for e in ledger if e.tag == "count/cells"} == {COORDINATOR}
    told = {e.tag for e in ledger if e.sender == COORDINATOR}
    assert told == {"agree/plan", "rows/plan", "graph/leaves"}


def test_a_party_refuses_cells_that_are_not_planned() -> None:
    asked = [CellTask("x", 9, True)]
    with pytest.raises(MessageError, match="expected no cells"):
        FedPCPlan(("a", "b"), dependence="combinations").check_cells(asked)
    for dependence in ("auto", "tree"):
        plan = FedPCPlan(("a", "b"), dependence=dependence)  # type: ignore[arg-type]
        plan.check_cells(asked)
        for hidden in (replace(plan, summation=fc.Secret()), replace(plan, answers="root")):
            with pytest.raises(MessageError, match="expected no cells"):
                hidden.check_cells(asked)


def test_the_default_is_a_tree_from_views() -> None:
    train, test = usual()
    parties = fc.split(train, 5, by="columns", target="kind")
    model = fc.FedPC(target="kind", random_state=0).fit(parties)
    assert "count/cells" in {e.tag for e in model.ledger_}
    assert model.score(test) > apart_of_usual() + 3
    few = fc.split(mixed(60, 6), 4, by="columns", target="kind")
    clusters = fc.FedPC(target="kind", random_state=0).fit(few)
    assert "count/cells" not in {e.tag for e in clusters.ledger_}


def test_where_columns_have_nothing_to_do_with_each_other() -> None:
    rng = np.random.default_rng(0)
    table, test = halves(fc.Table.of(rng.normal(size=(600, 6))))
    model = fc.FedPC(dependence="tree", random_state=0).fit(fc.split(table, 6, by="columns"))
    assert model.notes_ == () and model.score(test) > apart(table, test) - 0.1


def test_where_no_row_is_shared_it_is_said() -> None:
    x = np.random.default_rng(0).normal(size=(200, 1))
    halves_ = {"north": {"id": np.arange(100), "a": x[:100, 0]}}
    halves_ |= {"south": {"id": np.arange(100, 200), "b": x[:100, 0]}}
    with pytest.warns(UserWarning, match="no row is held by two parties"):
        model = fc.FedPC(dependence="tree", random_state=0).fit(fc.Federation(halves_, row_id="id"))
    assert model.notes_ == (UNJOINED,)


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


def test_the_former_way_remains() -> None:
    train, _ = halves(mixed(200, 6))
    split = fc.split(train, 3, by="columns", target="kind")
    model = fc.FedPC(dependence="combinations", target="kind", random_state=0).fit(split)
    tags = {e.tag for e in model.ledger_}
    assert "count/clusters" in tags and "count/cells" not in tags


@pytest.mark.parametrize("hidden", [{"summation": fc.Secret()}, {"answers": "root"}])
def test_what_hides_cells_refuses_the_tree(hidden: dict[str, object]) -> None:
    split = fc.split(mixed(100, 6), 3, by="columns")
    with pytest.raises(FederationError, match="dependence='tree' needs the cells"):
        fc.FedPC(dependence="tree", **hidden).fit(split)  # type: ignore[arg-type]


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
