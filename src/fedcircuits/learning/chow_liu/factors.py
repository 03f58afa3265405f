"""A few normal factors behind all columns: dependence that a forest cannot express.

A forest joins a column to one neighbour, and dependence fades over two or more edges. Where many
columns have one common cause, every pair of them is dependent. Ordered columns are therefore
modelled as discretised normal variables x = Λz + noise, with one or two factors z:

    correlations   of normal scores of states, over the rows that have both columns, corrected for
                   discretisation and shrunk towards 0 where such rows are few
    Λ              by EM for factor analysis on these correlations
    z              on a grid: every point of it is a component in which all columns are independent,
                   P(state | z) = Φ of the state's ends

Unordered columns have their own table P(state | z), by EM over the points. Only one number per
factor is learned for an ordered column, so few rows are enough.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.states import Index, StateRows, correlations

FEWEST_ORDERED = 3  # columns: fewer have no common cause to speak of
POINTS = {1: 31, 2: 11}  # of the grid per factor, by number of factors
REACH = 3.0  # deviations
LEAST_POINT = 1e-4  # of the prior
ROUNDS, TABLE_ROUNDS = 100, 5
LEAST_NOISE = 0.02  # of a column's variance
PULL = 5.0  # rows by which tables of points are drawn towards the shares of states


def factor_components(rows: StateRows, number: int) -> tuple[Array, list[list[Array]]] | None:
    """Weights of points (points,) and by point a table (1, states) of every column; None where too
    few columns are ordered."""
    ordered = np.flatnonzero(rows.ordered)
    if len(ordered) < FEWEST_ORDERED:
        return None
    points, prior = _grid(number)
    loadings = _loadings(correlations(rows, ordered), number)
    tables = {
        int(c): _cut(rows.shares[c], points @ loading, 1 - float(loading @ loading))
        for c, loading in zip(ordered, loadings, strict=True)
    }
    others = [c for c in range(len(rows.sizes)) if c not in tables]
    logs = np.log(prior)[:, None] + sum(_log(rows, c, table) for c, table in tables.items())
    for round in range(TABLE_ROUNDS if others else 0):
        total = logs if not round else logs + sum(_log(rows, c, tables[c]) for c in others)
        share = np.exp(total - total.max(axis=0))
        share /= share.sum(axis=0)  # (points, rows)
        for c in others:
            seen = rows.states[:, c] >= 0
            counts = share[:, seen] @ rows.evidence(c)[seen] + PULL * rows.shares[c]
            tables[c] = counts / counts.sum(axis=1, keepdims=True)
    columns = range(len(rows.sizes))
    return prior, [[tables[c][k][None] for c in columns] for k in range(len(prior))]


def _grid(number: int) -> tuple[Array, Array]:
    """Points (points, factors) and their weights."""
    line = np.linspace(-REACH, REACH, POINTS[number])
    points = np.stack(np.meshgrid(*[line] * number, indexing="ij"), axis=-1).reshape(-1, number)
    prior = np.exp(-0.5 * np.square(points).sum(axis=1))
    prior /= prior.sum()
    kept = prior > LEAST_POINT
    return points[kept], prior[kept] / prior[kept].sum()


def _loadings(correlation: Array, number: int) -> Array:
    """Λ (columns, factors) by EM, from the principal axes."""
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, 1e-6)
    correlation = (vectors * values) @ vectors.T  # pairs of different rows need not fit together
    scale = np.sqrt(np.diag(correlation))
    correlation = correlation / np.outer(scale, scale)
    loadings = vectors[:, -number:] * np.sqrt(np.maximum(values[-number:] - 1, 0.1))
    for _ in range(ROUNDS):
        noise = np.maximum(1 - np.square(loadings).sum(axis=1), LEAST_NOISE)
        precise = loadings / noise[:, None]
        inner = np.linalg.inv(np.eye(number) + loadings.T @ precise)
        project = inner @ precise.T  # (factors, columns): E[z | x] = project · x
        cross = correlation @ project.T
        loadings = cross @ np.linalg.inv(inner + project @ cross)
    most = np.sqrt((1 - LEAST_NOISE) / np.maximum(np.square(loadings).sum(axis=1), 1e-12))
    return np.asarray(loadings * np.minimum(most, 1.0)[:, None])


def _cut(share: Array, mean: Array, variance: float) -> Array:
    """P(state | z) (points, states) of a column with this mean at the points."""
    noise = np.sqrt(max(variance, LEAST_NOISE))
    ends = ndtri(np.append(0.0, np.cumsum(share)).clip(0, 1))
    ends[-1] = np.inf
    table = np.maximum(np.diff(ndtr((ends - mean[:, None]) / noise), axis=1), 1e-9)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _log(rows: StateRows, column: int, table: Array) -> Array:
    """Log-likelihoods of the column's states (points, rows), 0 where unknown."""
    own: Index = rows.states[:, column]
    return np.asarray(np.where(own >= 0, np.log(table)[:, np.maximum(own, 0)], 0.0))
