"""The E-step through the network: parties hold different columns of the same rows (earlier version
of federated circuits, algorithms 2 and 3). The coordinator receives the log-likelihoods of all
leaves and sends every party the posteriors of its leaves. If no rows are held out, rounds over the
weights alone follow until they converge; these need no messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic

import numpy as np

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, compute, digest, gather, receive, send
from fedcircuits.federation.messages import (
    Booleans,
    Count,
    FiniteMatrix,
    IntegerVector,
    Message,
    RealMatrix,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.leaf_em import EMLeaf, Moments
from fedcircuits.learning.stopping import Mask, held_back, held_share, mean_of_rows
from fedcircuits.methods.refinement.roles import A, EMSite, Role, are_likelihoods

SETTLED = 1e-4  # nats per row: what a round over the weights alone gains at least
ROUNDING = 1e-6
Positions = Mapping[str, Labels]  # of the shared rows in every party's list, (rows,) each


class SharedRows(Message, frozen=True):
    """Coordinator → client: positions of shared rows in the list of tokens that it has sent."""

    tag: ClassVar[str] = "em/rows"
    reveals: ClassVar[str] = "which of the reader's rows all parties hold"

    rows: IntegerVector
    number: Count  # of them

    def __post_init__(self) -> None:
        if len(self.rows) != self.number:
            raise ValueError(f"expected {self.number} rows, got {len(self.rows)}")


class HeldRows(Message, frozen=True):
    """First client → coordinator: which of the shared rows are held out."""

    tag: ClassVar[str] = "em/held"
    reveals: ClassVar[str] = "which of the shared rows are held out for early stopping"

    held: Booleans


class LeafLogValues(Message, frozen=True):
    """Client → coordinator: log-likelihoods of rows under its leaves."""

    tag: ClassVar[str] = "em/values"
    reveals: ClassVar[str] = "for each sealed row token, the likelihood under each of its clusters"

    values: RealMatrix  # (leaves, rows)


class LeafPosteriors(Message, frozen=True):
    """Coordinator → client: posteriors of its leaves, or at the end the round whose leaves stay."""

    tag: ClassVar[str] = "em/posterior"
    reveals: ClassVar[str] = "the posterior of each of the reader's clusters for the shared rows"

    posteriors: FiniteMatrix | None = None  # (leaves, rows)
    stays: Count | None = None


# ---------------------------------------------------------------------- clients


class SharedRowsClient(Role[A], Generic[A]):
    """A client's leaves on the shared rows; ``places``: of these in its list."""

    def __init__(self, site: EMSite, places: Labels, above: A) -> None:
        shared, moments, step = site.listed.rows(places), Moments.of(site.table), site.settings.step
        learned = site.view.parameters.circuits
        names = [leaf.name for leaf in site.view.leaves]
        leaves = {n: EMLeaf(learned[n], shared, moments, site.table, step) for n in names}
        super().__init__(leaves, above)
        self.rows = len(shared)
        # work is kept for the same leaves, rows and posteriors only
        self.mark = digest(site.stamp, shared.values)


class NetworkClient(SharedRowsClient[None]):
    """It sends log-likelihoods, and receives posteriors or the end."""

    def expect(self, t: int, last: bool) -> Flow[float | None]:
        step = f"evaluating shared rows, round {t}"
        values = yield from compute(step, self._log_values, key=self.mark)
        yield from send(COORDINATOR, LeafLogValues(values), f"{LeafLogValues.tag}/{t}")
        return None

    def _log_values(self) -> Array:
        lines = [leaf.log_values() for leaf in self.leaves.values()]
        return np.stack(lines) if lines else np.zeros((0, self.rows))

    @property
    def _scopes(self) -> Labels:
        """Which leaf has which column, (columns, leaves)."""
        every = [leaf.circuit.schema.names for leaf in self.leaves.values()]
        return scopes_of(every)

    def agree(self, rounds: range, best: int, ends: bool) -> Flow[tuple[int, bool]]:
        blamed = COORDINATOR, f"{LeafPosteriors.tag}/{rounds[-1]}"
        answer = yield from receive(COORDINATOR, LeafPosteriors, blamed[1])
        if answer.posteriors is None or ends:
            stays = -1 if answer.stays is None else answer.stays
            problem = f"expected a round from {rounds[0]} to {rounds[-1]}, whose leaves stay"
            require(stays in rounds, *blamed, "stays", problem)
            return stays, True
        self.posteriors = answer.posteriors.astype(np.float64)
        require_shape(self.posteriors, (len(self.leaves), self.rows), *blamed, "posteriors")
        sound = (self.posteriors >= 0).all()
        sound = sound and (self._scopes @ self.posteriors <= 1 + 2 * ROUNDING).all()
        problem = "expected probabilities, those of leaves with one column at most 1 in a row"
        require(bool(sound), *blamed, "posteriors", problem)
        self.mark = digest(self.mark, self.posteriors)
        return best, False

    def maximise(self) -> None:
        for leaf, posterior in zip(self.leaves.values(), self.posteriors, strict=True):
            leaf.maximise(leaf.counts(posterior))


