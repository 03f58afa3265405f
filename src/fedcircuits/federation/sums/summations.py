"""Ways to add up arrays of parties: each a choice of who talks to whom, and so of who learns what.

                 messages of a sum     rounds            error        who sees what
    Hub          2 N                   2                 none         a server, every array
    Tree         2 (N − 1)             2 × depth         none         parents, sums of branches
    Chebyshev    2 × links × rounds    by the graph      tolerance    neighbours, every array
    Metropolis   2 × links × rounds    their square      tolerance    neighbours, every array

With two parties each learns the other's array in any case, by subtracting its own from the sum. A
hub and a tree give every member the same bits. Gossiping members end up with sums that differ
within the tolerance, so one of them must announce any decision based on a sum.

Errors are relative to N × the largest |value| of any member, for each entry of the array. Rounding
limits them to about 1e-14: where values cancel, or share a large offset, subtract the offset
first.

``dtype="float32"`` halves the bytes. Sums are still made in float64. At a hub and in a tree they
are right to about 1e-7; a gossiping member sends how its value has changed since its last message,
so that rounding shrinks as values settle, and the tolerance holds as with float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from fedcircuits.arguments import Choice, Declared, Real, Whole, check_arguments
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.sums.collectives import GossipSum, Summation, Traffic, TreeSum
from fedcircuits.federation.sums.consensus import (
    GossipSchedule,
    chebyshev_schedule,
    metropolis_schedule,
    weight,
)
from fedcircuits.federation.sums.topology import Graph, Links, Topology, plain, spanning_tree, star

DTYPE = Choice("float64", "float32")  # as which numbers travel
UNITS: dict[Traffic, float] = {"float64": 0.0, "float32": 2.0**-24}  # by which gossip is rounded


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one sum: exact counts, and the largest error relative to N × max |value|.

    It ignores the rounding of float64, and that of float32 at a hub or in a tree.
    """

    rounds: int
    messages: int
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Hub(Summation):
    """A server adds up: 2 messages per party, exact.

    The server learns every party's array, the parties only the result. Its flow runs as
    "coordinator", it holds no data and contributes zeros.

    >>> Hub().members(["north", "south"])
    ('north', 'south', 'coordinator')
    """

    allowed: ClassVar[Declared] = {"dtype": DTYPE}
    dtype: Traffic = "float64"

    def __post_init__(self) -> None:
        check_arguments(self, FederationError)

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        return (*parties, COORDINATOR)

    def at(self, me: str, members: Sequence[str]) -> TreeSum:
        _check_member(me, members)
        if COORDINATOR not in members:
            raise FederationError(
                f"Hub() adds up at {COORDINATOR!r}, which is not among the members "
                f"{', '.join(members)}: use Hub().members(parties)"
            )
        return TreeSum(me, star(tuple(members), COORDINATOR), self.dtype)

    def cost(self, members: Sequence[str]) -> Cost:
        return Cost(2, 2 * (len(members) - 1))


class AlongLinks(Summation):
    """Summations in which parties talk to their neighbours in a graph."""

    __slots__ = ()
    graph: Graph

    def __post_init__(self) -> None:
        check_arguments(self, FederationError)
        object.__setattr__(self, "graph", plain(self.graph))

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        return self.topology(parties).names

    def topology(self, parties: Sequence[str]) -> Topology:
        return Topology.of(self.graph, parties)

    def without_lost(self, parties: Sequence[str], remaining: Sequence[str]) -> Self:
        return replace(self, graph=_remaining(self.graph, parties, remaining))  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Tree(AlongLinks):
    """Sums go up a spanning tree of the graph and the result comes down: 2 (N − 1) messages, exact.

    The tree is one of shortest ways to a party in the middle. A party learns the sum of each branch
    below it, so the array itself of a neighbour that is a leaf, and the result. The fewest messages
    without a server; every link of the tree has to work.

    >>> Tree("cycle").cost(["a", "b", "c", "d", "e"])
    Cost(rounds=4, messages=8, error=0.0)
    """

    allowed: ClassVar[Declared] = {"dtype": DTYPE}
    graph: Graph = "complete"
    dtype: Traffic = "float64"

    def at(self, me: str, members: Sequence[str]) -> TreeSum:
        _check_member(me, members)
        return TreeSum(me, spanning_tree(Topology.of(self.graph, members)), self.dtype)

    def cost(self, members: Sequence[str]) -> Cost:
        tree = spanning_tree(Topology.of(self.graph, members))
        return Cost(2 * tree.depth, 2 * (len(members) - 1))


