"""Stepwise EM of a hidden tree with tables as leaves: the schedule of learning.em, by fast passes.

The running counts begin as what the start expects of all rows, so that the first batches move the
start and do not replace it.

How many pseudo-rows leaves need depends on the columns: those of photographs six times as many as
those of drawn digits. Unless the number is given, it is doubled or halved after every epoch for as
long as held-out rows gain by it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.hidden_trees.passes import Floats, TreePasses, TreeState
from fedcircuits.learning.hidden_trees.priors import BACK, Pseudo
from fedcircuits.learning.hidden_trees.shape import TreeShape
from fedcircuits.learning.stopping import IMPOSSIBLE

if TYPE_CHECKING:
    from fedcircuits.learning.em import EMSchedule

PROBABILITY = "probability"
PICTURED = 50  # updates after which the pictures of ranges are drawn anew
MOST_RANGES = 16.0  # times as many pseudo-rows as at first, or as few
ASKED = 500  # held-out rows that decide on their number


class TreeRun:
    """EM from ``start``, epoch by epoch."""

    def __init__(
        self,
        circuit: Circuit,
        shape: TreeShape,
        start: Parameters,
        source: Source,
        plan: EMSchedule,
        rules: Rules | None,
        validation: InMemory | None,
    ) -> None:
        self.shape, self.source, self.plan, self.held = shape, source, plan, validation
        self.passes = TreePasses(shape)
        times = BACK if plan.ranges is None else plan.ranges
        pseudo = Pseudo.of(circuit, shape, rules or {}, times)
        self.ranges = 1.0  # times as many pseudo-rows as at first
        self.state = self.best = _state(shape, start, source.weight, pseudo, plan.smoothing)
        self.history: list[float] = []
        self.validation: list[float] = []
        self.step = plan.falling(len(source))
        self.finished = self.converged = False

    def epoch(self, rng: np.random.Generator) -> None:
        assert self.plan.batch_size is not None
        total = weight = 0.0
        for x, w in self.source.batches(self.plan.batch_size, rng):
            if w is not None and not w.sum() > 0:
                continue
            log, whole = self.passes.update(x, w, self.state, self.step.next(), self.source.weight)
            total, weight = total + log, weight + whole
            if self.step.done % PICTURED == 0:
                self._draw()
        self._draw()
        self.history.append(total / max(weight, 1e-300))
        self._judge()

    def _draw(self) -> None:
        """The pictures of ranges, from the counts as they are."""
        state = self.state
        state.pictures = state.pseudo.pictures(state.table, state.scale, state.total, self.shape)

    def _judge(self) -> None:
        """Validation rows decide what is kept and when to stop; else the number of epochs."""
        self.finished = len(self.history) >= self.plan.epochs
        if self.held is None:
            self.best = self.state
            return
        if self.plan.ranges is None and self.state.pseudo.ranged:
            self._adapt(self.held.rows(np.arange(min(ASKED, len(self.held)))))
        self.validation.append(self._score(self.held))
        if self.validation[-1] >= max(self.validation):
            self.best = self.state if self.finished else deepcopy(self.state)
        if self.plan.stopped(self.validation, self.step):
            self.finished = self.converged = True

    def _adapt(self, rows: InMemory) -> None:
        """More pseudo-rows that look as ranges, or fewer, while the rows gain by it."""
        most = self._score(rows)
        for factor in (2.0, 0.5):
            before = self.ranges
            while 1 / MOST_RANGES <= self.ranges * factor <= MOST_RANGES:
                pseudo = self.state.pseudo
                self.state.pseudo = pseudo.more(factor)
                if (score := self._score(rows)) <= most:
                    self.state.pseudo = pseudo
                    break
                most, self.ranges = score, self.ranges * factor
            if self.ranges != before:
                break

    def _score(self, rows: InMemory) -> float:
        log_values = self.passes.log_values(rows.values, self.state)
        return rows.mean(np.maximum(log_values, IMPOSSIBLE))

    def parameters(self) -> Parameters:
        """Of the best epoch."""
        shape, state = self.shape, self.best
        values: dict[str, Arrays] = {
            name: {WEIGHT: _normalised(w)}
            for name, w in zip(shape.sums, [*state.weight, state.root_weight[None]], strict=True)
        }
        inverse = state.inverse()
        for name, rule, variables in shape.leaves:
            tables = [_normalised(_levels(shape, state, inverse, v).T) for v in variables]
            table = np.stack(tables, axis=1)  # (units, variables, levels)
            values[name] = {PROBABILITY: table[..., 1] if rule == "bernoulli" else table}
        return Parameters(values)


def _levels(shape: TreeShape, state: TreeState, inverse: Floats, variable: int) -> Floats:
    """Probabilities (levels, units) of a variable."""
    span = slice(shape.first[variable], shape.first[variable] + shape.sizes[variable])
    pseudo = state.pseudo
    at, second = pseudo.range_of[span], pseudo.next_one[span, None]
    ranges = (1 - second) * state.pictures[at] + second * state.pictures[at + 1]
    drawn = pseudo.back[span, None] * ranges
    counts = np.float32(state.scale) * state.table[span] + pseudo.flat[span, None] + drawn
    return np.asarray(counts * inverse[variable])


def _normalised(values: Floats) -> Array:
    shares = values.astype(np.float64)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def _state(
    shape: TreeShape, start: Parameters, rows: float, pseudo: Pseudo, smoothing: float
) -> TreeState:
    """What a start expects of so many rows."""
    k, nodes = shape.units, len(shape.sums)
    root = start[shape.sums[-1]][WEIGHT][0]
    weight = np.stack([start[name][WEIGHT] for name in shape.sums[:-1]])
    share = np.empty((nodes, k))
    share[-1] = root
    for n in range(nodes - 2, -1, -1):
        share[n] = share[shape.parent[n]] @ weight[n]
    table = np.empty((len(pseudo.flat), k), np.float32)
    total = np.empty((len(shape.first), k), np.float32)
    variables_of = [
        shape.variables_of[1][a:b]
        for a, b in zip(shape.variables_of[0][:-1], shape.variables_of[0][1:], strict=True)
    ]
    for n, columns in enumerate(variables_of):
        total[columns] = rows * share[n]
    for name, rule, variables in shape.leaves:
        given = start[name][PROBABILITY]
        given = np.stack([1 - given, given], axis=-1) if rule == "bernoulli" else given
        for i, v in enumerate(variables):
            table[shape.first[v] : shape.first[v] + shape.sizes[v]] = given[:, i].T * total[v]
    above = share[shape.parent[:-1]][:, :, None]
    return TreeState(
        table, 1.0, pseudo, pseudo.pictures(table, 1.0, total, shape), total,
        np.asarray(rows * above * weight, np.float32), weight.astype(np.float32),
        np.asarray(rows * root, np.float32), root.astype(np.float32), smoothing,
    )  # fmt: skip
