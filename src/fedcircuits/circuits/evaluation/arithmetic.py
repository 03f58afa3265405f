"""What addition means on the way up a circuit. Products always add log-values; sums depend on it.

    LOG_SPACE     a sum is log Σ weight · child, a variable that is not seen is summed out
    MAX_PRODUCT   a sum is the largest log (weight · child), and a variable that is not seen takes
                  its most probable value: the best single path

With E = exp(children − top), a sum in log space is log(W E) + top, one matrix product. Weights of
zero on the largest child can make W E underflow; then, and only then, the same is computed by
log-sum-exp, exactly. (On secret shares every product costs a round between parties, so that walk is
a flow: methods/private_forest.) Log-values of a root become answers by ``as_answers``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import IMPOSSIBLE, log_of
from fedcircuits.errors import QueryError


class Children(Protocol):
    """A step of sums, as far as adding up needs it; W is (folds, units, inputs)."""

    folds: int
    units: int
    inputs: int

    def rows_in(self, matrix: Tensor) -> Tensor: ...

    def chunks(self, folds: int, size: int) -> Iterator[tuple[int, int]]: ...

    def log_children(self, values: Tensor, a: int, b: int) -> Tensor: ...

    def scaled_children(self, values: Tensor, a: int, b: int) -> tuple[Tensor, Tensor]: ...


class Arithmetic(ABC):
    maximises: bool  # a variable that is not seen takes its best value, instead of all

    @abstractmethod
    def mix(self, step: Children, weight: Tensor, values: Tensor) -> None:
        """The rows of the step in the value matrix (rows, batch), from those of its children."""


class LogSpace(Arithmetic):
    maximises = False

    def mix(self, step: Children, weight: Tensor, values: Tensor) -> None:
        out = step.rows_in(values)
        for a, b in step.chunks(step.folds, values.shape[1] * step.inputs):
            scaled, top = step.scaled_children(values, a, b)
            mixed = _mixed(weight[a:b], scaled)
            torch.add(mixed.log(), top, out=out[a:b])
            if float(mixed.min()) < tiny(mixed):
                exact = _log_sum(weight[a:b], step.log_children(values, a, b))
                out[a:b] = torch.where(mixed < tiny(mixed), exact, out[a:b])


class MaxProduct(Arithmetic):
    maximises = True

    def mix(self, step: Children, weight: Tensor, values: Tensor) -> None:
        out = step.rows_in(values)
        for a, b in step.chunks(step.folds, values.shape[1] * step.inputs * step.units):
            below = step.log_children(values, a, b)
            torch.amax(log_of(weight[a:b])[..., None] + below[:, None], 2, out=out[a:b])


LOG_SPACE, MAX_PRODUCT = LogSpace(), MaxProduct()


def _mixed(weight: Tensor, scaled: Tensor) -> Tensor:
    """W E, (folds, units, batch)."""
    if weight.shape[1] == 1 and weight.shape[2] < 32:
        return torch.sum(weight[:, 0, :, None] * scaled, 1, keepdim=True)
    return torch.bmm(weight, scaled)


def tiny(values: Tensor) -> float:
    """Below this, a number in linear space has lost its digits."""
    return 1e-30 if values.dtype == torch.float32 else 1e-290


def _log_sum(weight: Tensor, children: Tensor) -> Tensor:
    joint = log_of(weight)[..., None] + children[:, None]  # (folds, units, inputs, batch)
    return torch.logsumexp(joint, 2).clamp_min(IMPOSSIBLE)


ABSURD = 1200.0  # log density of a variable that no parameters give: a width of 1e-300 gives 690


def finite(log_values: Tensor) -> Tensor:
    """IMPOSSIBLE outside of a circuit is −∞."""
    return torch.where(log_values <= IMPOSSIBLE / 2, -torch.inf, log_values)


def as_answers(log_values: Tensor, circuit: Circuit) -> Tensor:
    """The same as an answer: QueryError where a number is none, or is larger than any density."""
    sound = log_values < ABSURD * len(circuit.schema)  # NaN is not
    if not bool(sound.all()):
        row = int(torch.nonzero(~sound)[0])
        raise QueryError(
            f"the log-likelihood of row {row} (rows count from 0) cannot be computed: values or "
            "parameters of the model are of too different scales; rescale the columns"
        )
    return finite(log_values)


def weighted_sum(log_values: Tensor, weight: Tensor) -> float:
    """Of the log-values of rows; those that weigh nothing add nothing."""
    return float(
        (finite(log_values.double()) * weight).nan_to_num(nan=0.0, neginf=-torch.inf).sum()
    )
