"""An EM step of a hidden Chow–Liu tree of 784 grey levels, as a share of the machine's rate.

"of limit" counts the matrix products of a step alone, three for every edge of the tree (upward,
expected counts, downward), against the machine's own rate of one large product. A step is an E-step
and an M-step of all weights and leaves. Times are CPU seconds with one thread, wall time with two.
Levels are drawn evenly, so that every look-up is a different place in memory; most pixels of digits
are black, and cheaper.
"""

import time
from collections.abc import Callable

import networkx as nx
import numpy as np
import torch

import fedcircuits as fc
from benchmarks import machine
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.hidden_trees.run import TreeRun
from fedcircuits.learning.hidden_trees.shape import TreeShape

SIDE, LEVELS, ROWS, IMAGES = 28, 256, 256, 60_000


def run(units: tuple[int, ...] = (32, 64, 128), repeats: int = 5) -> list[Json]:
    limit = machine.limit(1).product
    rows = [_measured(k, limit, repeats) for k in units]
    print(f"\nHidden tree, 784 × 256 levels, batch {ROWS}; matrix products {limit:.0f} GFLOP/s")
    print_table(rows)
    return [{"part": "speed", "limit": limit, **row} for row in rows]


def _measured(k: int, limit: float, repeats: int) -> dict[str, Cell]:
    circuit, parameters = _tree(k)
    x = np.random.default_rng(1).integers(0, LEVELS, (ROWS, SIDE**2)) * 1.0
    shape = TreeShape.of(circuit)
    assert shape is not None
    em = TreeRun(circuit, shape, parameters, InMemory(x), EMSchedule(1, ROWS), None, None)

    def step() -> object:
        return em.passes.update(x, None, em.state, 0.1, IMAGES)

    def forward() -> object:
        return em.passes.log_values(x, em.state)

    torch.set_num_threads(1)
    products = 3 * 2 * (SIDE**2 - 1) * k * k * ROWS / 1e9
    seconds = _least(step, repeats, time.process_time)
    return {
        "K": k, "forward ms": 1e3 * _least(forward, repeats, time.process_time),
        "EM step ms": 1e3 * seconds, "of limit": products / seconds / limit,
        "s per epoch of 60,000": IMAGES / ROWS * seconds,
        "two threads, forward": _times_faster(forward, repeats),
        "two threads, EM step": _times_faster(step, repeats),
    }  # fmt: skip


def _times_faster(action: Callable[[], object], repeats: int) -> float:
    """By wall time, with one thread and two in turn."""
    least = {1: np.inf, 2: np.inf}
    for _ in range(2):
        for threads in least:
            torch.set_num_threads(threads)
            least[threads] = min(least[threads], _least(action, repeats, time.perf_counter))
    torch.set_num_threads(1)
    return least[1] / least[2]


def _least(action: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    action()
    found = []
    for _ in range(repeats):
        begin = clock()
        action()
        found.append(clock() - begin)
    return min(found)


def _tree(units: int) -> tuple[fc.Circuit, fc.Parameters]:
    """A tree over the pixels as deep as one of digits: rows of an image, joined by a column."""
    rng = np.random.default_rng(0)
    schema = fc.Table.of(np.full((1, SIDE, SIDE), 9, np.uint8)).schema
    tree = nx.Graph()
    for i, name in enumerate(schema.names):
        if i % SIDE != SIDE // 2:
            tree.add_edge(name, schema.names[i + (1 if i % SIDE < SIDE // 2 else -1)])
        elif i >= SIDE:
            tree.add_edge(name, schema.names[i - SIDE])
    circuit = fc.structures.latent_tree(schema, tree, units)
    values = {}
    for node in circuit.nodes:
        if isinstance(node, fc.Leaf):
            drawn = rng.random((units, 1, LEVELS)) + 0.01
            values[node.name] = {"probability": drawn / drawn.sum(axis=2, keepdims=True)}
        elif isinstance(node, fc.Sum):
            drawn = rng.random((node.units, circuit.inputs(node))) + 0.01
            values[node.name] = {WEIGHT: drawn / drawn.sum(axis=1, keepdims=True)}
    return circuit, fc.Parameters(values)
