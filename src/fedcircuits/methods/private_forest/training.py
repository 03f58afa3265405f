"""A forest of circuits learned by parties with different rows of the same variables, which end up
with shares of its parameters (Private structure and parameter learning for SPNs among N parties).

**Who takes part.** N ≥ 3 parties that all play the same role, ``client``; nobody else adds anything
up. A coordinator receives what is public at the end, and no share. Structures are random and
public, and EM starts at the same public point for everybody. ``combine`` says how the parties'
models become one forest:

    average       Each party learns the complete forest alone; counts are averaged on shares
                  (parameters.py). Nobody sees a parameter.
    concatenate   Each party learns its own structures and deals their parameters, weighted by its
                  share of all rows. Nobody sees a parameter of another party.
    em            Expected counts are added up on shares in every iteration (structures.py): EM on
                  all rows. Parties see the parameters, and the first one deals them at the end.

With ``together`` the first iterations of "average" are those of "em".

**What crosses**, for n parameters; a share is 16 bytes per number:

    agree/plan        party → party: versions, settings, names, kinds and categories of its columns
    agree/structure   party → party: a digest of structures and starting points
    total/rows/…      party → party: shares of its number of rows (1), then of the sum
    em/counts/t/…     party → party, iteration t: shares of expected counts (n), then of their sums
    average/…         party → party: shares, and numbers under masks, (n) in batches of 8192
    deal/model        party → party: shares of parameters (n)
    public/forest     party → coordinator: the public graph; the number of all rows and the
                      likelihood of held-back rows, where parties know them

Rounds, with R the rounds of one batch of logarithms (``parameters.logarithm``):

    concatenate   2 + 2 + 1
    average       2 + 2 + 1 + ⌈n / 8192⌉ (R + 2 + ⌈log2(t + 1)⌉), in deeper forests
                  4 + ⌈log2(t + 1)⌉ more
    em            2 + 2 for each iteration + 1

**What each party learns.** Any t = ⌊(N − 1)/2⌋ parties together learn what was agreed to be known
and nothing else: names and categories, the number of all rows (average and concatenate if
``public_total``; em always shows it), and the parameters of shared iterations (em, together).
Before anything is shared, parties refuse different versions, settings, variables or structures,
fewer than three parties, and a threshold above t. A lost party ends the run.

**After training**, masks are prepared (``masks.prepare``), queries are answered on shares
(``query.respond`` and ``query.ask``), and all parties together can open the parameters
(``parameters.opening`` and ``parameters.opened``). A party uses what it keeps for this, a
``ForestView``, which nobody else has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import ClassVar, Literal, cast, get_args

import numpy as np

from fedcircuits.arguments import FLAG, Choice, Declared, Real, Whole, check_arguments
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import FederationError, ParameterError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, digest, gather, send
from fedcircuits.federation.messages import Message, blaming, require
from fedcircuits.federation.sums.collectives import Collective, Summation
from fedcircuits.learning.em import EMSchedule
from fedcircuits.methods.meeting.hello import Method, RowCount, agreed_table, same_structures
from fedcircuits.methods.private_forest.model import (
    LEAST_WEIGHT,
    Forest,
    ForestView,
    ModelShares,
    bounded,
)
from fedcircuits.methods.private_forest.parameters import averaged, dealt
from fedcircuits.methods.private_forest.structures import (
    ROOT,
    ForestRole,
    ForestShape,
    StructureFit,
    Weighting,
    joined,
    joined_parameters,
    learned_alone,
    random_start,
    structure,
    structure_weights,
)
from fedcircuits.methods.refinement.training import rounds_of_em
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.shares import threshold
from fedcircuits.tables.table import Table

METHOD = Method("private_forest", 1)
FOREST = "private forest"  # in the words of errors
LEAST_ROWS = 2  # of a party: one to learn from and one to hold out
Combine = Literal["average", "concatenate", "em"]
History = tuple[tuple[float, ...], ...]
SETTINGS: Declared = {
    "combine": Choice(*get_args(Combine)),
    "weighting": Choice(*get_args(Weighting)),
    "public_total": FLAG,
    "together": Whole(0),
    "validation": Real(least=0, below=1, what="a part"),
    "max_iter": Whole(1),
    "marginals": FLAG,
}
PATIENCE = 5  # iterations without a gain on held-out rows


@dataclass(frozen=True, slots=True)
class ForestPlan:
    """The settings that all parties must share.

    threshold   the largest coalition that learns nothing; "majority": fewer than half
    validation  part of its rows that a party holds out, to stop by and to weight structures
    together    iterations of EM with counts added up on shares, before each continues alone
    marginals   whether an asker may leave out values
    run         a name that no other run of these parties has
    row_bits    if the number of rows is secret, all parties have at most 2^row_bits together
    """

    allowed: ClassVar[Declared] = {**SETTINGS, "seed": Whole(0)}

    shape: ForestShape
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
    row_bits: int = 24

    def check(self, parties: int) -> None:
        """FederationError unless this many parties can do this."""
        most = threshold(parties)
        if self.threshold not in ("majority", *range(1, most + 1)):
            raise FederationError(
                f"{parties} parties can keep secrets from coalitions of at most {most}, but "
                f"threshold is {self.threshold!r}: use 'majority', or more parties"
            )
        check_arguments(self, FederationError)
        if not self.public_total and self.combine != "average":
            why = "counts add up to it" if self.combine == "em" else "each weighs its own by it"
            raise FederationError(
                f"combine={self.combine!r} shows the number of all rows ({why}): use "
                "public_total=True, or combine='average'"
            )
        if self.together and self.combine != "average":
            raise FederationError(
                f"together={self.together} needs combine='average', got {self.combine!r}"
            )

    @property
    def schedule(self) -> EMSchedule:
        return EMSchedule(epochs=self.max_iter, tolerance=self.tol, patience=PATIENCE)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedForest:
    """What a party has found: the public forest and its shares, no parameter."""

    forest: Forest
    shares: ModelShares
    total: int | None  # number of all rows, where it is known
    history: History = ()  # by structure, where parties learned together


class PublicForest(Message, frozen=True):
    """What everybody may know of a forest: its graph, and what parties have opened on the way."""

    tag: ClassVar[str] = "public/forest"

    circuit: str  # as JSON
    marginals: bool
    total: RowCount | None
    history: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, trained: TrainedForest) -> PublicForest:
        forest = trained.forest
        return cls(forest.circuit.dumps(), forest.marginals, trained.total, trained.history)

    @property
    def revealed(self) -> str:
        also = ["the number of all rows"] if self.total is not None else []
        also += ["the log-likelihood of held-out rows after each iteration"] if self.history else []
        return "; ".join(["the public graph", *also])

    @property
    def forest(self) -> Forest:
        return Forest(Circuit.loads(self.circuit), self.marginals)


def coordinator(members: Sequence[str]) -> Flow[PublicForest]:
    """Receives what is public, the same from all; a party that differs from most is blamed."""
    forests = yield from gather(members, PublicForest)
    most = max(forests.values(), key=list(forests.values()).count)
    for party, forest in forests.items():
        require(forest == most, party, PublicForest, "circuit", "expected what the others tell")
    with blaming(members[0], PublicForest, "circuit"):
        _ = most.forest
    return most


def client(
    party: Party, members: Sequence[str], plan: ForestPlan, summation: Summation, key: bytes
) -> Flow[ForestView]:
    """A party's side: what it keeps."""
    trained = yield from member(party, members, plan, summation, key)
    public = PublicForest.of(trained)
    yield from send(COORDINATOR, public, reveals=public.revealed)
    return ForestView(trained.forest, trained.shares, party.allow_collect)


