"""The E-step by sums: parties hold different columns of the same rows, and nobody sees one party's
log-likelihoods. Every child of the root is a product over parties, so its log-value is a sum of one
number per party: that of the party's leaf, or mixture of leaves, below this child. From these sums
every party computes the posteriors of its own leaves; with two parties, each could compute the
other's part. The rounds are those through the network (network.py), up to the rounding of the sum
(fixed_point.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.circuit import Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, digest, gather, receive, send
from fedcircuits.federation.messages import Booleans, FiniteMatrix, Message, require, require_shape
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.stopping import held_back, held_share, mean_of_rows
from fedcircuits.methods.refinement.network import (
    HeldRows,
    Positions,
    SharedRows,
    SharedRowsClient,
    is_choice,
    places_of,
    settled,
)
from fedcircuits.methods.refinement.roles import (
    Above,
    EMSite,
    LearnedWeights,
    checked_weights,
    decided,
    statistics_problem,
)

VALUES = "per shared row, the log-likelihood in every combination of clusters"
FIRST = "the weights above the leaves, and the likelihood of the shared rows"
OTHER = "the weights of its mixtures of leaves"
IMPOSSIBLE = -(2.0**60)  # a log-value that crosses in place of −∞


class Combinations(Message, frozen=True):
    """Coordinator → client: children of the root, and what it has below each of them."""

    tag: ClassVar[str] = "em/graph"
    reveals: ClassVar[str] = (
        "how often each combination of clusters occurs, and which of them contain the reader's "
        "clusters"
    )

    root: str
    weights: dict[str, FiniteMatrix]  # (1, inputs) of the root and of its mixtures
    below: list[list[str]]  # leaves and mixtures below every child
    mixtures: dict[str, list[str]]  # leaves of every mixture
    moving: Booleans  # whether a child has a mixture below, anybody's

    def check(self, leaves: set[str], sender: str) -> None:
        """That it speaks of these leaves."""
        shapes = {name: (1, len(weights)) for name, weights in self.mixtures.items()}
        shapes[self.root] = 1, len(self.below)
        checked_weights(self.weights, shapes, sender, Combinations, "weights")
        problem = f"expected leaves and mixtures of {', '.join(sorted(leaves))}"
        mixed = {name for weights in self.mixtures.values() for name in weights}
        apart = mixed <= leaves and not {*leaves, self.root} & self.mixtures.keys()
        require(apart, sender, Combinations, "mixtures", problem)
        below = {name for names in self.below for name in names}
        require(below <= leaves | self.mixtures.keys(), sender, Combinations, "below", problem)
        require_shape(self.moving, (len(self.below),), sender, Combinations, "moving")


class SumClient(SharedRowsClient[dict[str, Array]]):
    """What one party has below the root's children; ``above``: weights of the root and mixtures."""

    def __init__(self, site: EMSite, places: Labels, graph: Combinations) -> None:
        super().__init__(
            site, places, {n: w[0].astype(np.float64) for n, w in graph.weights.items()}
        )
        summation = site.settings.summation
        self.collective = summation.at(site.view.me, summation.members(site.members))
        self.graph, self.first, self.weight_rounds = graph, site.first, site.settings.weight_rounds

    def holds_back(self, lots: Array, share: float, least: int) -> Flow[None]:
        """Which of the shared rows are held out, by the lots of one of the clients; ``least`` are
        not."""
        self.held = held_back(lots, share)
        if held_share(len(lots), share):
            about = HeldRows.reveals
            sound = partial(is_choice, least=least)
            choice = yield from decided(self.collective, HeldRows.tag, self.held, about, sound)
            self.held = choice.astype(np.bool_)
        self.judges = bool(self.held.any())
        self.mark = digest(self.mark, self.held)

    def expect(self, t: int, last: bool) -> Flow[float | None]:
        step = f"evaluating shared rows, sum {t}"
        self.logs = yield from compute(step, self._log_values, key=self.mark)
        self.total = yield from self._added(f"em/values/{t}", self._values())
        self.mark = digest(self.mark, self.total)
        if not self.judges:
            return None
        joint = _weighed(self.above[self.graph.root], self.total[:, self.held])
        return mean_of_rows(np.asarray(logsumexp(joint, axis=0)))

    def _log_values(self) -> dict[str, Array]:
        return {name: leaf.log_values() for name, leaf in self.leaves.items()}

    def _values(self) -> Array:
        """Its part of every child's log-value, (children, rows)."""
        values = np.zeros((len(self.graph.below), self.rows))
        for value, names in zip(values, self.graph.below, strict=True):
            for name in names:
                mixed = name in self.graph.mixtures
                value += logsumexp(self._mixed(name), axis=0) if mixed else self.logs[name]
        return np.maximum(values, IMPOSSIBLE)

    def _mixed(self, mixture: str) -> Array:
        """log w p of the mixture's leaves, (leaves, rows)."""
        logs = np.stack([self.logs[n] for n in self.graph.mixtures[mixture]])
        return _weighed(self.above[mixture], logs)

    def _added(self, tag: str, numbers: Array) -> Flow[Array]:
        """Sums that someone finds impossible are −∞."""
        total = yield from self.collective.sum(tag, numbers, VALUES, check=statistics_problem)
        return np.where(total > IMPOSSIBLE / 2, total, -np.inf)

    def maximise(self) -> None:
        for name, posterior in self._maximise_weights(self._posteriors()).items():
            self.leaves[name].maximise(self.leaves[name].counts(posterior))

    def _posteriors(self) -> Array:
        """Of every child for every row (children, rows), nothing for held-out rows; the
        mean log-likelihood of the others goes to the history."""
        joint = _weighed(self.above[self.graph.root], self.total)
        self.history.append(float(logsumexp(joint[:, ~self.held], axis=0).mean()))
        return _shares(joint) * ~self.held

    def _maximise_weights(self, posteriors: Array) -> dict[str, Array]:
        """From the children's posteriors (children, rows). Returns those of its leaves."""
        weights, total = dict(self.above), posteriors.sum(axis=1)
        if total.sum() > 0:
            weights[self.graph.root] = total / total.sum()
        reached = {name: np.zeros(self.rows) for name in (*self.leaves, *self.graph.mixtures)}
        for posterior, names in zip(posteriors, self.graph.below, strict=True):
            for name in names:
                reached[name] += posterior
        for name, leaves in self.graph.mixtures.items():
            shares = _shares(self._mixed(name)) * reached[name]
            for leaf, share in zip(leaves, shares, strict=True):
                reached[leaf] += share
            if shares.sum() > 0:
                weights[name] = shares.sum(axis=1) / shares.sum()
        self.above = weights
        return {name: reached[name] for name in self.leaves}

    def finish(self, scores: Sequence[float]) -> Flow[None]:
        """Rounds over the weights alone, if no rows are held out; then it sends the weights."""
        for t in range(0 if self.judges else self.weight_rounds):
            posteriors = self._posteriors()
            ended, about = np.array([settled(self.history)]), "whether EM has converged"
            if (yield from decided(self.collective, f"em/settled/{t}", ended, about)).any():
                break
            self._maximise_weights(posteriors)
            if (moving := self.graph.moving).any():
                changed = yield from self._added(f"em/mixtures/{t}", self._values()[moving])
                self.total[moving] = changed
        weights = {n: w[None] for n, w in self.above.items() if self.first or n != self.graph.root}
        likelihoods = (self.history, [*scores]) if self.first else ([], [])
        learned, about = LearnedWeights(weights, *likelihoods), FIRST if self.first else OTHER
        yield from send(COORDINATOR, learned, reveals=about)


