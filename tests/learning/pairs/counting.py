"""Rows over states as tables of pairs, and what a mixture of forests says of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.forests import MixedForests
from fedcircuits.learning.pairs.states import Index
from fedcircuits.learning.pairs.tables import StateColumn, StateCounts, TablesOfPairs

CUTS = np.linspace(-1.5, 1.5, 7)


def counted(
    states: Index,
    sizes: Sequence[int],
    ordered: Sequence[bool],
    known: int | None = None,
    groups: Mapping[int, Index] | None = None,
) -> TablesOfPairs:
    """Of rows (rows, columns), −1 where missing; ``known``: the column that is the class;
    ``groups``: of the states of some columns. A state without rows has one, as in all rows."""
    of_column = [(groups or {}).get(c, np.arange(size)) for c, size in enumerate(sizes)]
    number = 1 if known is None else sizes[known]
    unknown = np.full(len(states), -1) if known is None else states[:, known]
    kind = np.where(unknown < 0, number, unknown)

    def of(*columns: int) -> StateCounts:
        own = [of_column[c] for c in columns]
        table = np.zeros((number + 1, *(int(g.max()) + 1 for g in own)))
        both = (states[:, columns] >= 0).all(axis=1)
        at = tuple(g[states[both, c]] for g, c in zip(own, columns, strict=True))
        np.add.at(table, (kind[both], *at), 1.0)
        return StateCounts(table, tuple(own))

    every = [c for c in range(len(sizes)) if c != known]
    columns = tuple(
        StateColumn(np.maximum(np.bincount(own[own >= 0], minlength=size), 1.0), rank)
        for own, size, rank in zip(states.T, sizes, ordered, strict=True)
    )
    pairs = {(i, j): of(i, j) for i in every for j in every if i < j}
    return TablesOfPairs(columns, number, known, {c: of(c) for c in every}, pairs)


def log_likelihoods(found: MixedForests, states: Index) -> Array:
    """Of whole rows (rows,), forest by forest and edge by edge."""
    logs = []
    for weight, (edges, tables) in zip(found.weights, found.forests, strict=True):
        own = np.full(len(states), np.log(weight))
        for (column, parent), table in zip(edges, tables, strict=True):
            own += np.log(table[states[:, parent] if parent >= 0 else 0, states[:, column]])
        logs.append(own)
    return np.asarray(logsumexp(np.stack(logs), axis=0))


def apart(tables: TablesOfPairs, states: Index) -> Array:
    """The same of independent columns."""
    every = zip(tables.columns, states.T, strict=True)
    return np.asarray(sum(np.log(column.shares)[own] for column, own in every))


def true_gain(found: MixedForests, tables: TablesOfPairs, fresh: Index) -> float:
    """Nats per row that fresh rows gain over independent columns."""
    return float((log_likelihoods(found, fresh) - apart(tables, fresh)).mean())


def one_cause(rows: int, seed: int = 0, columns: int = 8) -> Index:
    """Columns of eight states and correlation 0.64, and the sign of their cause."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 1))
    x = 0.8 * z + 0.6 * rng.normal(size=(rows, columns))
    return np.hstack([np.digitize(x, CUTS), z > 0]).astype(np.int64)


ONE_CAUSE = (*[8] * 8, 2), (*[True] * 8, False)


def two_kinds(rows: int, seed: int) -> Index:
    """Two classes, the last column, in which six columns follow one cause: some in directions that
    the class turns."""
    rng = np.random.default_rng(seed)
    kind, z = rng.integers(2, size=rows), rng.normal(size=(rows, 1))
    sign = np.where(np.arange(6) < 3, 1.0, np.where(kind == 1, 1, -1)[:, None])
    x = 0.9 * sign * z + 0.45 * rng.normal(size=(rows, 6))
    return np.hstack([np.digitize(x, CUTS), kind[:, None]]).astype(np.int64)


TWO_KINDS = (*[8] * 6, 2), (*[True] * 6, False)


def few_joined(states: Index, joined: int) -> Index:
    """So many whole rows among many of single columns."""
    rng, columns, states = np.random.default_rng(1), states.shape[1], states.copy()
    left = len(states) - joined
    states[joined:][rng.integers(columns, size=left)[:, None] != np.arange(columns)] = -1
    return states