def member(
    party: Party, members: Sequence[str], plan: ForestPlan, summation: Summation, key: bytes
) -> Flow[TrainedForest]:
    """What a party does among parties.

    summation   how numbers of rows and expected counts are added up; it must hide those of a party
    key         fresh, of this party for this run (``fresh_key()``)
    """
    me, every = party.name, tuple(members)
    plan.check(len(every))
    table = yield from agreed_table(party, every, METHOD, asdict(plan), FOREST, LEAST_ROWS)
    place = every.index(me), len(every)
    local = LocalTraining.of(table, plan, *place, party.least_count)
    yield from same_structures(me, every, local.digest)
    collective = summation.at(me, every)
    group = Group.of(me, every, key, f"forest/{plan.run}")
    if plan.combine == "em":
        return (yield from _by_em(group, collective, local, plan))
    total = None
    if plan.public_total:
        sizes = yield from collective.sum("total/rows", np.array(local.size), "numbers of rows")
        total = round(float(sizes))
    if plan.combine == "concatenate":
        assert total is not None, "it is public"
        return (yield from _side_by_side(group, local, plan, total))
    return (yield from _by_average(group, collective, local, plan, total))


# ---------------------------------------------------------------------- what a party learns from


@dataclass(frozen=True, slots=True, eq=False)
class LocalTraining:
    """A party's rows, and the public structures with their starts."""

    place: int  # among the members
    rows: Array
    held: Array
    circuits: tuple[Circuit, ...]
    starts: tuple[Parameters, ...]

    @classmethod
    def of(
        cls, table: Table, plan: ForestPlan, place: int, parties: int, least: int = 1
    ) -> LocalTraining:
        """It learns from ``least`` rows or more, whatever part is held out."""
        rows, held = _held_back(table.values, plan, place, least)
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
        digest = sha256()
        for circuit, start in zip(self.circuits, self.starts, strict=True):
            digest.update(circuit.dumps().encode())
            for name in sorted(start):
                for array in start[name].values():
                    digest.update(array.astype("<f8").tobytes())
        return digest.hexdigest()

    def alone(self, i: int, start: Parameters, plan: ForestPlan) -> Flow[tuple[Parameters, float]]:
        """Structure i learned from the party's rows, and the likelihood of the held-out ones."""
        return (
            yield from compute(
                f"learning structure {i}",
                lambda: learned_alone(self.circuits[i], start, self.rows, self.held, plan.schedule),
                key=self._stamp(start),
            )
        )

    def together(
        self, collective: Collective, rounds: int, schedule: EMSchedule | None
    ) -> Flow[list[StructureFit]]:
        """All structures, learned with the other parties in at most this many iterations."""
        pairs = zip(self.circuits, self.starts, strict=True)
        fits = [StructureFit.of(c, start, self.rows, self.held) for c, start in pairs]
        yield from rounds_of_em(ForestRole(collective, fits, schedule), rounds)
        return fits

    def _stamp(self, start: Parameters) -> str:
        """Work is kept for the same rows and the same start only."""
        begun = [array for name in sorted(start) for array in start[name].values()]
        return digest(self.rows, self.held, *begun)