def _weighed(weights: Array, logs: Array) -> Array:
    """log w p of every line of log-values, (lines, rows)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights)[:, None] + logs)


def _shares(joint: Array) -> Array:
    """Of every line of log-values (lines, rows) in their sum; 0 where all are impossible."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.exp(joint - logsumexp(joint, axis=0))))


def client(site: EMSite) -> Flow[SumClient]:
    places = yield from places_of(site)
    graph = yield from receive(COORDINATOR, Combinations)
    graph.check({leaf.name for leaf in site.view.leaves}, COORDINATOR)
    role = SumClient(site, places, graph)
    yield from role.holds_back(site.lots[places], site.settings.share, site.least)
    return role


# ---------------------------------------------------------------------- the coordinator


def coordinator(joint: Joint, positions: Positions) -> Flow[Above]:
    """It sends every party its part of the graph, and receives the learned weights."""
    members, columns = list(positions), len(joint.circuit.schema)
    graphs = combinations_of(joint, members)
    for party, rows in positions.items():
        yield from send(party, SharedRows(rows, len(rows)))
        yield from send(party, graphs[party])
    answers = yield from gather(members, LearnedWeights)
    weights, likelihoods = dict(joint.parameters.values), []
    for party, graph in graphs.items():
        first = party == members[0]
        shapes = {n: w.shape for n, w in graph.weights.items() if first or n != graph.root}
        mixture, *histories = answers[party].above(shapes, columns, party)
        weights |= {n: w for n, w in mixture.items() if n in weights}  # the root may be no sum
        likelihoods.append(histories)
    history, validation = likelihoods[0]
    return weights, history, validation


def combinations_of(joint: Joint, members: Sequence[str]) -> dict[str, Combinations]:
    """For every party: the root's children with what it has below them."""
    root, nodes = joint.circuit.root, joint.circuit.by_name
    children = root.children if isinstance(root, Sum) else (root.name,)
    top = joint.parameters[root.name][WEIGHT] if isinstance(root, Sum) else np.ones((1, 1))
    below: dict[str, list[list[str]]] = {p: [[] for _ in children] for p in members}
    mixtures: dict[str, dict[str, list[str]]] = {p: {} for p in members}
    moving = np.zeros(len(children), np.bool_)
    for i, child in enumerate(children):
        for name in nodes[child].children if isinstance(nodes[child], Product) else (child,):
            mixes = not isinstance(nodes[name], Leaf)
            leaves = list(nodes[name].children) if mixes else [name]
            holder = _holder(joint, leaves, name)
            below[holder][i].append(name)
            if mixes:
                mixtures[holder][name], moving[i] = leaves, True
    combinations = {}
    for p in members:
        weights = {root.name: top} | {n: joint.parameters[n][WEIGHT] for n in mixtures[p]}
        combinations[p] = Combinations(root.name, weights, below[p], mixtures[p], moving)
    return combinations


def _holder(joint: Joint, leaves: Sequence[str], name: str) -> str:
    holders = {joint.placement[n] for n in leaves}
    if len(holders) > 1 or not all(isinstance(joint.circuit.by_name[n], Leaf) for n in leaves):
        raise FederationError(
            f"{name!r} mixes leaves of {', '.join(sorted(holders))}: sums over parties need "
            "shared_leaves='divided'"
        )
    return holders.pop()
