"""EM by sums with differential privacy: how far a row moves it, how large noise is, what crosses,
what is spent, and what is refused."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.parameters import Parameters, random_weights
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Program, replay
from fedcircuits.methods.shared import noisy, training
from fedcircuits.methods.shared.noisy import Release
from fedcircuits.methods.shared.training import SharedPlan
from fedcircuits.privacy.differential import epsilon_of
from fedcircuits.testing import check_protocol
from tests.drawn import drawn
from tests.methods.shared.learners import mixed
from tests.methods.watched import Watched, read

KINDS: dict[str, Any] = {"a": "boolean", "b": "category", "c": "boolean", "d": "category"}
LEVELS: dict[str, Any] = {"b": ("x", "y", "z"), "d": tuple("klmnopqrstuvwxyzab"[:17])}
SCHEMA = fc.Schema(tuple(fc.Variable(n, k, LEVELS.get(n, ())) for n, k in KINDS.items()))
LEARNERS: dict[str, Any] = {
    "MixtureOfProducts": lambda **more: fc.MixtureOfProducts(3, random_state=0, **more),
    "HiddenChowLiuTree": lambda **more: fc.HiddenChowLiuTree(3, random_state=0, **more),
    "EinsumNetwork": lambda **more: fc.EinsumNetwork(
        2, repetitions=2, target="b", random_state=0, **more
    ),
}


def rows(number: int, seed: int = 0) -> fc.Table:
    """Three kinds of rows."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=number)
    values = [
        rng.random(number) < 0.1 + 0.4 * kind, (kind + (rng.random(number) < 0.1)) % 3,
        rng.random(number) < 0.9 - 0.4 * kind, (5 * kind + rng.integers(4, size=number)) % 17,
    ]  # fmt: skip
    table = fc.Table(SCHEMA, np.stack(values, axis=1).astype(float))
    return table.select(["a", "c", "d", "b"])


def circuit_of(name: str) -> tuple[fc.Circuit, Parameters]:
    model = LEARNERS[name]().fit(fc.split(rows(300), 3))
    return model.circuit_, model.parameters_


@pytest.mark.parametrize("name", LEARNERS)
def test_no_row_moves_expected_counts_by_more_than_the_sensitivity(name: str) -> None:
    """Every row, with gaps and without, under what was learned and under decided weights."""
    circuit, learned = circuit_of(name)
    program, most = CircuitProgram(circuit), noisy.sensitivity(circuit)
    options = [[np.nan, 0, v.size - 1] for v in circuit.schema]
    every = torch.tensor(list(product(*options)), dtype=torch.float64)
    rng, norms = np.random.default_rng(0), []
    for weights in (1.0, 1e-3):  # the second gives nearly all weight to one input of a sum
        drawn_weights = random_weights(circuit, rng, weights)
        packed = program.pack(Parameters({**learned.values, **drawn_weights}))
        release = Release.of(program, packed)
        norms += [
            np.linalg.norm(release.flat(program.counts(every[i : i + 1], packed)))
            for i in range(len(every))
        ]
    assert max(norms) <= most * (1 + 1e-9)
    assert max(norms) > 0.95 * most  # it is no larger than it must be


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_released_says_all_that_an_m_step_needs(name: str) -> None:
    circuit, learned = circuit_of(name)
    program = CircuitProgram(circuit)
    packed = program.pack(learned)
    release = Release.of(program, packed)
    x = rows(50).select(circuit.schema.names).values.copy()
    x[::7, 0] = np.nan
    counts = program.counts(torch.from_numpy(x), packed)
    again = release.counts(release.flat(counts))
    np.testing.assert_allclose(again.flat(), counts.flat(), atol=1e-12)


# ---------------------------------------------------------------------- runs


def programs(table: fc.Table, noise: Any, rounds: int) -> dict[str, Program[Any]]:
    """One party and a hub that wants to know."""
    learner, members = fc.MixtureOfProducts(3, max_iter=rounds, random_state=0), ("north",)
    plan = SharedPlan(members, fc.Hub(), 0, noise)
    own = SharedPlan(members, fc.Hub(), 0, drawn(noise.for_party()))
    party = {"party": Party("north", table), "plan": own, "learner": learner}
    return {
        COORDINATOR: Program(training.coordinator, {"plan": plan, "learner": learner}),
        "north": Program(training.client, party),
    }


