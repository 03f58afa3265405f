"""One-pass training: weights by hand, what crosses and what does not, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.sums.counting import Labels, patterns
from fedcircuits.methods.fedpc.assembly import information_left_out
from fedcircuits.methods.fedpc.planning import by_rows_held, numbered
from tests.federation.cases import QUICK, federation, gaps, mixed_table
from tests.methods.fedpc.counted import by_hand
from tests.methods.fedpc.runs import labels_of, trained
from tests.methods.watched import Watched

ROWS = fc.Table(mixed_table().schema, gaps())


def leaf_values(model: fc.FedPC, x: Array) -> list[dict[str, float]]:
    """p of every row under every leaf, also those that no product uses."""
    found: list[dict[str, float]] = [{} for _ in x]
    for view in model.views_.values():
        for name, learned in view.parameters.circuits.items():
            own = fc.Distribution(*learned)
            columns = [model.schema_.index(n) for n in own.circuit.schema.names]
            for row, log in zip(found, own.log_likelihood(x[:, columns]), strict=True):
                row[name] = float(np.exp(log))
    return found


# ---------------------------------------------------------------------- weights by hand


def test_rows_make_a_mixture_weighed_by_rows() -> None:
    parties = federation("rows")
    model, _ = trained(parties)
    x = ROWS.select(model.schema_.names).values
    sizes = np.array([len(p.table) for p in parties], float)
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        own = [leaves[f"{p.name}/0/{i}"] for i, p in enumerate(parties)]
        assert np.exp(log) == pytest.approx(sizes @ own / sizes.sum(), rel=1e-9)


def test_classes_are_clusters_of_rows() -> None:
    """With a target every party has a leaf a class, and the mixture is over all of them."""
    parties = federation("rows")
    model, engine = trained(parties, target="risk")
    labels = labels_of(engine, parties)
    sizes = {p: np.bincount(list(own.values())) for p, own in labels.items()}
    assert all(len(s) == 2 for s in sizes.values())
    total = sum(s.sum() for s in sizes.values())
    x = ROWS.select(model.schema_.names).values
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        own = sum(
            n / total * leaves[f"{p}/{k}/{i}"]
            for i, (p, s) in enumerate(sizes.items())
            for k, n in enumerate(s)
        )
        assert np.exp(log) == pytest.approx(own, rel=1e-9)


def met(labels: dict[str, dict[str, int]], parties: Sequence[str]) -> Labels:
    """The clusters of every row id (rows, parties), −1 where a party lacks it."""
    ids = sorted(set().union(*labels.values()))
    return np.array([[labels[p].get(i, -1) for p in parties] for i in ids])


@pytest.mark.parametrize(
    ("name", "target"),
    [("columns", None), ("both", "risk"), ("uneven", None), ("uneven", "risk")],
)
def test_root_weights_count_combinations(name: str, target: str | None) -> None:
    parties = federation(name)
    model, engine = trained(parties, target=target, shared_leaves="cluster")
    labels = labels_of(engine, parties)
    table = met(labels, parties.names)
    sizes = {p: np.bincount(list(own.values())).tolist() for p, own in labels.items()}
    x = ROWS.select(model.schema_.names).values
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        expected = by_hand(table, parties.names, parties.subspaces, sizes, leaves)
        assert np.exp(log) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("columns", {}),
        ("both", {"share_clusters": True}),
        ("uneven", {"target": "risk"}),
        ("uneven", {"share_clusters": True}),
    ],
)
def test_divisions_are_mixed_by_their_rows(name: str, settings: dict[str, Any]) -> None:
    """Every circuit is a column split of its own; those of one division weigh e to four times what
    their clusters say of each other. Beside them are the parties apart."""
    parties = federation(name)
    model, engine = trained(parties, ensemble=2, **settings)
    ids = {p.name: {str(i) for i in np.asarray(p.table.row_ids).tolist()} for p in parties}
    every = sorted(set().union(*ids.values()))
    held = np.array([[i in ids[p] for p in parties.names] for i in every])
    divisions = numbered(by_rows_held(parties.subspaces, parties.names, held), 2)
    tables, weights = [], []
    for number, division in enumerate(divisions):
        labels = {
            p: labels_of(engine, parties, sum(p in d.parties for d in divisions[:number]))[p]
            for p in division.parties
        }
        whole = met(labels, division.parties)
        whole = whole[(whole >= 0).all(axis=1)]
        sizes = {p: np.bincount(list(own.values())).tolist() for p, own in labels.items()}
        tables.append((whole, sizes, division))
        combinations, rows = patterns(whole)
        new = min(float((rows == 1).sum() / rows.sum()), 0.5)
        weights.append(np.exp(4 * information_left_out(combinations, rows, new)))
    groups = len(divisions) // 2
    told = np.reshape(weights, (2, groups)) / np.sum(np.reshape(weights, (2, groups)), axis=0)
    rows = np.array([len(t[0]) for t in tables]) * told.reshape(-1)
    root = model.circuit_.root
    mixed = dict(zip(root.children, model.joint_.parameters[root.name]["weight"][0], strict=True))
    alone = [mixed[f"apart {d.first}"] for d in divisions[:groups]]
    total = np.array([len(t[0]) for t in tables[:groups]])
    left = np.tile(1 - np.array(alone) * total.sum() / total, 2)
    x = ROWS.select(model.schema_.names).values
    for leaves, log in zip(leaf_values(model, x), model.score_samples(ROWS), strict=True):
        parts = [by_hand(t, d.parties, d.spaces, sizes, leaves, first=d.first)
                 for t, sizes, d in tables]  # fmt: skip
        apart = [
            np.prod([leaves[f"{s.holders[0]}/all/{i}"] for i, s in enumerate(d.spaces, d.first)])
            for d in divisions[:groups]
        ]
        expected = (rows * left) @ parts / rows.sum() + np.dot(alone, apart)
        assert np.exp(log) == pytest.approx(expected, rel=1e-9)


def test_dependence_between_parties_is_captured() -> None:
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=400)
    table = fc.Table.of(
        {"x": side * 8 + rng.normal(size=400), "y": side * 8 + rng.normal(size=400)}
    )
    parties = fc.split(table, ["a", "b"], by="columns")
    counted, _ = trained(parties, clusters=2, learner=fc.MixtureOfProducts(1))
    assert counted.score(table) == pytest.approx(-np.log(2) - np.log(2 * np.pi * np.e), abs=0.1)
    given = {
        n: counted.expect("y", given={"x": v}).loc["y", "mean"]
        for n, v in (("low", 0.0), ("high", 8.0))
    }
    assert given["low"] == pytest.approx(0, abs=0.5) and given["high"] == pytest.approx(8, abs=0.5)


# ---------------------------------------------------------------------- how many messages


@pytest.mark.parametrize(
    ("name", "settings", "per_party", "more"),
    [
        ("rows", {}, 4, 0),  # schema, plan, sizes, graph
        ("columns", {"weights": "sizes"}, 4, 0),
        # tokens, work, clusters; and the key from the first to the others
        ("columns", {}, 8, -1),
        ("columns", {"share_clusters": True}, 10, -1),  # own groups, others' groups
        ("uneven", {}, 8, -1),
        ("both", {"shared_leaves": "pooled"}, 8, -1),
        ("uneven", {"weights": "em"}, 11, -1),  # and positions, values, the end
        ("uneven", {"refine": 3, "validation": 0.0}, 8 + 1 + 2 * 4, -1),
        # which rows are held back
        ("uneven", {"refine": 3}, 8 + 1 + 2 * 4, -1 + 1),
        # sizes of clusters are enough: which rows are in them is not told
        ("columns", {"weights": "sizes", "refine": 1}, 7 + 1 + 2 * 2, -1 + 1),
        ("uneven", {"target": "risk"}, 8, -1),
        (
            "uneven",
            {"target": "risk", "share_target": True},
            8,
            -1 + 3 + 2,
        ),  # shared rows; north tells two
        ("uneven", {"target": "age", "share_target": True}, 8, -1),  # no classes to be told
    ],
)
def test_exact_numbers_of_messages(
    name: str, settings: dict[str, Any], per_party: int, more: int
) -> None:
    parties = federation(name)
    model, _ = trained(parties, ensemble=1, **settings)
    assert len(model.ledger_) == per_party * len(parties) + more


# ---------------------------------------------------------------------- notes and refusals


def test_parties_without_row_ids_are_taken_to_be_independent() -> None:
    whole = mixed_table()
    parts = {n: whole.select(c) for n, c in (("a", ["age", "risk"]), ("b", ["visits"]))}
    plain = {n: fc.Table(t.schema, t.values) for n, t in parts.items()}
    plain["a"] = parts["a"]  # one has ids, the other none
    text = (
        "columns of different parties are assumed to be independent, because not all of them have "
        "row ids: give row ids that they share, Federation(…, row_id='…')"
    )
    with pytest.warns(UserWarning) as told:
        model, engine = trained(fc.Federation(plain))
    assert [str(w.message) for w in told] == [text] and model.notes_ == (text,)
    assert "key/tokens" not in {m.tag for _, m in engine.messages}
    both = sum(model.score_samples(ROWS.select(c)) for c in (["age", "risk"], ["visits"]))
    np.testing.assert_allclose(model.score_samples(ROWS), both)


def test_the_published_rule_says_that_it_makes_up_dependence() -> None:
    whole = mixed_table()
    parts = {n: whole.select(c) for n, c in (("a", ["age", "risk"]), ("b", ["visits"]))}
    plain = fc.Federation({n: fc.Table(t.schema, t.values) for n, t in parts.items()})
    with pytest.warns(UserWarning, match="weights='sizes', the paper's rule, pairs clusters"):
        model, _ = trained(plain, weights="sizes")
    both = sum(model.score_samples(ROWS.select(c)) for c in (["age", "risk"], ["visits"]))
    assert not np.allclose(model.score_samples(ROWS), both)


def test_no_row_with_all_variables() -> None:
    whole = mixed_table()
    parties = {
        "a": whole.select(["age", "risk"]).rows(slice(0, 70)),
        "b": whole.select(["visits"]).rows(slice(70, 150)),
    }
    with pytest.warns(UserWarning, match="because no row is held by parties that have all variab"):
        model, _ = trained(fc.Federation(parties))
    assert np.isfinite(model.score_samples(ROWS)).all()


def test_numbers_and_texts_as_ids_meet() -> None:
    whole = mixed_table()
    assert whole.row_ids is not None
    left, right = whole.select(["age"]), whole.select(["visits", "risk"])
    scores = []
    for ids in (whole.row_ids, whole.row_ids.astype(str)):
        told = fc.Table(right.schema, right.values, ids)
        scores.append(trained(fc.Federation({"a": left, "b": told}))[0].score_samples(ROWS))
    assert np.array_equal(scores[0], scores[1])


def test_other_versions_are_refused() -> None:
    engine = Watched({("south", "agree/hello"): lambda hello: {**hello, "version": 0}})
    text = "south runs fedcircuits .* with fedpc 0, expected .* with fedpc 1: install the same"
    with pytest.raises(PartyLostError, match=text):
        fc.FedPC(QUICK).fit(federation("columns"), engine=engine)


def test_columns_that_mean_two_things() -> None:
    """Refused before anything runs, with both parties and the column."""
    tables = {"north": {"age": [31.5, 40.5]}, "south": {"age": ["old", "young"]}}
    with pytest.raises(fc.errors.FederationError, match="'age' is a real at north and a category"):
        fc.Federation(tables)


def test_many_missing_values() -> None:
    """A column that a cluster lacks altogether, at a party that holds nothing else."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=200)
    x = np.where(group == 1, np.nan, rng.normal(size=200))
    y, z = rng.normal(size=200) + 6 * group, rng.normal(size=200)
    table = fc.Table.of({"x": x, "y": y, "z": z})
    whole = fc.Table(table.schema, table.values, np.arange(200))
    parties = fc.Federation({"a": whole.select(["x", "y"]), "b": whole.select(["y", "z"])})
    for learner in (fc.LearnSPN(), QUICK):
        model, _ = trained(parties, clusters=2, learner=learner)
        assert np.isfinite(model.score_samples(whole)).all()
