"""An LSTM of many owners at once, with its gradient by hand.

    (i, f, o) = σ(W x_t + U h_{t−1})    g = tanh(W x_t + U h_{t−1})
    c_t = f c_{t−1} + i g               h_t = o tanh(c_t)

There is no bias: an input that is always 1 has it. Steps are the first axis and rows the last, so
that a step is one stretch of memory, and within it every gate of an owner. tanh(x) is taken as
2 σ(2x) − 1: torch's σ is ten times as fast as its tanh.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
        gates = torch.matmul(inputs, series)  # (steps, owners, 4 width, rows)
        cells = series.new_empty(steps, owners, width, rows)
        bent, hidden = torch.empty_like(cells), torch.empty_like(cells)
        for t in range(steps):
            now = gates[t]
            if t:
                now.baddbmm_(states, hidden[t - 1])
            i, f, o, g = now.chunk(4, dim=1)
            g.mul_(2)
            now.sigmoid_()
            g.mul_(2).sub_(1)
            torch.mul(i, g, out=cells[t])
            if t:
                cells[t].addcmul_(f, cells[t - 1])
            torch.mul(cells[t], 2, out=bent[t])
            bent[t].sigmoid_().mul_(2).sub_(1)
            torch.mul(bent[t], o, out=hidden[t])
        ctx.save_for_backward(series, states, gates, cells, bent, hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[None, Tensor, Tensor]:
        series, states, gates, cells, bent, hidden = ctx.saved_tensors
        width = states.shape[2]
        slopes = torch.zeros_like(gates[0])  # of the loss by what goes into the gates
        at_i, at_f, at_o, at_g = slopes.chunk(4, dim=1)
        back = states.mT.contiguous()
        by_inputs = series.new_zeros(series.shape[1], 4 * width, series.shape[2])
        by_states = torch.zeros_like(states)
        from_next = cell = torch.zeros_like(cells[0])
        for t in reversed(range(len(series))):
            i, f, o, g = gates[t].chunk(4, dim=1)
            slope = given[0][t] + from_next
            torch.mul(slope * bent[t], o - o * o, out=at_o)
            cell = torch.addcmul(cell, slope * o, 1 - bent[t] * bent[t])
            torch.mul(cell * g, i - i * i, out=at_i)
            torch.mul(cell * i, 1 - g * g, out=at_g)
            at_f.zero_()
            if t:
                torch.mul(cell * cells[t - 1], f - f * f, out=at_f)
                by_states.baddbmm_(slopes, hidden[t - 1].mT)
                from_next = torch.bmm(back, slopes)
                cell = cell * f
            by_inputs.baddbmm_(slopes, series[t].mT)
        return None, by_inputs, by_states
