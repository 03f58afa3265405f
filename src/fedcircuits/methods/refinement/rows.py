"""The E-step by rows: parties hold different rows of the same columns. Every party evaluates the
whole circuit on its own rows, the expected statistics of all rows are added up, and every party
makes the same M-step of the whole circuit. A row that several parties hold counts several times.

A party adds the following numbers, and all parties learn their total:

    log-likelihood of its possible rows, number of impossible ones, number of rows   (3,)
    the same for its held-out rows                                                   (3,)
    expected counts of the sums above the leaves, then statistics of every leaf      (size,)

A hub, a tree and secret shares give all parties the same bits. With gossip they differ within the
tolerance; the weights above the leaves are then those of the first client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.direct import JointCounts
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.errors import FederationError, MessageError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, compute, digest, gather, receive, send
from fedcircuits.federation.messages import (
    Booleans,
    Count,
    Finite,
    FiniteMatrix,
    FiniteVector,
    Message,
    Share,
    blaming,
    encode_message,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.leaf_em import EMLeaf, Moments
from fedcircuits.learning.stopping import mean_likelihood
from fedcircuits.methods.refinement.roles import (
    LARGEST,
    NATS,
    A,
    Above,
    EMSite,
    LearnedWeights,
    Role,
    Shapes,
    checked_weights,
    statistics_problem,
)
from fedcircuits.tables.schema import Schema

Learned: TypeAlias = tuple[Circuit, Parameters]
COUNTS = "expected statistics of its rows for every node, their log-likelihood and number"
LIKELY = "the log-likelihood and number of its rows and of its held-out rows"
HEAD = 6  # numbers before the statistics
BEHIND = 2.0  # more rows than there are that a leaf counts at most (learning/leaf_em.py)
MOST = 2**31  # statistics of a circuit


class CircuitGraph(Message, frozen=True):
    """Coordinator → client: the graph above the leaves."""

    tag: ClassVar[str] = "em/graph"
    reveals: ClassVar[str] = (
        "the graph above the leaves and its weights, which say how many rows each node stands for"
    )

    circuit: str  # JSON
    weights: dict[str, FiniteMatrix]
    holders: dict[str, str]  # the party of every leaf
    held: Share  # of its rows that a party holds out


class LeafCircuit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A learned circuit: its graph as JSON, and its arrays by node and parameter."""

    graph: str
    arrays: dict[str, dict[str, Finite]]

    @classmethod
    def of(cls, learned: Learned) -> LeafCircuit:
        """Circuits that are leaves of it are written out."""
        circuit, parameters = inline(*learned)
        arrays = {n: dict(parameters[n]) for n in circuit.by_name if n in parameters}
        return cls(circuit.dumps(), arrays)

    def learned(self) -> Learned:
        """Checked like a file: an error of ours if it is no circuit."""
        circuit = Circuit.loads(self.graph)
        values = {
            n: {k: np.array(a) for k, a in arrays.items()} for n, arrays in self.arrays.items()
        }
        if surplus := values.keys() - circuit.by_name.keys():
            raise ProtocolError(f"there are arrays for {surplus.pop()!r}, which is no node")
        if any(statistics_problem(a) for arrays in values.values() for a in arrays.values()):
            raise ProtocolError(f"there are parameters beyond ±{LARGEST}")
        parameters = Parameters(values)
        parameters.check(circuit)
        return circuit, parameters


class PartyLeaves(Message, frozen=True):
    """Client → every other client."""

    tag: ClassVar[str] = "em/leaves"
    reveals: ClassVar[str] = "its learned leaves; mean and standard deviation of its columns"
    needs: ClassVar[str] = "collect"

    leaves: dict[str, LeafCircuit]
    mean: FiniteVector
    deviation: FiniteVector

    def circuits(self, nodes: Sequence[Leaf], schema: Schema, sender: str) -> dict[str, Learned]:
        """The circuits of these leaves of a graph."""
        for field, least in (("mean", -LARGEST), ("deviation", 1 / LARGEST)):
            moment = getattr(self, field)
            require_shape(moment, (len(schema),), sender, PartyLeaves, field)
            sound = bool(((moment >= least) & (moment <= LARGEST)).all())
            require(sound, sender, PartyLeaves, field, "it is of no column")
        names = {node.name for node in nodes}
        problem = f"expected {', '.join(sorted(names)) or 'none'}"
        require(self.leaves.keys() == names, sender, PartyLeaves, "leaves", problem)
        with blaming(sender, PartyLeaves, "leaves"):
            learned = {name: leaf.learned() for name, leaf in self.leaves.items()}
            for node in nodes:
                Parameters({}, learned).check(Circuit((node,), schema.select(node.scope)))
        return learned


