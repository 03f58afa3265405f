"""Counts worked out from what leaves answer: by a coordinator that asks and looks at the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Circuit, Leaf
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.learning.spn.shrinking import PULLS
from fedcircuits.methods.fedpc.leaves import softened
from tests.methods.watched import Watched, read

ROWS = 240
KINDS = ["angina", "asthma", "gout", "lupus", "measles", "plague", "none"]


def laboratory(rare: str) -> dict[str, Any]:
    """Patient 0 alone has a rare diagnosis."""
    rng = np.random.default_rng(5)
    diagnosis = rng.choice(["none", "asthma", "gout"], ROWS, p=[0.6, 0.25, 0.15]).astype(object)
    diagnosis[0], diagnosis[1:3] = rare, "measles"
    numbers = np.round(rng.normal(5, 1, ROWS), 3)
    smoker = rng.random(ROWS) < 0.3
    return {"id": np.arange(ROWS), "diagnosis": diagnosis, "glucose": numbers, "smoker": smoker}


def fitted(least: int, rare: str, **settings: Any) -> tuple[fc.FedPC, np.ndarray]:
    """The model, and the sizes of the laboratory's clusters as they were told."""
    rng = np.random.default_rng(6)
    tables = {
        "clinic": fc.Table.of({"id": np.arange(ROWS), "age": rng.normal(size=ROWS)}, row_id="id"),
        "laboratory": fc.Table.of(laboratory(rare), row_id="id", categories={"diagnosis": KINDS}),
    }
    parties = fc.Federation(tables, least_count=least)
    engine = Watched()
    model = fc.FedPC(random_state=0, ensemble=1, **settings).fit(parties, engine=engine)
    (sizes,) = [
        read(m.data)["sizes"][0]
        for s, m in engine.messages
        if (s, m.tag) == ("laboratory", "count/sizes")
    ]
    return model, np.array(sizes)


def answers(model: fc.FedPC) -> np.ndarray:
    """What the coordinator gets for one question: (leaves, diagnoses), probabilities."""
    engine = Watched()
    model._engine = engine
    model.__dict__.pop("_ready", None)
    rows = fc.Table.of({"diagnosis": KINDS}, categories={"diagnosis": KINDS})
    model.score_samples(rows)
    (told,) = [read(m.data)["values"] for s, m in engine.messages if m.tag == "query/values"]
    return np.exp(np.asarray(told))


def test_a_patient_with_a_rare_category_is_not_told_apart() -> None:
    """The same answers whichever rare diagnosis it is; they differ where the least count is one."""
    for least, alike in ((5, True), (1, False)):
        one, two = (answers(fitted(least, rare)[0]) for rare in ("plague", "lupus"))
        assert np.array_equal(one, two) == alike, least


def test_no_count_below_the_least_is_read_back() -> None:
    """From one question, by the sizes of clusters that the coordinator has and for every weight
    that the whole table may have: single rows with a least count of one, none of 1 to 4
    otherwise."""
    for least, exposed in ((1, True), (5, False)):
        one_part = fc.LearnSPN(min_rows=10**6)
        model, sizes = fitted(least, "plague", clusters=2, learner=one_part)
        sizes, pulls = np.append(sizes, ROWS), PULLS[:, None, None]  # clusters, then all rows
        counts = answers(model) * (sizes[:, None] + pulls) - pulls * _prior(least)
        whole, few = np.abs(counts - np.round(counts)) < 1e-6, (counts > 0.5) & (counts < 4.5)
        assert bool((whole & few).any()) == exposed, least
        truth = (laboratory("plague")["diagnosis"] == "gout").sum()
        assert counts[0, :-1, KINDS.index("gout")].sum() == pytest.approx(truth, rel=0.1)


def _prior(least: int) -> np.ndarray:
    counts = np.array([(laboratory("plague")["diagnosis"] == k).sum() for k in KINDS], float)
    if least > 1:
        counts = np.where(counts < least, 0.0, counts) * ROWS / counts[counts >= least].sum()
    return (counts + 0.5) / (ROWS + 0.5 * len(KINDS))


@pytest.mark.parametrize("least", [5, 20])
def test_clusters_have_the_least_count(least: int) -> None:
    rng = np.random.default_rng(0)
    table = fc.Table.of(rng.normal(size=(160, 4)))
    model = fc.FedPC(clusters=12, random_state=0)
    parties = fc.split(table, 2, by="columns", least_count=least)
    engine = Watched()
    model.fit(parties, engine=engine)
    told = [read(m.data)["sizes"] for _, m in engine.messages if m.tag == "count/sizes"]
    assert told and min(min(own) for sizes in told for own in sizes.values()) >= max(8, least)


def test_em_over_clusters_moves_no_leaf_by_few_rows() -> None:
    """The rows of a cluster but two are as near to the other one: its Gaussian would go to these
    two."""
    x = np.append(np.random.default_rng(0).normal(size=70), [30.0, 31.0])
    table, labels = fc.Table.of({"x": x}), np.repeat([0, 1], [60, 12])
    circuit = Circuit((Leaf("g", "gaussian", ("x",)),), table.schema)
    leaves = [
        (circuit, Parameters({"g": {"mean": np.array([[m]]), "variance": np.array([[v]])}}))
        for m, v in ((x[:60].mean(), x[:60].var()), (x[60:].mean(), x[60:].var()))
    ]
    for least, moved in ((5, False), (1, True)):
        found = [one[1]["g"]["mean"][0, 0] for one in softened(leaves, table, labels, least)]
        assert found[0] != x[:60].mean()
        assert (found[1] > x[60:].mean() + 1) == moved
        assert moved or found[1] == pytest.approx(x[60:].mean())
