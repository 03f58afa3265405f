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
likelihood never falls, but for what the rows that stand behind every leaf take from it.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.network import Network
from fedcircuits.circuits.evaluation.program import Packed, Program
from fedcircuits.circuits.evaluation.statistics import Frame
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.parameters import Parameters, inline
from fedcircuits.federation.collectives import gather
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv, send
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.table import Table
from fedcircuits.leaves.gaussian import Gaussian

ROUNDS = 50  # of EM on weights alone, at most: it costs no messages
SETTLED = 1e-4  # nats a row
NOTHING = 1e-12  # posteriors below it are left out
BEHIND, SAMPLE = 1.0, 100  # weight and number of the rows behind every M-step
LEAST = 1e-4  # variance of a Gaussian, relative to that of all rows


class _Leaf:
    """One leaf of a client, folded for EM.

    Variances are bounded by those of all the party's rows, or those it begins with where these are
    smaller, so that no step has to raise them; the party's rows stand behind every M-step
    with the weight of ``BEHIND`` rows: a leaf may be narrow or lack a category, not be a spike or
    call it impossible.
    """

    def __init__(self, circuit: Circuit, parameters: Parameters, rows: Table, every: Table) -> None:
        self.circuit, values = inline(circuit, parameters)
        self.program = Program(self.circuit)
        names = self.circuit.schema.names
        self.x = torch.from_numpy(np.array(rows.select(names).values))
        whole = every.select(names).values
        self.behind = torch.from_numpy(np.array(whole[:: max(1, len(whole) // SAMPLE)]))
        self.packed = _in_frames(self.program, values, whole)
        self.rules = {"gaussian": Gaussian(_least(self.circuit, values, whole), np.inf)}

    def log_values(self) -> Array:
        return np.asarray(self.program.log_values(self.x, self.packed).numpy())

    def update(self, posterior: Array) -> None:
        likely = posterior > NOTHING
        weight = torch.from_numpy(posterior[likely])
        counts = self.program.counts(self.x[torch.from_numpy(likely)], self.packed, weight)
        share = torch.full((len(self.behind),), BEHIND / len(self.behind), dtype=torch.float64)
        prior = self.program.counts(self.behind, self.packed, share)
        self.packed = self.program.maximise(counts.add(prior), self.packed, self.rules)

    def learned(self) -> tuple[Circuit, Parameters]:
        return self.circuit, self.program.unpack(self.packed)


def _least(circuit: Circuit, values: Parameters, whole: Array) -> float:
    """The least variance in the deviations of all rows."""
    deviation = _moments(whole)[1]
    found = LEAST
    for leaf in circuit.leaves():
        if leaf.family == "gaussian":
            at = [circuit.schema.index(n) for n in leaf.scope]
            found = min(found, float((values[leaf.name]["variance"] / deviation[at] ** 2).min()))
    return found


def _moments(whole: Array) -> tuple[Array, Array]:
    """Mean and deviation of every column; 0 and 1 of one that has no values or one value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        mean, deviation = np.nanmean(whole, axis=0), np.nanstd(whole, axis=0)
    return np.nan_to_num(mean), np.where(deviation > 0, deviation, 1.0)


def _in_frames(program: Program, values: Parameters, whole: Array) -> Packed:
    """Packed so that bounds of variances count in the deviations of all rows."""
    mean, deviation = _moments(whole)
    frames = {}
    for key in program.columns.frames(program.circuit, values):
        at = list(program.columns.cells[key].variables)
        frames[key] = Frame(mean[at], deviation[at])
    return Packed(frames, tuple(s.pack(values, frames, program.dtype) for s in program.steps))


def client(view: View, listed: Table, every: Table, stamp: str = "") -> Flow[View]:
    """``listed``: this party's rows in the order of the tokens it has sent; ``every``: in an order
    that does not depend on the key; ``stamp``: of what its leaves were learned from. Work is kept
    for the same leaves, rows and posteriors only."""
    found = expect((yield from recv(COORDINATOR, "em/rows")), np.ndarray, COORDINATOR, "em/rows")
    shared = listed.rows(np.asarray(found, np.int64))
    names = [leaf.name for leaf in view.leaves]
    leaves = [_Leaf(*view.parameters.circuits[name], shared, every) for name in names]
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
            leaf.update(own)
        rounds += 1
    if not rounds:
        return view
    learned = {name: leaf.learned() for name, leaf in zip(names, leaves, strict=True)}
    return replace(view, parameters=Parameters({}, learned))


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