class StatisticsSize(Message, frozen=True):
    """First client → coordinator, where it takes part in sums: how many numbers these have, and
    which of them are expected numbers of rows."""

    tag: ClassVar[str] = "em/size"
    reveals: ClassVar[str] = (
        "the number of statistics of its circuits, and which of them are counts"
    )

    size: Count
    counted: Booleans  # (size − HEAD,)


# ---------------------------------------------------------------------- both roles


class RowRole(Role[A]):
    """A member of the sums. ``share``: of held-out rows; ``size``: how many numbers it
    adds, which are zeros at a coordinator."""

    size, columns = HEAD, 0
    counted = np.zeros(0, np.bool_)  # which numbers after the head are of rows
    most = np.inf  # rows of all, where they are known

    def __init__(
        self,
        me: str,
        clients: Sequence[str],
        summation: Summation,
        share: float,
        leaves: Mapping[str, EMLeaf],
        above: A,
    ) -> None:
        super().__init__(leaves, above)
        self.members, self.share = summation.members(clients), share
        self.collective = summation.at(me, self.members)

    def contribution(self, t: int, last: bool) -> Flow[Array]:
        """What it adds. After the last round statistics are of no more use."""
        yield from ()
        return np.zeros(HEAD if last else self.size)

    def expect(self, t: int, last: bool) -> Flow[float | None]:
        if last and not self.share:
            return None
        counts, tag = (yield from self.contribution(t, last)), f"em/counts/{t}"
        reveals = LIKELY if last else COUNTS
        self.total = yield from self.collective.sum(tag, counts, reveals, check=self.problem)
        if problem := self.problem(self.total):
            raise ProtocolError(f"the sum {tag!r} over {', '.join(self.members)}: {problem}")
        self.judges = bool(self.share and self.total[5] >= 0.5)
        return mean_likelihood(*self.total[3:HEAD]) if self.judges else None

    def problem(self, values: Array) -> str:
        """What is wrong with statistics of some parties' rows, by the numbers of rows in them."""
        if problem := statistics_problem(values):
            return problem
        likely, impossible, rows = values[:HEAD].reshape(2, 3).T  # learned from, held out
        slack = 0.01 * rows.sum() + BEHIND  # sums on shares and by gossip are rounded
        nodes = values[HEAD:][self.counted] if len(values) > HEAD else values[HEAD:]
        counts = np.concatenate([rows, impossible, nodes])
        fits = ((counts >= -slack) & (counts <= rows.sum() + slack)).all()
        if not fits or rows.sum() > self.most + slack:
            return "expected counts of no more rows than there are"
        if not (likely <= NATS * self.columns * (rows + slack)).all():
            return "expected log-likelihoods of so many rows"
        return ""


