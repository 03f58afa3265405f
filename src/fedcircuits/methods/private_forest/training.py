"""A forest learned by parties that hold other rows of the same variables, and end with shares of it
(Private structure and parameter learning for SPNs among N parties).

Structures are random and public, EM begins at the same public point for everybody, and every party
has an equal part: there is no server. ``combine`` says how what they learn becomes one forest:

    average       Each learns the whole forest alone; counts are averaged on shares
                  (private_average.py). Nobody sees a parameter.
    concatenate   Each learns a structure of its own, with its part of the weights, and deals it
                  (private_dealing.py), weighed by its part of all rows. Nobody sees another's.
    em            Expected counts are added up on shares in every iteration (private_em.py): EM on
                  all rows. Parties see the parameters, and deal them in the end.

With ``together`` the first iterations of "average" are such as those of "em".

    agree/plan        party → party: version, settings, names, kinds and categories of its columns
    agree/structure   party → party: a digest of structures and starts
    total/rows/…      party → party: shares of its number of rows, then of the sum
    em/…, average/…, deal/model   as above

Before anything is shared, parties refuse others with another version, other settings, variables or
structures, fewer than three parties, and a threshold above ⌊(N − 1)/2⌋. Any so many parties learn
together what was agreed to be known, and nothing else: names and categories, the number of all rows
(average and concatenate if ``public_total``; em shows it), the parameters of shared iterations (em,
together). A lost party ends it.

Rounds of messages, n numbers of parameters, R the rounds of one batch of logarithms
(``private_average.logarithm``), t the threshold:

    concatenate   2 + 2 + 1
    average       2 + 2 + 1 + ⌈n / 8192⌉ (R + 2 + ⌈log2(t + 1)⌉), in deeper forests
                  4 + ⌈log2(t + 1)⌉ more
    em            2 + 2 for each iteration + 1
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Literal, cast, get_args

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import FederationError, ParameterError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute
from fedcircuits.federation.wire import Json
from fedcircuits.learning.em import EMSchedule
from fedcircuits.methods.private_forest.agreement import agreed_table, same_structures
from fedcircuits.methods.private_forest.average import averaged
from fedcircuits.methods.private_forest.dealing import bounded, dealt
from fedcircuits.methods.private_forest.em import Learning, learned_together
from fedcircuits.methods.private_forest.forests import (
    ROOT,
    WEIGHTINGS,
    Shape,
    Weighting,
    joined,
    joined_parameters,
    learned,
    random_start,
    structure,
    structure_weights,
)
from fedcircuits.methods.private_forest.model import LEAST_WEIGHT, Forest, Shares
from fedcircuits.privacy.secure_sum import Secret, SecretSum
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.shares import threshold
from fedcircuits.tables.table import Table

Combine = Literal["average", "concatenate", "em"]
PATIENCE = 5  # iterations without a gain on rows held back


@dataclass(frozen=True, slots=True)
class Plan:
    """What all parties must have alike.

    threshold   parties that may put together what they see; "majority": fewer than half
    validation  part of its rows that a party holds back, to stop by and to weigh structures
    together    iterations of EM with counts added up on shares, before each goes on alone
    marginals   whether an asker may leave out values
    run         a name that no other run of these parties has
    """

    shape: Shape
    combine: Combine = "average"
    weighting: Weighting = "rank"
    threshold: int | Literal["majority"] = "majority"
    public_total: bool = True
    together: int = 0
    validation: float = 0.1
    max_iter: int = 150
    tol: float = 1e-4
    marginals: bool = False
    seed: int = 0
    run: str = ""

    def check(self, parties: int) -> None:
        """FederationError unless so many parties can do this."""
        most = threshold(parties)
        if self.threshold not in ("majority", *range(1, most + 1)):
            raise FederationError(
                f"{parties} parties can keep secrets from at most {most} of them together, "
                f"threshold is {self.threshold!r}: take 'majority', or more parties"
            )
        for name, number, least in (
            ("together", self.together, 0),
            ("max_iter", self.max_iter, 1),
            ("seed", self.seed, 0),
        ):
            if number < least:
                raise FederationError(f"{name} must be a whole number from {least}, got {number}")
        for name, word, known in (
            ("combine", self.combine, get_args(Combine)),
            ("weighting", self.weighting, WEIGHTINGS),
        ):
            if word not in known:
                raise FederationError(f"{name} must be one of {', '.join(known)}, got {word!r}")
        if not self.public_total and self.combine != "average":
            why = "counts add up to it" if self.combine == "em" else "each weighs its own by it"
            raise FederationError(
                f"combine={self.combine!r} shows the number of all rows ({why}): take "
                "public_total=True, or combine='average'"
            )
        if self.together and self.combine != "average":
            raise FederationError(
                f"together={self.together} is for combine='average', got {self.combine!r}"
            )
        if not 0 <= self.validation < 1:
            raise FederationError(
                f"validation must be a part from 0 to below 1, got {self.validation!r}"
            )

    @property
    def schedule(self) -> EMSchedule:
        return EMSchedule(epochs=self.max_iter, tolerance=self.tol, patience=PATIENCE)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What a party has after training: the public forest and its shares, no parameter."""

    forest: Forest
    shares: Shares
    total: int | None  # number of all rows, where it is known
    history: tuple[tuple[float, ...], ...] = ()  # by structure, where parties learned together