def client(site: EMSite) -> Flow[NetworkClient]:
    places = yield from places_of(site)
    if site.first and held_share(len(places), site.settings.share):
        held = held_back(site.lots[places], site.settings.share)
        yield from send(COORDINATOR, HeldRows(held))
    return NetworkClient(site, places, None)


def places_of(site: EMSite) -> Flow[Labels]:
    """Where the shared rows are in the client's list."""
    rows = (yield from receive(COORDINATOR, SharedRows)).rows
    least = max(site.least, 1)
    sound = len(rows) >= least and len(np.unique(rows)) == len(rows)
    sound = sound and bool(rows.min() >= 0 and rows.max() < len(site.listed))
    problem = f"expected {least} different places or more in a list of {len(site.listed)} rows"
    require(sound, COORDINATOR, SharedRows, "rows", problem)
    return rows.astype(np.int64)


# ---------------------------------------------------------------------- the coordinator


class NetworkCoordinator(Role[Packed]):
    """It evaluates the graph above the leaves on their log-likelihoods of the shared rows."""

    def __init__(self, joint: Joint, positions: Positions, held: Mask) -> None:
        self.network, self.held = UpperCircuit(joint.circuit), held
        super().__init__({}, self.network.pack(joint.parameters))
        leaves = list(joint.circuit.leaves())
        self.columns = np.array([[len(leaf.scope)] for leaf in leaves])
        self.scopes = [leaf.scope for leaf in leaves]
        holders = [joint.placement[leaf.name] for leaf in leaves]
        self.place = {p: [i for i, h in enumerate(holders) if h == p] for p in positions}

    def expect(self, t: int, last: bool) -> Flow[float | None]:
        tag = f"{LeafLogValues.tag}/{t}"
        answers = yield from gather(list(self.place), LeafLogValues, tag)
        self.given = np.empty((len(self.columns), len(self.held)))
        for party, place in self.place.items():
            values = answers[party].values
            require_shape(values, (len(place), len(self.held)), party, tag, "values")
            sound = are_likelihoods(values, self.columns[place])
            require(sound, party, tag, "values", "expected log-likelihoods of rows")
            self.given[place] = values
        if not self.held.any():
            return None
        return mean_of_rows(self.network.log_values(self.given[:, self.held], self.above))

    def agree(self, rounds: range, best: int, ends: bool) -> Flow[tuple[int, bool]]:
        tag = f"{LeafPosteriors.tag}/{rounds[-1]}"
        if ends:
            about = "after which round EM has its leaves"
            yield from broadcast(list(self.place), LeafPosteriors(stays=best), tag, about)
            return best, ends
        weight = (~self.held).astype(np.float64)
        posteriors, self.counts = self.network.posteriors(self.given, self.above, weight)
        for party, place in self.place.items():
            yield from send(party, LeafPosteriors(self._probable(posteriors[place], place)), tag)
        return best, ends

    def _probable(self, posteriors: Array, place: list[int]) -> Array:
        """Of rows that are next to impossible they may add up to more than 1."""
        total = (scopes_of([self.scopes[i] for i in place]) @ posteriors).max(axis=0, initial=0.0)
        return posteriors / np.where(total > 1 + ROUNDING, total, 1.0)

    def maximise(self) -> None:
        self.history.append(self.counts.log_likelihood / self.counts.weight)
        self.above = self.network.program.maximise(self.counts, self.above)

    def weights(self, rounds: int) -> dict[str, Arrays]:
        """After so many rounds over them alone at most."""
        for _ in range(0 if self.held.any() else rounds):
            _, counts = self.network.posteriors(self.given, self.above)
            self.history.append(counts.log_likelihood / counts.weight)
            if settled(self.history):
                break
            self.above = self.network.program.maximise(counts, self.above)
        return dict(self.network.program.unpack(self.above).values)


def scopes_of(scopes: Sequence[Sequence[str]]) -> Labels:
    """Which of some leaves has which column, (columns, leaves)."""
    columns = sorted({name for scope in scopes for name in scope})
    return np.array([[n in scope for scope in scopes] for n in columns], np.int64).reshape(
        len(columns), len(scopes)
    )


def settled(history: Sequence[float]) -> bool:
    return len(history) > 1 and history[-1] - history[-2] < SETTLED


def coordinator(joint: Joint, positions: Positions, share: float) -> Flow[NetworkCoordinator]:
    for party, rows in positions.items():
        yield from send(party, SharedRows(rows, len(rows)))
    first, shared = next(iter(positions.items()))
    held = np.zeros(len(shared), np.bool_)
    if held_share(len(shared), share):
        held = (yield from receive(first, HeldRows)).held
        require_shape(held, (len(shared),), first, HeldRows, "held")
        require(is_choice(held), first, HeldRows, "held", "expected some of the rows, not all")
    return NetworkCoordinator(joint, positions, held)


def is_choice(held: Array | Mask, least: int = 1) -> bool:
    """Some of the rows, but at least so many are not held."""
    return bool(0 < np.count_nonzero(held) <= len(held) - max(least, 1))