def _held_back(values: Array, plan: ForestPlan, place: int, least: int) -> tuple[Array, Array]:
    order = np.random.default_rng([plan.seed, place, 1]).permutation(len(values))
    learned = min(max(least, 1), len(values) - 1)
    held = min(round(plan.validation * len(values)), len(values) - learned)
    return np.array(values[np.sort(order[held:])]), np.array(values[np.sort(order[:held])])


# ---------------------------------------------------------------------- three ways to one forest


def _by_average(
    group: Group, collective: Collective, local: LocalTraining, plan: ForestPlan, total: int | None
) -> Flow[TrainedForest]:
    starts, history = local.starts, cast(History, ())
    if plan.together:
        fits = yield from local.together(collective, plan.together, None)
        starts, history = tuple(f.parameters for f in fits), tuple(tuple(f.history) for f in fits)
    learned = []
    for i, start in enumerate(starts):
        learned.append((yield from local.alone(i, start, plan)))
    weights = structure_weights(np.array([score for _, score in learned]), plan.weighting)
    parameters = joined_parameters(local.circuits, [p for p, _ in learned], weights)
    forest = Forest(joined(local.circuits), plan.marginals)
    rows = (local.size, total, plan.row_bits)
    shares = yield from averaged(group, forest, plan.run, parameters, *rows)
    return TrainedForest(forest, shares, total, history)


def _side_by_side(
    group: Group, local: LocalTraining, plan: ForestPlan, total: int
) -> Flow[TrainedForest]:
    forest = Forest(joined(local.circuits), plan.marginals)
    owners = {
        leaf.name: group.members[int(leaf.name.split("/", 1)[0])]
        for leaf in forest.circuit.leaves()
    }
    learned, _ = yield from local.alone(local.place, local.starts[local.place], plan)
    part = _part_of_forest(forest, local, learned, local.size / total)
    shares = yield from dealt(group, forest, plan.run, owners, part)
    return TrainedForest(forest, shares, total)


def _part_of_forest(
    forest: Forest, local: LocalTraining, learned: Parameters, share: float
) -> Parameters:
    """A party's structure within the forest: its leaves and sums, and the root's weights on it."""
    circuit = local.circuits[local.place]
    least = 2.0**-LEAST_WEIGHT / share
    weights = learned[circuit.root.name][WEIGHT][0]
    if least * len(weights) > 1:
        raise ParameterError(
            f"a party has too small a fraction of all rows for {len(weights)} weights of its own: "
            "use fewer units, or combine='average'"
        )
    kept = share * ((1 - least * len(weights)) * weights + least)
    values = {f"{local.place}/{n}": learned[n] for n in learned if n != circuit.root.name}
    smooth = bounded(forest, Parameters(values))
    start = sum(c.inputs(c.root) for c in local.circuits[: local.place])
    root = np.ones((1, forest.circuit.inputs(forest.circuit.root)))
    root[0, start : start + len(kept)] = kept
    return Parameters({**smooth.values, ROOT: {WEIGHT: root}})


def _by_em(
    group: Group, collective: Collective, local: LocalTraining, plan: ForestPlan
) -> Flow[TrainedForest]:
    fits = yield from local.together(collective, plan.max_iter, plan.schedule)
    weights = structure_weights(np.array([max(f.history) for f in fits]), plan.weighting)
    parameters = joined_parameters(local.circuits, [f.parameters for f in fits], weights)
    forest = Forest(joined(local.circuits), plan.marginals)
    first = group.members[0]
    known = bounded(forest, parameters) if group.me == first else None
    shares = yield from dealt(group, forest, plan.run, first, known)
    return TrainedForest(forest, shares, None, tuple(tuple(f.history) for f in fits))
