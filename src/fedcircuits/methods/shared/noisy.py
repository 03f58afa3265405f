"""The same with differential privacy: what is counted of rows has noise before it leaves a party
(privacy/differential.py). For columns of categories and booleans, which are public.

    shared/pairs      noisy counts of pairs of values, as of a Chow–Liu tree: where EM begins
                      follows from them alone (learning/summed/clusters.py) and costs nothing more
    shared/counts/t   noisy expected counts, a fixed number of rounds; no likelihoods, no rows held
                      back

How far one row moves expected counts: given the row, EM weighs the trees that a circuit is made of
(one child of every sum, all children of products, down to one leaf for each column) by their
posterior. A tree adds 1 to the count of each of its edges below sums and to one value of each of
its leaves, so that its counts have the norm √(edges + leaves); an average of trees has no larger
one than the largest of them.

    leaf 1 per column     product Σ children     sum 1 + max children     Δ² = at the root

A missing value adds less. Counts are rounded to the grid of the noise, by which they move a little
further. Statistics of all rounds are averaged as they come, since noise then counts less, and what
a unit of a leaf has seen is pulled towards what all have by about as many rows as noise amounts to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import torch

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LinearStep
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.evaluation.step import Step
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, TableError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.checked import MOST_ROWS, noisy_problem
from fedcircuits.learning.em import EMSchedule, Fitted, with_pseudo_rows
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows, clustered_by_pairs
from fedcircuits.methods.chow_liu import training as pairs
from fedcircuits.methods.shared.summing import SummedRows
from fedcircuits.privacy.differential import STEP, Noise
from fedcircuits.tables.schema import Schema

COUNTS = "noisy expected counts of its rows for every node"
DISCRETE = ("bernoulli", "categorical", "indicator")
PAIRS = 0.3  # of the budget
ROUNDS = 10
PACE = 0.5  # of a round's statistics in the average, from the second on
PULL = 1.0  # pseudo-rows of a leaf's unit, in deviations of the noise


def shares_of(rounds: int) -> list[float]:
    """Of every release in the budget."""
    return [PAIRS, *[(1 - PAIRS) / rounds] * rounds]


def rounds_of(plan: EMSchedule) -> int:
    return min(plan.epochs, ROUNDS)


def refuse_numbers(schema: Schema) -> None:
    for variable in schema:
        if not variable.size:
            raise FederationError(
                f"privacy needs categories and booleans, but {variable.name!r} is a "
                f"{variable.kind}, and the contribution of one row to the statistics of EM is "
                "unbounded: bin it into public classes, or use FedTrees(grow='together', privacy=…)"
            )


def sensitivity(circuit: Circuit) -> float:
    """How far one row moves all expected counts at most, as a Euclidean distance."""
    largest: dict[str, int] = {}
    for node in circuit.nodes:
        below = [largest[child] for child in node.children]
        if isinstance(node, Leaf):
            if node.family not in DISCRETE:
                raise FederationError(
                    f"privacy needs leaves of {', '.join(DISCRETE)}: {node.name!r} is "
                    f"{node.family}, to whose statistics the contribution of a row is unbounded"
                )
            largest[node.name] = len(node.scope)
        else:
            largest[node.name] = 1 + max(below) if isinstance(node, Sum) else sum(below)
    return sqrt(largest[circuit.root.name])


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Statistics as counts of which a row adds to one for each edge and leaf: of a boolean, rows
    that have 0 and rows that have 1 (its leaf keeps the latter and both together)."""

    program: CircuitProgram
    shape: Counts

    @classmethod
    def of(cls, program: CircuitProgram, packed: Packed) -> Release:
        nothing = torch.zeros((0, len(program.circuit.schema)), dtype=torch.float64)
        return cls(program, program.counts(nothing, packed))

    def flat(self, counts: Counts) -> Array:
        both = zip(self.program.steps, counts.steps, strict=True)
        parts = [part.reshape(-1) for step, numbers in both for part in _released(step, numbers)]
        return np.asarray(torch.cat(parts).double().numpy())

    def counts(self, vector: Array) -> Counts:
        rest, steps = torch.tensor(np.maximum(vector, 0.0)), []
        for step, shape in zip(self.program.steps, self.shape.steps, strict=True):
            sizes = [part.numel() for part in _released(step, shape)]
            numbers, rest = rest[: sum(sizes)], rest[sum(sizes) :]
            steps.append(_restored(step, shape, torch.split(numbers, sizes)))
        return Counts(0.0, 0.0, tuple(steps))


