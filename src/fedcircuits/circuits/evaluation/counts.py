"""The expected statistics of EM, step by step of a program: additive over batches and parties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.devices import CPU
from fedcircuits.circuits.evaluation.direct import JointCounts
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.lookup import LookupValues
from fedcircuits.circuits.graph.family import Array

MANY = 1 << 20
Derivative = LeafCounts | JointCounts | Tensor | None  # of one step


@dataclass(frozen=True, slots=True)
class Counts:
    """The expected statistics of EM: additive over batches and over parties."""

    log_likelihood: float  # summed over rows, weighted
    weight: float  # of all rows
    steps: tuple[Derivative, ...]

    def add(self, other: Counts) -> Counts:
        steps = tuple(_add(a, b) for a, b in zip(self.steps, other.steps, strict=True))
        return Counts(self.log_likelihood + other.log_likelihood, self.weight + other.weight, steps)

    def take_in(self, other: Counts) -> Counts:
        """The same sum, in place of the statistics of these."""
        for own, more in zip(self.steps, other.steps, strict=True):
            for a, b in zip(_tensors(own), _tensors(more), strict=True):
                a.add_(b)
        return replace(
            self,
            log_likelihood=self.log_likelihood + other.log_likelihood,
            weight=self.weight + other.weight,
        )

    def scaled(self, factor: float) -> Counts:
        steps = tuple(_scaled(s, factor) for s in self.steps)
        return Counts(self.log_likelihood * factor, self.weight * factor, steps)

    def move_to(self, other: Counts, rate: float) -> None:
        """In place: (1 − rate) of these and rate of the other."""
        for old, new in zip(self.steps, other.steps, strict=True):
            for a, b in zip(_tensors(old), _tensors(new), strict=True):
                a.lerp_(b, rate)

    def scale(self, factor: float) -> None:
        """In place."""
        for step in self.steps:
            for tensor in _tensors(step):
                tensor.mul_(factor)

    def flat(self) -> Array:
        """All statistics end to end, without log-likelihood and weight: what parties add up."""
        parts = [t.reshape(-1).double() for step in self.steps for t in _tensors(step)]
        return np.asarray(torch.cat(parts).cpu().numpy()) if parts else np.zeros(0)

    def like(self, vector: Array) -> Counts:
        """Counts of the same shapes whose statistics are these."""
        rest = iter(torch.split(torch.tensor(vector), self._sizes()))
        return Counts(0.0, 0.0, tuple(_like(step, rest) for step in self.steps))

    @property
    def many(self) -> bool:
        """Whether there are so many that threads may share the M-step."""
        here = all(t.device == CPU for step in self.steps for t in _tensors(step))
        return here and sum(self._sizes()) > MANY

    def _sizes(self) -> list[int]:
        return [t.numel() for step in self.steps for t in _tensors(step)]


def _add(a: Derivative, b: Derivative) -> Derivative:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a + b
    if isinstance(a, LeafCounts) and isinstance(b, LeafCounts):
        return a.add(b)
    if isinstance(a, JointCounts) and isinstance(b, JointCounts):
        return a.add(b)
    return None


def _scaled(d: Derivative, factor: float) -> Derivative:
    if isinstance(d, LeafCounts | JointCounts):
        return d.scaled(factor)
    return None if d is None else d * factor


def _tensors(d: Derivative) -> tuple[Tensor, ...]:
    if isinstance(d, LeafCounts):
        return d.sums, d.count
    if isinstance(d, JointCounts):
        return tuple(d.sums.values())
    return () if d is None else (d,)


def _like(d: Derivative, rest: Iterator[Tensor]) -> Derivative:
    """A step's statistics of the same shapes, from the next vectors."""
    new = [next(rest).to(t).view(t.shape) for t in _tensors(d)]
    if isinstance(d, LeafCounts):
        return LeafCounts(*new)
    if isinstance(d, JointCounts):
        return JointCounts(dict(zip(d.sums, new, strict=True)))
    return new[0] if new else None


def are_finite(steps: Sequence[Derivative]) -> bool:
    """Whether all numbers are finite, and none is absurdly large."""
    return all(math.isfinite(float(t.sum())) for step in steps for t in _tensors(step))


def by_free_numbers(expected: Sequence[Derivative], values: Sequence[object]) -> list[Derivative]:
    """Derivatives by the free numbers that softmax makes weights and looked-up tables: counts, less
    the weight or frequency times the count of all."""
    new: list[Derivative] = []
    for d, p in zip(expected, values, strict=True):
        if isinstance(d, Tensor) and isinstance(p, Tensor):
            new.append(d.addcmul(p, d.sum(-1, keepdim=True), value=-1))
        elif isinstance(p, LookupValues) and isinstance(d, LeafCounts):
            new.append(d.sums.addcmul_(p.linear, d.count[:, None], value=-1))
        else:
            new.append(d)
    return new
