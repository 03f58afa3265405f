"""EM across parties: one round is one iteration of EM of the whole circuit on the shared rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram as Folded
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.federation.placement import Joint, View, leaves_at
from fedcircuits.federation.tokens import Labels
from fedcircuits.leaves import Gaussian
from fedcircuits.methods.refinement import leaf_em, network_em, stopping
from fedcircuits.testing import check_protocol
from tests.circuits import reference
from tests.federation.cases import QUICK, federation, mixed_table
from tests.methods.watched import saying

ROWS = mixed_table(80, seed=3)
HELD = {"north": ("age", "colour"), "south": ("visits", "smoker"), "west": ("weight", "risk")}

Held = dict[str, Any]  # what the coordinator and every party hold


def shared_leaves(seed: int) -> tuple[Circuit, dict[str, str]]:
    """Two or three leaves a party, products that share them, and sums with several parents."""
    rng = np.random.default_rng(seed)
    nodes: list[Node] = []
    placement: dict[str, str] = {}
    for party, scope in HELD.items():
        for k in range(int(rng.integers(2, 4))):
            nodes.append(Leaf(f"{party}/{k}", CIRCUIT, scope))
            placement[f"{party}/{k}"] = party
    own = {p: [n for n, at in placement.items() if at == p] for p in HELD}
    nodes.append(Sum("south mix", tuple(own["south"])))
    nodes.append(Product("pair 0", (own["north"][0], "south mix")))
    nodes.append(Product("pair 1", (own["north"][1], own["south"][0])))
    nodes.append(Sum("pairs", ("pair 0", "pair 1")))
    tops = []
    for i, leaf in enumerate([*own["west"], own["west"][0]]):
        pair = "pairs" if i < 2 else "pair 0"
        tops.append(f"top {i}")
        nodes.append(Product(f"top {i}", (pair, leaf)))
    nodes.append(Product("apart", (own["north"][-1], "south mix", own["west"][-1])))
    nodes.append(Sum("root", (*tops, "apart")))
    schema = ROWS.schema.select([n for names in HELD.values() for n in names])
    circuit = Circuit(tuple(nodes), schema)
    return circuit, {n.name: placement.get(n.name, COORDINATOR) for n in nodes}


def views(seed: int) -> Held:
    circuit, placement = shared_leaves(seed)
    rng = np.random.default_rng(seed)
    weights = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            drawn = rng.gamma(2.0, size=(1, circuit.inputs(node)))
            weights[node.name] = {"weight": drawn / drawn.sum()}
    found: Held = {COORDINATOR: Joint(circuit, placement, Parameters(weights))}
    for party in HELD:
        learned = {}
        for leaf in leaves_at(circuit, placement, party):
            part = ROWS.select(leaf.scope).rows(rng.choice(80, 40, replace=False))
            model = fc.MixtureOfProducts(2, max_iter=3, random_state=seed).fit(part)
            learned[leaf.name] = (model.circuit_, model.parameters_)
        leaves = tuple(leaves_at(circuit, placement, party))
        own = circuit.schema.select(HELD[party])
        found[party] = View(party, own, leaves, Parameters({}, learned))
    return found


def run(start: Held, rounds: int, rows: Labels | None = None, share: float = 0.0) -> Any:
    """The parties' views after it, and the history; every party lists its rows in its own order."""
    outcome = memory.run(programs(start, rounds, rows, share))
    assert not outcome.lost, outcome.lost
    refined = outcome.results[COORDINATOR]
    found = {**outcome.results, COORDINATOR: refined.joint}
    return found, refined.validation if share else refined.history, outcome.ledger


