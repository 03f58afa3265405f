"""Forests of random structures, and how they are learned: alone, or by all parties together.

Parties that never see each other's rows can use the same structures. A structure is a mixture of
``repetitions · units`` products (depth 0) or a random binary circuit (RAT, circuits/structures.py).
A forest joins structures under one root: the root of each is folded into it, its weights times
that of the structure. Structures and the start of EM follow from a public seed, so component j of
one party is component j of another.

usage      how often a draw from the circuit passes through each unit. Where the weights are
           normalised counts, as after every step of EM on a tree, it is the expected count per row.
weighting  of structures by the likelihood of held-out rows: "rank" (1 for the worst),
           "uniform", "loglik" 1/|LL|, "loglik2" 1/LL²

Learned together, expected counts are added up on shares, as if all rows were in one place:

    em/counts/t/…   party → party: shares of the expected counts of every unit of every structure,
                    of the log-likelihoods of its rows and of the held-out ones, and of their
                    numbers; then shares of the totals

One iteration of EM is two rounds of messages. All parties learn the totals, and so the parameters
of every iteration. N − 1 of them together know the counts of the remaining one; fewer than half
know nothing but the totals. A structure that no longer improves on held-back rows stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

import numpy as np
import torch

from fedcircuits.arguments import Choice, Declared, Whole, check_arguments
from fedcircuits.circuits.evaluation.counts import Counts
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, random_weights, renamed
from fedcircuits.circuits.graph.structures import by_kind, mixture_of_products, random_binary
from fedcircuits.circuits.leaves.bernoulli import Bernoulli
from fedcircuits.circuits.leaves.categorical import Categorical
from fedcircuits.errors import StructureError
from fedcircuits.federation.flow import Flow, compute, digest
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule, maximise_likelihood, mean_log_likelihood
from fedcircuits.methods.private_forest.model import PROBABILITY
from fedcircuits.methods.refinement.roles import Role
from fedcircuits.tables.schema import Schema

LeafChoice = Literal["auto", "categorical"]
Weighting = Literal["rank", "uniform", "loglik", "loglik2"]
RULES = {"bernoulli": Bernoulli(0.1), "categorical": Categorical(0.1)}  # pseudo-counts of a code
ROOT = "root"
COUNTS = "expected counts of all units, and the log-likelihood of held-out rows"
JUDGED = 4  # numbers beside the counts: log-likelihood and number of rows, seen and held out


@dataclass(frozen=True, slots=True)
class ForestShape:
    """The structures of a forest: ``ForestShape(3, units=33)`` has 99 weights."""

    allowed: ClassVar[Declared] = {
        "structures": Whole(1),
        "depth": Whole(0),
        "repetitions": Whole(1),
        "units": Whole(1),
        "leaf": Choice(*get_args(LeafChoice)),
    }

    structures: int = 3
    depth: int = 0
    repetitions: int = 1
    units: int = 33
    leaf: LeafChoice = "auto"

    def __post_init__(self) -> None:
        check_arguments(self, StructureError)

    def divided(self, schema: Schema, parties: int) -> ForestShape:
        """One structure for each party; together they have at most as many weights as these."""
        one, budget = replace(self, structures=1), self.structures * _weights(self, schema)
        if not self.depth:
            units = budget // (parties * self.repetitions)
        else:
            units = 1
            while parties * _weights(replace(one, units=units + 1), schema) <= budget:
                units += 1
        if not units or parties * _weights(replace(one, units=units), schema) > budget:
            raise StructureError(
                f"{budget} weights cannot be divided among {parties} parties: use more units or "
                "structures, or fewer repetitions"
            )
        return replace(one, units=units)


def _weights(shape: ForestShape, schema: Schema) -> int:
    return sum_weights(structure(schema, shape, np.random.default_rng(0)))


def structure(schema: Schema, shape: ForestShape, rng: np.random.Generator) -> Circuit:
    """One random structure."""
    rule = by_kind if shape.leaf == "auto" else lambda _: "categorical"
    if shape.depth == 0:
        return mixture_of_products(schema, shape.repetitions * shape.units, leaf_family=rule)
    return random_binary(
        schema,
        depth=shape.depth,
        repetitions=shape.repetitions,
        units=shape.units,
        rng=rng,
        leaf_family=rule,
    )


def sum_weights(circuit: Circuit) -> int:
    """How many weights the sums have."""
    return sum(n.units * circuit.inputs(n) for n in circuit.nodes if isinstance(n, Sum))


def random_start(circuit: Circuit, rng: np.random.Generator) -> Parameters:
    """Where EM begins; it depends on no row."""
    values: dict[str, Arrays] = random_weights(circuit, rng, 10.0)
    for leaf in circuit.leaves():
        shape, size = (leaf.units, len(leaf.scope)), circuit.schema[leaf.scope[0]].size
        if leaf.family == "bernoulli":
            values[leaf.name] = {PROBABILITY: rng.uniform(0.25, 0.75, shape)}
        else:
            values[leaf.name] = {PROBABILITY: rng.dirichlet(np.full(size, 5.0), shape)}
    return Parameters(values)


# ---------------------------------------------------------------------- under one root


def joined(circuits: Sequence[Circuit]) -> Circuit:
    """A forest: structure i's nodes as ``i/…``, and one root over the children of their roots."""
    nodes: list[Node] = []
    tops: list[str] = []
    for i, circuit in enumerate(circuits):
        names = {n.name: f"{i}/{n.name}" for n in circuit.nodes}
        nodes += [renamed(n, names) for n in circuit.nodes[:-1]]
        tops += [names[child] for child in circuit.root.children]
    return Circuit((*nodes, Sum(ROOT, tuple(tops))), circuits[0].schema)


