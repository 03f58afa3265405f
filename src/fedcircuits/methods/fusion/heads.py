"""The heads of a fusion: they align representations, mix them over a graph, and predict.

h is (owners, rows, width), zeros where an owner is absent or has a narrower representation.

    alignment   P_i h_i. "linear": any matrix (width, width), near the identity to begin with; where
                the hidden layer is wider, (width, hidden), its further numbers at random.
                "sinkhorn": doubly stochastic, so nearly a permutation; exp of a matrix, its rows
                and columns normalised alternately, in the log domain. None: unchanged.
    gcn         mean_i [Â ReLU(Â P h W₀ + b₀)]_i W₁ + b₁, with Â the mixing over the graph
    mean        the same without a graph, equation (5) of the paper
    concat      ReLU(Σ_i V_i h_i + b) W₁ + b₁: a layer over all representations end to end
    transformer two layers of attention between owners, the mean, a linear layer; four heads, or two
                or one where the width is not a multiple of four

A graph is given, complete, of nearest neighbours, or learned. A learned one has an edge between i
and j with probability θ_ij. Drawn edges have no gradient, so they are softened (Ma, Hoang and Chen
2023, definition 1): with F the distribution function of a reference distribution and s drawn from
it, z = σ((F⁻¹(θ) − s) / τ), which tends to Bernoulli(θ) as the temperature τ → 0. One draw per
edge; the Gumbel trick needs two, whose difference is logistic, so it is this rule with the logistic
reference. A graph shows what helped prediction, not who depends on whom.

The mixing is Â = D^−½ (A + I) D^−½, with D the degrees among the present owners. Where owners are
missing, degrees differ from row to row, and one product with the mask gives all of them. A complete
graph averages all present owners, so that all have the same value afterwards, ReLU(mean_i P_i h_i
W₀ + b₀): with alignment, this is the layer of "concat". P_i W₀ is folded into one matrix per owner,
and the second mixing into a vector, so that a step costs one product with the graph.

Without absent owners the mean is over the others, which suits owners with redundant information; a
number of which each owner holds a part becomes smaller with fewer of them. Where numbers are
predicted, the pooled value is therefore multiplied by share^γ: the share of present owners, with γ
learned from 0 ("presence").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod, sqrt
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.records import BelowOne, Positive, Size
from fedcircuits.errors import FederationError, ParameterError

Align: TypeAlias = Literal["linear", "sinkhorn"] | None
Head: TypeAlias = Literal["gcn", "mean", "concat", "transformer"]
Reference: TypeAlias = Literal["logistic", "normal"]
GraphName: TypeAlias = Literal["learned", "expected", "complete", "knn", "given"] | None
Graph: TypeAlias = Tensor | Literal["complete"] | None
Values: TypeAlias = Mapping[str, Tensor]
LAYERS, ATTENTION = 2, 4  # of the transformer: layers, heads
ROUNDS = 10  # of Sinkhorn's rule
NEAR = 3.0  # log of how much larger the diagonal of a doubly stochastic start is
EDGE = 1e-4  # probabilities of edges stay within (EDGE, 1 − EDGE)
NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How a fusion is made and learned; the arguments of ``FeatureFusion`` of the same names."""

    align: Align = "linear"
    graph: GraphName = "learned"
    head: Head = "gcn"
    reference: Reference = "logistic"
    temperature: Positive = 0.1
    graph_draws: Size = 10
    owner_dropout: BelowOne = 0.0
    hidden: Size = 8
    epochs: Size = 500
    patience: Size = 50
    learning_rate: Positive = 0.01
    batch: Size = 100
    weight_decay: float = 0.0

    @property
    def has_graph(self) -> bool:
        return self.head == "gcn" and self.graph is not None

    @property
    def learns_graph(self) -> bool:
        return self.head == "gcn" and self.graph in ("learned", "expected")

    @property
    def standardises(self) -> bool:
        """Whether each owner has its own matrix, so that its numbers are standardised first."""
        return self.head == "concat" or self.align is not None

    def common(self, width: int) -> int:
        """How many numbers aligned representations have. In fewer than the hidden layer has, owners
        of few numbers would have to share them."""
        wider = self.align == "linear" and self.head in ("gcn", "mean")
        return max(width, self.hidden) if wider else width


# ---------------------------------------------------------------------- parameters