def programs(
    start: Held, rounds: int, rows: Labels | None = None, share: float = 0.0
) -> dict[str, Program[Any]]:
    """With a share to hold back, it is the rows with the smallest numbers."""
    rng = np.random.default_rng(1)
    positions, listed, orders = {}, {}, {}
    shared = np.arange(80) if rows is None else rows
    for party in HELD:
        orders[party] = order = rng.permutation(80)
        listed[party] = ROWS.select(HELD[party]).rows(order)
        positions[party] = np.argsort(order)[shared]
    told = {"joint": start[COORDINATOR], "positions": positions, "rounds": rounds, "share": share}
    found: dict[str, Program[Any]] = {COORDINATOR: Program(network_em.coordinator, told)}
    for party in HELD:
        own = {"view": start[party], "listed": listed[party], "every": listed[party]}
        lots = orders[party] / 80 if party == "north" else None
        found[party] = Program(network_em.client, {**own, "share": share, "lots": lots})
    return found


def collected(found: Held) -> tuple[Circuit, Parameters]:
    """The whole circuit with its leaves' nodes in it."""
    top = found[COORDINATOR]
    inner = {n: c for v in found.values() for n, c in v.parameters.circuits.items()}
    return inline(top.circuit, Parameters(top.parameters.values, inner))


def central(start: Held, rounds: int, x: Array) -> tuple[Parameters, list[float]]:
    """Iterations of EM of the inlined circuit on one machine."""
    circuit, parameters = collected(start)
    program = Folded(circuit)
    packed = program.pack(parameters)
    history = []
    for _ in range(rounds):
        counts = program.counts(torch.from_numpy(x), packed, None)
        history.append(counts.log_likelihood / counts.weight)
        packed = program.maximise(counts, packed, {"gaussian": Gaussian(leaf_em.LEAST, np.inf)})
    return program.unpack(packed), history


def values(start: Held, rows: Labels | None = None) -> Array:
    names = start[COORDINATOR].circuit.schema.names
    whole = ROWS.select(names).values
    return np.array(whole if rows is None else whole[rows])


def without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """EM over everything alone: whole steps, no rows behind, no rounds over weights afterwards."""
    monkeypatch.setattr(leaf_em, "BEHIND", 0.0)
    monkeypatch.setattr(leaf_em, "CAUTION", 0.0)
    monkeypatch.setattr(network_em, "ROUNDS", 0)


def assert_close(found: Parameters, expected: Parameters) -> None:
    assert set(found.values) == set(expected.values)
    for name, arrays in expected.values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(
                found[name][key], array, rtol=1e-7, atol=1e-9, err_msg=f"{name} {key}"
            )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_equal_central_em(monkeypatch: pytest.MonkeyPatch, seed: int, rounds: int) -> None:
    without_weights(monkeypatch)
    start = views(seed)
    rows = np.random.default_rng(seed).choice(80, 60, replace=False)
    found, history, _ = run(start, rounds, rows)
    expected, likelihoods = central(start, rounds, values(start, rows))
    np.testing.assert_allclose(history, likelihoods, atol=1e-9)
    assert_close(collected(found)[1], expected)


def test_central_em_is_right_about_shared_leaves() -> None:
    """Weights after one iteration by enumerating induced trees: leaves have several parents."""
    start = views(0)
    circuit, parameters = collected(start)
    x = values(start)
    assert reference.count_trees(circuit, parameters) < 2000
    truth = reference.expected(circuit, parameters, x, np.ones(len(x)))
    found, _ = central(start, 1, x)
    for node in (n for n in circuit.nodes if isinstance(n, Sum)):
        inputs = range(circuit.inputs(node))
        sums = np.array([truth[node.name, 0, i].sum() for i in inputs])
        np.testing.assert_allclose(found[node.name]["weight"][0], sums / sums.sum(), atol=1e-9)


