"""The two passes over a hidden tree for a batch of rows, and what EM counts on the way.

With u the values of a node's states, W the weights above it and F the flow of a unit, that is its
posterior times the row's weight:

    up      s = u Wᵀ, one matrix product for all nodes of a level; u of the parent takes s in
    down    w = F / s;  wᵀ u is the derivative by the weights;  F of the node = (w W) · u

Leaves are tables of running counts. A decay of all of them is one number, ``scale``, and a
probability is made where it is looked up: what no row of a batch looks up costs nothing. Threads
share the rows of a batch on both ways, and the nodes when leaves are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import in_threads
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.hidden_trees import kernels
from fedcircuits.learning.hidden_trees.priors import Pseudo
from fedcircuits.learning.hidden_trees.shape import TreeShape

Floats = npt.NDArray[np.float32]
Span = tuple[int, int]
TOGETHER = 1 << 18  # numbers of the nodes of a level that go through at once: a megabyte
SMALL = 64  # states up to which products of single nodes beat those of many nodes at once
LOST_SCALE = 1e-6  # at which the decay is written into the tables
LEAST = np.float32(1e-30)
LEAST_WEIGHT = np.float32(1e-20)  # a row may need what no row of the last batches did
MOST = 1 - 1e-6  # of the average that a batch replaces
BATCH = 256  # rows that are scored at once


@dataclass
class TreeState:
    """Running counts, and the parameters that they make."""

    table: Floats  # (levels of all variables, K) counts, to be multiplied by the scale
    scale: float
    pseudo: Pseudo
    pictures: Floats  # (ranges, K)
    total: Floats  # (variables, K) counts of all levels
    average: Floats  # (nodes − 1, K, K) counts of weights
    weight: Floats
    root: Floats  # (K,) counts
    root_weight: Floats
    smoothing: float  # of weights

    def leaves(self) -> tuple[object, ...]:
        """As the kernels read them."""
        pseudo, scale = self.pseudo, np.float32(self.scale)
        return (
            self.table, scale, pseudo.flat, pseudo.back, pseudo.range_of, pseudo.next_one,
            self.pictures, self.inverse(),
        )  # fmt: skip

    def inverse(self) -> Floats:
        return np.asarray(1 / np.maximum(self.total + self.pseudo.total, LEAST), np.float32)

    def move(self, rate: float, rows: float, batch: Counted) -> None:
        """Averages and weights, with a share of ``rate`` for the batch, which stands for so many
        times its rows."""
        self.total *= np.float32(1 - rate)
        self.total += np.float32(rate * rows) * batch.leaves
        if self.scale < LOST_SCALE:
            self.table *= np.float32(self.scale)
            self.scale = 1.0
        how = np.float32(rate), np.float32(rows), np.float32(self.smoothing), LEAST_WEIGHT
        root = batch.root / np.maximum(self.root_weight, LEAST)
        kernels.move_weights(
            0, 1, self.root[None, None], root[None, None, None], *how, self.root_weight[None, None]
        )

        def move(span: Span) -> None:
            kernels.move_weights(*span, self.average, batch.weights, *how, self.weight)

        list(in_threads(move, _shared(len(self.weight), 1)))


@dataclass
class Counted:
    """What a batch says: expected counts, and the derivative by the weights."""

    leaves: Floats  # (variables, K)
    root: Floats  # (K,)
    weights: Floats  # (threads, nodes − 1, K, K)


@dataclass
class Room:
    """Matrices of a batch, kept between batches."""

    values: Tensor  # (nodes, batch, K)
    sums: Tensor  # (nodes − 1, batch, K)
    codes: npt.NDArray[np.int32]  # (variables, batch)


class TreePasses:
    def __init__(self, shape: TreeShape) -> None:
        self.shape, self.nodes = shape, len(shape.sums)
        self.room: Room | None = None
        self.flows = torch.empty(0)  # (threads, nodes − 1, K, K), kept likewise

    def log_values(self, x: Array, state: TreeState) -> Array:
        """(rows,) in single precision; −∞ where that cannot hold what a row is worth."""
        log_values = []
        for a in range(0, len(x), BATCH):
            room, logs = self._upward(x[a : a + BATCH], state)
            values = np.maximum(room.values[-1].numpy() @ state.root_weight, LEAST)
            log_values.append(np.where(logs > kernels.LOST / 2, logs + np.log(values), -np.inf))
        return np.concatenate(log_values)

    def update(
        self, x: Array, weight: Array | None, state: TreeState, rate: float, rows: float
    ) -> tuple[float, float]:
        """One step of EM: log-likelihood and weight of the batch before it.

        Counts of the batch stand for ``rows`` rows, and have a share of ``rate`` in the average.
        """
        room, logs = self._upward(x, state)
        rate = min(rate, MOST)
        row_weight = np.ones(len(x), np.float32) if weight is None else weight.astype(np.float32)
        more = rows / float(row_weight.sum())
        root = np.zeros(self.shape.units, np.float32)
        kernels.root_of(state.root_weight, row_weight, room.values[-1].numpy(), logs, root)
        state.scale *= 1 - rate
        leaves = np.zeros_like(state.total)
        factor = np.float32(rate * more / state.scale)
        weights = self._downward(room, state, leaves, factor)
        state.move(rate, more, Counted(leaves, root, weights))
        sound = logs > kernels.LOST / 2
        return float(logs[sound] @ row_weight[sound]), float(row_weight[sound].sum())

    # ------------------------------------------------------------------ one batch

    def _upward(self, x: Array, state: TreeState) -> tuple[Room, Array]:
        """Values of all nodes, and the logarithms of what they were divided by."""
        shape, room, logs = self.shape, self._room(len(x)), np.zeros(len(x))
        kernels.codes_of(x, shape.first, shape.sizes, room.codes)
        leaves = state.leaves()
        values, sums, weight = room.values.numpy(), room.sums.numpy(), _tensor(state.weight)

        def evaluate(a: int, b: int, span: Span) -> None:
            kernels.values_of(
                a, b, span, room.codes, shape.variables_of, leaves, shape.children, sums, values,
                logs,
            )  # fmt: skip

        def up(span: Span) -> None:
            rows = slice(*span)
            for a, b in self._spans(span):
                evaluate(a, b, span)
                if self.shape.units <= SMALL:
                    kernels.sums_of(a, b, span, values, state.weight, sums)
                    continue
                turned = weight[a:b].transpose(1, 2)
                torch.bmm(room.values[a:b, rows], turned, out=room.sums[a:b, rows])
            evaluate(self.nodes - 1, self.nodes, span)

        list(in_threads(up, _shared(len(x))))
        return room, logs

    def _downward(self, room: Room, state: TreeState, leaves: Floats, factor: np.float32) -> Floats:
        """The derivative by the weights; counts of leaves are added to their tables."""
        shape, weight = self.shape, _tensor(state.weight)
        values, sums = room.values.numpy(), room.sums.numpy()
        spans = _shared(values.shape[1])
        if len(self.flows) < len(spans):
            self.flows = torch.empty(len(spans), *weight.shape)

        def count(span: Span) -> None:
            kernels.count_leaves(
                *span, room.codes, shape.variables_of, values, factor, state.table, leaves
            )

        def down(thread: int) -> None:
            span, flow = spans[thread], self.flows[thread]
            rows = slice(*span)
            for a, b in reversed(list(self._spans(span))):
                if shape.units <= SMALL:
                    kernels.down_to(
                        a, b, span, shape.parent, state.weight, values, sums, flow.numpy()
                    )
                else:
                    kernels.pulls_of(a, b, span, shape.parent, values, sums)
                    w, u = room.sums[a:b, rows], room.values[a:b, rows]
                    torch.bmm(w.transpose(1, 2), u, out=flow[a:b])
                    kernels.flows_of(a, b, span, torch.bmm(w, weight[a:b]).numpy(), values)
                if len(spans) == 1:  # while they are in the cache
                    count((a, b))

        list(in_threads(down, range(len(spans))))
        if len(spans) == 1:
            count((self.nodes - 1, self.nodes))
        else:
            list(in_threads(count, _shared(self.nodes, 1)))
        return np.asarray(self.flows[: len(spans)].numpy())

    def _spans(self, rows: Span) -> Iterator[Span]:
        """Nodes of one level that go through together."""
        size = max(1, TOGETHER // ((rows[1] - rows[0]) * self.shape.units))
        for a, b in self.shape.levels:
            for c in range(a, b, size):
                yield c, min(b, c + size)

    def _room(self, batch: int) -> Room:
        if self.room is None or self.room.values.shape[1] != batch:
            k, n = self.shape.units, self.nodes
            values, sums = torch.empty(n, batch, k), torch.empty(n - 1, batch, k)
            codes = np.empty((len(self.shape.first), batch), np.int32)
            self.room = Room(values, sums, codes)
        return self.room


def _tensor(values: Floats) -> Tensor:
    return torch.from_numpy(values)


def _shared(number: int, least: int = 32) -> list[Span]:
    """Spans for all threads."""
    size = max(least, -(-number // torch.get_num_threads()))
    return [(a, min(number, a + size)) for a in range(0, number, size)]
