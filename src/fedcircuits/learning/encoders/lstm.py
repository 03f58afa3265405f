"""An LSTM of many owners at once, with its gradient by hand.

    (i, f, o) = σ(W x_t + U h_{t−1})    g = tanh(W x_t + U h_{t−1})
    c_t = f c_{t−1} + i g               h_t = o tanh(c_t)

There is no bias: an input that is always 1 has it. Steps are the first axis and rows the last, so
that a gate of an owner at a step is one stretch of memory. The networks are small: with operations
of torch more time goes into reading and writing than into products, so the loops are compiled
(lstm_kernel.py). Single precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedcircuits.learning.encoders.lstm_kernel import downward, upward


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
        upward(*(a.detach().numpy() for a in given))
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
        downward(*(a.detach().numpy() for a in (*arrays, by_inputs, by_states)))
        return None, by_inputs, by_states
