"""Maximum likelihood for many columns of numbers at once, from weighted rows.

x and w are (rows, columns); w is 0 where a value is missing. ``Scale`` knows the whole table's
columns: a part's variance is drawn towards the table's as by ``PRIOR`` rows, so a part of few or
equal values never becomes a spike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array, Arrays, Family, family

PRIOR = 0.5
CONSTANT = 1e-6  # variance of a column that is constant in the whole table
NARROWEST = 1e-4  # variance in a part, relative to the table
ROUNDS = 12  # of EM for the Student t


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and variance of columns over the whole table, each (columns,)."""

    mean: Array
    variance: Array
    narrowest: Array  # the least variance in a part

    @classmethod
    def of(cls, x: Array, w: Array) -> Scale:
        mean, variance, size = _moments(x, w)
        varies = variance > 1e-12 * np.square(mean)
        variance = np.where(varies, variance, np.where(size > 0, CONSTANT, 1.0))
        return cls(mean, variance, np.where(varies, NARROWEST, 1.0) * variance)

    def part(self, columns: slice | Array | list[int]) -> Scale:
        return Scale(self.mean[columns], self.variance[columns], self.narrowest[columns])


def fitted(rule: str, x: Array, w: Array, scale: Scale) -> dict[str, Array]:
    """Parameters (columns,) of a family for every column."""
    mean, variance, size = _moments(x, w)
    mean = np.where(size > 0, mean, scale.mean)
    variance = (size * variance + PRIOR * scale.variance) / (size + PRIOR)
    variance = np.maximum(variance, scale.narrowest)
    if rule == "gaussian":
        return {"mean": mean, "variance": variance}
    kind = _family(rule)
    if rule == "student_t":
        start = {"location": mean, "scale": np.sqrt(variance / 2), "degrees": np.full_like(mean, 4)}
        return _student(kind, x, w, start, np.sqrt(scale.narrowest))
    ones = {n: np.ones_like(mean) for n in kind.domains}
    fit = _step(kind, x, w, ones)
    empty = _step(kind, scale.mean[None], np.ones((1, len(mean))), ones)
    return {n: np.where(size > 0, a, empty[n]) for n, a in fit.items()}


def _student(kind: Family, x: Array, w: Array, start: Arrays, narrowest: Array) -> dict[str, Array]:
    parameters = dict(start)
    for _ in range(ROUNDS):
        parameters = _step(kind, x, w, parameters)
        parameters["scale"] = np.maximum(parameters["scale"], narrowest)
    return parameters


def _step(kind: Family, x: Array, w: Array, p: Arrays) -> dict[str, Array]:
    statistics = kind.statistics(torch.from_numpy(x), _tensors(p)).numpy()  # (S, rows, columns)
    return kind.maximise(w.sum(axis=0), np.einsum("src,rc->sc", statistics, w), p)


def log_density(rule: str, x: Array, p: Arrays) -> Array:
    """(rows, columns)."""
    return np.asarray(_family(rule).log_density(torch.from_numpy(x), _tensors(p)).numpy())


def _tensors(p: Arrays) -> dict[str, torch.Tensor]:
    return {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in p.items()}


def _family(rule: str) -> Family:
    kind = family(rule)
    assert isinstance(kind, Family)
    return kind


def _moments(x: Array, w: Array) -> tuple[Array, Array, Array]:
    size = w.sum(axis=0)
    some = np.maximum(size, 1e-300)
    mean = (w * x).sum(axis=0) / some
    return mean, (w * np.square(x - mean)).sum(axis=0) / some, size