def member(party: Party, members: Sequence[str], plan: Plan, key: bytes) -> Flow[Trained]:
    """A party's side. ``key``: fresh, of this party for this run (``fresh_key()``)."""
    me, every = party.name, tuple(members)
    plan.check(len(every))
    table = yield from agreed_table(party, every, cast(dict[str, Json], asdict(plan)))
    site = Site.of(table, plan, every.index(me), len(every))
    yield from same_structures(me, every, site.digest)
    sums = Secret(key=key).at(me, every)
    group = Group.of(me, every, key, f"forest/{plan.run}")
    if plan.combine == "em":
        return (yield from _by_em(group, sums, site, plan))
    total = None
    if plan.public_total:
        told = "numbers of rows"
        total = round(float((yield from sums.sum("total/rows", np.array(site.size), told))))
    if plan.combine == "concatenate":
        assert total is not None, "it is public"
        return (yield from _side_by_side(group, site, plan, total))
    return (yield from _by_average(group, sums, site, plan, total))


# ---------------------------------------------------------------------- what a party has


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A party's rows, and the public structures with their starts."""

    place: int  # among the members
    rows: Array
    held: Array
    circuits: tuple[Circuit, ...]
    starts: tuple[Parameters, ...]

    @classmethod
    def of(cls, table: Table, plan: Plan, place: int, parties: int) -> Site:
        rows, held = _held_back(table.values, plan, place)
        shape, count = plan.shape, plan.shape.structures
        if plan.combine == "concatenate":
            shape, count = shape.divided(table.schema, parties), parties
        draws = [np.random.default_rng([plan.seed, i]) for i in range(count)]
        circuits = tuple(structure(table.schema, shape, rng) for rng in draws)
        starts = tuple(random_start(c, rng) for c, rng in zip(circuits, draws, strict=True))
        return cls(place, rows, held, circuits, starts)

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.held)

    @property
    def digest(self) -> str:
        found = sha256()
        for circuit, start in zip(self.circuits, self.starts, strict=True):
            found.update(circuit.dumps().encode())
            for name in sorted(start):
                for array in start[name].values():
                    found.update(array.astype("<f8").tobytes())
        return found.hexdigest()

    def learned(self, i: int, start: Parameters, plan: Plan) -> Flow[tuple[Parameters, float]]:
        """Structure i from the party's own rows, and how likely it finds those held back."""
        return (
            yield from compute(
                f"learning structure {i} ({self._stamp(start):08x})",
                lambda: learned(self.circuits[i], start, self.rows, self.held, plan.schedule),
            )
        )

    def _stamp(self, start: Parameters) -> int:
        """Work is kept for the same rows and the same start only."""
        found = zlib.crc32(self.held.tobytes(), zlib.crc32(self.rows.tobytes()))
        for name in sorted(start):
            for array in start[name].values():
                found = zlib.crc32(array.tobytes(), found)
        return found


