"""Networks of many owners at once: weights have a first axis of owners, products are batched.

Owners that have never met train networks of one shape on rows of one shape. One batched product for
all of them takes a fraction of the time of one after the other, and gives each what it would have
learned alone: no number of one owner enters another one's.

    Recurrent   x (owners, rows, steps, channels) → h_t by an LSTM or GRU → Σ_t w_t h_t, a linear
                layer over time, (owners, rows, width). The last channel says whether a step is
                there (1 or 0), so its weights are the biases, and steps that are not do not count.
    Perceptron  x (owners, rows, columns) → layers with ReLU → (owners, rows, width), linear.

All weights of an owner lie in one vector (owners, size), which ``views`` cuts up: an optimiser then
has one array to go over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedcircuits.learning.encoders.lstm import lstm

Cell: TypeAlias = Literal["lstm", "gru"]
Weights: TypeAlias = Mapping[str, Tensor]  # (owners, …) by name
Shapes: TypeAlias = dict[str, tuple[int, ...]]


class Network(Protocol):
    """A representation of rows, for many owners at once."""

    @property
    def width(self) -> int: ...

    def shapes(self) -> Shapes:
        """Of one owner's weights."""
        ...

    def start(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Weights of one owner to begin with."""
        ...

    def represent(self, weights: Weights, x: Tensor) -> Tensor:
        """(owners, rows, width)"""
        ...


@dataclass(frozen=True, slots=True)
class Recurrent:
    cell: Cell
    steps: int
    channels: int  # with the one that says whether a step is there
    width: int

    @property
    def gates(self) -> int:
        return 4 if self.cell == "lstm" else 3

    def shapes(self) -> Shapes:
        wide = self.gates * self.width
        return {
            "inputs": (wide, self.channels),
            "states": (wide, self.width),
            "steps": (self.steps,),
        }

    def start(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        bound = 1 / sqrt(self.width)
        shapes = self.shapes()
        weights = {n: rng.uniform(-bound, bound, shapes[n]) for n in ("inputs", "states")}
        if self.cell == "lstm":
            weights["inputs"][self.width : 2 * self.width, -1] += 1.0  # remember, to begin with
        weights["steps"] = np.full(shapes["steps"], 1 / self.steps)
        return weights

    def represent(self, weights: Weights, x: Tensor) -> Tensor:
        series = x.permute(2, 0, 3, 1).contiguous()  # (steps, owners, channels, rows)
        rule = lstm if self.cell == "lstm" else _gru
        states = rule(series, weights["inputs"], weights["states"])  # (steps, owners, width, rows)
        weight = weights["steps"].t()[:, :, None, None]
        there = series[:, :, -1:]
        if not bool(there.all()):
            weight = weight * there
        return (weight * states).sum(dim=0).mT


def _gru(series: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
    """(steps, owners, width, rows); the bias of the candidate stands outside its reset."""
    width = states.shape[2]
    given = torch.matmul(inputs, series)  # (steps, owners, 3 width, rows)
    h = torch.zeros_like(given[0, :, :width])
    states_of_steps = []
    for now in given:
        from_state = torch.bmm(states, h)
        gates = torch.sigmoid(now[:, : 2 * width] + from_state[:, : 2 * width])
        reset, keep = gates.chunk(2, dim=1)
        candidate = torch.tanh(now[:, 2 * width :] + reset * from_state[:, 2 * width :])
        h = candidate + keep * (h - candidate)
        states_of_steps.append(h)
    return torch.stack(states_of_steps)


@dataclass(frozen=True, slots=True)
class Perceptron:
    columns: int
    hidden: tuple[int, ...]
    width: int

    def shapes(self) -> Shapes:
        sizes = (self.columns, *self.hidden, self.width)
        shapes: Shapes = {}
        for i, (a, b) in enumerate(pairwise(sizes)):
            shapes |= {f"weight {i}": (a, b), f"bias {i}": (1, b)}
        return shapes

    def start(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        weights = {}
        for name, shape in self.shapes().items():
            bound = sqrt(6 / shape[0]) if name.startswith("weight") else 0.0
            weights[name] = rng.uniform(-bound, bound, shape)
        return weights

    def represent(self, weights: Weights, x: Tensor) -> Tensor:
        for i in range(len(self.hidden) + 1):
            x = torch.baddbmm(weights[f"bias {i}"], x if i == 0 else torch.relu(x),
                              weights[f"weight {i}"])  # fmt: skip
        return x


def views(flat: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    """The weights (owners, …) by name that lie in (owners, size)."""
    weights, at = {}, 0
    for name, shape in shapes.items():
        size = prod(shape)
        weights[name] = flat[:, at : at + size].view(len(flat), *shape)
        at += size
    return weights


def flattened(weights: Mapping[str, np.ndarray], shapes: Shapes) -> np.ndarray:
    """One owner's weights end to end, float32 (size,)."""
    return np.concatenate([np.reshape(weights[n], -1) for n in shapes]).astype(np.float32)
