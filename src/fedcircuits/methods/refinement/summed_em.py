"""EM across parties that hold other columns of the same rows, where nobody sees one party's
log-likelihoods: they are added up, row by row, and everybody makes its part of the M-step.

Every child of the root is a product over parties, so its log-value is a sum of one number a party:
that of the leaf, or of the mixture of leaves, that stands below it there.

    em/rows        coordinator → client: which of its rows all parties hold, by position in the list
                   of tokens it has sent.
    em/graph       coordinator → client: how many combinations there are, their weights, and which
                   of its own leaves is in which.
    em/held        first client → other clients: which of the shared rows are held back. Only with a
                   share to hold back (stopping.py) and rounds over leaves.
    em/values/t    client → sum: its part of the log-value of every combination for every shared row
                   (combinations, rows). All clients learn the total.
    em/mixtures/t  client → sum: the same of combinations that have a mixture below them, when their
                   weights have changed and leaves have not.
    em/judged/t    first client → other clients: whether held rows have become likelier, and whether
                   rounds over leaves end. Only with rows held back.
    em/settled/t   first client → other clients: whether weights alone gain no more. Only with no
                   rows held back, as em/mixtures.
    em/learned     client → coordinator: the new weights of its mixtures; the first client also
                   those of the root, the log-likelihood before every round, and that of held rows.

Clients learn how often each combination occurs and how likely every shared row is in each, which
is what tells them the posterior of their own leaves; with fewer than three parties each would work
out the other's part. The coordinator learns no number of a row, and of held rows the mean
log-likelihood a round. The rounds are those of network_em.py, up to the rounding of the sum
(fixed_point.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.nodes import Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.collectives import Collective, Summation, gather_payloads
from fedcircuits.federation.tokens import Labels
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.methods.refinement.leaf_em import EMLeaf, Moments
from fedcircuits.methods.refinement.network_em import ROUNDS, SETTLED
from fedcircuits.methods.refinement.stopping import HELD, Judge, Mask, Refined, drawn, holding, mean
from fedcircuits.tables.table import Table

VALUES = "log-likelihoods of the shared rows in every combination of clusters"
IMPOSSIBLE = -(2.0**60)  # a log-value that crosses in place of −∞
ROOT = "root"


@dataclass(slots=True)
class _Mixture:
    leaves: list[str]
    weights: Array  # (leaves,)


# ---------------------------------------------------------------------- clients


@dataclass(frozen=True, slots=True)
class _State:
    """All that a round changes."""

    root: Array
    mixtures: dict[str, Array]  # weights
    leaves: dict[str, Packed]


class _Parts:
    """What one party has below the root's children, on the shared rows."""

    def __init__(
        self, graph: Mapping[str, object], leaves: Mapping[str, EMLeaf], rows: int
    ) -> None:
        self.leaves, self.rows = leaves, rows
        self.root = np.array(graph["weights"], np.float64)
        self.below = [list(own) for own in cast(list[list[str]], graph["below"])]
        told = cast(dict[str, tuple[list[str], list[float]]], graph["mixtures"])
        self.mixtures = {n: _Mixture(own, np.array(w)) for n, (own, w) in told.items()}
        self.moving = np.array(
            graph["moving"], np.int64
        )  # children with a mixture below, anybody's
        self.logs: dict[str, Array] = {}  # of leaves, (rows,)

    def state(self) -> _State:
        mixtures = {n: m.weights for n, m in self.mixtures.items()}
        return _State(self.root, mixtures, {n: e.packed for n, e in self.leaves.items()})

    def restore(self, state: _State) -> None:
        self.root = state.root
        for name, weights in state.mixtures.items():
            self.mixtures[name].weights = weights
        for name, packed in state.leaves.items():
            self.leaves[name].packed = packed

    def evaluate(self) -> dict[str, Array]:
        return {name: leaf.log_values() for name, leaf in self.leaves.items()}

    def values(self) -> Array:
        """Its part of every child's log-value, (children, rows)."""
        found = np.zeros((len(self.below), self.rows))
        for value, names in zip(found, self.below, strict=True):
            for name in names:
                value += self._joint(name) if name in self.mixtures else self.logs[name]
        return np.maximum(found, IMPOSSIBLE)

    def _joint(self, mixture: str) -> Array:
        return np.asarray(logsumexp(self._weighed(mixture), axis=0))

    def _weighed(self, mixture: str) -> Array:
        """log w p of the mixture's leaves, (leaves, rows)."""
        own = self.mixtures[mixture]
        with np.errstate(divide="ignore"):
            weights = np.log(own.weights)
        return np.asarray(weights[:, None] + np.stack([self.logs[n] for n in own.leaves]))

    def maximise(self, posterior: Array) -> dict[str, Array]:
        """Weights from the children's posteriors (children, rows); and those of its leaves."""
        total = posterior.sum(axis=1)
        self.root = total / total.sum() if total.sum() > 0 else self.root
        found = {name: np.zeros(self.rows) for name in self.leaves}
        reached: dict[str, Array] = {name: np.zeros(self.rows) for name in self.mixtures}
        for own, names in zip(posterior, self.below, strict=True):
            for name in names:
                (reached if name in self.mixtures else found)[name] += own
        for name, own in reached.items():
            mixture, weighed = self.mixtures[name], self._weighed(name)
            shares = _shares(weighed) * own
            for leaf, share in zip(mixture.leaves, shares, strict=True):
                found[leaf] += share
            if shares.sum() > 0:
                mixture.weights = shares.sum(axis=1) / shares.sum()
        return found


