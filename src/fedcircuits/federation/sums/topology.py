"""The communication graph: an undirected, connected graph over the parties that all of them know.

A graph is given by name, as pairs of parties, or as a networkx graph. Nodes are names of parties,
or the numbers 0 to N−1 in the order of the parties. Links work in both directions, so directed
graphs are refused; self-loops are dropped. Graphs by name:

    complete, cycle, path
    star          the first party in the middle
    grid          rows of ⌈√N⌉ parties, the last one may be shorter
    geometric     parties at random places of the unit square, linked if they are at most ``radius``
                  apart; without a radius, the smallest one that connects them all
    scale-free    Barabási and Albert: each new party links to ``links`` others, preferring those
                  with many links

h-hop hubs (vertically partitioned EM, section 4): the party with the most others within h hops
becomes a root and those others join it; they all leave the graph, and the rule is applied again.
With 0 hops every party is alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Protocol, TypeAlias, runtime_checkable

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError

Node: TypeAlias = str | int
Pairs: TypeAlias = list[tuple[int, int]]
Edge: TypeAlias = tuple[Node, Node]


@runtime_checkable
class NetworkxGraph(Protocol):
    """The part of a networkx graph that is read."""

    @property
    def nodes(self) -> Iterable[Node]: ...

    @property
    def edges(self) -> Iterable[Edge]: ...

    def is_directed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Links:
    """A graph as plain values, before it is known which parties there are."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Each party's neighbours, both in the order of the parties.

    >>> Topology.of("cycle", ["north", "east", "south", "west"])["north"]
    ('east', 'west')
    """

    names: tuple[str, ...]
    neighbours: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls,
        graph: Graph,
        parties: Sequence[str],
        *,
        radius: float | None = None,
        links: int = 2,
        seed: int = 0,
    ) -> Topology:
        """The graph over these parties, or FederationError if it does not fit them.

        radius and seed are for "geometric", links and seed for "scale-free".
        """
        names = tuple(parties)
        if isinstance(graph, str):
            return _named(graph, names, radius, links, seed)
        known = plain(graph)
        if isinstance(known, Topology) and known.names == names:
            return known
        as_links = known.as_links if isinstance(known, Topology) else known
        assert isinstance(as_links, Links)
        return _checked(_from_links(as_links, names))

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.neighbours[self.names.index(name)]

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Every link once, from the earlier party to the later one."""
        place = {name: i for i, name in enumerate(self.names)}
        return tuple(
            (name, other)
            for name, others in zip(self.names, self.neighbours, strict=True)
            for other in others
            if place[other] > place[name]
        )

    @property
    def as_links(self) -> Links:
        return Links(self.names, self.edges)

    @property
    def adjacency(self) -> Array:
        """1 where two parties are linked."""
        place = {name: i for i, name in enumerate(self.names)}
        matrix = np.zeros((len(self.names), len(self.names)))  # (parties, parties)
        for i, others in enumerate(self.neighbours):
            matrix[i, [place[other] for other in others]] = 1.0
        return matrix

    def __repr__(self) -> str:
        return f"<Topology of {len(self.names)} parties, {len(self.edges)} links>"


Graph: TypeAlias = str | Topology | Links | NetworkxGraph | Iterable[Edge]
PlainGraph: TypeAlias = str | Topology | Links


def plain(graph: Graph) -> PlainGraph:
    """The same graph as values that can be compared and sent."""
    if isinstance(graph, str | Topology | Links):
        return graph
    if isinstance(graph, NetworkxGraph):
        if graph.is_directed():
            raise FederationError(
                "expected an undirected graph, got a directed one: pass graph.to_undirected()"
            )
        return Links(tuple(map(_node, graph.nodes)), _edges(graph.edges))
    if not isinstance(graph, Iterable):
        raise FederationError(
            f"graph={graph!r}: expected the name of a graph, pairs of parties, or a networkx graph"
        )
    edges = _edges(graph)
    return Links(tuple(dict.fromkeys(node for edge in edges for node in edge)), edges)


def _edges(pairs: Iterable[Iterable[Node]]) -> tuple[Edge, ...]:
    edges: list[Edge] = []
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) < 2:
            raise FederationError(f"expected pairs of parties as links, got {pair!r}")
        edges.append((_node(pair[0]), _node(pair[1])))  # multigraphs have a third part, a key
    return tuple(edges)


def _node(node: object) -> Node:
    if isinstance(node, str):
        return node
    try:
        return index(node)  # type: ignore[arg-type]
    except TypeError:
        raise FederationError(
            f"a node {node!r} of the graph: expected names of parties, or numbers in their order "
            "(networkx.convert_node_labels_to_integers)"
        ) from None


# ---------------------------------------------------------------------- the graph over parties


@lru_cache(maxsize=64)
def _named(
    graph: str, names: tuple[str, ...], radius: float | None, links: int, seed: int
) -> Topology:
    edges, advice = named(graph, len(names), radius, links, seed)
    return _checked(_linked(names, ((names[a], names[b]) for a, b in edges)), advice)


