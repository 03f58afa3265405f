"""EM across parties: one round is one iteration of EM of the whole circuit on the shared rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.leaf_em import LEAST
from fedcircuits.learning.stopping import EarlyStopping
from fedcircuits.methods.refinement.roles import STEP, STOPPING, EMSettings
from fedcircuits.testing import check_protocol
from tests.circuits import reference
from tests.federation.cases import QUICK, federation, mixed_table
from tests.methods.refinement.cases import (
    HELD,
    PLAIN,
    Held,
    assert_close,
    central,
    collected,
    network_programs,
    views,
)
from tests.methods.refinement.cases import SHARED as ROWS


def run(start: Held, em: EMSettings, rows: Labels | None = None) -> Any:
    """The parties' views after it, and the history."""
    outcome = memory.run(network_programs(start, em, rows))
    assert not outcome.lost, outcome.lost
    refined = outcome.results[COORDINATOR]
    found = {**outcome.results, COORDINATOR: refined.joint}
    return found, refined.validation if em.share else refined.history, outcome.ledger


def values(start: Held, rows: Labels | None = None) -> Array:
    names = start[COORDINATOR].circuit.schema.names
    whole = ROWS.select(names).values
    return np.array(whole if rows is None else whole[rows])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_equal_central_em(seed: int, rounds: int) -> None:
    start = views(seed)
    rows = np.random.default_rng(seed).choice(80, 60, replace=False)
    found, history, _ = run(start, EMSettings(rounds, **PLAIN), rows)
    expected, likelihoods = central(collected(start), rounds, values(start, rows), LEAST)
    np.testing.assert_allclose(history, likelihoods, atol=1e-9)
    assert_close(collected(found)[1], expected, 1e-7)


def test_central_em_is_right_about_shared_leaves() -> None:
    """Weights after one iteration by enumerating induced trees: leaves have several parents."""
    start = views(0)
    circuit, parameters = collected(start)
    x = values(start)
    assert reference.count_trees(circuit, parameters) < 2000
    truth = reference.expected(circuit, parameters, x, np.ones(len(x)))
    found, _ = central((circuit, parameters), 1, x, LEAST)
    for node in (n for n in circuit.nodes if isinstance(n, Sum)):
        inputs = range(circuit.inputs(node))
        sums = np.array([truth[node.name, 0, i].sum() for i in inputs])
        np.testing.assert_allclose(found[node.name]["weight"][0], sums / sums.sum(), atol=1e-9)


def test_rows_behind_every_step() -> None:
    """A leaf's M-step by hand: shared rows by their posteriors, one row's weight of all, and how
    far these take it."""
    start = views(1)
    circuit, parameters = collected(start)
    x = values(start)
    found, _, _ = run(start, EMSettings(1, weight_rounds=0))
    for name in ("north/0", "south/1", "west/0"):
        posterior = posterior_of(circuit, parameters, x, name)
        inner, own = leaf_of(start, name)
        part = ROWS.select(inner.schema.names).values
        mixed = by_hand(inner, own, part, posterior)
        learned = leaf_of(found, name)
        root = inner.root.name
        np.testing.assert_allclose(learned[1][root]["weight"][0], mixed["weights"], atol=1e-9)
        for leaf in learned[0].leaves():
            for i, variable in enumerate(leaf.scope):
                if leaf.family == "gaussian":
                    mean = learned[1][leaf.name]["mean"][:, i]
                    np.testing.assert_allclose(mean, mixed[variable], rtol=1e-9)


def leaf_of(found: Held, name: str) -> tuple[Circuit, Parameters]:
    return found[name.split("/")[0]].parameters.circuits[name]


def posterior_of(circuit: Circuit, parameters: Parameters, x: Array, name: str) -> Array:
    """P(a row goes through a node | row), by taking the node's value as a variable."""
    found = reference.values(circuit, parameters, x)
    total = np.zeros(len(x))
    step = 1e-6
    for sign in (1, -1):
        moved = dict(found)
        moved[name] = found[name] * (1 + sign * step)
        after = reevaluated(circuit, parameters, moved, name)
        total += sign * np.log(after[circuit.root.name][0]) / (2 * step)
    return total


def reevaluated(
    circuit: Circuit, parameters: Parameters, found: dict[str, Array], fixed: str
) -> dict[str, Array]:
    for node in circuit.nodes:
        if node.name == fixed or isinstance(node, Leaf):
            continue
        below = [found[c] for c in node.children]
        if isinstance(node, Product):
            found[node.name] = np.prod(below, axis=0)
        else:
            found[node.name] = parameters[node.name]["weight"] @ np.concatenate(below)
    return found


def by_hand(inner: Circuit, own: Parameters, part: Array, posterior: Array) -> dict[str, Array]:
    """Weights and means of a mixture of two after one M-step."""
    rows = np.concatenate([part, part])
    weight = np.concatenate([posterior, np.full(len(part), 1 / len(part))])
    found = reference.values(inner, own, rows)
    root = inner.root
    parts = np.concatenate([found[c] for c in root.children]) * own[root.name]["weight"][0][:, None]
    share = parts / parts.sum(axis=0) * weight  # (components, rows)
    way = share.sum() / (share.sum() + STEP.damping)
    weights = share.sum(axis=1) / share.sum()
    mixed = {"weights": (1 - way) * own[root.name]["weight"][0] + way * weights}
    for leaf in (n for n in inner.leaves() if n.family == "gaussian"):
        for i, variable in enumerate(leaf.scope):
            values = rows[:, inner.schema.index(variable)]
            seen = ~np.isnan(values)
            reach = share[:, seen].sum(axis=1)
            ways, mean = reach / (reach + STEP.damping), share[:, seen] @ values[seen] / reach
            mixed[variable] = (1 - ways) * own[leaf.name]["mean"][:, i] + ways * mean
    return mixed