def client(
    view: View,
    listed: Table,
    every: Table,
    members: Sequence[str],
    summation: Summation,
    rounds: int,
    stamp: str = "",
    share: float = 0.0,
    lots: Array | None = None,
) -> Flow[View]:
    """As ``network_em.client``; ``rounds`` of EM over everything, then over the weights alone, or
    with rows held back no more than the best round."""
    found = expect(
        (yield from recv_payload(COORDINATOR, "em/rows")), np.ndarray, COORDINATOR, "em/rows"
    )
    graph = expect(
        (yield from recv_payload(COORDINATOR, "em/graph")), dict, COORDINATOR, "em/graph"
    )
    places, moments = np.asarray(found, np.int64), Moments.of(every)
    shared = listed.rows(places)
    learned = view.parameters.circuits
    leaves = {leaf.name: EMLeaf(learned[leaf.name], shared, moments, every) for leaf in view.leaves}
    parts = _Parts(graph, leaves, len(shared))
    collective = summation.at(view.me, summation.members(members))
    own = np.zeros(len(places)) if lots is None else lots[places]
    held = yield from _held(own, share if rounds else 0.0, collective)
    heard = zlib.crc32(shared.values.tobytes(), zlib.crc32(stamp.encode()))
    heard = zlib.crc32(held.tobytes(), heard)
    judge = Judge()
    history: list[float] = []
    for t in range(rounds + 1):
        step = f"evaluating shared rows, sum {t} ({heard:08x})"
        parts.logs = yield from compute(step, parts.evaluate)
        total = _possible((yield from collective.sum(f"em/values/{t}", parts.values(), VALUES)))
        better, ends = yield from _judged(t, parts, total, held, judge, collective)
        if better:
            stays, state = t, parts.state()
        if ends or t == rounds:
            break
        heard = zlib.crc32(total.tobytes(), heard)
        for name, own in parts.maximise(_posterior(total, parts.root, held, history)).items():
            leaves[name].maximise(leaves[name].counts(own))
    if held.any():
        parts.restore(state)
    else:
        yield from _weights_alone(parts, collective, total, history)
    yield from _tell(view.me == members[0], parts, history, judge)
    if not stays:
        return view
    after = {name: leaf.learned() for name, leaf in leaves.items()}
    return replace(view, parameters=Parameters({}, after), _ready={})


def _held(lots: Array, share: float, summation: Collective) -> Flow[Mask]:
    """Which of the shared rows are held back (rows,), by the lots of one of the clients."""
    if not holding(len(lots), share):
        return np.zeros(len(lots), np.bool_)
    found = yield from summation.agree("em/held", drawn(lots, share).astype(np.float64), HELD)
    if found.shape != (len(lots),) or not 0 < np.count_nonzero(found) < len(lots):
        raise ProtocolError(f"no choice of {len(lots)} rows was told under 'em/held'")
    return found.astype(np.bool_)


def _judged(
    t: int, parts: _Parts, total: Array, held: Mask, judge: Judge, summation: Collective
) -> Flow[tuple[bool, bool]]:
    if not held.any():
        return True, False
    logs = np.asarray(logsumexp(_joint(total[:, held], parts.root), axis=0))
    return (yield from judge.agreed(f"em/judged/{t}", mean(logs), summation))


def _shares(joint: Array) -> Array:
    """Of every line of log-values (lines, rows) in their sum; 0 where all are impossible."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.exp(joint - logsumexp(joint, axis=0))))


def _possible(total: Array) -> Array:
    """Sums that someone finds impossible are −∞."""
    return np.where(total > IMPOSSIBLE / 2, total, -np.inf)


def _joint(total: Array, root: Array) -> Array:
    """log w p of the root's children, (children, rows)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(root)[:, None] + total)


def _posterior(total: Array, root: Array, held: Mask, history: list[float]) -> Array:
    """Of every child for every row (children, rows), nothing for rows that are held back; the mean
    log-likelihood of the others goes to history."""
    joint = _joint(total, root)
    history.append(float(logsumexp(joint[:, ~held], axis=0).mean()))
    return _shares(joint) * ~held