def test_rows_behind_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf's M-step by hand: shared rows by their posteriors, one row's weight of all, and how
    far these take it."""
    monkeypatch.setattr(network_em, "ROUNDS", 0)
    start = views(1)
    circuit, parameters = collected(start)
    x = values(start)
    found, _, _ = run(start, 1)
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
    way = share.sum() / (share.sum() + leaf_em.CAUTION)
    weights = share.sum(axis=1) / share.sum()
    mixed = {"weights": (1 - way) * own[root.name]["weight"][0] + way * weights}
    for leaf in (n for n in inner.leaves() if n.family == "gaussian"):
        for i, variable in enumerate(leaf.scope):
            values = rows[:, inner.schema.index(variable)]
            seen = ~np.isnan(values)
            reach = share[:, seen].sum(axis=1)
            ways, mean = reach / (reach + leaf_em.CAUTION), share[:, seen] @ values[seen] / reach
            mixed[variable] = (1 - ways) * own[leaf.name]["mean"][:, i] + ways * mean
    return mixed


# ---------------------------------------------------------------------- weights alone


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_weights_alone_never_lose_likelihood(seed: int) -> None:
    start = views(seed)
    found, history, ledger = run(start, 0)
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
    _, history, ledger = run(start, 6)
    assert (np.diff(history) > -1e-3).all()  # up to the rows behind
    assert history[6] > history[0] + 0.1
    assert len(ledger) == len(HELD) * (1 + 2 * 7)


def test_no_spikes_and_nothing_impossible() -> None:
    """Many rounds on few shared rows leave every category possible and no variance tiny."""
    found, _, _ = run(views(3), 25, np.arange(6))
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
def test_rounds_on_the_other_rows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """EM of the rows that are not held back, as far as the best round on those that are."""
    without_weights(monkeypatch)
    monkeypatch.setattr(stopping, "PATIENCE", 9)
    monkeypatch.setattr(network_em, "PATIENCE", 9)
    start = views(seed)
    found, judged, _ = run(start, 5, share=0.2)
    x = values(start)
    expected = [central(start, t, x[16:])[0] for t in range(6)]
    circuit = collected(start)[0]
    likely = [fc.Distribution(circuit, p).log_likelihood(x[:16]).mean() for p in expected]
    np.testing.assert_allclose(judged, likely, atol=1e-9)
    assert_close(collected(found)[1], expected[int(np.argmax(likely))])


def test_it_ends_when_rounds_bring_nothing() -> None:
    """One message more than without, and as many rounds as are needed to see it."""
    start = views(1)
    found, judged, ledger = run(start, 12, share=0.2)
    best = int(np.argmax(judged))
    assert len(judged) == best + 1 + stopping.PATIENCE < 13
    assert len(ledger) == len(HELD) * (1 + 2 * len(judged)) + 1
    after = fc.Distribution(*collected(found)).log_likelihood(values(start)[:16]).mean()
    assert after == pytest.approx(judged[best], abs=1e-9)


@pytest.mark.parametrize(
    ("who", "tag", "said", "text"),
    [
        ("north", "em/held", np.ones(80, np.bool_), "north sent no choice of 80 rows under 'em/h"),
        ("north", "em/held", np.ones(80), "north sent no choice of 80 rows under 'em/held'"),
        ("north", "em/held", 16, "north sent int under 'em/held', expected"),
        (COORDINATOR, "em/posterior/1", np.array([3]), "sent no round of the last 2 under 'em/pos"),
        (COORDINATOR, "em/posterior/1", np.zeros(0), "sent no round of the last 2 under 'em/post"),
    ],
)
def test_other_messages_are_refused(who: str, tag: str, said: Any, text: str) -> None:
    made = programs(views(0), 1, share=0.2)
    changed = Program(saying, {"program": made[who], "tag": tag, "change": lambda _: said})
    outcome = memory.run({**made, who: changed})
    assert any(text in str(lost) for lost in outcome.lost.values()), outcome.lost


def test_the_laws_of_protocols() -> None:
    check_protocol(programs(views(0), 2, share=0.2), without=["processes"])


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
        model = fc.FedPC(QUICK, clusters=3, random_state=0, **how)
        scores[name] = model.fit(federation("columns")).score(whole)
        assert bool(model.history_) == (name != "counts")
        if model.history_:
            assert model.history_[-1] == pytest.approx(scores[name], abs=1e-3)
    assert scores["counts"] < scores["em"] < scores["refined"]


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
        "no row is held by all parties: EM across them was left out",
    ]
    assert not model.history_