# ---------------------------------------------------------------------- weights alone


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_weights_alone_never_lose_likelihood(seed: int) -> None:
    start = views(seed)
    found, history, ledger = run(start, EMSettings(0))
    assert len(history) > 1 and (np.diff(history) > -1e-12).all()
    x = values(start)
    before, after = (
        fc.Distribution(*collected(v)).log_likelihood(x).mean() for v in (start, found)
    )
    assert history[0] == pytest.approx(before, abs=1e-9)
    assert history[-1] - 1e-9 <= after <= history[-1] + 0.01  # one step after the last is measured
    assert len(ledger) == 3 * len(HELD)  # rows, values, and the end: weights cost no messages
    for party in HELD:
        assert found[party] is start[party] or found[party].parameters == start[party].parameters


def test_likelihood_rises_over_everything() -> None:
    start = views(2)
    _, history, ledger = run(start, EMSettings(6))
    assert (np.diff(history) > -1e-3).all()  # up to the rows behind
    assert history[6] > history[0] + 0.1
    assert len(ledger) == len(HELD) * (1 + 2 * 7)


def test_no_spikes_and_nothing_impossible() -> None:
    """Many rounds on few shared rows leave every category possible and no variance tiny."""
    found, _, _ = run(views(3), EMSettings(25), np.arange(6))
    for party in HELD:
        for circuit, learned in found[party].parameters.circuits.values():
            for leaf in circuit.leaves():
                p = learned[leaf.name]
                if leaf.family == "gaussian":
                    spread = np.nanvar(ROWS.select(leaf.scope).values, axis=0)
                    assert (p["variance"] >= 0.9e-4 * spread).all()
                if leaf.family in ("bernoulli", "categorical"):
                    assert (p["probability"] > 1e-9).all() and (p["probability"] < 1 - 1e-9).any()


# ---------------------------------------------------------------------- rows held back


@pytest.mark.parametrize("seed", range(3))
def test_rounds_on_the_other_rows(seed: int) -> None:
    """EM of the rows that are not held back, as far as the best round on those that are."""
    start = views(seed)
    found, judged, _ = run(start, EMSettings(5, 0.2, stopping=EarlyStopping(9), **PLAIN))
    x = values(start)
    expected = [central(collected(start), t, x[16:], LEAST)[0] for t in range(6)]
    circuit = collected(start)[0]
    likely = [fc.Distribution(circuit, p).log_likelihood(x[:16]).mean() for p in expected]
    np.testing.assert_allclose(judged, likely, atol=1e-9)
    assert_close(collected(found)[1], expected[int(np.argmax(likely))], 1e-7)


def test_it_ends_when_rounds_bring_nothing() -> None:
    """One message more than without, and as many rounds as are needed to see it."""
    start = views(1)
    found, judged, ledger = run(start, EMSettings(12, 0.2))
    best = int(np.argmax(judged))
    assert len(judged) == best + 1 + STOPPING.patience < 13
    assert len(ledger) == len(HELD) * (1 + 2 * len(judged)) + 1
    after = fc.Distribution(*collected(found)).log_likelihood(values(start)[:16]).mean()
    assert after == pytest.approx(judged[best], abs=1e-9)


def test_the_laws_of_protocols() -> None:
    check_protocol(network_programs(views(0), EMSettings(2, 0.2)), without=["processes"])


# ---------------------------------------------------------------------- within training


def test_a_party_without_leaves_in_the_circuit() -> None:
    """Its clusters may be in no combination that was kept; it still takes part in every round."""
    whole = mixed_table()
    parties = fc.Federation(
        {
            "a": whole.select(["age", "risk"]),
            "b": whole.select(["visits", "colour"]),
            "c": whole.select(["age"]).rows(slice(0, 30)),
        }
    )
    model = fc.FedPC(
        QUICK, clusters=1, products=1, refine=2, shared_leaves="cluster", random_state=0
    ).fit(parties)
    assert "c" not in model.placement_.values()
    assert len(model.history_) >= 2 and np.isfinite(model.score(whole))


def test_em_raises_the_likelihood_of_shared_rows() -> None:
    whole = mixed_table()
    scores = {}
    ways: dict[str, Any] = {
        "counts": {},
        "em": {"weights": "em"},
        "refined": {"refine": 5, "validation": 0.0},
    }
    for name, how in ways.items():
        model = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0, **how)
        scores[name] = model.fit(federation("columns")).score(whole)
        assert bool(model.history_) == (name != "counts")
        if model.history_:
            assert model.history_[-1] == pytest.approx(scores[name], abs=1e-3)
    assert scores["counts"] < min(scores["em"], scores["refined"])


def test_no_row_that_all_hold() -> None:
    whole = mixed_table()
    parties = {
        "a": whole.select(["age", "risk"]).rows(slice(0, 100)),
        "b": whole.select(["visits", "colour"]),
        "c": whole.select(["age"]).rows(slice(100, 150)),
    }
    model = fc.FedPC(QUICK, clusters=2, weights="em", random_state=0)
    with pytest.warns(UserWarning) as told:
        model.fit(fc.Federation(parties))
    assert [str(w.message) for w in told] == [
        "c shares no row with parties that hold the other variables: it was left out",
        "no row is held by all parties: EM across them was skipped",
    ]
    assert not model.history_