def shapes(
    settings: FusionSettings, owners: int, width: int, outputs: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters of a head, by name."""
    sizes: dict[str, tuple[int, ...]] = {}
    if settings.align is not None and settings.head != "concat":
        sizes["align"] = (owners, width, settings.common(width))
    if settings.head == "transformer":
        for layer in range(LAYERS):
            sizes |= {f"queries {layer}": (width, 3 * width), f"joined {layer}": (width, width)}
            sizes |= {f"wide {layer}": (width, 2 * width), f"narrow {layer}": (2 * width, width)}
        return sizes | {"last": (width, outputs), "last bias": (outputs,)}
    first = (settings.common(width), settings.hidden)
    sizes["first"] = (owners, *first) if settings.head == "concat" else first
    sizes |= {"first bias": (settings.hidden,), "last": (settings.hidden, outputs)}
    return sizes | {"last bias": (outputs,)}


def start(
    settings: FusionSettings, owners: int, width: int, outputs: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The parameters to begin with."""
    values: dict[str, np.ndarray] = {}
    for name, shape in shapes(settings, owners, width, outputs).items():
        if name == "align":
            scale = 1.0 if settings.align == "linear" else NEAR
            values[name] = scale * np.eye(shape[1], shape[2]) + rng.normal(0.0, 0.01, shape)
            more = (owners, width, shape[2] - width)  # numbers that no owner has: of any
            values[name][:, :, width:] = rng.normal(size=more) / sqrt(width)
        elif name.endswith("bias"):
            values[name] = np.zeros(shape)
        else:
            bound = sqrt(3 / prod(shape[:-1]))
            values[name] = rng.uniform(-bound, bound, shape)
    return values


def alignment(values: Values, align: Align) -> Tensor | None:
    """P (owners, width, common width): row j of P_i says where component j of h_i goes."""
    if "align" not in values:
        return None
    return values["align"] if align == "linear" else sinkhorn(values["align"])


def sinkhorn(logits: Tensor, rounds: int = ROUNDS) -> Tensor:
    """Doubly stochastic matrices: rows add up to 1, columns nearly so."""
    for _ in range(rounds):
        logits = logits - logits.logsumexp(dim=-2, keepdim=True)
        logits = logits - logits.logsumexp(dim=-1, keepdim=True)
    return logits.exp()


# ---------------------------------------------------------------------- graphs


def quantile(probability: Tensor, reference: Reference) -> Tensor:
    """F⁻¹(θ)"""
    if reference == "logistic":
        return torch.logit(probability)
    value: Tensor = torch.special.ndtri(probability)
    return value


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


def drawn(pairs: Tensor, owners: int, settings: FusionSettings, source: torch.Generator) -> Tensor:
    """A symmetric graph (owners, owners) of probabilities of pairs (owners (owners − 1) / 2,)."""
    draws = reference_draws(tuple(pairs.shape), settings.reference, source)
    return filled(softened(pairs, draws, settings.temperature, settings.reference), owners)


def filled(pairs: Tensor, owners: int) -> Tensor:
    """Numbers of pairs i < j as a symmetric matrix with a diagonal of zeros."""
    upper = torch.triu_indices(owners, owners, offset=1)
    matrix = pairs.new_zeros(owners, owners)
    matrix = matrix.index_put((upper[0], upper[1]), pairs)
    return matrix + matrix.T


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


def given_weights(graph: npt.ArrayLike, owners: int) -> Array:
    """A user's graph (owners, owners) as symmetric weights without a diagonal."""
    expected = (
        f"graph: expected weights ({owners}, {owners}), an array with one row per owner in the "
        "order of the federation or a frame with their names"
    )
    try:
        plain = graph.toarray() if hasattr(graph, "toarray") else graph  # sparse
        weights = np.array(plain, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            f"{expected}, got {type(graph).__name__} that is no array of numbers; of a networkx "
            "graph, networkx.to_pandas_adjacency is a frame"
        ) from None
    if weights.shape != (owners, owners):
        raise ParameterError(f"{expected}, got the shape {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        i, j = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))[0]
        raise ParameterError(
            f"{expected}; weights must be finite and from 0, got {weights[i, j]:g} in row {i}, "
            f"column {j}"
        )
    weights = np.maximum(weights, weights.T)
    np.fill_diagonal(weights, 0.0)
    return weights


def given_graph(
    graph: object, parties: Sequence[str], owners: Sequence[str], began: Sequence[str]
) -> Array:
    """A user's graph over the parties that take part.

    A frame is read by its names, and need not have those who hold labels only, who are parties but
    no owners. An array is one of the parties that training ``began`` with, some of whom may be
    lost by now.
    """
    if not isinstance(graph, pd.DataFrame):
        here = [began.index(name) for name in parties]
        return given_weights(graph, len(began))[np.ix_(here, here)]  # type: ignore[arg-type]
    for axis in (list(graph.index), list(graph.columns)):
        for name in owners:
            if axis.count(name) != 1:
                how = "twice" if name in axis else "no row and column for"
                raise FederationError(f"graph has {how} {name!r}: expected one for each owner")
    here = [parties.index(name) for name in owners]
    weights = np.zeros((len(parties), len(parties)))
    weights[np.ix_(here, here)] = given_weights(
        graph.loc[list(owners), list(owners)].to_numpy(), len(owners)
    )
    return weights


class GraphMixing:
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
            matrix = self.scale * self.graph * self.scale.T
            return (matrix @ values.flatten(1)).view(values.shape)
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


# ---------------------------------------------------------------------- heads


def output(
    values: Values, settings: FusionSettings, h: Tensor, graph: Graph, there: Tensor | None
) -> Tensor:
    """(rows, outputs) of h (owners, rows, width); there (rows, owners) says who is there."""
    matrices, head = alignment(values, settings.align), settings.head
    if head == "transformer":
        pooled = _attended(values, h if matrices is None else torch.bmm(h, matrices), there)
    elif head == "concat":
        layer = _end_to_end(h) @ values["first"].flatten(0, 1) + values["first bias"]
        pooled = torch.relu(layer)
    elif head == "gcn" and isinstance(graph, str):
        layer = _averaged(values, matrices, h, there) + values["first bias"]
        pooled = _by_presence(values, torch.relu(layer), there)
    else:
        assert not isinstance(graph, str)
        mixing = GraphMixing(graph if head == "gcn" else None, there, len(h))
        layer = mixing.mix(projected(values, matrices, h)) + values["first bias"][:, None]
        pooled = _by_presence(values, mixing.pool(torch.relu(layer)).T, there)
    return pooled @ values["last"] + values["last bias"]


def _by_presence(values: Values, pooled: Tensor, there: Tensor | None) -> Tensor:
    """(rows, hidden), times share^γ of the owners that are there."""
    if there is None or "presence" not in values:
        return pooled
    share = there.sum(dim=1, keepdim=True).clamp(min=1) / there.shape[1]
    return pooled * share ** values["presence"]


def projected(values: Values, matrices: Tensor | None, h: Tensor) -> Tensor:
    """P_i h_i W₀, (owners, hidden, rows)."""
    first = values["first"]
    each = first.expand(len(h), *first.shape) if matrices is None else matrices @ first
    return torch.bmm(each.mT, h.mT)


def _end_to_end(h: Tensor) -> Tensor:
    """(rows, owners × width)"""
    return h.transpose(0, 1).flatten(1)


def _averaged(values: Values, matrices: Tensor | None, h: Tensor, there: Tensor | None) -> Tensor:
    """(rows, hidden): the mean of P_i h_i W₀ over the owners that are there."""
    count = len(h) if there is None else there.sum(dim=1, keepdim=True).clamp(min=1)
    if matrices is None:
        return h.sum(dim=0) @ values["first"] / count
    return _end_to_end(h) @ (matrices @ values["first"]).flatten(0, 1) / count


def _attended(values: Values, h: Tensor, there: Tensor | None) -> Tensor:
    """(rows, width)"""
    x = h.transpose(0, 1)  # (rows, owners, width)
    rows, owners, width = x.shape
    several = gcd(width, ATTENTION)
    mask = None
    if there is not None:  # in a row without anybody all look at zeros: attention to nothing is NaN
        mask = ((there > 0) | (there.sum(dim=1, keepdim=True) == 0))[:, None, None]
    for layer in range(LAYERS):
        normed = functional.layer_norm(x, (width,))
        parts = (normed @ values[f"queries {layer}"]).view(rows, owners, 3, several, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + mixed.transpose(1, 2).reshape(rows, owners, width) @ values[f"joined {layer}"]
        inner = torch.relu(functional.layer_norm(x, (width,)) @ values[f"wide {layer}"])
        x = x + inner @ values[f"narrow {layer}"]
    if there is None:
        return x.mean(dim=1)
    return (x * there[..., None]).sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1)
