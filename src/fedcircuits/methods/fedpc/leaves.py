"""What a client learns by itself: a circuit from every cluster of its rows, for each group of
columns that it models. Nothing crosses.

Clusters of rows have sharp edges, and their circuits, mixed, are less likely than one circuit of
all rows is. So two rounds of EM over the mixture of a party's own clusters follow, in which rows
near an edge count for both sides. They move normal distributions alone, and only those that the
least count of rows reach: what counts rows stays, with the least count that the learner keeps.

The joint model is not to be worse for being joined, so parties also learn alone, beside what joins
them. Clusters and cells have few rows each, and a tree leaves most pairs of columns out. So a party
also learns one circuit from all of its rows, and the product of these circuits, the parties apart,
is mixed in: the more, the less joining gains. To know it a party holds rows back by itself, once,
and tells one number, nats per row that its circuit gains

    count/sizes   over the mixture of its clusters' circuits, for every way to divide the columns
    count/cells   over its columns' cells as if they were independent

What joining gains over independent clusters or cells the coordinator knows: of combinations by how
much clusters say about each other beyond chance (assembly.py), of the tree by rows that it has held
back. It weighs the two so that rows are likeliest (stacking). Parties of several columns keep some
weight apart where this gains, so that their own columns are not worse; a column by itself says
nothing that its cells do not say. Parties apart weigh a half at most, which keeps dependence that
is weak but real, unless joining gains nothing: then at least a half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute, digest, tell
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.leaf_em import EMLeaf, Moments, MStep
from fedcircuits.learning.spn.windows import cell_leaves
from fedcircuits.methods.fedpc.assembly import POOLED, Assembly, RootChildren, leaf_name
from fedcircuits.methods.fedpc.cells import alone_name, cell_name, finest_of
from fedcircuits.methods.fedpc.planning import ClientWork, Division, FedPCPlan, LeafGroup
from fedcircuits.methods.fedpc.views import CellTask
from fedcircuits.tables.table import Table

ROUNDS = 2  # of EM over the clusters of a party
NORMAL = "gaussian", "multivariate_gaussian"
MOST_ROWS = 6_000  # of a party whose clusters are softened: those of more have rows enough
LearnedLeaf = tuple[Circuit, Parameters]


class LeafLearner(Protocol):
    """What learns a leaf: any estimator of this library, or one with the same API. It may have
    ``fit_part(part, whole)``, for a cluster in the context of all rows."""

    circuit_: Circuit
    parameters_: Parameters

    def fit(self, X: Table) -> object: ...


def learn_leaves(
    party: Party,
    table: Table,
    work: ClientWork,
    labels: Mapping[int, Labels],
    learner: LeafLearner,
    seed: tuple[int, int],
    stamp: str,
    soft: bool,
) -> Flow[dict[str, LearnedLeaf]]:
    """Every leaf of this client, from the rows of its cluster; ``soft``: whether EM follows."""
    learned: dict[str, LearnedLeaf] = {}
    marks: dict[str, str] = {}  # of what leaves were learned from
    several = {task.division for task in work.tasks if soft and not task.alone}
    leaves = list(_leaves(party.name, work, labels, len(table)))
    for name, rows, columns in leaves:
        yield from tell("learn", len(learned), len(leaves))
        drawn = int(np.random.default_rng([*seed, len(learned)]).integers(2**31))
        step = f"learning {name.rpartition('/')[0]}"
        mark = marks[name] = digest(stamp, f"{drawn} {columns}", rows)
        about = (learner, table.select(columns), rows, drawn, party.least_count)
        learned[name] = yield from compute(step, partial(learned_leaf, *about), key=mark)
    yield from tell("learn", len(leaves), len(leaves))
    for group in work.groups:
        label = labels[group.division]
        if not group.pooled and group.division in several and label.max() > 0:
            names = [leaf_name(party.name, k, group.number) for k in range(int(label.max()) + 1)]
            leaves_of = [learned[n] for n in names]
            rounds = partial(softened, leaves_of, table, label, party.least_count)
            mark = digest("soft", *(marks[n] for n in names))
            own = yield from compute(f"EM over clusters of {names[0]}", rounds, key=mark)
            learned |= dict(zip(names, own, strict=True))
    return learned


def softened(
    learned: Sequence[LearnedLeaf], table: Table, labels: Labels, least: int
) -> list[LearnedLeaf]:
    """Circuits of clusters after EM over their mixture, on the rows of the table."""
    circuits = [inline(*one)[0] for one in learned]
    normal = any(leaf.family in NORMAL for circuit in circuits for leaf in circuit.leaves())
    if not normal or len(labels) > MOST_ROWS:
        return list(learned)
    part = table.select(learned[0][0].schema.names).rows(np.flatnonzero(labels >= 0))
    moments, weight = Moments.of(part), np.bincount(labels) / len(labels)
    step = MStep(least=least if least > 1 else 0.0)
    leaves = [EMLeaf(one, part, moments, part, step, NORMAL) for one in learned]
    for _ in range(ROUNDS):
        logs = np.stack([leaf.log_values().reshape(-1) for leaf in leaves])
        logs += np.log(weight)[:, None]
        total = logsumexp(logs, axis=0)
        share = np.exp(logs - np.where(np.isfinite(total), total, 0.0))  # (clusters, rows)
        for leaf, own in zip(leaves, share, strict=True):
            leaf.maximise(leaf.counts(own))
    return [leaf.learned() for leaf in leaves]


def _leaves(
    me: str, work: ClientWork, labels: Mapping[int, Labels], rows: int
) -> Iterator[tuple[str, Labels, tuple[str, ...]]]:
    """Name, rows and columns of every leaf of this client."""
    for group in work.groups:
        if group.pooled:
            yield leaf_name(me, POOLED, group.number), np.arange(rows), group.variables
            continue
        label = labels[group.division]
        for cluster in range(int(label.max()) + 1):
            name = leaf_name(me, cluster, group.number)
            yield name, np.flatnonzero(label == cluster), group.variables


def fitted_leaf(learner: LeafLearner, table: Table, *, seed: int, least: int) -> LearnedLeaf:
    """A leaf from all rows of a table."""
    return learned_leaf(learner, table, np.arange(len(table)), seed, least)


def learned_leaf(
    learner: LeafLearner, table: Table, rows: Labels, seed: int, least: int
) -> LearnedLeaf:
    """A leaf from a cluster of the party's rows, in the context of all of them. ``least``: rows
    that a count of a learner stands for, if it knows of it."""
    fresh = clone(learner)
    parameters = fresh.get_params()
    if "random_state" in parameters:
        fresh.set_params(random_state=seed)
    if "least_count" in parameters:
        fresh.set_params(least_count=max(least, parameters["least_count"]))
    part = table.rows(rows)
    if np.isnan(part.values).all():
        part = table  # a cluster without any value carries no information about them
    if hasattr(fresh, "fit_part") and len(part) < len(table):
        fresh.fit_part(part, table)
    else:
        fresh.fit(part)
    return fresh.circuit_, fresh.parameters_


LEAST_APART, MOST_APART = 0.1, 0.5  # weight of parties of several columns apart
ALL_APART = 0.95  # where what joins them gains nothing
NEXT_TO_NOTHING = 0.005  # of others
UNDECIDED = 4.0  # rows by which it is drawn towards a half
STACKING = 200  # rounds
TOLERATED = 0.05  # nats per row that joining few parties may lose: weak dependence is worth it
MOST_JUDGED = 4_000  # rows by which cells are judged
JUDGES = 4  # one row of so many is held back for it
MOST_GAINED = 10.0  # nats of a single row
CHOSEN = (
    "joining {} gains nothing on held-out rows: the model is mostly the product of what each "
    "party learns alone"
)


def mean_gain(alone: Array, other: Array) -> float:
    """Mean difference of log-likelihoods, of which no single row has much of a say."""
    return float(np.clip(alone - other, -MOST_GAINED, MOST_GAINED).mean())


def log_values(learned: LearnedLeaf, values: Array) -> Array:
    return Distribution(*learned).log_values_within(np.array(values), {}).reshape(-1)


def learn_alone(
    party: Party,
    table: Table,
    tasks: Sequence[CellTask],
    learner: LeafLearner,
    seed: tuple[int, int],
    stamp: str,
) -> Flow[tuple[dict[str, LearnedLeaf], float]]:
    """By name a circuit of the columns that this party models, if it models any; and what it gains
    over their cells."""
    models = tuple(task.column for task in tasks if task.models)
    if not models:
        return {}, 0.0
    part, least = table.select(models), party.least_count
    every = partial(learned_leaf, learner, part, np.arange(len(part)), seed[0], least)
    learned = yield from compute("learning alone", every, key=digest(stamp, str(models)))
    if len(models) < 2:
        return {alone_name(party.name): learned}, 0.0
    own = [task for task in tasks if task.models]
    judge = partial(_gain_on_cells, learner, part, own, seed, least)
    gain = yield from compute("judging cells", judge, key=digest(stamp, str(models), "cells"))
    return {alone_name(party.name): learned}, gain


def learn_judged(
    party: Party,
    table: Table,
    work: ClientWork,
    labels: Mapping[int, Labels],
    learner: LeafLearner,
    seed: tuple[int, int],
    stamp: str,
    soft: bool,
) -> Flow[tuple[dict[str, LearnedLeaf], dict[int, float]]]:
    """Every leaf of a client, and by division what its circuits of all rows gain over those of
    clusters. Nothing crosses."""
    learned = yield from learn_leaves(party, table, work, labels, learner, seed, stamp, soft)
    gains: dict[int, float] = {}
    wanted = {group.number for group in work.groups if not group.pooled}
    for group in work.groups:
        if group.pooled and group.number in wanted:
            label, part = fewest_clusters(work, labels, group), table.select(group.variables)
            judge = partial(_gain_on_clusters, learner, part, label, seed, party.least_count)
            mark = digest(stamp, f"clusters {group.variables}", label)
            gain = yield from compute("judging clusters", judge, key=mark)
            gains[group.division] = gains.get(group.division, 0.0) + gain
    return learned, gains


def fewest_clusters(work: ClientWork, labels: Mapping[int, Labels], group: LeafGroup) -> Labels:
    """Of the ways to cluster rows for these variables: quickest to learn from."""
    same = [g.division for g in work.groups if g.variables == group.variables]
    return min((labels[division] for division in same), key=lambda label: int(label.max()))


def _gain_on_clusters(
    learner: LeafLearner, table: Table, labels: Labels, seed: tuple[int, int], least: int
) -> float:
    held, rest = _judges(len(table), seed)
    if len(held) < least:
        return 0.0
    known, test = table.rows(rest), table.rows(held).values
    alone = log_values(fitted_leaf(learner, known, seed=0, least=least), test)
    kept, own = np.unique(labels[rest], return_inverse=True)
    parts = [learned_leaf(learner, known, np.flatnonzero(own == k), 0, least)
             for k in range(len(kept))]  # fmt: skip
    weights = np.log(np.bincount(own) / len(own))
    logs = np.stack([log_values(part, test) for part in softened(parts, known, own, least)])
    return mean_gain(alone, np.asarray(logsumexp(logs + weights[:, None], axis=0)))


def _judges(rows: int, seed: tuple[int, int]) -> tuple[Labels, Labels]:
    """Rows that are held back, and others."""
    drawn = np.random.default_rng(seed).permutation(rows)[:MOST_JUDGED]
    return drawn[: len(drawn) // JUDGES], drawn[len(drawn) // JUDGES :]


def _gain_on_cells(
    learner: LeafLearner,
    table: Table,
    tasks: Sequence[CellTask],
    seed: tuple[int, int],
    least: int,
) -> float:
    held, rest = _judges(len(table), seed)
    if len(held) < least:
        return 0.0
    known, test = table.rows(rest), table.rows(held)
    alone = log_values(learned_leaf(learner, known, np.arange(len(rest)), 0, least), test.values)
    return mean_gain(alone, log_values(_of_cells(known, tasks, least), test.values))


def _of_cells(table: Table, tasks: Sequence[CellTask], least: int) -> LearnedLeaf:
    """Independent columns, each a sum over the leaves of its cells."""
    nodes, weights, inner = list[Node](), dict[str, Arrays](), dict[str, LearnedLeaf]()
    for task in tasks:
        cells = finest_of(table, task, least)
        leaves = cell_leaves(table, task.column, cells, least)
        sizes = np.bincount(cells[cells >= 0])[list(leaves)]
        names = tuple(cell_name("", task.column, cell) for cell in leaves)
        nodes += [Leaf(name, CIRCUIT, (task.column,)) for name in names]
        nodes.append(Sum(f"cells of {task.column}", names))
        weights[nodes[-1].name] = {WEIGHT: sizes[None] / sizes.sum()}
        inner |= dict(zip(names, leaves.values(), strict=True))
    nodes.append(Product("apart", tuple(weights)))
    return inline(Circuit(tuple(nodes), table.schema), Parameters(weights, inner))


# ---------------------------------------------------------------------- weights


def with_apart(
    divisions: Sequence[Division],
    parts: Sequence[tuple[Assembly, RootChildren]],
    alone: Mapping[str, Mapping[int, float]],
    plan: FedPCPlan,
) -> tuple[list[tuple[Assembly, RootChildren]], tuple[str, ...]]:
    """Circuits of all divisions, and beside those over the same one its parties apart; and what
    was chosen. ``alone``: what a circuit gains, by party and division."""
    mixed, chosen = list(parts), []
    for number, division in enumerate(divisions):
        if not division.apart(plan):
            continue
        same = [i for i, other in enumerate(divisions) if other.spaces == division.spaces]
        share = _share(division, [parts[i][1] for i in same], number, alone)
        for i in same:
            assembly, children = parts[i]
            mixed[i] = assembly, replace(children, rows=(1 - share) * children.rows)
        apart = Assembly(division.spaces, {}, division.first)
        rows = parts[number][1].rows.sum(keepdims=True)
        every = RootChildren([apart.of_all_rows()], share * rows)
        mixed.append((replace(apart, spaces=()), every))
        if MOST_APART < share < 1:
            chosen.append(CHOSEN.format(" and ".join(division.parties)))
    return [(assembly, c) for assembly, c in mixed if c.rows.any()], tuple(chosen)


def _share(
    division: Division,
    circuits: Sequence[RootChildren],
    number: int,
    alone: Mapping[str, Mapping[int, float]],
) -> float:
    """Of the parties apart. Where no row joins them it is all or nothing: a mixture of products
    would make up dependence."""
    gain = sum(own.get(number, 0.0) for own in alone.values())
    shown = [c.shown for c in circuits if c.shown is not None]
    if not shown:
        return float(gain >= 0)
    columns = [sum(len(s.variables) for s in division.spaces if p in s.holders)
               for p in division.parties]  # fmt: skip
    joins, rows = max(shown) > 0, circuits[0].rows.sum(keepdims=True)
    least = least_apart(columns, gain) if joins else MOST_APART
    gain -= TOLERATED if joins else 0.0
    return share_apart(np.full(1, max(shown)), np.full(1, gain), rows, least)


def least_apart(columns: Sequence[int], gain: float) -> float:
    """The least weight of parties apart that model so many columns each and gain so many nats."""
    several = sum(n for n in columns if n > 1) if gain > 0 else 0
    return max(LEAST_APART * several / sum(columns), NEXT_TO_NOTHING)


def share_apart(joint: Array, alone: Array, rows: Array, least: float) -> float:
    """The weight of the parties apart under which rows are likeliest, of which the joint part gains
    so many nats, and they so many; few rows leave it at a half. Where joining gains anything, none
    makes it more."""
    ratio, share = np.exp(np.clip(alone - joint, -50, 50)), 0.5
    for _ in range(STACKING):
        part = share * ratio / (1 - share + share * ratio)
        share = float((rows @ part + UNDECIDED / 2) / (rows.sum() + UNDECIDED))
    return float(np.clip(share, least, MOST_APART if rows @ joint > 0 else ALL_APART))