def joined_parameters(
    circuits: Sequence[Circuit], learned: Sequence[Parameters], weights: Array
) -> Parameters:
    """The parameters of ``joined(circuits)``, where structure i has the weight ``weights[i]``."""
    values: dict[str, Arrays] = {}
    roots = []
    for i, (circuit, parameters) in enumerate(zip(circuits, learned, strict=True)):
        root = circuit.root.name
        values.update({f"{i}/{name}": parameters[name] for name in parameters if name != root})
        roots.append(weights[i] * parameters[root][WEIGHT])
    values[ROOT] = {WEIGHT: np.concatenate(roots, axis=1)}
    return Parameters(values)


def structure_weights(likelihoods: Array, rule: Weighting) -> Array:
    """(structures,) from mean log-likelihoods of held-out rows; they add up to 1."""
    if rule == "rank":
        weights = np.argsort(np.argsort(likelihoods, kind="stable"), kind="stable") + 1.0
    elif rule == "uniform":
        weights = np.ones(len(likelihoods))
    else:
        size = np.maximum(np.abs(likelihoods), 1e-6)
        weights = size ** (-1.0 if rule == "loglik" else -2.0)
    return np.asarray(weights / weights.sum())


def usage(circuit: Circuit, parameters: Parameters) -> dict[str, Array]:
    """How often a draw passes through the units of every node, (units,) by name."""
    uses = {n.name: np.zeros(circuit.units[n.name]) for n in circuit.nodes}
    uses[circuit.root.name] += 1
    for node in reversed(circuit.nodes):
        here = uses[node.name]
        if isinstance(node, Sum):
            below, start = here @ parameters[node.name][WEIGHT], 0
            for child in node.children:
                stop = start + len(uses[child])
                uses[child] += below[start:stop]
                start = stop
        elif isinstance(node, Product) and node.outer:
            left, right = node.children
            pairs = here.reshape(len(uses[left]), len(uses[right]))
            uses[left] += pairs.sum(1)
            uses[right] += pairs.sum(0)
        elif not isinstance(node, Leaf):
            for child in node.children:
                uses[child] += here
    return uses


# ---------------------------------------------------------------------- learned alone


