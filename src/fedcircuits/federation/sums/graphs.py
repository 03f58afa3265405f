"""Graphs by name over parties 0 to N−1, as pairs.

complete, cycle, path
star          the first party in the middle
grid          rows of ⌈√N⌉ parties, the last one may be shorter
geometric     parties at random places of the unit square, linked if they are up to ``radius``
              apart; without a radius the smallest one that connects them all
scale-free    Barabási and Albert: each new party links to ``links`` others, preferring those
              that have many
"""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from fedcircuits.errors import FederationError

Pairs = list[tuple[int, int]]


def named(graph: str, count: int, radius: float | None, links: int, seed: int) -> tuple[Pairs, str]:
    """The links of a graph, and advice if they should not connect everyone."""
    if graph == "geometric":
        return _geometric(count, radius, seed)
    if graph == "scale-free":
        return _scale_free(count, links, seed), ""
    if graph in SHAPES:
        return SHAPES[graph](count), ""
    known = ", ".join([*SHAPES, "geometric", "scale-free"])
    raise FederationError(
        f"an unknown graph {graph!r}: expected {known}, pairs of parties, or a networkx graph"
    )


def _complete(count: int) -> Pairs:
    return [(i, j) for i in range(count) for j in range(i)]


def _cycle(count: int) -> Pairs:
    return [(i, (i + 1) % count) for i in range(count)]


def _path(count: int) -> Pairs:
    return [(i, i + 1) for i in range(count - 1)]


def _star(count: int) -> Pairs:
    return [(0, i) for i in range(1, count)]


def _grid(count: int) -> Pairs:
    width = math.isqrt(max(count - 1, 0)) + 1
    along = [(i, i + 1) for i in range(count - 1) if (i + 1) % width]
    return along + [(i, i + width) for i in range(count - width)]


SHAPES = {"complete": _complete, "cycle": _cycle, "path": _path, "star": _star, "grid": _grid}


def _scale_free(count: int, links: int, seed: int) -> Pairs:
    if links < 1:
        raise FederationError(f"a scale-free graph needs links ≥ 1, got {links}")
    if count <= links + 1:
        return _complete(count)
    return list(nx.barabasi_albert_graph(count, links, seed=seed).edges)


def _geometric(count: int, radius: float | None, seed: int) -> tuple[Pairs, str]:
    places = np.random.default_rng(seed).random((count, 2))  # (parties, 2)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)  # (parties, parties)
    needed = float(minimum_spanning_tree(apart).max()) if count > 1 else 0.0
    near = np.triu(apart <= (needed if radius is None else radius), 1)
    pairs = [(int(i), int(j)) for i, j in np.argwhere(near)]
    return pairs, f"radius={math.ceil(1000 * needed) / 1000} would connect them all"
