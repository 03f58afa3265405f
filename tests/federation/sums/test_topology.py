"""Graphs over parties: every way to hand one in, what is refused, trees and hubs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.errors import FederationError
from fedcircuits.federation.sums.topology import (
    Neighbourhood,
    Topology,
    hubs,
    plain,
    spanning_tree,
    within,
)
from tests.federation.sums.graphs import topologies

FOUR = ("north", "east", "south", "west")
NINE = tuple("123456789")


def as_networkx(topology: Topology) -> Any:
    graph = nx.Graph(topology.edges)
    graph.add_nodes_from(topology.names)
    return graph


# ---------------------------------------------------------------------- ways to hand one in


@pytest.mark.parametrize(
    "graph",
    [
        [("north", "east"), ("south", "east"), ("west", "south")],
        [(0, 1), (1, 2), (2, 3), (3, 2), (2, 2)],  # twice, and a loop
        np.array([[0, 1], [1, 2], [2, 3]]).tolist(),
        nx.path_graph(4),
        nx.Graph([("east", "north"), ("east", "south"), ("south", "west")]),
        nx.MultiGraph([(3, 2), (1, 2), (2, 1), (0, 1)]),
        "path",
    ],
)
def test_the_same_graph(graph: Any) -> None:
    found = Topology.of(graph, FOUR)
    assert found == Topology(FOUR, (("east",), ("north", "south"), ("east", "west"), ("south",)))
    assert found.edges == (("north", "east"), ("east", "south"), ("south", "west"))
    assert Topology.of(found, FOUR) is found
    assert hash(plain(graph)) is not None


def test_parties_in_another_order() -> None:
    found = Topology.of(Topology.of("path", FOUR), FOUR[::-1])
    assert found == Topology.of("path", FOUR[::-1])


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("complete", nx.complete_graph),
        ("cycle", lambda n: nx.cycle_graph(n) if n > 2 else nx.path_graph(n)),
        ("path", nx.path_graph),
        ("star", lambda n: nx.star_graph(n - 1)),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_graphs_by_name(name: str, reference: Callable[[int], Any], count: int) -> None:
    names = [f"party {i}" for i in range(count)]
    assert Topology.of(name, names) == Topology.of(reference(count), names)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 12, 30])
@pytest.mark.parametrize("name", ["grid", "geometric", "scale-free"])
def test_drawn_graphs_connect_any_number_of_parties(name: str, count: int) -> None:
    names = [f"party {i}" for i in range(count)]
    for seed in range(5):
        found = Topology.of(name, names, seed=seed)
        assert nx.is_connected(as_networkx(found))
        assert found == Topology.of(name, names, seed=seed)
    if name != "grid" and count == 30:
        assert Topology.of(name, names, seed=1) != Topology.of(name, names, seed=2)


def test_grid() -> None:
    found = as_networkx(Topology.of("grid", [str(i) for i in range(12)]))
    assert nx.is_isomorphic(found, nx.grid_2d_graph(3, 4))


def test_geometric_links_who_is_near() -> None:
    names = [str(i) for i in range(50)]
    wide, near = (Topology.of("geometric", names, radius=r, seed=3) for r in (0.6, 0.4))
    assert set(near.edges) < set(wide.edges)
    with pytest.raises(FederationError, match=r"is not connected: .* radius=0\.\d+ would connect"):
        Topology.of("geometric", names, radius=0.05, seed=3)
    assert len(Topology.of("geometric", names, radius=2.0).edges) == 50 * 49 / 2


def test_scale_free_has_parties_with_many_links() -> None:
    found = Topology.of("scale-free", [str(i) for i in range(100)], links=3, seed=2)
    assert len(found.edges) == 3 * (100 - 3)
    assert max(map(len, found.neighbours)) > 15


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ([(0, 1), (2, 3)], "is not connected: there is no path from north to south; add links"),
        ([(0, 1), (1, 2), (2, 4)], "has 4, which is not a party: expected numbers 0 to 3"),
        (
            [("north", "east"), ("east", "up")],
            "has 'up', which is not a party: expected north, east",
        ),
        ([("north", "east")], "lacks south, west: every party must be in it"),
        ([("north", 1)], "has 1, which is not a party"),
        ([], "lacks north, east, south, west"),
        (nx.path_graph(3), "lacks west"),
        (nx.DiGraph([(0, 1), (1, 2), (2, 3)]), r"got a directed one: pass graph.to_undirected\(\)"),
        (nx.grid_2d_graph(2, 2), r"a node \(0, 0\) of the graph: expected names of parties"),
        (None, "graph=None: expected the name of a graph, pairs of parties, or a networkx graph"),
        ({"north": ["east"]}, "expected pairs of parties as links, got 'north'"),
        ([(0, 1), (1,)], r"expected pairs of parties as links, got \(1,\)"),
        ("ring", "an unknown graph 'ring': expected complete, cycle, path, star, grid, geometric"),
        (Topology.of("path", FOUR[:3]), "lacks west"),
        (Topology.of("path", (*FOUR, "up")), "has 'up', which is not a party"),
    ],
)
def test_graphs_that_do_not_fit(graph: Any, words: str) -> None:
    with pytest.raises(FederationError, match=words):
        Topology.of(graph, FOUR)


def test_settings_that_make_no_graph() -> None:
    with pytest.raises(FederationError, match="needs links ≥ 1, got 0"):
        Topology.of("scale-free", FOUR, links=0)
    with pytest.raises(FederationError, match="needs at least one party"):
        Topology.of("path", [])
    with pytest.raises(FederationError, match="hubs of -1 hops"):
        hubs(Topology.of("path", FOUR), -1)


# ---------------------------------------------------------------------- trees


@given(topologies())
def test_spanning_trees_are_the_shortest(topology: Topology) -> None:
    tree, graph = spanning_tree(topology), as_networkx(topology)
    assert tree.depth == nx.radius(graph)
    assert set(tree.parents) == set(topology.names) - {tree.root}
    for child, parent in tree.parents.items():
        assert parent in topology[child] and child in tree.children[parent]
    assert sum(map(len, tree.children.values())) == len(topology.names) - 1
    far = within(topology, tree.root, len(topology.names))
    assert far == nx.single_source_shortest_path_length(graph, tree.root)


@given(topologies(), st.data())
def test_spanning_trees_from_a_root(topology: Topology, data: st.DataObject) -> None:
    root = data.draw(st.sampled_from(topology.names))
    tree = spanning_tree(topology, root)
    assert tree.root == root and tree.depth == nx.eccentricity(as_networkx(topology), root)


def test_centres() -> None:
    assert spanning_tree(Topology.of("star", FOUR)).root == "north"
    assert spanning_tree(Topology.of("path", FOUR)).root == "east"
    assert spanning_tree(Topology.of("complete", FOUR)).depth == 1


# ---------------------------------------------------------------------- hubs


def test_hubs_as_in_the_paper() -> None:
    """Nine agents and 1 hop: {1, …, 5} around 2, {6, 7, 8} around 6, and 9 alone."""
    edges = [(1, 2), (2, 3), (2, 4), (2, 5), (5, 6), (6, 7), (6, 8), (4, 9), (1, 3)]
    graph = Topology.of([(str(a), str(b)) for a, b in edges], NINE)
    found = hubs(graph, 1)
    assert found == (
        Neighbourhood("2", tuple("12345")),
        Neighbourhood("6", tuple("678")),
        Neighbourhood("9", tuple("9")),
    )


def test_without_hops_everyone_is_alone() -> None:
    graph = Topology.of("cycle", FOUR)
    found = hubs(graph, 0)
    assert found == tuple(Neighbourhood(n, (n,)) for n in FOUR)


def test_ways_through_hubs_that_have_left_do_not_count() -> None:
    """After b's hub is gone, e and f reach each other no more, though they are 2 hops apart."""
    edges = [*(("b", n) for n in "acdgh"), ("a", "e"), ("a", "f")]
    graph = Topology.of(edges, tuple("abcdefgh"))
    assert hubs(graph, 1) == (
        Neighbourhood("b", tuple("abcdgh")),
        Neighbourhood("e", ("e",)),
        Neighbourhood("f", ("f",)),
    )


@given(topologies(), st.integers(0, 3))
def test_hubs_part_the_parties(topology: Topology, hops: int) -> None:
    found, graph = hubs(topology, hops), as_networkx(topology)
    members = [m for hub in found for m in hub.members]
    assert sorted(members) == sorted(topology.names)
    sizes = [len(hub.members) for hub in found]
    assert sizes == sorted(sizes, reverse=True)
    largest = max(len(nx.ego_graph(graph, n, hops)) for n in graph)
    assert sizes[0] == largest
    for hub in found:
        inside = graph.subgraph(hub.members)
        assert nx.eccentricity(inside, hub.root) <= hops
