"""Fast EM of hidden trees against EM of any circuit, in double precision."""

import networkx as nx
import numpy as np
import pytest
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph import structures
from fedcircuits.circuits.leaves import Bernoulli, Categorical
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.learning.hidden_trees.run import TreeRun
from fedcircuits.learning.hidden_trees.shape import TreeShape
from fedcircuits.learning.starts import softened, start_from
from fedcircuits.tables.schema import Schema, Variable

ROWS = 90
STEP = EMSchedule(1, ROWS, 1.0, 1.0)
PLAIN = {"categorical": Categorical(1e-3), "bernoulli": Bernoulli(1e-3)}
LEVELS = {"categories": 5, "many": 40, "booleans": 2}


def a_tree(kind, units=4, columns=6, channels=1, gaps=0.0):
    """A circuit over a star with a tail, its start and rows."""
    rng = np.random.default_rng(0)
    levels = LEVELS[kind]
    x = rng.integers(0, levels, (ROWS, columns * channels)).astype(float)
    x[rng.random(x.shape) < gaps] = np.nan
    names = [f"v{i}" for i in range(columns * channels)]
    sort, categories = ("boolean", ()) if levels == 2 else ("category", tuple(range(levels)))
    schema = Schema(tuple(Variable(n, sort, categories) for n in names))
    firsts = names[::channels]
    tree = nx.star_graph(firsts[:-1])
    tree.add_edge(*firsts[-2:])
    groups = {n: names[i * channels : (i + 1) * channels] for i, n in enumerate(firsts)}
    circuit = structures.latent_tree(schema, tree, units, groups=groups)
    return circuit, start_from(circuit, x, softened(np.arange(ROWS) % units, units, rng), rng), x


def a_run(circuit, start, x, plan=STEP, weight=None):
    shape = TreeShape.of(circuit)
    assert shape is not None
    return TreeRun(circuit, shape, start, InMemory(x, weight), plan, PLAIN, None)


def without_pseudo_rows(run):
    for values in (run.state.pseudo.flat, run.state.pseudo.back, run.state.pseudo.total):
        values[:] = 0


CASES = [("categories", 1, 0.0), ("many", 1, 0.2), ("booleans", 1, 0.0), ("many", 3, 0.1)]


@pytest.mark.parametrize(("kind", "channels", "gaps"), CASES)
def test_values_are_those_of_the_circuit(kind, channels, gaps):
    circuit, start, x = a_tree(kind, channels=channels, gaps=gaps)
    run = a_run(circuit, start, x)
    without_pseudo_rows(run)  # the start as it is
    program = CircuitProgram(circuit)
    exact = program.log_values(torch.from_numpy(x), program.pack(start)).numpy()
    np.testing.assert_allclose(run.passes.log_values(x, run.state), exact, rtol=2e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("kind", "channels", "gaps"), CASES)
def test_a_step_over_all_rows_is_that_of_the_circuit(kind, channels, gaps, threads):
    circuit, start, x = a_tree(kind, channels=channels, gaps=gaps)
    weight = np.random.default_rng(1).random(ROWS) + 0.5
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run = a_run(circuit, start, x, weight=weight)
        without_pseudo_rows(run)
        run.passes.update(x, weight, run.state, 1.0, weight.sum())
        run.state.pseudo = a_run(circuit, start, x).state.pseudo
    finally:
        torch.set_num_threads(before)
    program = CircuitProgram(circuit)
    packed = program.pack(start)
    counts = program.counts(torch.from_numpy(x), packed, torch.from_numpy(weight))
    expected = program.unpack(program.maximise(counts, packed, PLAIN))
    found = run.parameters()
    for node in circuit.nodes:
        if node.name in expected:
            for name, values in expected[node.name].items():
                np.testing.assert_allclose(found[node.name][name], values, rtol=1e-2, atol=2e-5)


def test_batches_raise_the_likelihood_and_the_best_epoch_is_kept():
    circuit, start, x = a_tree("many")
    program = CircuitProgram(circuit)
    plan = EMSchedule(6, 16, 0.5, 0.05, smoothing=0.1)
    fitted = maximise_likelihood(
        circuit, start, x, schedule=plan, validation=InMemory(x), dtype=torch.float32, rules=PLAIN
    )
    scores = [
        float(program.log_values(torch.from_numpy(x), program.pack(p)).mean())
        for p in (start, fitted.parameters)
    ]
    assert scores[1] > scores[0] + 1
    assert scores[1] == pytest.approx(max(fitted.validation), abs=1e-3)


def test_a_long_decay_does_not_end_in_zeros():
    circuit, start, x = a_tree("categories")
    run = a_run(circuit, start, x, EMSchedule(100, 8, 0.9, 0.9))
    for _ in range(20):
        run.epoch(np.random.default_rng(0))
    assert np.isfinite(run.history).all()
    assert run.state.scale > 1e-8
    assert np.isfinite(run.passes.log_values(x, run.state)).all()


def test_a_row_that_single_precision_cannot_hold_takes_no_part():
    circuit, start, x = a_tree("categories", units=1)
    run = a_run(circuit, start, x)
    without_pseudo_rows(run)
    run.state.table[run.shape.first[0] + int(x[0, 0])] = 0  # nobody has this level now
    run.passes.update(x, None, run.state, 0.5, ROWS)
    assert np.isfinite(run.state.weight).all()
    assert np.isfinite(run.state.table).all()


def test_other_circuits_are_left_to_the_general_way():
    schema = Schema.real(4)
    tree = nx.path_graph(schema.names)
    assert TreeShape.of(structures.latent_tree(schema, tree, 3)) is None  # Gaussian leaves
    few = Schema(tuple(Variable(f"v{i}", "category", (0, 1, 2)) for i in range(4)))
    assert TreeShape.of(structures.chow_liu(few, nx.path_graph(few.names))) is None
    assert TreeShape.of(structures.mixture_of_products(few, 3)) is None
    assert TreeShape.of(structures.quad_graph(few, height=2, width=2, units=3)) is None
