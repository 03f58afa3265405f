"""What a client learns by itself: a circuit from every cluster of its rows, for each group of
columns that it models. Nothing crosses.

Clusters of rows have sharp edges, and their circuits, mixed, are less likely than one circuit of
all rows is. So two rounds of EM over the mixture of a party's own clusters follow, in which rows
near an edge count for both sides. They move normal distributions alone: what counts rows stays,
with the least count that the learner keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute, digest, tell
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.leaf_em import EMLeaf, Moments, MStep
from fedcircuits.methods.fedpc.assembly import POOLED, leaf_name
from fedcircuits.methods.fedpc.planning import ClientWork
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
            rounds = partial(softened, [learned[n] for n in names], table, label)
            mark = digest("soft", *(marks[n] for n in names))
            own = yield from compute(f"EM over clusters of {names[0]}", rounds, key=mark)
            learned |= dict(zip(names, own, strict=True))
    return learned


def softened(learned: Sequence[LearnedLeaf], table: Table, labels: Labels) -> list[LearnedLeaf]:
    """Circuits of clusters after EM over their mixture, on the rows of the table."""
    circuits = [inline(*one)[0] for one in learned]
    normal = any(leaf.family in NORMAL for circuit in circuits for leaf in circuit.leaves())
    if not normal or len(labels) > MOST_ROWS:
        return list(learned)
    part = table.select(learned[0][0].schema.names).rows(np.flatnonzero(labels >= 0))
    moments, weight = Moments.of(part), np.bincount(labels) / len(labels)
    leaves = [EMLeaf(one, part, moments, part, MStep(), NORMAL) for one in learned]
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
        part = table  # a cluster without any value says nothing of these columns
    if hasattr(fresh, "fit_part") and len(part) < len(table):
        fresh.fit_part(part, table)
    else:
        fresh.fit(part)
    return fresh.circuit_, fresh.parameters_