def _held_back(values: Array, plan: Plan, place: int) -> tuple[Array, Array]:
    order = np.random.default_rng([plan.seed, place, 1]).permutation(len(values))
    held = min(round(plan.validation * len(values)), len(values) - 1)
    return np.array(values[np.sort(order[held:])]), np.array(values[np.sort(order[:held])])


# ---------------------------------------------------------------------- three ways to one forest


def _by_average(
    group: Group, sums: SecretSum, site: Site, plan: Plan, total: int | None
) -> Flow[Trained]:
    starts = site.starts
    history: tuple[tuple[float, ...], ...] = ()
    if plan.together:
        shared = [Learning.of(c, s, site.rows) for c, s in zip(site.circuits, starts, strict=True)]
        yield from learned_together(sums, shared, site.rows, site.held, plan.together, None)
        starts = tuple(s.parameters for s in shared)
        history = tuple(tuple(s.history) for s in shared)
    found = []
    for i, start in enumerate(starts):
        found.append((yield from site.learned(i, start, plan)))
    weights = structure_weights(np.array([judged for _, judged in found]), plan.weighting)
    own = joined_parameters(site.circuits, [p for p, _ in found], weights)
    forest = Forest(joined(site.circuits), plan.marginals)
    shares = yield from averaged(group, forest, plan.run, own, site.size, total)
    return Trained(forest, shares, total, history)


def _side_by_side(group: Group, site: Site, plan: Plan, total: int) -> Flow[Trained]:
    forest = Forest(joined(site.circuits), plan.marginals)
    owners = {
        leaf.name: group.members[int(leaf.name.split("/", 1)[0])]
        for leaf in forest.circuit.leaves()
    }
    found, _ = yield from site.learned(site.place, site.starts[site.place], plan)
    own = _own_part(forest, site, found, site.size / total)
    shares = yield from dealt(group, "deal/model", forest, plan.run, owners, own)
    return Trained(forest, shares, total)


def _own_part(forest: Forest, site: Site, found: Parameters, share: float) -> Parameters:
    """A party's structure within the forest: its leaves and sums, and the root's weights on it."""
    circuit = site.circuits[site.place]
    least = 2.0**-LEAST_WEIGHT / share
    weights = found[circuit.root.name][WEIGHT][0]
    if least * len(weights) > 1:
        raise ParameterError(
            f"a party has too small a part of all rows for {len(weights)} weights of its own: take "
            "fewer units, or combine='average'"
        )
    kept = share * ((1 - least * len(weights)) * weights + least)
    prefix = f"{site.place}/"
    values = {f"{prefix}{n}": found[n] for n in found if n != circuit.root.name}
    smooth = bounded(forest, Parameters(values))
    start = sum(c.inputs(c.root) for c in site.circuits[: site.place])
    root = np.ones((1, forest.circuit.inputs(forest.circuit.root)))
    root[0, start : start + len(kept)] = kept
    return Parameters({**smooth.values, ROOT: {WEIGHT: root}})


def _by_em(group: Group, sums: SecretSum, site: Site, plan: Plan) -> Flow[Trained]:
    pairs = zip(site.circuits, site.starts, strict=True)
    shared = [Learning.of(c, s, site.rows) for c, s in pairs]
    limit, schedule = plan.max_iter, plan.schedule
    yield from learned_together(sums, shared, site.rows, site.held, limit, schedule)
    weights = structure_weights(np.array([max(s.history) for s in shared]), plan.weighting)
    every = joined_parameters(site.circuits, [s.parameters for s in shared], weights)
    forest = Forest(joined(site.circuits), plan.marginals)
    first = group.members[0]
    own = bounded(forest, every) if group.me == first else None
    shares = yield from dealt(group, "deal/model", forest, plan.run, first, own)
    return Trained(forest, shares, None, tuple(tuple(s.history) for s in shared))
