"""Networks above leaves that are evaluated elsewhere, against sums over all induced trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import QueryError
from tests.circuits.reference import count_trees, expected, trees, values
from tests.circuits.strategies import Model, model_of, random_rows, schema_of

SEEDS = st.integers(0, 2**32 - 1)
SCHEMA = schema_of(("boolean", "category", "boolean", "real"))


def above(circuit: Circuit) -> Circuit:
    """The same graph with leaves that somebody else evaluates."""
    nodes: list[Node] = [
        Leaf(n.name, CIRCUIT, n.scope, n.units) if isinstance(n, Leaf) else n for n in circuit.nodes
    ]
    return Circuit(tuple(nodes), circuit.schema)


def given_of(model: Model, x: Array) -> Array:
    """(leaf units, rows) of log-values."""
    found = values(*model, x)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.concatenate([found[n.name] for n in model[0].leaves()])))


def case(
    seed: int, structure: str = "random", rows: int = 12
) -> tuple[Model, UpperCircuit, Array, Array]:
    model = model_of(structure, SCHEMA, seed)
    x = random_rows(SCHEMA, np.random.default_rng(seed), rows, missing=0.3)
    return model, UpperCircuit(above(model[0])), x, given_of(model, x)


def several_parents(circuit: Circuit) -> bool:
    read = [c for n in circuit.nodes for c in set(n.children)]
    return any(read.count(leaf.name) > 1 for leaf in circuit.leaves())


def test_the_graphs_have_what_they_should_have() -> None:
    """Shared leaves, outer products and several units all occur among the examples."""
    circuits = [model_of("random", SCHEMA, seed)[0] for seed in range(40)]
    assert sum(several_parents(c) for c in circuits) > 10
    assert sum(any(isinstance(n, Product) and n.outer for n in c.nodes) for c in circuits) > 10
    assert sum(any(leaf.units > 1 for leaf in c.leaves()) for c in circuits) > 10


@settings(max_examples=25)
@given(SEEDS, st.sampled_from(["random", "random_binary", "mixture", "latent_tree"]))
def test_log_values(seed: int, structure: str) -> None:
    model, network, x, logs = case(seed, structure)
    assume(count_trees(*model) <= 2000)
    found = network.log_values(logs, network.pack(model[1]))
    total = np.sum([p for p, _ in trees(*model, x)], axis=0)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found, np.log(total), rtol=1e-9, atol=1e-9)


@settings(max_examples=25)
@given(SEEDS, st.booleans())
def test_posteriors_and_counts(seed: int, weighted: bool) -> None:
    model, network, x, logs = case(seed)
    assume(count_trees(*model) <= 2000)
    circuit, parameters = model
    weight = np.random.default_rng(seed).uniform(0.1, 3.0, len(x)) if weighted else np.ones(len(x))
    packed = network.pack(parameters)
    posterior, counts = network.posteriors(logs, packed, weight if weighted else None)
    truth = expected(circuit, parameters, x, weight)
    edges = [(leaf.name, unit, 0) for leaf in circuit.leaves() for unit in range(leaf.units)]
    assert len(posterior) == len(edges)
    for own, edge in zip(posterior, edges, strict=True):
        np.testing.assert_allclose(own, truth.get(edge, np.zeros(len(x))), atol=1e-9)
    learned = network.program.unpack(network.program.maximise(counts, packed))
    for node in (n for n in circuit.nodes if isinstance(n, Sum)):
        for unit in range(node.units):
            inputs = range(circuit.inputs(node))
            sums = np.array([truth.get((node.name, unit, i), np.zeros(1)).sum() for i in inputs])
            if sums.sum() > 1e-6:
                found = learned[node.name]["weight"][unit]
                np.testing.assert_allclose(found, sums / sums.sum(), atol=1e-9)


@settings(max_examples=15)
@given(SEEDS)
def test_the_best_choice_is_the_best_tree(seed: int) -> None:
    model, network, x, logs = case(seed)
    assume(count_trees(*model) <= 2000)
    chosen, best = network.choices(logs, network.pack(model[1]), None)
    paths = trees(*model, x)
    tops = np.max([p for p, _ in paths], axis=0)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(best, np.log(tops), rtol=1e-9, atol=1e-9)
    names = [leaf.name for leaf in model[0].leaves()]
    for row in np.flatnonzero(tops > 0):
        taken = {(names[i], int(u)) for i, u in enumerate(chosen[:, row]) if u >= 0}
        equal = [e for p, e in paths if p[row] > tops[row] * (1 - 1e-9)]
        assert any({(n, u) for n, u, _ in e if n in names} == taken for e in equal)


def test_drawn_choices_follow_the_posterior() -> None:
    seed = next(s for s in range(50) if several_parents(model_of("random", SCHEMA, s)[0]))
    model, network, x, logs = case(seed, rows=3)
    draws = 6000
    chosen, _ = network.choices(
        np.repeat(logs, draws, axis=1), network.pack(model[1]), np.random.default_rng(0)
    )
    truth = expected(*model, x, np.ones(len(x)))
    for i, leaf in enumerate(model[0].leaves()):
        for unit in range(leaf.units):
            share = truth.get((leaf.name, unit, 0), np.zeros(3))
            found = (chosen[i] == unit).reshape(3, draws).mean(axis=1)
            assert (abs(found - share) < 0.035).all()


def test_what_is_impossible_has_no_posterior() -> None:
    schema = SCHEMA.select(["boolean0", "real3"])
    leaves = tuple(Leaf(f"l{i}", CIRCUIT, (schema.names[i % 2],)) for i in range(4))
    nodes: tuple[Node, ...] = (
        *leaves,
        Product("p", ("l0", "l1")),
        Product("q", ("l2", "l3")),
        Sum("s", ("p", "q")),
    )
    network = UpperCircuit(Circuit(nodes, schema))
    packed = network.pack(Parameters({"s": {"weight": np.array([[0.25, 0.75]])}}))
    logs = np.zeros((4, 3))
    logs[0, :2] = logs[3, 1] = -np.inf  # the first product in two rows, both in the second
    assert network.log_values(logs, packed) == pytest.approx([np.log(0.75), -np.inf, 0.0])
    posterior, _ = network.posteriors(logs, packed)
    assert posterior[:, 0] == pytest.approx([0, 0, 1, 1]) and (posterior[:, 1] == 0).all()
    assert posterior[:, 2] == pytest.approx([0.25, 0.25, 0.75, 0.75])


def test_many_rows_go_in_batches() -> None:
    model, network, _, logs = case(3)
    packed = network.pack(model[1])
    many = np.tile(logs, (1, 1000))
    whole = network.log_values(many, packed)
    assert whole.shape == (12_000,)
    np.testing.assert_allclose(whole, np.tile(network.log_values(logs, packed), 1000), atol=1e-12)
    posterior, counts = network.posteriors(many, packed)
    once, few = network.posteriors(logs, packed)
    np.testing.assert_allclose(posterior, np.tile(once, (1, 1000)), atol=1e-12)
    assert counts.weight == 1000 * few.weight


def test_local_leaves_are_refused() -> None:
    circuit, _ = model_of("mixture", SCHEMA, 0)
    with pytest.raises(QueryError, match="of a network must be a circuit held elsewhere"):
        UpperCircuit(circuit)