@dataclass(frozen=True, slots=True)
class Gossip(AlongLinks):
    """Rounds in which every party sends its running average to all its neighbours.

    ``rounds`` fixes the number of rounds, and ``cost`` then tells the error to expect.
    """

    exact: ClassVar[bool] = False
    allowed: ClassVar[Declared] = {
        "tolerance": Real(above=0, below=1), "rounds": Whole(1, or_=(None,)), "dtype": DTYPE,
    }  # fmt: skip

    graph: Graph
    tolerance: float = 1e-10
    rounds: int | None = None
    dtype: Traffic = "float64"

    def at(self, me: str, members: Sequence[str]) -> GossipSum:
        _check_member(me, members)
        topology = Topology.of(self.graph, members)
        degree = {n: len(topology[n]) for n in (me, *topology[me])}
        tree = spanning_tree(topology, topology.names[0])
        weights = tuple((n, weight(degree[me], degree[n])) for n in topology[me])
        steps = self.schedule(topology).steps
        return GossipSum(me, tree, len(members), weights, steps, self.dtype)

    def cost(self, members: Sequence[str]) -> Cost:
        topology = Topology.of(self.graph, members)
        schedule = self.schedule(topology)
        rounds = len(schedule.steps)
        return Cost(rounds, 2 * len(topology.edges) * rounds, schedule.off)

    @abstractmethod
    def schedule(self, topology: Topology) -> GossipSchedule:
        """The steps of all rounds, which follow from the graph and are the same at every party."""


@dataclass(frozen=True, slots=True)
class Chebyshev(Gossip):
    """Gossip with Chebyshev's acceleration: no server, no tree, and few rounds.

    A party learns each neighbour's array (its first message), then running averages, from which it
    can often work out arrays of parties further away, and the sum up to the tolerance. Every party
    must take part in every round.

    >>> Chebyshev("cycle", tolerance=1e-6).cost([f"party {i}" for i in range(20)])
    Cost(rounds=50, messages=2000, error=...e-07)
    """

    def schedule(self, topology: Topology) -> GossipSchedule:
        return chebyshev_schedule(topology, self.tolerance, self.rounds, UNITS[self.dtype])


@dataclass(frozen=True, slots=True)
class Metropolis(Gossip):
    """Gossip as in the paper on vertically partitioned EM: plain averages by Metropolis weights.

    A party learns what it learns with Chebyshev, in many more rounds; the paper takes rounds=100,
    which on sparse graphs is far from a sum.

    >>> Metropolis("cycle", tolerance=1e-6).cost([f"party {i}" for i in range(20)])
    Cost(rounds=427, messages=17080, error=...e-07)
    """

    def schedule(self, topology: Topology) -> GossipSchedule:
        return metropolis_schedule(topology, self.tolerance, self.rounds, UNITS[self.dtype])


def _remaining(graph: Graph, parties: Sequence[str], remaining: Sequence[str]) -> Graph:
    """The graph without lost parties."""
    if tuple(parties) == tuple(remaining):
        return graph
    edges = Topology.of(graph, parties).edges
    return Links(tuple(remaining), tuple((a, b) for a, b in edges if {a, b} <= set(remaining)))


def _check_member(me: str, members: Sequence[str]) -> None:
    if me not in members:
        raise FederationError(f"{me} is not among the members {', '.join(members)}")