def _weights_alone(
    parts: _Parts, summation: Collective, total: Array, history: list[float]
) -> Flow[None]:
    """Only combinations with mixtures change, and have to be added up again."""
    held = np.zeros(parts.rows, np.bool_)
    for t in range(ROUNDS):
        posterior = _posterior(total, parts.root, held, history)
        settled = len(history) > 1 and history[-1] - history[-2] < SETTLED
        told = np.array([settled])  # by one of them: last bits may differ between machines
        if (yield from summation.agree(f"em/settled/{t}", told, "whether EM has settled")).any():
            break
        parts.maximise(posterior)
        if len(parts.moving):
            own = parts.values()[parts.moving]
            found = yield from summation.sum(f"em/mixtures/{t}", own, VALUES)
            total[parts.moving] = _possible(found)


def _tell(first: bool, parts: _Parts, history: list[float], judge: Judge) -> Flow[None]:
    told: dict[str, AnyArray] = {f"of {n}": m.weights for n, m in parts.mixtures.items()}
    about = "weights of its mixtures of leaves"
    if first:
        told |= {f"of {ROOT}": parts.root, "history": np.array(history)}
        told |= {"validation": np.array(judge.history)}
        about = "weights above the leaves, and the likelihood of the shared rows"
    yield from send_payload(COORDINATOR, "em/learned", told, about)


# ---------------------------------------------------------------------- the coordinator


def coordinator(joint: Joint, positions: Mapping[str, Labels]) -> Flow[Refined]:
    members = list(positions)
    graphs = _graphs(joint, members)
    for party, rows in positions.items():
        yield from send_payload(party, "em/rows", rows, "which of its rows all parties hold")
        about = "how often combinations of clusters occur, and in which its own are"
        yield from send_payload(party, "em/graph", cast(Json, graphs[party]), about)
    found = yield from gather_payloads(members, "em/learned")
    weights = {n: dict(own) for n, own in joint.parameters.values.items()}
    for party in members:
        told = expect(found[party], dict, party, "em/learned")
        own = list(cast(dict[str, object], graphs[party]["mixtures"]))
        for name in own:
            weights[name] = {WEIGHT: _weight(told, name, joint, name, party)}
    first = expect(found[members[0]], dict, members[0], "em/learned")
    root = joint.circuit.root
    if isinstance(root, Sum):
        weights[root.name] = {WEIGHT: _weight(first, ROOT, joint, root.name, members[0])}
    history, validation = (tuple(map(float, first[k])) for k in ("history", "validation"))
    return Refined(replace(joint, parameters=Parameters(weights)), history, validation)


def _graphs(joint: Joint, members: Sequence[str]) -> dict[str, dict[str, object]]:
    """For every party: the root's children with what it has below them."""
    root, nodes = joint.circuit.root, joint.circuit.by_name
    weights = joint.parameters[root.name][WEIGHT][0].tolist() if isinstance(root, Sum) else [1.0]
    children = root.children if isinstance(root, Sum) else (root.name,)
    below: dict[str, list[list[str]]] = {p: [[] for _ in children] for p in members}
    mixtures: dict[str, dict[str, object]] = {p: {} for p in members}
    moving = []
    for i, child in enumerate(children):
        node = nodes[child]
        for name in node.children if isinstance(node, Product) else (child,):
            own = nodes[name]
            leaves = [name] if isinstance(own, Leaf) else list(own.children)
            holder = _holder(joint, leaves, name)
            below[holder][i].append(name)
            if not isinstance(own, Leaf):
                mixtures[holder][name] = [leaves, joint.parameters[name][WEIGHT][0].tolist()]
                moving.append(i)
    told = {"weights": weights, "moving": list(dict.fromkeys(moving))}
    return {p: {**told, "below": below[p], "mixtures": mixtures[p]} for p in members}


def _holder(joint: Joint, leaves: Sequence[str], name: str) -> str:
    holders = {joint.placement[n] for n in leaves}
    if len(holders) > 1 or not all(isinstance(joint.circuit.by_name[n], Leaf) for n in leaves):
        raise FederationError(
            f"{name!r} mixes leaves of {', '.join(sorted(holders))}: EM by sums is for "
            "shared_leaves='divided'"
        )
    return holders.pop()


def _weight(told: Mapping[str, AnyArray], said: str, joint: Joint, node: str, sender: str) -> Array:
    found, before = told.get(f"of {said}"), joint.parameters[node][WEIGHT]
    if found is not None and found.shape == before.shape[1:] and found.dtype == before.dtype:
        weight = np.array(found, np.float64)[None]
        if (weight >= 0).all() and np.allclose(weight.sum(axis=1), 1.0):
            return weight
    raise ProtocolError(f"{sender} sent no weights of {node!r} under 'em/learned'")
