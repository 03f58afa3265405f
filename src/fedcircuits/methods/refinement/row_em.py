"""EM across parties that hold other rows of the same columns: expected statistics of everybody's
rows add up, and everybody makes the same M-step.

    em/graph      coordinator → client: the graph above the leaves, and its weights; the share of
                  its rows to hold back, which is none of few rows (stopping.py).
    em/leaves     client → every other client: its leaves, and the mean and deviation of its
                  columns over all its rows.
    em/size       first client → coordinator, where it takes part in sums: how many numbers these
                  have. It contributes zeros.
    em/counts/t   client → sum: expected statistics of its rows for every sum and leaf of the whole
                  circuit, their log-likelihood and number, and these two of its held rows. All
                  clients learn the total. After the last round no statistics.
    em/judged/t   one member → all others: whether held rows have become likelier, and whether EM
                  ends. Only with rows held back.
    em/learned    first client → coordinator: the new weights above the leaves, and the
                  log-likelihood before every round, of held rows also after the last.

One round is one iteration of EM of the whole circuit on the rows of all parties that are not held
back: their likelihood never falls, but for what the rows that stand behind every leaf take from it
(leaf_em.py). A row that several parties hold counts as often. Each party draws the rows that it
holds back, and tells nobody which.

Leaves leave their parties, so every party must have allowed it (``allow_collect``); a client that
has not refuses. Clients learn each other's circuits, before and after, and the mean and deviation
of each other's columns, which circuits tell nearly as well. Whoever sees one party's array of
em/counts learns weighted sums of its rows for every node (how many rows, their sums and squares of
columns, counts of categories): a node that few rows reach tells these rows. Whom that is decides
the summation: a hub sees every party's array, neighbours in gossip each other's; with
``privacy.secure_sum.Secret`` nobody does, and the coordinator learns no more than em/learned. All
clients learn the totals; of two each works out the other's array. The coordinator learns no leaf.

A hub, a tree and secret shares give everybody the same bits. Where members gossip they differ
within the tolerance; the weights above the leaves are then the first client's, and which round was
best is told by one of them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.collectives import Collective, Summation, broadcast_payload
from fedcircuits.federation.wire import AnyArray, Encoded, Json, encode
from fedcircuits.methods.refinement.circuits_on_wire import Learned, off_wire, on_wire
from fedcircuits.methods.refinement.leaf_em import EMLeaf, Moments
from fedcircuits.methods.refinement.stopping import Judge, Mask, Refined, mean_of
from fedcircuits.tables.table import Table

COUNTS = "expected statistics of its rows for every node, their log-likelihood and number"
LIKELY = "log-likelihood and number of its rows, and of those that it holds back"
HEAD = 6  # log-likelihood of rows that are possible, number of those that are not, of all; of held
Message = Mapping[str, AnyArray]


def _moments(message: Message, names: tuple[str, ...], sender: str) -> Moments:
    mean, deviation = (np.array(message.get(k, ()), np.float64) for k in ("mean", "deviation"))
    sound = mean.shape == deviation.shape == (len(names),) and (deviation > 0).all()
    if not sound or not np.isfinite([mean, deviation]).all():
        raise ProtocolError(f"{sender} sent no mean and deviation of its columns under 'em/leaves'")
    return Moments(names, mean, deviation)


class _Whole:
    """The whole circuit on one party's rows: the graph above the leaves, and all leaves."""

    def __init__(
        self,
        me: str,
        rows: Table,
        circuit: Circuit,
        weights: Mapping[str, Arrays],
        told: Mapping[str, Message],
        held: Mask,
    ) -> None:
        self.held = held
        found: dict[str, EMLeaf] = {}
        learned: dict[str, Learned] = {}
        for party, message in told.items():
            own = off_wire(message, party, "em/leaves")
            moments, whole = _moments(message, rows.names, party), rows if party == me else None
            found |= {n: EMLeaf(leaf, rows, moments, whole) for n, leaf in own.items()}
            learned |= own
        parameters = Parameters(weights, learned)
        parameters.check(circuit)
        self.leaves = {leaf.name: found[leaf.name] for leaf in circuit.leaves()}
        self.network = UpperCircuit(circuit)
        self.packed = self.network.pack(parameters)
        one, nothing = np.zeros((len(self.leaves), 1)), np.zeros(1)  # a row that weighs nothing
        above = self.network.posteriors(one, self.packed, nothing)[1]
        self._shapes = [above, *(leaf.nothing() for leaf in self.leaves.values())]
        self.sizes = [len(shape.flat()) for shape in self._shapes]

    def headed(self) -> Array:
        """What this party adds when statistics are of no more use."""
        return self._head(self._given())

    def _given(self) -> Array:
        return np.stack([leaf.log_values() for leaf in self.leaves.values()])  # (leaves, rows)

    def _head(self, given: Array) -> Array:
        logs = self.network.log_values(given, self.packed)
        return np.concatenate([_sums(logs[~self.held]), _sums(logs[self.held])])

    def counted(self) -> Array:
        """What this party adds: the head, then statistics of the graph and of every leaf."""
        given = self._given()
        posterior, counts = self.network.posteriors(
            given, self.packed, (~self.held).astype(np.float64)
        )
        head = self._head(given)
        pairs = zip(self.leaves.values(), posterior, strict=True)
        return np.concatenate(
            [head, counts.flat(), *(leaf.counts(own).flat() for leaf, own in pairs)]
        )

    def state(self) -> tuple[Packed, list[Packed]]:
        return self.packed, [leaf.packed for leaf in self.leaves.values()]

    def restore(self, state: tuple[Packed, list[Packed]]) -> None:
        self.packed = state[0]
        for leaf, packed in zip(self.leaves.values(), state[1], strict=True):
            leaf.packed = packed

    def maximise(self, total: Array) -> None:
        parts = np.split(total[HEAD:], np.cumsum(self.sizes)[:-1])
        above, *counts = [s.like(own) for s, own in zip(self._shapes, parts, strict=True)]
        self.packed = self.network.program.maximise(above, self.packed)
        for leaf, own in zip(self.leaves.values(), counts, strict=True):
            leaf.maximise(own)

    def weights(self) -> dict[str, Array]:
        found = self.network.program.unpack(self.packed)
        return {name: found[name][WEIGHT] for name in found}


