"""EM across parties that hold the same rows (earlier version of federated circuits, algorithms 2
and 3): leaves send log-likelihoods up, posteriors travel down, everybody updates its own nodes.

    em/rows        coordinator → client: which of its rows all parties hold, by position in the list
                   of tokens it has sent.
    em/held        first client → coordinator: which of these are held back. Only with a share to
                   hold back (stopping.py) and rounds over leaves.
    em/values/t    client → coordinator: log-likelihood of every shared row under each of its
                   leaves (leaves, rows).
    em/posterior/t coordinator → client: the posterior of each of its leaves for every shared row
                   (leaves, rows), nothing for rows that are held back; when only weights are
                   learned or EM has ended, the number of the round whose leaves stay, (1,).

Each client learns which of its rows all others hold, how probable the others find each of its
clusters for a row, and which rows are held back. The coordinator learns how likely every client
finds each row, without knowing which row it is. One round is one iteration of EM of the whole
circuit on the shared rows that are not held back: their likelihood never falls, but for what the
rows that stand behind every leaf take from it (leaf_em.py).
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.collectives import gather_payloads
from fedcircuits.federation.tokens import Labels
from fedcircuits.federation.wire import AnyArray
from fedcircuits.methods.refinement.leaf_em import EMLeaf, Moments
from fedcircuits.methods.refinement.stopping import (
    HELD,
    PATIENCE,
    Judge,
    Mask,
    Refined,
    drawn,
    holding,
    mean,
)
from fedcircuits.tables.table import Table

ROUNDS = 50  # of EM on weights alone, at most: it costs no messages
SETTLED = 1e-4  # nats a row


def client(
    view: View,
    listed: Table,
    every: Table,
    stamp: str = "",
    share: float = 0.0,
    lots: Array | None = None,
) -> Flow[View]:
    """``listed``: this party's rows in the order of the tokens it has sent; ``every``: in an order
    that does not depend on the key; ``stamp``: of what its leaves were learned from. Work is kept
    for the same leaves, rows and posteriors only. ``share``: of shared rows to hold back, by
    ``lots`` of the listed rows, at the one client that draws them."""
    found = expect(
        (yield from recv_payload(COORDINATOR, "em/rows")), np.ndarray, COORDINATOR, "em/rows"
    )
    places = np.asarray(found, np.int64)
    if lots is not None and holding(len(places), share):
        yield from send_payload(COORDINATOR, "em/held", drawn(lots[places], share), HELD)
    shared = listed.rows(places)
    names = [leaf.name for leaf in view.leaves]
    moments, learned = Moments.of(every), view.parameters.circuits
    leaves = [EMLeaf(learned[name], shared, moments, every) for name in names]
    told = "how likely each of its clusters finds rows that it cannot name"
    states: deque[list[Packed]] = deque(maxlen=PATIENCE + 1)  # of the leaves, after the last rounds
    rounds, heard = 0, zlib.crc32(shared.values.tobytes(), zlib.crc32(stamp.encode()))
    while True:
        states.append([leaf.packed for leaf in leaves])
        values = yield from compute(
            f"evaluating shared rows, round {rounds} ({heard:08x})",
            lambda: (
                np.stack([leaf.log_values() for leaf in leaves]) if leaves else np.zeros((0, 0))
            ),
        )
        yield from send_payload(COORDINATOR, f"em/values/{rounds}", values, told)
        tag = f"em/posterior/{rounds}"
        posterior = expect(
            (yield from recv_payload(COORDINATOR, tag)), np.ndarray, COORDINATOR, tag
        )
        if posterior.ndim == 1:
            break
        heard = zlib.crc32(posterior.tobytes(), heard)
        for leaf, own in zip(leaves, posterior, strict=True):
            leaf.maximise(leaf.counts(own))
        rounds += 1
    back = _back(posterior, rounds, len(states), tag)
    if back == rounds:
        return view  # of what it began with
    for leaf, packed in zip(leaves, states[-1 - back], strict=True):
        leaf.packed = packed
    after = {name: leaf.learned() for name, leaf in zip(names, leaves, strict=True)}
    return replace(view, parameters=Parameters({}, after))


def _back(told: AnyArray, rounds: int, kept: int, tag: str) -> int:
    """How many rounds to go back, to the one whose leaves stay."""
    if told.shape == (1,) and told.dtype.kind in "iu" and 0 <= rounds - told[0] < kept:
        return rounds - int(told[0])
    raise ProtocolError(f"{COORDINATOR} sent no round of the last {kept} under {tag!r}")


def coordinator(
    joint: Joint, positions: Mapping[str, Labels], rounds: int, share: float = 0.0
) -> Flow[Refined]:
    """``rounds`` of EM over everything, then EM over the weights alone until it settles; or, with a
    ``share`` of the rows held back, no more than the best round on them."""
    for party, rows in positions.items():
        yield from send_payload(party, "em/rows", rows, "which of its rows all parties hold")
    network = UpperCircuit(joint.circuit)
    packed = network.pack(joint.parameters)
    place = _places(joint, list(positions))
    held = yield from _held(positions, share if rounds else 0.0)
    history: list[float] = []
    judge = Judge()
    for t in range(rounds + 1):
        given = yield from _given(joint, positions, place, t)
        better, ends = _verdict(network, packed, given, held, judge)
        if better:
            best = t, packed
        if ends or t == rounds:
            break
        posterior, counts = network.posteriors(given, packed, (~held).astype(np.float64))
        history.append(counts.log_likelihood / counts.weight)
        packed = network.program.maximise(counts, packed)
        for party in positions:
            own = posterior[place[party]]
            told = "how probable each of its clusters is for the shared rows"
            yield from send_payload(party, f"em/posterior/{t}", own, told)
    stays, packed = best
    for party in positions:
        told = "after which round EM has its leaves"
        yield from send_payload(party, f"em/posterior/{t}", np.array([stays]), told)
    if not held.any():
        packed = _weights_alone(network, packed, given, history)
    found = replace(joint, parameters=network.program.unpack(packed))
    return Refined(found, tuple(history), tuple(judge.history))


def _held(positions: Mapping[str, Labels], share: float) -> Flow[Mask]:
    """Which of the shared rows are held back, (rows,)."""
    first, rows = next(iter(positions.items()))
    if not holding(len(rows), share):
        return np.zeros(len(rows), np.bool_)
    found = expect((yield from recv_payload(first, "em/held")), np.ndarray, first, "em/held")
    if found.shape != (len(rows),) or found.dtype != np.bool_ or not 0 < found.sum() < len(rows):
        raise ProtocolError(f"{first} sent no choice of {len(rows)} rows under 'em/held'")
    return found


def _verdict(
    network: UpperCircuit, packed: Packed, given: Array, held: Mask, judge: Judge
) -> tuple[bool, bool]:
    if not held.any():
        return True, False
    return judge.verdict(mean(network.log_values(given[:, held], packed)))


def _weights_alone(
    network: UpperCircuit, packed: Packed, given: Array, history: list[float]
) -> Packed:
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
    found = yield from gather_payloads(list(positions), f"em/values/{t}")
    rows = len(next(iter(positions.values())))
    given = np.empty((sum(len(p) for p in place.values()), rows))
    for party in positions:
        own = expect(found[party], np.ndarray, party, f"em/values/{t}")
        if place[party]:
            given[place[party]] = own
    return given
