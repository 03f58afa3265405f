"""The density of a federated circuit, by counting which clusters meet in rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fedcircuits.federation.federation import Subspace
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.fedpc.assembly import leaf_name

Sizes = Mapping[str, Sequence[int]]
Given = Mapping[str, float]  # the value of every leaf


def mixture(members: list[tuple[str, int]], space: int, sizes: Sizes, leaves: Given) -> float:
    """Of leaves over one subspace, by the rows of their clusters."""
    rows = np.array([sizes[p][k] if k >= 0 else sum(sizes[p]) for p, k in members], float)
    values = [leaves[leaf_name(p, k, space)] for p, k in members]
    return float(rows @ values / rows.sum())


def by_hand(
    labels: Labels, parties: Sequence[str], spaces: Sequence[Subspace], sizes: Sizes, leaves: Given,
    most: int | None = None, first: int = 0,
) -> float:  # fmt: skip
    """Counts of combinations, and the chance of a new one for all clusters side by side."""
    rows = [tuple(r) for r in labels.tolist()]
    held = [{p for p, k in zip(parties, r, strict=True) if k >= 0} for r in rows]
    whole = [
        r for r, own in zip(rows, held, strict=True) if all(own & set(s.holders) for s in spaces)
    ]
    counts = Counter(whole)
    new = sum(n == 1 for n in counts.values()) / len(whole)
    if most is not None and len(counts) > most:
        kept = sorted(counts, key=lambda r: (-counts[r], r))[:most]
        new += 1 - sum(counts[r] for r in kept) / len(whole)
        counts = Counter({r: counts[r] for r in kept})
    new = min(new, 0.5) if len(counts) > 1 else 0.0
    total = 0.0
    for row, n in counts.items():
        clusters = dict(zip(parties, row, strict=True))
        parts = [
            mixture(
                [(p, clusters[p]) for p in s.holders if clusters[p] >= 0], i + first, sizes, leaves
            )
            for i, s in enumerate(spaces)
        ]
        total += (1 - new) * n / sum(counts.values()) * float(np.prod(parts))
    apart = [
        mixture([(p, k) for p in s.holders for k in range(len(sizes[p]))], i + first, sizes, leaves)
        for i, s in enumerate(spaces)
    ]
    return total + new * float(np.prod(apart))