def learned_alone(
    circuit: Circuit, start: Parameters, rows: Array, held: Array, schedule: EMSchedule
) -> tuple[Parameters, float]:
    """EM from a start, stopped by held-out rows; and their mean log-likelihood, or that of the
    rows themselves where none are held out."""
    validation = InMemory(held) if len(held) else None
    fitted = maximise_likelihood(
        circuit, start, InMemory(rows), schedule=schedule, validation=validation, rules=RULES
    )
    program = CircuitProgram(circuit, torch.float64)
    packed, judges = program.pack(fitted.parameters), validation or InMemory(rows)
    return fitted.parameters, mean_log_likelihood(program, packed, judges)


# ---------------------------------------------------------------------- learned together


@dataclass(slots=True)
class StructureFit:
    """One structure while it is learned together; the same at all parties."""

    program: CircuitProgram
    packed: Packed
    template: Counts
    rows: Array
    held: Array
    best: Packed | None = None  # on the held-out rows, where they decide
    history: list[float] = field(default_factory=list)  # mean over the held-out rows
    finished: bool = False

    @classmethod
    def of(cls, circuit: Circuit, start: Parameters, rows: Array, held: Array) -> StructureFit:
        program = CircuitProgram(circuit)
        packed = program.pack(start)
        template = program.counts(torch.from_numpy(rows[:1].copy()), packed)
        return cls(program, packed, template, rows, held)

    @property
    def width(self) -> int:
        return len(self.template.flat()) + JUDGED

    @property
    def parameters(self) -> Parameters:
        return self.program.unpack(self.packed if self.best is None else self.best)

    def expected(self) -> Array:
        """This party's addend, (width,)."""
        counts = self.program.counts(torch.from_numpy(self.rows), self.packed)
        held, judged = torch.from_numpy(self.held), 0.0
        if len(held):
            judged = float(self.program.log_values(held, self.packed).sum())
        ends = [counts.log_likelihood, counts.weight, judged, float(len(held))]
        return np.append(counts.flat(), ends)

    def judge(self, total: Array, schedule: EMSchedule | None, last: bool) -> None:
        """Judge by the totals of all parties; without a schedule nothing stops."""
        seen, rows, judged, held = total[-JUDGED:]
        self.history.append(float(judged / held if held else seen / rows))
        if schedule is not None:
            self.finished = last or schedule.stopping.ends(self.history)
            if self.history[-1] >= max(self.history):
                self.best = self.packed

    def maximise(self, total: Array) -> None:
        counts = self.template.like(total[:-JUDGED])
        self.packed = self.program.maximise(counts, self.packed, RULES)


class ForestRole(Role[None]):
    """A party's part in rounds of EM on all structures at once. With a schedule, the parameters
    that are best on held-back rows are kept; every structure is judged and stops independently."""

    def __init__(
        self, collective: Collective, fits: Sequence[StructureFit], schedule: EMSchedule | None
    ) -> None:
        super().__init__({}, None)
        self.collective, self.structures, self.schedule = collective, fits, schedule
        first = fits[0]
        self.stamp = digest(first.rows, first.held)

    def expect(self, t: int, last: bool) -> Flow[float | None]:
        self.active = [s for s in self.structures if not s.finished]
        if last and self.schedule is None:
            return None  # nothing is judged
        addend = yield from compute(
            f"counting what is expected, round {t}",
            lambda: np.concatenate([s.expected() for s in self.active]),
            key=self.stamp,
        )
        total = yield from self.collective.sum(f"em/counts/{t}", addend, COUNTS)
        self.stamp = digest(self.stamp, total)
        self.totals = np.split(total, np.cumsum([s.width for s in self.active])[:-1])
        for structure, part in zip(self.active, self.totals, strict=True):
            structure.judge(part, self.schedule, last)
        self.history.append(float(np.mean([s.history[-1] for s in self.structures])))
        return None

    def agree(self, rounds: range, best: int, ends: bool) -> Flow[tuple[int, bool]]:
        yield from ()
        return best, ends or all(s.finished for s in self.structures)

    def maximise(self) -> None:
        for structure, total in zip(self.active, self.totals, strict=True):
            if not structure.finished:
                structure.maximise(total)
