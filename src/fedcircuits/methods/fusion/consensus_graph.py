"""Graphs of owners that a fusion mixes representations over: given, complete, or learned.

A learned graph has an edge between i and j with probability θ_ij. Drawn edges have no gradient, so
they are softened (Ma, Hoang and Chen 2023, definition 1): with F the distribution function of a
reference distribution and s drawn from it,

    z = σ((F⁻¹(θ) − s) / τ)          P(z ≤ t) = 1 − F(F⁻¹(θ) + τ log(1/t − 1))    (theorem 1)

which tends to Bernoulli(θ) as the temperature τ → 0. One draw an edge; the Gumbel trick needs two,
and their difference is logistic: it is this rule with the logistic reference, in distribution.

A graph says what helped prediction. It is no map of who depends on whom: on traffic sensors edges
that were learned had nothing to do with roads.

A mixing is D^−½ (A + I) D^−½, D the degrees among the owners that are there. With owners missing in
some rows the degrees differ from row to row, and one product with the mask gives all of them.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError

Reference: TypeAlias = Literal["logistic", "normal"]
REFERENCES: tuple[Reference, ...] = ("logistic", "normal")
EDGE = 1e-4  # probabilities of edges stay within (EDGE, 1 − EDGE)
NEIGHBOURS = 10


def quantile(probability: Tensor, reference: Reference) -> Tensor:
    """F⁻¹(θ)"""
    if reference == "logistic":
        return torch.logit(probability)
    found: Tensor = torch.special.ndtri(probability)
    return found


def softened(
    probability: Tensor, draws: Tensor, temperature: float, reference: Reference
) -> Tensor:
    """z of draws s from the reference distribution."""
    return torch.sigmoid((quantile(probability, reference) - draws) / temperature)


def reference_draws(
    shape: tuple[int, ...], reference: Reference, generator: torch.Generator
) -> Tensor:
    if reference == "normal":
        return torch.randn(shape, generator=generator)
    return torch.logit(torch.rand(shape, generator=generator), eps=1e-6)


def theorem(
    t: npt.ArrayLike, probability: float, temperature: float, reference: Reference
) -> Array:
    """P(z ≤ t), to compare draws with.

    >>> float(theorem(0.5, 0.3, 0.1, "logistic").round(3))
    0.7
    """
    shift = temperature * np.log(1 / np.asarray(t, np.float64) - 1)
    at = torch.tensor(probability, dtype=torch.float64)
    moved = quantile(at, reference) + torch.as_tensor(shift)
    below = torch.sigmoid(moved) if reference == "logistic" else torch.special.ndtr(moved)
    return np.asarray((1 - below).numpy())


def bias(probability: float, temperature: float, reference: Reference) -> float:
    """E[z] − θ, by its leading term: the density's slope at F⁻¹(θ) times τ² π² / 6.

    >>> round(bias(0.1, 0.1, "logistic"), 4)
    0.0012
    """
    at = quantile(torch.tensor(probability, dtype=torch.float64), reference).item()
    if reference == "logistic":
        slope = probability * (1 - probability) * (1 - 2 * probability)
    else:
        slope = -at * np.exp(-(at**2) / 2) / sqrt(2 * pi)
    return float(slope * temperature**2 * pi**2 / 6)


def drawn(
    pairs: Tensor, owners: int, temperature: float, reference: Reference, generator: torch.Generator
) -> Tensor:
    """A symmetric graph (owners, owners) of probabilities of pairs (owners (owners − 1) / 2,)."""
    draws = reference_draws(tuple(pairs.shape), reference, generator)
    return filled(softened(pairs, draws, temperature, reference), owners)


def filled(pairs: Tensor, owners: int) -> Tensor:
    """Numbers of pairs i < j as a symmetric matrix with a diagonal of zeros."""
    upper = torch.triu_indices(owners, owners, offset=1)
    found = pairs.new_zeros(owners, owners)
    found = found.index_put((upper[0], upper[1]), pairs)
    return found + found.T


def nearest(features: Tensor, neighbours: int) -> Tensor:
    """(owners, owners): cosines with the nearest owners by features (owners, …), symmetric."""
    flat = torch.nn.functional.normalize(features.flatten(1), dim=1)
    cosine = flat @ flat.T
    outside = torch.eye(len(flat), dtype=torch.bool)
    count = min(neighbours, len(flat) - 1)
    chosen = torch.zeros_like(outside)
    if count:
        best = cosine.detach().masked_fill(outside, -2.0).topk(count, dim=1).indices
        chosen.scatter_(1, best, True)
    return torch.where(chosen | chosen.T, cosine.clamp(min=0.0), 0.0)


def given(graph: npt.ArrayLike, owners: int) -> Array:
    """A user's graph (owners, owners) as symmetric weights without a diagonal."""
    expected = (
        f"graph: expected weights ({owners}, {owners}), an array with a row an owner in the order "
        "of the federation or a frame with their names"
    )
    try:
        plain = graph.toarray() if hasattr(graph, "toarray") else graph  # sparse
        found = np.array(plain, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            f"{expected}, got {type(graph).__name__} that is no array of numbers; of a networkx "
            "graph, networkx.to_pandas_adjacency is a frame"
        ) from None
    if found.shape != (owners, owners):
        raise ParameterError(f"{expected}, got the shape {found.shape}")
    if not np.isfinite(found).all() or (found < 0).any():
        i, j = np.argwhere(~(np.isfinite(found) & (found >= 0)))[0]
        raise ParameterError(
            f"{expected}; weights must be finite and from 0, got {found[i, j]:g} in row {i}, "
            f"column {j}"
        )
    found = np.maximum(found, found.T)
    np.fill_diagonal(found, 0.0)
    return found


class Mixing:
    """How representations go from owners to owners: ``mix`` once, then ``pool`` to one vector.

    ``there`` (rows, owners) says who is there, 1 or 0; None if all are in every row. Values are
    (owners, features, rows), and those of absent owners are zeros.
    """

    def __init__(self, graph: Tensor | None, there: Tensor | None, owners: int) -> None:
        self.there = None if there is None else there.T  # (owners, rows)
        self.count = float(owners) if self.there is None else self.there.sum(dim=0).clamp(min=1)
        self.graph = None
        if graph is not None:
            loops = graph + torch.eye(owners)
            degree = loops.sum(dim=1, keepdim=True) if self.there is None else loops @ self.there
            self.scale = degree.clamp(min=1e-6).rsqrt()  # (owners, 1) or (owners, rows)
            self.graph = loops

    def mix(self, values: Tensor) -> Tensor:
        """(owners, features, rows)"""
        if self.graph is None:
            return values
        if self.there is None:  # a constant mixing: one product
            whole = self.scale * self.graph * self.scale.T
            return (whole @ values.flatten(1)).view(values.shape)
        scale = self.scale[:, None]
        return scale * (self.graph @ (scale * values).flatten(1)).view(values.shape)

    def pool(self, values: Tensor) -> Tensor:
        """(features, rows): mixed once more, and the mean over the owners that are there."""
        if self.graph is None:
            kept = values if self.there is None else values * self.there[:, None]
            return kept.sum(dim=0) / self.count
        if self.there is None:
            weight = (self.scale * self.graph * self.scale.T).sum(dim=0)
            return (weight @ values.flatten(1)).view(values.shape[1:]) / self.count
        weight = self.scale * (self.graph @ (self.scale * self.there)) * self.there
        return (weight[:, None] * values).sum(dim=0) / self.count
