"""What a fusion does with representations: aligns them, joins them, predicts.

h is (owners, rows, width), zeros where an owner is absent or has a narrower representation.

    alignment   P_i h_i. "linear": any matrix (width, width), near the identity to begin with.
                "sinkhorn": doubly stochastic, so nearly a permutation; exp of a matrix, its rows
                and columns normalised in turn, in the log domain. None: as they come.
    gcn         mean_i [Â ReLU(Â P h W₀ + b₀)]_i W₁ + b₁, Â a mixing over the graph
    mean        the same without a graph, equation (5) of the paper
    concat      ReLU(Σ_i V_i h_i + b) W₁ + b₁: a layer over all representations end to end
    transformer two layers of attention between owners, the mean, a linear layer; four heads, or two
                or one where the width is no multiple of four

Owners that are absent leave the mean of the others, which suits owners that say the same; a number
that owners each hold a part of is less with fewer of them. So where numbers are predicted, what is
pooled is taken times share^γ, the share of the owners that are there and γ learned, 0 to begin with
("presence").

P_i W₀ is folded into one matrix an owner, and the second mixing into a vector, so that a step costs
one product a graph. A complete graph mixes by averaging all owners that are there, so that all have
the same ever after, ReLU(mean_i P_i h_i W₀ + b₀): aligned, it is the layer of "concat".

Where every owner has a matrix of its own, representations are standardised first (fusion.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, sqrt
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcircuits.methods.fusion.consensus_graph import Mixing

Align: TypeAlias = Literal["linear", "sinkhorn"] | None
Head: TypeAlias = Literal["gcn", "mean", "concat", "transformer"]
Values: TypeAlias = Mapping[str, Tensor]
Graph: TypeAlias = Tensor | Literal["complete"] | None
LAYERS, ATTENTION = 2, 4  # of the transformer: layers, heads
ROUNDS = 10  # of Sinkhorn's rule
NEAR = 3.0  # log of how much larger the diagonal of a doubly stochastic start is


def start(
    owners: int, width: int, outputs: int, hidden: int, align: Align, head: Head,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The parameters to begin with."""
    found: dict[str, np.ndarray] = {}
    if align is not None and head != "concat":
        scale = 1.0 if align == "linear" else NEAR
        noise = rng.normal(0.0, 0.01, (owners, width, width))
        found["align"] = scale * np.eye(width) + noise
    if head == "transformer":
        return found | _transformer_start(width, outputs, rng)
    if head == "concat":
        found["first"] = _uniform(rng, owners * width, (owners, width, hidden))
    else:
        found["first"] = _uniform(rng, width, (width, hidden))
    found["first bias"] = np.zeros(hidden)
    found["last"] = _uniform(rng, hidden, (hidden, outputs))
    found["last bias"] = np.zeros(outputs)
    return found


def _uniform(rng: np.random.Generator, inputs: int, shape: tuple[int, ...]) -> np.ndarray:
    bound = sqrt(3 / inputs)
    return rng.uniform(-bound, bound, shape)


def _transformer_start(width: int, outputs: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for layer in range(LAYERS):
        for name, shape in {
            "queries": (width, 3 * width), "joined": (width, width), "wide": (width, 2 * width),
            "narrow": (2 * width, width),
        }.items():  # fmt: skip
            found[f"{name} {layer}"] = _uniform(rng, shape[0], shape)
    found["last"] = _uniform(rng, width, (width, outputs))
    found["last bias"] = np.zeros(outputs)
    return found


def alignment(values: Values, align: Align) -> Tensor | None:
    """P (owners, width, width): row j of P_i says where component j of h_i goes."""
    if "align" not in values:
        return None
    return values["align"] if align == "linear" else sinkhorn(values["align"])


def sinkhorn(logits: Tensor, rounds: int = ROUNDS) -> Tensor:
    """Doubly stochastic matrices: rows add up to 1, columns nearly so."""
    for _ in range(rounds):
        logits = logits - logits.logsumexp(dim=-2, keepdim=True)
        logits = logits - logits.logsumexp(dim=-1, keepdim=True)
    return logits.exp()


def output(
    values: Values, align: Align, head: Head, h: Tensor, graph: Graph, there: Tensor | None
) -> Tensor:
    """(rows, outputs) of h (owners, rows, width); there (rows, owners) says who is there."""
    matrices = alignment(values, align)
    if head == "transformer":
        pooled = _attended(values, h if matrices is None else torch.bmm(h, matrices), there)
        return pooled @ values["last"] + values["last bias"]
    if head == "concat":
        layer = _end_to_end(h) @ values["first"].flatten(0, 1) + values["first bias"]
        return torch.relu(layer) @ values["last"] + values["last bias"]
    if head == "gcn" and isinstance(graph, str):
        layer = _averaged(values, matrices, h, there) + values["first bias"]
        return _by_presence(values, torch.relu(layer), there) @ values["last"] + values["last bias"]
    assert not isinstance(graph, str)
    mixing = Mixing(graph if head == "gcn" else None, there, len(h))
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
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + found.transpose(1, 2).reshape(rows, owners, width) @ values[f"joined {layer}"]
        inner = torch.relu(functional.layer_norm(x, (width,)) @ values[f"wide {layer}"])
        x = x + inner @ values[f"narrow {layer}"]
    if there is None:
        return x.mean(dim=1)
    return (x * there[..., None]).sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1)
