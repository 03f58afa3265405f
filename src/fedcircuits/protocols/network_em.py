"""EM across parties that hold the same rows (earlier version of federated circuits, algorithms 2
and 3): leaves send log-likelihoods up, posteriors travel down, everybody updates its own nodes.

    em/rows        coordinator → client: which of its rows all parties hold, by position in the list
                   of tokens it has sent.
    em/values/t    client → coordinator: log-likelihood of every shared row under each of its
                   leaves (leaves, rows).
    em/posterior/t coordinator → client: the posterior of each of its leaves for every shared row
                   (leaves, rows); when only weights are learned or EM has ended, an array
                   of nothing, (0,).

Each client learns which of its rows all others hold, and how probable the others find each of its
clusters for a row. The coordinator learns how likely every client finds each row, without knowing
which row it is. One round is one iteration of EM of the whole circuit on the shared rows: their
likelihood never falls, but for what the rows that stand behind every leaf take from it
(leaf_em.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedcircuits.circuits.evaluation.network import Network
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.federation.collectives import gather
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv, send
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.table import Table
from fedcircuits.protocols.leaf_em import EMLeaf, Moments

ROUNDS = 50  # of EM on weights alone, at most: it costs no messages
SETTLED = 1e-4  # nats a row


def client(view: View, listed: Table, every: Table, stamp: str = "") -> Flow[View]:
    """``listed``: this party's rows in the order of the tokens it has sent; ``every``: in an order
    that does not depend on the key; ``stamp``: of what its leaves were learned from. Work is kept
    for the same leaves, rows and posteriors only."""
    found = expect((yield from recv(COORDINATOR, "em/rows")), np.ndarray, COORDINATOR, "em/rows")
    shared = listed.rows(np.asarray(found, np.int64))
    names = [leaf.name for leaf in view.leaves]
    moments, learned = Moments.of(every), view.parameters.circuits
    leaves = [EMLeaf(learned[name], shared, moments, every) for name in names]
    told = "how likely each of its clusters finds rows that it cannot name"
    rounds, heard = 0, zlib.crc32(shared.values.tobytes(), zlib.crc32(stamp.encode()))
    while True:
        values = yield from compute(
            f"evaluating shared rows, round {rounds} ({heard:08x})",
            lambda: (
                np.stack([leaf.log_values() for leaf in leaves]) if leaves else np.zeros((0, 0))
            ),
        )
        yield from send(COORDINATOR, f"em/values/{rounds}", values, told)
        tag = f"em/posterior/{rounds}"
        posterior = expect((yield from recv(COORDINATOR, tag)), np.ndarray, COORDINATOR, tag)
        if posterior.ndim == 1:
            break
        heard = zlib.crc32(posterior.tobytes(), heard)
        for leaf, own in zip(leaves, posterior, strict=True):
            leaf.maximise(leaf.counts(own))
        rounds += 1
    if not rounds:
        return view
    after = {name: leaf.learned() for name, leaf in zip(names, leaves, strict=True)}
    return replace(view, parameters=Parameters({}, after))


def coordinator(
    joint: Joint, positions: Mapping[str, Labels], rounds: int
) -> Flow[tuple[Joint, tuple[float, ...]]]:
    """``rounds`` of EM over everything, then EM over the weights alone until it settles."""
    for party, rows in positions.items():
        yield from send(party, "em/rows", rows, "which of its rows all parties hold")
    network = Network(joint.circuit)
    packed = network.pack(joint.parameters)
    place = _places(joint, list(positions))
    history: list[float] = []
    for t in range(rounds + 1):
        given = yield from _given(joint, positions, place, t)
        if t == rounds:
            break
        posterior, counts = network.posteriors(given, packed)
        history.append(counts.log_likelihood / counts.weight)
        packed = network.program.maximise(counts, packed)
        for party in positions:
            own = posterior[place[party]]
            told = "how probable each of its clusters is for the shared rows"
            yield from send(party, f"em/posterior/{t}", own, told)
    for party in positions:
        yield from send(party, f"em/posterior/{rounds}", np.zeros(0))
    packed = _weights_alone(network, packed, given, history)
    return replace(joint, parameters=network.program.unpack(packed)), tuple(history)


def _weights_alone(network: Network, packed: Packed, given: Array, history: list[float]) -> Packed:
    for _ in range(ROUNDS):
        _, counts = network.posteriors(given, packed)
        history.append(counts.log_likelihood / counts.weight)
        if len(history) > 1 and history[-1] - history[-2] < SETTLED:
            break
        packed = network.program.maximise(counts, packed)
    return packed


def _places(joint: Joint, parties: list[str]) -> dict[str, list[int]]:
    """The rows of each party's leaves in the matrix of all leaves."""
    found: dict[str, list[int]] = {p: [] for p in parties}
    for i, leaf in enumerate(joint.circuit.leaves()):
        found[joint.placement[leaf.name]].append(i)
    return found


def _given(
    joint: Joint, positions: Mapping[str, Labels], place: Mapping[str, list[int]], t: int
) -> Flow[Array]:
    found = yield from gather(list(positions), f"em/values/{t}")
    rows = len(next(iter(positions.values())))
    given = np.empty((sum(len(p) for p in place.values()), rows))
    for party in positions:
        own = expect(found[party], np.ndarray, party, f"em/values/{t}")
        if place[party]:
            given[place[party]] = own
    return given