class RowClient(RowRole[Packed]):
    """The whole circuit on one party's rows: the graph above the leaves, and all leaves."""

    def __init__(
        self,
        site: EMSite,
        graph: CircuitGraph,
        network: UpperCircuit,
        leaves: Mapping[str, EMLeaf],
        mark: str,
    ) -> None:
        weights = {n: {WEIGHT: np.array(w, np.float64)} for n, w in graph.weights.items()}
        adding = site.view.me, site.members, site.settings.summation, graph.held
        super().__init__(*adding, leaves, network.pack(Parameters(weights)))
        self.first, self.network, self.holders, self.mark = site.first, network, graph.holders, mark
        self.held = site.lots < graph.held  # (rows,)
        if np.count_nonzero(~self.held) < site.least:
            self.held = np.zeros_like(self.held)
        one, nothing = np.zeros((len(leaves), 1)), np.zeros(1)  # a row that weighs nothing
        above = network.posteriors(one, self.above, nothing)[1]
        self.shapes = [above, *(leaf.no_counts() for leaf in leaves.values())]
        self.sizes = [len(shape.flat()) for shape in self.shapes]
        self.size, self.columns = HEAD + sum(self.sizes), len(network.circuit.schema)
        self.counted = np.concatenate([are_counts(shape) for shape in self.shapes])

    def contribution(self, t: int, last: bool) -> Flow[Array]:
        work = self._likelihoods if last else self._statistics
        counts = yield from compute(f"counting its rows, round {t}", work, key=self.mark)
        if problem := self.problem(counts):
            raise FederationError(f"statistics of its rows cannot be added up: {problem}")
        return counts

    def _likelihoods(self) -> Array:
        return self._sums(self._log_values())

    def _statistics(self) -> Array:
        given, weight = self._log_values(), (~self.held).astype(np.float64)
        posteriors, counts = self.network.posteriors(given, self.above, weight)
        pairs = zip(self.leaves.values(), posteriors, strict=True)
        of_leaves = [leaf.counts(posterior).flat() for leaf, posterior in pairs]
        return np.concatenate([self._sums(given), counts.flat(), *of_leaves])

    def _log_values(self) -> Array:
        given = np.stack([leaf.log_values() for leaf in self.leaves.values()])  # (leaves, rows)
        for name, values in zip(self.leaves, given, strict=True):
            if np.isnan(values).any():
                problem = f"leaf {name!r} gives rows no finite likelihood"
                raise MessageError(self.holders[name], PartyLeaves.tag, "leaves", problem)
        return given

    def _sums(self, given: Array) -> Array:
        logs = self.network.log_values(given, self.above)
        possible, sums = np.isfinite(logs), []
        for rows in (~self.held, self.held):
            sums += [logs[rows & possible].sum(), (rows & ~possible).sum(), rows.sum()]
        return np.array(sums, np.float64)

    def maximise(self) -> None:
        likely, impossible, rows = self.total[:3]
        self.history.append(-np.inf if impossible >= 0.5 else float(likely / max(rows, 1.0)))
        self.mark = digest(self.mark, self.total)
        parts = np.split(self.total[HEAD:], np.cumsum(self.sizes)[:-1])
        above, *counts = [s.like(part) for s, part in zip(self.shapes, parts, strict=True)]
        self.above = self.network.program.maximise(above, self.above)
        for leaf, count in zip(self.leaves.values(), counts, strict=True):
            leaf.maximise(count)

    def finish(self, scores: Sequence[float]) -> Flow[None]:
        if self.first:
            above = self.network.program.unpack(self.above)
            weights = {name: above[name][WEIGHT] for name in above}
            learned = LearnedWeights(weights, self.history, [*scores])
            about = "the weights above the leaves, and the likelihood of all rows"
            yield from send(COORDINATOR, learned, reveals=about)


# ---------------------------------------------------------------------- how they begin


def client(site: EMSite) -> Flow[RowClient]:
    """Every party sends its leaves, and then has the whole circuit."""
    view, others = site.view, [p for p in site.members if p != site.view.me]
    if not view.allow_collect:
        raise FederationError(
            f"{view.me} was asked for its leaves, but does not allow them to leave it"
        )
    graph = yield from receive(COORDINATOR, CircuitGraph)
    planned = graph.held in (0.0, site.settings.share)
    problem = f"expected 0 or {site.settings.share}, as planned"
    require(planned, COORDINATOR, CircuitGraph, "held", problem)
    network = _network(graph, site)
    rows = site.table.select(network.circuit.schema.names)  # in one order at all parties
    moments = Moments.of(rows)
    circuits = {
        name: LeafCircuit.of(circuit_of) for name, circuit_of in view.parameters.circuits.items()
    }
    parts = {view.me: PartyLeaves(circuits, moments.mean, moments.deviation)}
    yield from broadcast(others, parts[view.me])
    parts |= yield from gather(others, PartyLeaves)
    leaves: dict[str, EMLeaf] = {}
    mark = digest(site.stamp, encode_message(graph))
    for party in site.members:
        nodes = [n for n in network.circuit.leaves() if graph.holders[n.name] == party]
        part = parts[party]
        mean, deviation = (a.astype(np.float64) for a in (part.mean, part.deviation))
        moments = Moments(rows.names, mean, deviation)
        every, step = rows if party == view.me else None, site.settings.step
        for name, circuit_of in part.circuits(nodes, rows.schema, party).items():
            leaves[name] = EMLeaf(circuit_of, rows, moments, every, step)
        mark = digest(mark, encode_message(part))
    ordered = {leaf.name: leaves[leaf.name] for leaf in network.circuit.leaves()}
    role = RowClient(site, graph, network, ordered, mark)
    if site.first and COORDINATOR in role.members:
        yield from send(COORDINATOR, StatisticsSize(role.size, role.counted))
    return role


