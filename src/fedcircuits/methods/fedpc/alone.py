"""What a party learns of its columns by itself, beside the tree that joins them with others.

A tree leaves most pairs of columns out, and cells have few rows. So a party also learns one circuit
from all of its rows, and the product of these circuits, the parties apart, is mixed in: the more,
the less the tree gains. To know it every party of several columns holds rows back by itself, once:

    count/cells   client → coordinator: nats per row that its circuit gains over its columns' cells
                  as if they were independent. One number.

What the tree gains over independent cells the coordinator knows of rows that it has held back, and
weighs the two so that these are likeliest (stacking). Parties of several columns keep some weight
apart whatever was found, so that their own columns are not worse for being joined; a column by
itself says nothing that its cells do not say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute, digest
from fedcircuits.methods.fedpc.cells import CellTask, alone_name, cell_leaves, cells_of
from fedcircuits.methods.fedpc.leaves import LeafLearner, LearnedLeaf, learned_leaf
from fedcircuits.tables.table import Table

LEAST_APART, MOST_APART = 0.1, 0.5  # weight of parties of several columns apart
NEXT_TO_NOTHING = 0.005  # of others
UNDECIDED = 4.0  # rows by which it is drawn towards a half
STACKING = 200  # rounds
MOST_JUDGED = 4_000  # rows by which cells are judged
JUDGES = 4  # one row of so many is held back for it
MOST_GAINED = 10.0  # nats of a single row


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


def _gain_on_cells(
    learner: LeafLearner,
    table: Table,
    tasks: Sequence[CellTask],
    seed: tuple[int, int],
    least: int,
) -> float:
    rows = np.random.default_rng(seed).permutation(len(table))[:MOST_JUDGED]
    held, rest = rows[: len(rows) // JUDGES], rows[len(rows) // JUDGES :]
    if len(held) < least:
        return 0.0
    known, test = table.rows(rest), table.rows(held)
    alone = log_values(learned_leaf(learner, known, np.arange(len(rest)), 0, least), test.values)
    apart = np.zeros(len(held))
    for task in tasks:
        cells = cells_of(known, task, least)
        sizes = np.bincount(cells[cells >= 0])
        values = test.select([task.column]).values
        parts = [
            log_values(leaf, values) + np.log(sizes[k] / sizes.sum())
            for k, leaf in cell_leaves(known, task.column, cells, least).items()
        ]
        apart += logsumexp(np.stack(parts), axis=0)
    return mean_gain(alone, apart)


# ---------------------------------------------------------------------- weights


def least_apart(columns: Sequence[int]) -> float:
    """The least weight of parties apart that model so many columns each."""
    several = sum(n for n in columns if n > 1)
    return max(LEAST_APART * several / sum(columns), NEXT_TO_NOTHING)


def share_apart(joint: Array, alone: Array, rows: Array, least: float) -> float:
    """The weight of the parties apart under which rows are likeliest, of which the joint part gains
    so many nats, and they so many; few rows leave it at a half, and none makes it more."""
    ratio, share = np.exp(np.clip(alone - joint, -50, 50)), 0.5
    for _ in range(STACKING):
        part = share * ratio / (1 - share + share * ratio)
        share = float((rows @ part + UNDECIDED / 2) / (rows.sum() + UNDECIDED))
    return float(np.clip(share, least, MOST_APART))
