"""Parties of few rows that add nothing up: each mixes circuits of its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Product
from fedcircuits.learning.leaf_em import rows_reaching
from fedcircuits.methods.shared.alone import PSEUDO, MixedAlone, stacked_weights, without_few
from fedcircuits.methods.shared.training import in_one_place
from tests.methods.shared.tables import apart, spoken
from tests.methods.watched import Watched

CANDIDATES = (fc.MixtureOfNormals(1), fc.MixtureOfNormals(2, apart=True))


def test_two_parties_are_nearly_as_good_as_one_place() -> None:
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(kind=[f"c{i}" for i in wine.target]).sample(frac=1, random_state=0)
    table = fc.Table.of(frame)
    rows, new = table.rows(slice(0, 124)), table.rows(slice(124, None))
    single = fc.LearnSPN(target="kind", random_state=0).fit(rows)
    parties = fc.split(rows, 2, seed=0)
    model = fc.FedPC(target="kind", random_state=0).fit(parties)
    once = fc.FedPC(target="kind", method="one_pass", random_state=0).fit(parties)
    assert model.score(new) > single.score(new) - 0.5
    assert model.score(new) > once.score(new) + 0.2


@pytest.mark.parametrize("parties", [1, 2])
def test_never_below_independence(parties: int) -> None:
    table, new = apart(300, 0), apart(1000, 10)
    alone = sum(
        fc.LearnSPN(random_state=0).fit(table.select([n])).score(new.select([n]))
        for n in table.names
    )
    model = fc.FedPC(random_state=0).fit(fc.split(table, parties, seed=0))
    assert model.score(new) > alone


def test_nothing_more_crosses() -> None:
    """Than in one pass: the same messages, and one size in place of those of the classes."""
    sent = []
    for method in ("auto", "one_pass"):
        engine = Watched()
        model = fc.FedPC(target="speaker", method=method, random_state=0)
        model.fit(fc.split(spoken(80), 2), engine=engine)
        sent.append([(sender, m.tag) for sender, m in engine.messages])
    assert sorted(sent[0]) == sorted(sent[1])


def test_columns_that_depend_on_nothing_are_beside_the_components() -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=500)
    x = rng.normal(size=500) + 4 * kind
    columns = {"x": x, "y": x + rng.normal(size=500), "even": rng.uniform(size=500)}
    table = fc.Table.of({**columns, "coin": rng.random(500) < 0.3})
    model = fc.MixtureOfNormals(2, apart=True, random_state=0).fit(table)
    root = model.circuit_.root
    assert isinstance(root, Product)
    assert {"alone:even", "alone:coin"} < set(root.children)
    given = model.probability("coin", given="x > 4")
    assert given == pytest.approx(model.probability("coin"), abs=1e-9)
    every = fc.MixtureOfNormals(apart=True, random_state=0).fit(table.select(["even", "coin"]))
    assert set(every.circuit_.root.children) == {"alone:even", "alone:coin"}


def test_no_category_of_a_unit_stands_for_few_rows() -> None:
    """One row of a class has a category: its answer is the same as if it had another."""
    table = spoken(160, 3)
    least = 5
    learned = in_one_place(
        table.values, table.schema, fc.MixtureOfNormals(2, target="speaker"), 0, least
    )
    circuit, parameters = without_few(
        learned.beginning.circuit, learned.fitted.parameters, table.values, least
    )
    program = CircuitProgram(circuit)
    before = program.pack(learned.fitted.parameters)
    counts = program.counts(torch.from_numpy(table.values.copy()), before)
    rows = rows_reaching(program, counts, before)
    [leaf] = [x for x in circuit.leaves() if x.scope == ("form",) and x.units > 1]
    was, now = (p[leaf.name]["probability"] for p in (learned.fitted.parameters, parameters))
    few = was * rows[leaf.name][..., None] < least
    assert few.any() and not few.all()
    overall = (was * rows[leaf.name][..., None]).sum(axis=0) / rows[leaf.name].sum()
    for unit, rare in enumerate(few[:, 0]):
        if rare.sum() > 1:  # by their shares in all rows, whatever they were here
            ratio = now[unit, 0, rare] / overall[0, rare]
            assert ratio == pytest.approx(ratio[0], rel=1e-6)
    assert fc.MixtureOfNormals().smoothing <= PSEUDO and fc.HiddenChowLiuTree().smoothing <= PSEUDO


def test_it_may_be_cloned_and_few_rows_have_the_learner_alone() -> None:
    table = spoken(15)
    mixed = MixedAlone.of(fc.LearnSPN(), CANDIDATES, "speaker")
    assert mixed.learner.target == "speaker"
    fitted: Any = mixed.fit(table)
    own = fc.LearnSPN(target="speaker", random_state=0).fit(table)
    assert fitted.circuit_ == own.circuit_


@pytest.mark.parametrize("few", [3, 4])
def test_few_values_of_a_column_are_not_learned_from(few: int) -> None:
    """They are known to a power of two otherwise, from which a candidate makes its bins."""
    answers = []
    for level in (0.7, 90.3):
        rng = np.random.default_rng(0)
        x, viral = rng.normal(size=120), np.full(120, np.nan)
        viral[:few] = level
        table = fc.Table.of({"x": x, "y": x + rng.normal(size=120), "viral": viral})
        model = fc.FedPC(random_state=0).fit(fc.split(table, 2, seed=1))
        answers.append(model.score_samples(fc.Table.of({"viral": [0.1, 0.7, 5.0, 90.3]})))
    assert np.array_equal(answers[0], answers[1])


def test_rows_held_back_weigh_models_that_know_different_rows() -> None:
    """Two models that each explain half of the rows share the weight; a useless one has none."""
    logs = np.full((3, 200), -5.0)
    logs[0, :100] = logs[1, 100:] = -1.0
    weights = stacked_weights(logs)
    assert np.isclose(weights.sum(), 1) and weights[2] < 0.03
    assert 0.4 < weights[0] < 0.6


def test_a_party_with_fewer_rows_than_the_least_count_is_told_so() -> None:
    parties = fc.Federation({"a": {"age": [44, 50], "risk": ["high", "low"]}})
    with pytest.raises(fc.errors.FedcircuitsError, match="as many as 5 values"):
        fc.FedPC(random_state=0).fit(parties)
