"""What a client learns by itself: a circuit from every cluster of its rows, for each group of
columns that it models. Nothing crosses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Protocol

import numpy as np
from sklearn.base import clone

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute, digest, tell
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.fedpc.assembly import POOLED, leaf_name
from fedcircuits.methods.fedpc.planning import ClientWork
from fedcircuits.tables.table import Table

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
) -> Flow[dict[str, LearnedLeaf]]:
    """Every leaf of this client, from the rows of its cluster."""
    learned: dict[str, LearnedLeaf] = {}
    leaves = list(_leaves(party.name, work, labels, len(table)))
    for name, rows, columns in leaves:
        yield from tell("learn", len(learned), len(leaves))
        drawn = int(np.random.default_rng([*seed, len(learned)]).integers(2**31))
        step = f"learning {name.rpartition('/')[0]}"
        mark = digest(stamp, f"{drawn} {columns}", rows)
        about = (learner, table.select(columns), rows, drawn, party.least_count)
        learned[name] = yield from compute(step, partial(learned_leaf, *about), key=mark)
    yield from tell("learn", len(leaves), len(leaves))
    return learned


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