def _sums(logs: Array) -> Array:
    possible = np.isfinite(logs)
    return np.array([logs[possible].sum(), (~possible).sum(), len(logs)])


def client(
    view: View,
    rows: Table,
    members: Sequence[str],
    summation: Summation,
    rounds: int,
    stamp: str,
    lots: Array,
) -> Flow[View]:
    """``stamp``: of what its leaves were learned from. Work is kept for the same circuits only.
    ``lots``: from 0 to 1 for every row; those below the share are held back."""
    if not view.allow_collect:
        raise FederationError(f"{view.me} was asked for its leaves, which may not leave it")
    me, first, taking = view.me, members[0], summation.members(members)
    graph = expect(
        (yield from recv_payload(COORDINATOR, "em/graph")), dict, COORDINATOR, "em/graph"
    )
    circuit = Circuit.from_json(graph["circuit"])
    weights = {n: {WEIGHT: np.array(w, np.float64)} for n, w in graph["weights"].items()}
    rows = rows.select(circuit.schema.names)  # in one order at all parties
    told = yield from _exchanged(view, rows, members)
    whole = _Whole(me, rows, circuit, weights, told, lots < graph["held"])
    if me == first and COORDINATOR in taking:
        size = HEAD + sum(whole.sizes)
        yield from send_payload(
            COORDINATOR, "em/size", size, "how many statistics its circuits have"
        )
    mark, heard = _mark(stamp, graph, told), _Heard(summation.at(me, taking), rounds, graph["held"])
    for t in heard.sums:
        work = whole.counted if t < rounds else whole.headed
        own = yield from compute(f"counting its rows, round {t} ({mark:08x})", work)
        total = yield from heard.total(t, own)
        mark = zlib.crc32(total.tobytes(), mark)
        if heard.better:
            stays, state = t, whole.state()
        if heard.ends:
            break
        whole.maximise(total)
    if heard.held:
        whole.restore(state)
    if me == first:
        learned = {
            "history": np.array(heard.history),
            "validation": np.array(heard.judge.history),
            **{f"of {n}": w for n, w in whole.weights().items()},
        }
        about = "weights above the leaves, and the likelihood of all rows"
        yield from send_payload(COORDINATOR, "em/learned", learned, about)
    if heard.held and not stays:
        return view  # of what it began with
    after = {leaf.name: whole.leaves[leaf.name].learned() for leaf in view.leaves}
    return replace(view, parameters=Parameters({}, after), _ready={})