def _from_links(graph: Links, names: tuple[str, ...]) -> Topology:
    numbered = bool(graph.nodes) and all(isinstance(node, int) for node in graph.nodes)
    parties: dict[Node, str] = dict(enumerate(names)) if numbered else {n: n for n in names}
    for node in graph.nodes:
        if node not in parties:
            raise FederationError(
                f"the graph has {node!r}, which is not a party: expected "
                f"{f'numbers 0 to {len(names) - 1}, or ' if numbered else ''}{', '.join(names)}"
            )
    absent = [name for node, name in parties.items() if node not in set(graph.nodes)]
    if absent and len(names) > 1:
        raise FederationError(
            f"the graph lacks {', '.join(absent[:5])}{', …' if len(absent) > 5 else ''}: every "
            "party must be in it"
        )
    return _linked(names, ((parties[a], parties[b]) for a, b in graph.edges))


def _linked(names: tuple[str, ...], edges: Iterable[tuple[str, str]]) -> Topology:
    place = {name: i for i, name in enumerate(names)}
    neighbours: list[set[int]] = [set() for _ in names]
    for a, b in edges:
        if a != b:
            neighbours[place[a]].add(place[b])
            neighbours[place[b]].add(place[a])
    return Topology(
        names, tuple(tuple(names[j] for j in sorted(neighbours_of)) for neighbours_of in neighbours)
    )


def _checked(topology: Topology, advice: str = "") -> Topology:
    if not topology.names:
        raise FederationError("a graph needs at least one party, got none")
    reached = within(topology, topology.names[0], len(topology.names))
    if apart := [name for name in topology.names if name not in reached]:
        raise FederationError(
            f"the graph is not connected: there is no path from {topology.names[0]} to {apart[0]}; "
            f"{advice or 'add links until every party can reach every other'}"
        )
    return topology


# ---------------------------------------------------------------------- trees and hubs


@dataclass(frozen=True, slots=True)
class SpanningTree:
    """Shortest ways from every party to the root."""

    root: str
    parents: dict[str, str]  # of every party but the root
    children: dict[str, tuple[str, ...]]
    depth: int


@lru_cache(maxsize=64)
def spanning_tree(topology: Topology, root: str | None = None) -> SpanningTree:
    """By breadth-first search from the root; without one, from a centre, which minimises the depth.

    >>> spanning_tree(Topology.of("path", ["a", "b", "c"])).root
    'b'
    """
    root = _centre(topology) if root is None else root
    hops = within(topology, root, len(topology.names))
    place = {name: i for i, name in enumerate(topology.names)}
    children: dict[str, list[str]] = {name: [] for name in topology.names}
    parents: dict[str, str] = {}
    for name in sorted(hops, key=lambda n: (hops[n], place[n])):
        if name != root:
            parents[name] = next(n for n in topology[name] if hops[n] == hops[name] - 1)
            children[parents[name]].append(name)
    tuples = {name: tuple(below) for name, below in children.items()}
    return SpanningTree(root, parents, tuples, max(hops.values()))


@lru_cache(maxsize=64)
def star(members: tuple[str, ...], hub: str) -> SpanningTree:
    """All other members next to the hub."""
    others = tuple(m for m in members if m != hub)
    below: dict[str, tuple[str, ...]] = dict.fromkeys(others, ())
    return SpanningTree(hub, dict.fromkeys(others, hub), {**below, hub: others}, 1)


def _centre(topology: Topology) -> str:
    count = len(topology.names)
    for name, others in zip(topology.names, topology.neighbours, strict=True):
        if len(others) == count - 1:
            return name
    hops = shortest_path(csr_array(topology.adjacency), unweighted=True)  # (parties, parties)
    return topology.names[int(hops.max(1).argmin())]


def within(
    topology: Topology, start: str, hops: int, left: Collection[str] | None = None
) -> dict[str, int]:
    """Hops to all parties at most ``hops`` away, by paths through ``left`` only."""
    distances, edge = {start: 0}, [start]
    around = dict(zip(topology.names, topology.neighbours, strict=True))
    for far in range(1, hops + 1):
        edge = list(
            dict.fromkeys(
                other
                for name in edge
                for other in around[name]
                if other not in distances and (left is None or other in left)
            )
        )
        if not edge:
            break
        distances |= dict.fromkeys(edge, far)
    return distances


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A hub: its root, and everyone in it (the root too) in the order of the parties."""

    root: str
    members: tuple[str, ...]


def hubs(topology: Topology, hops: int) -> tuple[Neighbourhood, ...]:
    """h-hop hubs, largest first; between equals the earlier party is the root.

    >>> [hub.members for hub in hubs(Topology.of("path", ["a", "b", "c", "d"]), 1)]
    [('a', 'b', 'c'), ('d',)]
    """
    if hops < 0:
        raise FederationError(f"hubs of {hops} hops: expected 0 or more")
    left = dict.fromkeys(topology.names)
    neighbourhoods = []
    while left:
        balls = {name: within(topology, name, hops, left) for name in left}
        root = max(balls, key=lambda name: len(balls[name]))
        neighbourhoods.append(Neighbourhood(root, tuple(n for n in left if n in balls[root])))
        left = {name: None for name in left if name not in balls[root]}
    return tuple(neighbourhoods)


# ---------------------------------------------------------------------- graphs by name


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