def _single(step: Step[Any, Any], counts: LeafCounts) -> tuple[torch.Tensor, torch.Tensor]:
    """The number of statistics of every pair, and where it is one: of a boolean."""
    if not isinstance(step, LinearStep):
        widths = torch.full((len(counts.count),), counts.sums.shape[1])
    else:
        widths = torch.diff(step.first, append=torch.tensor([len(step.entry_row)]))
    return widths, torch.nonzero(widths == 1)[:, 0]


def _released(step: Step[Any, Any], counts: Derivative) -> list[torch.Tensor]:
    if isinstance(counts, torch.Tensor):
        return [counts]
    if not isinstance(counts, LeafCounts):
        return []
    widths, single = _single(step, counts)
    first = torch.cumsum(widths, 0) - widths
    flat = counts.sums.reshape(-1, counts.sums.shape[-1])
    return [counts.sums, counts.count[single] - flat[first[single]]]


def _restored(step: Step[Any, Any], shape: Derivative, parts: Sequence[torch.Tensor]) -> Derivative:
    if isinstance(shape, torch.Tensor):
        return parts[0].to(shape).view(shape.shape)
    if not isinstance(shape, LeafCounts):
        return None
    widths, single = _single(step, shape)
    sums, others = parts[0].to(shape.sums).view(shape.sums.shape), parts[1].to(shape.sums)
    owner = torch.repeat_interleave(torch.arange(len(widths)), widths)
    flat = sums.reshape(-1, sums.shape[-1])
    count = torch.zeros_like(shape.count).index_add_(0, owner, flat)
    count[single] += others.view(len(single), -1)
    return LeafCounts(sums, count)


# ---------------------------------------------------------------------- what members do


def noisy_rows(
    rows: SummedRows, schema: Schema, clusters: int, classes: int | None, seed: int, noise: Noise
) -> Flow[ClusteredRows]:
    """Where EM begins, by noisy counts of pairs."""
    width, share = pairs.sensitivity(len(schema)), PAIRS
    deviation = noise.total_deviation(width, share)
    total = yield from rows.noisy_sum(
        "shared/pairs",
        lambda: pairs.pair_counts(rows.values, schema),
        pairs.NOISY,
        partial(noisy_problem, most=MOST_ROWS, deviation=deviation),
        partial(noise.added, "pairs", sensitivity=width, share=share),
    )
    with rows.making("shared/pairs"):
        tables, starts = pairs.tables_of(total, schema, True, rows.members)
    if not np.diagonal(tables).any():
        raise TableError(
            "noise has drowned all counts: use more rows, fewer columns or a larger epsilon"
        )
    rng = np.random.default_rng([seed, 1])
    return clustered_by_pairs(tables, starts, schema, clusters, classes, rng)


def noisy_em(
    rows: SummedRows, beginning: Beginning, plan: EMSchedule, noise: Noise
) -> Flow[Fitted]:
    program = CircuitProgram(beginning.circuit)
    packed = program.pack(beginning.start)
    release, rounds = Release.of(program, packed), rounds_of(plan)
    size = len(release.flat(release.shape))
    width = sensitivity(beginning.circuit) + 2 * STEP * sqrt(size)
    share = shares_of(rounds)[-1]
    deviation = noise.total_deviation(width, share)
    fits = partial(noisy_problem, most=MOST_ROWS, deviation=deviation)
    learned = torch.from_numpy(rows.values.copy())
    average: Array | None = None
    for t in range(rounds):
        work = partial(_expected, release, learned, packed)
        add = partial(noise.added, f"counts/{t}", sensitivity=width, share=share)
        total = yield from rows.noisy_sum(f"shared/counts/{t}", work, COUNTS, fits, add)
        average = total if average is None else average + PACE * (total - average)
        pulled = replace(plan, behind=PULL * deviation)
        with rows.making(f"shared/counts/{t}"):
            counts = with_pseudo_rows(program, release.counts(average), packed, pulled)
            packed = program.maximise(counts, packed, beginning.rules)
    return Fitted(program.unpack(packed), (), (), False)


def _expected(release: Release, rows: torch.Tensor, packed: Packed) -> Array:
    """A party's counts on the grid of the noise."""
    counts = release.flat(release.program.counts(rows, packed))
    return np.asarray(np.rint(counts / STEP) * STEP)