class _Heard:
    """What a member of the sums hears in them. With rows held back, there is one sum more than
    rounds: it judges the last."""

    def __init__(self, summation: Collective, rounds: int, held: float) -> None:
        self.summation, self.rounds, self.held = summation, rounds, held
        self.sums = range(rounds + 1 if held else rounds)
        self.history: list[float] = []  # of rows learned from, before every round
        self.judge = Judge()
        self.better, self.ends = True, False

    def total(self, t: int, own: Array) -> Flow[Array]:
        last = t == self.rounds
        total = yield from self.summation.sum(f"em/counts/{t}", own, LIKELY if last else COUNTS)
        if self.held and total[5] >= 0.5:
            found = mean_of(*total[3:HEAD])
            tag = f"em/judged/{t}"
            self.better, self.ends = yield from self.judge.agreed(tag, found, self.summation)
        self.ends = self.ends or last
        if not self.ends:
            likely = total[0] / max(total[2], 1.0)
            self.history.append(-np.inf if total[1] >= 0.5 else float(likely))
        return total


def _exchanged(view: View, rows: Table, members: Sequence[str]) -> Flow[dict[str, Message]]:
    """What every party tells of its leaves, in one form for all, its own too."""
    moments = Moments.of(rows)
    own: Message = on_wire(view.parameters.circuits) | {
        "mean": moments.mean, "deviation": moments.deviation
    }  # fmt: skip
    others = [p for p in members if p != view.me]
    about = "its learned leaves; mean and deviation of its columns"
    yield from broadcast_payload(others, "em/leaves", Encoded(encode(own)), about)
    found = {view.me: own}
    for party in others:
        found[party] = expect(
            (yield from recv_payload(party, "em/leaves")), dict, party, "em/leaves"
        )
    return {p: found[p] for p in members}


def _mark(stamp: str, graph: Mapping[str, object], told: Mapping[str, Message]) -> int:
    """Of all that a party's statistics depend on."""
    found = zlib.crc32(json.dumps([stamp, graph]).encode())
    for message in told.values():
        for array in message.values():
            found = zlib.crc32(array.tobytes(), found)
    return found


def coordinator(
    joint: Joint, members: Sequence[str], summation: Summation, rounds: int, held: float = 0.0
) -> Flow[Refined]:
    """``held``: the share of rows that every party holds back."""
    first, taking = members[0], summation.members(members)
    weights = {n: own[WEIGHT].tolist() for n, own in joint.parameters.values.items()}
    graph = cast(Json, {"circuit": joint.circuit.to_json(), "weights": weights, "held": held})
    about = "the graph above the leaves and its weights: how many rows each of them stands for"
    yield from broadcast_payload(members, "em/graph", graph, about)
    if COORDINATOR in taking:
        size = expect((yield from recv_payload(first, "em/size")), int, first, "em/size")
        heard = _Heard(summation.at(COORDINATOR, taking), rounds, held)
        for t in heard.sums:
            yield from heard.total(t, np.zeros(size if t < rounds else HEAD))
            if heard.ends:
                break
    learned = expect((yield from recv_payload(first, "em/learned")), dict, first, "em/learned")
    after = {n: {WEIGHT: _weight(learned, n, joint, first)} for n in joint.parameters}
    history, validation = (tuple(map(float, learned[k])) for k in ("history", "validation"))
    return Refined(replace(joint, parameters=Parameters(after)), history, validation)


def _weight(learned: Mapping[str, AnyArray], node: str, joint: Joint, sender: str) -> Array:
    found, before = learned.get(f"of {node}"), joint.parameters[node][WEIGHT]
    if found is not None and found.shape == before.shape and found.dtype == before.dtype:
        weight = np.array(found, np.float64)
        if (weight >= 0).all() and np.allclose(weight.sum(axis=1), 1.0):
            return weight
    raise ProtocolError(f"{sender} sent no weights of {node!r} under 'em/learned'")
