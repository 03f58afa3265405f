"""Networks of many owners at once: weights have a leading axis of owners, and products are batched.

Owners that have never met train networks of the same shape on rows of the same shape. One batched
product for all of them is much faster than one after another, and gives each what it would have
learned alone: no number of one owner enters another's computation.

    Recurrent   x (owners, rows, steps, channels) → h_t by an LSTM or GRU → Σ_t w_t h_t, a linear
                layer over time, (owners, rows, width). The last channel is 1 where a step exists
                and 0 elsewhere, so its weights are the biases; absent steps do not count.
    Perceptron  x (owners, rows, columns) → layers with ReLU → (owners, rows, width), linear.

All weights of an owner are one vector (owners, size), of which ``views`` returns the parts: an
optimiser then updates a single array.

The LSTM has a hand-written gradient:

    (i, f, o) = σ(W x_t + U h_{t−1})    g = tanh(W x_t + U h_{t−1})
    c_t = f c_{t−1} + i g               h_t = o tanh(c_t)

Steps are the first axis and rows the last, so a gate of an owner at a step is contiguous in memory.
The networks are small: with torch operations more time is spent reading and writing than
multiplying, so the loops are compiled, owner by owner, and a step stays in the cache. Rows are the
innermost axis and become vector instructions. tanh is a quotient of polynomials, exact to single
precision, and σ(x) = ½ + ½ tanh(x/2). Products take four terms at a time, so that a sum is read and
written a quarter as often. Everything is in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import prod, sqrt
from typing import Any, Literal, Protocol, TypeAlias

import numba as nb
import numpy as np
import torch
from torch import Tensor

Cell: TypeAlias = Literal["lstm", "gru"]
Weights: TypeAlias = Mapping[str, Tensor]  # (owners, …) by name
Shapes: TypeAlias = dict[str, tuple[int, ...]]
FAST = {"contract", "reassoc", "nsz", "arcp", "nnan"}


class Network(Protocol):
    """A representation of rows, for many owners at once."""

    @property
    def width(self) -> int: ...

    def shapes(self) -> Shapes:
        """Shapes of one owner's weights."""
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
    channels: int  # with the one that marks existing steps
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