def _network(graph: CircuitGraph, site: EMSite) -> UpperCircuit:
    """The graph above the leaves: over the agreed columns, with leaves that members hold."""
    with blaming(COORDINATOR, CircuitGraph, "circuit"):
        network = UpperCircuit(circuit := Circuit.loads(graph.circuit))
    agreed, made = (
        {(v.name, v.kind, v.categories) for v in s} for s in (site.view.schema, circuit.schema)
    )
    single = all(circuit.units[n.name] == 1 for n in (*circuit.leaves(), circuit.root))
    problem = "expected a circuit over the agreed columns, with leaves of one unit"
    require(made == agreed and single, COORDINATOR, CircuitGraph, "circuit", problem)
    leaves, names = (
        {leaf.name for leaf in every} for every in (circuit.leaves(), site.view.leaves)
    )
    placed = graph.holders.keys() == leaves and {*graph.holders.values()} <= {*site.members}
    placed = placed and names == {n for n, p in graph.holders.items() if p == site.view.me}
    require(placed, COORDINATOR, CircuitGraph, "holders", "expected the party of every leaf")
    checked_weights(graph.weights, sum_shapes(circuit), COORDINATOR, CircuitGraph, "weights")
    return network


def are_counts(shape: Counts) -> npt.NDArray[np.bool_]:
    """Which of the statistics are expected numbers of rows."""
    steps: list[Derivative] = []
    for step in shape.steps:
        if isinstance(step, LeafCounts):
            steps.append(LeafCounts(torch.zeros_like(step.sums), torch.ones_like(step.count)))
        elif isinstance(step, JointCounts):
            steps.append(step.scaled(0.0))
        else:
            steps.append(None if step is None else torch.ones_like(step))
    return Counts(0.0, 0.0, tuple(steps)).flat() > 0


def sum_shapes(circuit: Circuit) -> Shapes:
    sums = [node for node in circuit.nodes if isinstance(node, Sum)]
    return {node.name: (node.units, circuit.inputs(node)) for node in sums}


def coordinator(
    joint: Joint, clients: Sequence[str], summation: Summation, share: float, number: int
) -> Flow[RowRole[None] | None]:
    """Nothing where it takes no part in the sums. ``number``: of all parties' rows."""
    weights = {name: arrays[WEIGHT] for name, arrays in joint.parameters.values.items()}
    holders = {leaf.name: joint.placement[leaf.name] for leaf in joint.circuit.leaves()}
    yield from broadcast(clients, CircuitGraph(joint.circuit.dumps(), weights, holders, share))
    if COORDINATOR not in summation.members(clients):
        return None
    role = RowRole(COORDINATOR, clients, summation, share, {}, None)
    role.columns, role.most = len(joint.circuit.schema), number
    size = yield from receive(clients[0], StatisticsSize)
    problem = f"expected from {HEAD} to {MOST} numbers"
    require(HEAD <= size.size <= MOST, clients[0], StatisticsSize, "size", problem)
    require_shape(size.counted, (size.size - HEAD,), clients[0], StatisticsSize, "counted")
    role.size, role.counted = size.size, size.counted
    return role


def learned_weights(joint: Joint, first: str) -> Flow[Above]:
    """The message of the first client after the last round."""
    learned = yield from receive(first, LearnedWeights)
    return learned.above(sum_shapes(joint.circuit), len(joint.circuit.schema), first)