def test_noise_on_the_wire_is_as_large_as_the_budget_needs() -> None:
    """An empty table tells the noise alone."""
    privacy = fc.DifferentialPrivacy(1.0, 1e-5)
    noise = privacy.noise(fc.Hub(), ("north",))
    empty = fc.Table(SCHEMA, np.full((4, 4), np.nan))
    engine = Watched()
    engine(programs(empty, noise, 100))
    said = {m.tag: read(m.data) for who, m in engine.messages if who == "north"}
    pairs = np.asarray(said["shared/pairs"]["values"])
    multiplier = noise.multiplier
    assert pairs.std() == pytest.approx(sqrt(10) * multiplier / sqrt(noisy.PAIRS), rel=0.15)
    counts = [np.asarray(v["values"]) for t, v in said.items() if t.startswith("shared/counts")]
    share = (1 - noisy.PAIRS) / noisy.ROUNDS
    assert len(counts) == noisy.ROUNDS
    assert np.std(counts) == pytest.approx(sqrt(5) * multiplier / sqrt(share), rel=0.1)
    assert {t.partition("/")[2].partition("/")[0] for t in said if t.startswith("shared/")} == {
        "pairs", "counts",
    }  # fmt: skip


def test_laws_and_a_replay_sends_the_same_noise() -> None:
    noise = fc.DifferentialPrivacy(2.0).noise(fc.Hub(), ("north",))
    flows = programs(rows(40), noise, 1)
    check_protocol(flows)
    engine = Watched()
    engine(flows)
    for name, record in engine.records[0].items():
        assert replay(flows[name], record.inbox) == record.sent


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Secret(), fc.Tree("path")])
def test_the_budget_of_all_rounds_stands_in_the_ledger(summation: Any) -> None:
    privacy = fc.DifferentialPrivacy(2.0, 1e-5)
    model = fc.MixtureOfProducts(2, summation=summation, privacy=privacy, max_iter=4)
    model.fit(fc.split(rows(300), 3))
    spent = model.ledger_.privacy
    assert spent is not None and 1.9 < spent.epsilon == model.epsilon_ <= 2.0
    multiplier = privacy.noise(summation, ("a", "b", "c")).multiplier
    releases = [multiplier / sqrt(s) for s in (0.3, *[0.7 / 4] * 4)]
    assert epsilon_of(releases, 1e-5) == pytest.approx(spent.epsilon)
    told = model.ledger_.revealed()["what"].tolist()
    assert any("noisy expected counts" in what for what in told)
    assert not any("counts" in what and "noisy" not in what for what in told)
    assert model.history_ == () and model.validation_history_ == ()
    again = model.set_params(privacy=None).fit(fc.split(rows(300), 3))
    assert again.ledger_.privacy is None and not hasattr(again, "epsilon_")


@pytest.mark.parametrize("name", LEARNERS)
def test_less_noise_gives_a_better_model_and_hardly_any_the_same(name: str) -> None:
    table, new = rows(2000), rows(500, seed=1)
    parties = fc.split(table, 3)
    plain = LEARNERS[name]().fit(parties).score(new)
    weak, strong = (
        LEARNERS[name](privacy=fc.DifferentialPrivacy(e, 1e-5)).fit(parties).score(new)
        for e in (5000.0, 0.02)  # noise is drawn anew every time
    )
    lost = 0.6 if name == "EinsumNetwork" else 0.15  # which needs more than ten rounds
    assert plain - lost < weak
    assert strong < weak - 0.1


# ---------------------------------------------------------------------- refusals


def test_what_would_guarantee_nothing_is_refused() -> None:
    privacy, parties = fc.DifferentialPrivacy(1.0), fc.split(rows(60), 3)
    with pytest.raises(FederationError, match="needs categories and booleans, but 'x' is a real"):
        fc.MixtureOfProducts(2, privacy=privacy).fit(fc.split(mixed(60), 3))
    with pytest.raises(FederationError, match="privacy must be None, as the contribution of a row"):
        fc.MixtureOfNormals(2, privacy=privacy).fit(fc.split(mixed(60), 3))  # type: ignore[arg-type]
    with pytest.raises(FederationError, match="privacy needs a federation"):
        fc.MixtureOfProducts(2, privacy=privacy).fit(rows(60))
    with pytest.raises(FederationError, match="resume=True would release sums of the same rows"):
        fc.MixtureOfProducts(2, privacy=privacy).fit(parties, resume=True)
    with pytest.raises(FederationError, match="mixed with circuits that parties learn without"):
        fc.FedPC(method=fc.MixtureOfProducts(2, privacy=privacy)).fit(parties)


def test_leaves_without_a_bound_are_refused() -> None:
    real = fc.Schema.real(["x"])
    circuit = fc.Circuit((fc.Leaf("x", "gaussian", ("x",), 2), fc.Sum("root", ("x",))), real)
    with pytest.raises(FederationError, match="'x' is gaussian"):
        noisy.sensitivity(circuit)