def lstm(series: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
    """All h_t, (steps, owners, width, rows), of series (steps, owners, channels, rows).

    inputs (owners, 4 width, channels), states (owners, 4 width, width); gates in the order i, f, o,
    g. No gradient comes back to the series.
    """
    return _Lstm.apply(series, inputs, states)  # type: ignore[no-any-return, no-untyped-call]


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, series: Tensor, inputs: Tensor, states: Tensor) -> Tensor:
        steps, owners, _, rows = series.shape
        width = states.shape[2]
        series = series.contiguous()
        gates = series.new_empty(steps, owners, 4 * width, rows)
        cells, bent, hidden = (series.new_empty(steps, owners, width, rows) for _ in range(3))
        given = (series, inputs.contiguous(), states.contiguous(), gates, cells, bent, hidden)
        loops()[0](*(a.detach().numpy() for a in given))
        ctx.save_for_backward(series, states, gates, cells, bent, hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[None, Tensor, Tensor]:
        series, states, gates, cells, bent, hidden = ctx.saved_tensors
        owners, wide, _ = states.shape
        by_inputs = series.new_zeros(owners, wide, series.shape[2])
        by_states = torch.zeros_like(states, memory_format=torch.contiguous_format)
        back = states.mT.contiguous()
        arrays = (given[0].contiguous(), series, back, gates, cells, bent, hidden)
        loops()[1](*(a.detach().numpy() for a in (*arrays, by_inputs, by_states)))
        return None, by_inputs, by_states


# ---------------------------------------------------------------------- loops


@cache
def loops() -> tuple[Callable[..., None], Callable[..., None]]:
    """Upwards and downwards, compiled when they are first needed."""
    compiled = partial(nb.njit, cache=True, nogil=True, fastmath=FAST, error_model="numpy")
    four, three = "float32[:,:,:,::1]", "float32[:,:,::1]"
    up = f"void({four}, {three}, {three}, {four}, {four}, {four}, {four})"
    down = f"void({four}, {four}, {three}, {four}, {four}, {four}, {four}, {three}, {three})"
    return compiled(up)(_upward), compiled(down)(_downward)


@nb.njit(inline="always", fastmath=FAST, error_model="numpy")
def _tanh(x):  # type: ignore[no-untyped-def]
    x = x if x < np.float32(9.0) else np.float32(9.0)
    x = x if x > np.float32(-9.0) else np.float32(-9.0)
    s = x * x
    p = np.float32(-2.76076847742355e-16)
    p = p * s + np.float32(2.00018790482477e-13)
    p = p * s + np.float32(-8.60467152213735e-11)
    p = p * s + np.float32(5.12229709037114e-08)
    p = p * s + np.float32(1.48572235717979e-05)
    p = p * s + np.float32(6.37261928875436e-04)
    p = p * s + np.float32(4.89352455891786e-03)
    q = np.float32(1.19825839466702e-06)
    q = q * s + np.float32(1.18534705686654e-04)
    q = q * s + np.float32(2.26843463243900e-03)
    q = q * s + np.float32(4.89352518554385e-03)
    return x * p / q


@nb.njit(inline="always", fastmath=FAST, error_model="numpy")
def _add_product(out, weight, values):  # type: ignore[no-untyped-def]
    """out (rows,) += Σ_j weight[j] values[j]"""
    count, rows = values.shape
    for j in range(0, count - 3, 4):
        a, b, c, d = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        v, w, x, y = values[j], values[j + 1], values[j + 2], values[j + 3]
        for r in range(rows):
            out[r] += a * v[r] + b * w[r] + c * x[r] + d * y[r]
    for j in range(count - count % 4, count):
        a, v = weight[j], values[j]
        for r in range(rows):
            out[r] += a * v[r]


@nb.njit(inline="always", fastmath=FAST, error_model="numpy")
def _add_dots(out, slope, values):  # type: ignore[no-untyped-def]
    """out[j] += slope · values[j]"""
    count, rows = values.shape
    for j in range(0, count - 3, 4):
        v, w, x, y = values[j], values[j + 1], values[j + 2], values[j + 3]
        a = b = c = d = np.float32(0)
        for r in range(rows):
            s = slope[r]
            a += s * v[r]
            b += s * w[r]
            c += s * x[r]
            d += s * y[r]
        out[j] += a
        out[j + 1] += b
        out[j + 2] += c
        out[j + 3] += d
    for j in range(count - count % 4, count):
        v, a = values[j], np.float32(0)
        for r in range(rows):
            a += slope[r] * v[r]
        out[j] += a


def _upward(series, inputs, states, gates, cells, bent, hidden):  # type: ignore[no-untyped-def]
    """Fills gates (steps, owners, 4 width, rows), cells, tanh of cells, and h."""
    steps, owners, _, rows = series.shape
    width = states.shape[2]
    half = np.float32(0.5)
    for k in range(owners):
        for t in range(steps):
            now = gates[t, k]
            for u in range(4 * width):
                gate = now[u]
                for r in range(rows):
                    gate[r] = 0
                _add_product(gate, inputs[k, u], series[t, k])
                if t:
                    _add_product(gate, states[k, u], hidden[t - 1, k])
                if u < 3 * width:
                    for r in range(rows):
                        gate[r] = half + half * _tanh(half * gate[r])
                else:
                    for r in range(rows):
                        gate[r] = _tanh(gate[r])
            for u in range(width):
                i, f, o, g = now[u], now[width + u], now[2 * width + u], now[3 * width + u]
                cell, flat, out = cells[t, k, u], bent[t, k, u], hidden[t, k, u]
                if t:
                    past = cells[t - 1, k, u]
                    for r in range(rows):
                        cell[r] = i[r] * g[r] + f[r] * past[r]
                else:
                    for r in range(rows):
                        cell[r] = i[r] * g[r]
                for r in range(rows):
                    flat[r] = _tanh(cell[r])
                    out[r] = o[r] * flat[r]


def _downward(given, series, back, gates, cells, bent, hidden, by_inputs, by_states):  # type: ignore[no-untyped-def]
    """Adds the slopes by weights, of those by h (given). back (owners, width, 4 width)."""
    steps, owners, _, rows = series.shape
    width = back.shape[1]
    one = np.float32(1)
    slopes = np.empty((4 * width, rows), np.float32)  # by what goes into the gates
    by_h, by_cell = np.empty((width, rows), np.float32), np.empty((width, rows), np.float32)
    for k in range(owners):
        by_h[:] = 0
        by_cell[:] = 0
        for t in range(steps - 1, -1, -1):
            now = gates[t, k]
            for u in range(width):
                i, f, o, g = now[u], now[width + u], now[2 * width + u], now[3 * width + u]
                at_i, at_f = slopes[u], slopes[width + u]
                at_o, at_g = slopes[2 * width + u], slopes[3 * width + u]
                flat, outer, h, cell = bent[t, k, u], given[t, k, u], by_h[u], by_cell[u]
                past = cells[max(t - 1, 0), k, u]
                for r in range(rows):
                    slope = h[r] + outer[r]
                    at_o[r] = slope * flat[r] * o[r] * (one - o[r])
                    c = cell[r] + slope * o[r] * (one - flat[r] * flat[r])
                    at_i[r] = c * g[r] * i[r] * (one - i[r])
                    at_g[r] = c * i[r] * (one - g[r] * g[r])
                    at_f[r] = c * past[r] * f[r] * (one - f[r])
                    cell[r] = c * f[r]
            if not t:
                slopes[width : 2 * width] = 0  # there is no cell before the first
            for u in range(4 * width):
                _add_dots(by_inputs[k, u], slopes[u], series[t, k])
                if t:
                    _add_dots(by_states[k, u], slopes[u], hidden[t - 1, k])
            if t:
                by_h[:] = 0
                for u in range(width):
                    _add_product(by_h[u], back[k, u], slopes)
