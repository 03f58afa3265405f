"""Pseudo-rows of leaves: those that look as the column, and as the unit's own ranges of levels."""

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph import structures
from fedcircuits.circuits.leaves import Categorical
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.hidden_trees.priors import BACK, Pseudo
from fedcircuits.learning.hidden_trees.run import TreeRun
from fedcircuits.learning.hidden_trees.shape import TreeShape
from fedcircuits.learning.starts import softened, start_from
from fedcircuits.tables.schema import Schema, Variable

LEVELS, ROWS, UNITS = 100, 300, 3


def a_run(words=False, ranges=None, held=None):
    rng = np.random.default_rng(0)
    x = np.where(rng.random((ROWS, 3)) < 0.4, 0, rng.integers(0, LEVELS, (ROWS, 3))).astype(float)
    levels = tuple(f"c{i}" if words else i for i in range(LEVELS))
    schema = Schema(tuple(Variable(f"v{i}", "category", levels) for i in range(3)))
    circuit = structures.latent_tree(schema, nx.path_graph(schema.names), UNITS)
    counts = [np.bincount(c.astype(int), minlength=LEVELS) + 0.1 for c in x.T]
    prior = {f"v{i}": 2 * c / c.sum() for i, c in enumerate(counts)}
    start = start_from(circuit, x, softened(np.arange(ROWS) % UNITS, UNITS, rng), rng)
    shape = TreeShape.of(circuit)
    rules = {"categorical": Categorical(prior=prior)}
    plan = EMSchedule(5, 50, ranges=ranges)
    return TreeRun(circuit, shape, start, InMemory(x), plan, rules, held), circuit, x


def test_a_common_level_is_a_range_of_its_own_and_ranges_follow_the_order():
    pseudo: Pseudo = a_run()[0].state.pseudo
    own, behind = pseudo.range_of[:LEVELS], pseudo.next_one[:LEVELS]
    assert (own == own[0]).sum() == 1 and behind[0] == 0
    assert (np.diff(own + behind) >= 0).all()  # they go over into each other
    assert 8 <= len(set(own)) <= 20
    assert ((behind >= 0) & (behind <= 1)).all() and 0.1 < behind[1:].mean() < 0.9
    firsts = [pseudo.range_of[LEVELS * v : LEVELS * (v + 1)] for v in range(3)]
    assert all(a.max() + 1 < b.min() for a, b in pairwise(firsts))  # every variable has its own


def test_words_have_no_ranges():
    pseudo = a_run(words=True)[0].state.pseudo
    assert not pseudo.back.any()
    np.testing.assert_allclose(pseudo.total, 2, rtol=1e-5)


def test_probabilities_sum_to_one_and_are_those_that_the_passes_use():
    run, circuit, x = a_run()
    np.testing.assert_allclose(run.state.pseudo.total, 2 * (1 + BACK), rtol=1e-5)
    run.epoch(np.random.default_rng(0))
    program = CircuitProgram(circuit)
    exact = program.log_values(torch.from_numpy(x), program.pack(run.parameters())).numpy()
    np.testing.assert_allclose(run.passes.log_values(x, run.state), exact, rtol=1e-4)


def test_a_level_that_a_unit_has_not_met_is_likely_where_its_neighbours_are():
    run, _, _ = a_run()
    state, shape = run.state, run.shape
    state.table[:] = 0
    state.table[40:44] = 25.0  # all 100 rows of every unit
    state.total[:] = 100.0
    state.pictures = state.pseudo.pictures(state.table, 1.0, state.total, shape)
    found = run.parameters()["leaf:v0"]["probability"][0, 0]
    near = np.flatnonzero(state.pseudo.range_of[:LEVELS] == state.pseudo.range_of[40])
    empty = [level for level in near if level not in range(40, 44)]
    assert empty
    assert found[empty].min() > 10 * found[80]


def test_so_many_times_more_pseudo_rows_are_those_asked_for():
    more, given = a_run()[0].state.pseudo.more(3.0), a_run(ranges=3 * BACK)[0].state.pseudo
    for name in ("flat", "back", "drawn", "total"):
        np.testing.assert_allclose(getattr(more, name), getattr(given, name), rtol=1e-5)
    assert more.ranged and not a_run(words=True)[0].state.pseudo.ranged


def test_rows_held_back_decide_how_many_pseudo_rows_there_are():
    """Levels at random call for many; a given number stays."""
    x = np.random.default_rng(5).integers(0, LEVELS, (400, 3)).astype(float)
    run, circuit, _ = a_run(held=InMemory(x))
    run.epoch(np.random.default_rng(0))
    assert run.ranges > 1
    np.testing.assert_allclose(run.state.pseudo.total, 2 * (1 + run.ranges * BACK), rtol=1e-4)
    program = CircuitProgram(circuit)
    exact = program.log_values(torch.from_numpy(x), program.pack(run.parameters())).numpy()
    np.testing.assert_allclose(run.passes.log_values(x, run.state), exact, rtol=1e-4)
    fewer = run.passes.log_values(x, replace(run.state, pseudo=run.state.pseudo.more(0.5)))
    assert exact.mean() > fewer.mean()
    fixed = a_run(ranges=7.0, held=InMemory(x))[0]
    fixed.epoch(np.random.default_rng(0))
    np.testing.assert_allclose(fixed.state.pseudo.total, 2 * (1 + 7), rtol=1e-4)
