"""A few normal factors behind all columns: dependence that a forest cannot express.

A forest joins a column to one neighbour, and dependence fades over two or more edges. Where many
columns have one common cause, every pair of them is dependent. This is a mixture of factor
analysers over states: in every component (a class of the target, or a cluster of rows) ordered
columns are discretised normal variables x = Λz + noise, with one, two or four factors z:

    shares         of states in the component, shrunk towards those of all rows
    correlations   of normal scores by these shares, over the rows that have both columns, corrected
                   for discretisation. Those of a component are shrunk towards the average within
                   components, and this towards 0, where such rows are few
    Λ              by EM for factor analysis on these correlations
    z              on a grid: given a point of it all columns are independent, P(state | z) = Φ of
                   the state's ends. The variance of z around a point is added to the noise

Unordered columns have their own table P(state | z). A few rounds of EM reassign rows to components
and points. A component learns only one number per ordered column and factor about their dependence,
so few rows are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.states import (
    FEW_BOTH,
    StateRows,
    correlation_of,
    normal_scores,
    smoothed_shares,
)

FEWEST_ORDERED = 3  # columns: fewer have no common cause to speak of
POINTS = {1: 21, 2: 9, 4: 5}  # of the grid per factor, by number of factors
REACH = {1: 2.8, 2: 2.6, 4: 2.2}  # deviations
LEAST_POINT = 2e-4  # of the prior
MOST_POINTS = 3_000  # of all components
MOST_ROWS = 6_000  # used for learning: there are few numbers to learn
ROUNDS, LOADING_ROUNDS = 3, 50
LEAST_NOISE = 0.02  # of a column's variance
PULL = 5.0  # pseudo-rows that shrink shares towards those of all rows
TABLE_PULL = 50.0  # pseudo-rows over all points that shrink tables towards a component's shares
CORRELATION_PULL = 20.0  # pseudo-rows that shrink correlations of a component
LEAST_LEFT = 0.3  # variance of normal scores after discretisation, at least


@dataclass(frozen=True, slots=True)
class FactorMixture:
    """Points of all components: their weights, and by column P(state | point)."""

    weights: Array  # (points,)
    tables: list[Array]  # (points, states)

    def logs(self, rows: StateRows) -> Array:
        """Log-likelihoods of rows at points, with weights, (points, rows)."""
        logs = np.log(np.hstack(self.tables)).astype(np.float32)
        return np.asarray(np.log(self.weights)[:, None] + logs @ rows.indicators.T)


def points_of(factors: int) -> int:
    """The number of points of a component with this many factors."""
    return len(_grid(factors)[1])


def factor_mixture(rows: StateRows, factors: int, share: Array) -> FactorMixture:
    """``share`` (components, rows): initial responsibilities."""
    if len(rows) > MOST_ROWS:  # evenly, of rows that are sorted
        some = np.linspace(0, len(rows) - 1, MOST_ROWS).astype(np.int64)
        rows, share = rows.rows(some), share[:, some]
    grid, hidden = _grid(factors), None
    for _ in range(ROUNDS):
        mixture = _maximised(rows, share, grid, hidden)
        logs = mixture.logs(rows)
        hidden = np.exp(logs - logsumexp(logs, axis=0)).reshape(len(share), -1, len(rows))
        share = hidden.sum(axis=1)
    return mixture


def _maximised(
    rows: StateRows, share: Array, grid: tuple[Array, Array, float], hidden: Array | None
) -> FactorMixture:
    """``hidden`` (components, points, rows): responsibilities of points, None at first."""
    points, prior, around = grid
    weights = (share.sum(axis=1) + 1) / (len(rows) + len(share))
    shares = [_shares(rows, own) for own in share]
    ordered = np.flatnonzero(rows.ordered)
    own_shares = [[own[c] for c in ordered] for own in shares]
    correlations, unseen = _correlations(rows, share, own_shares)
    tables: list[list[Array]] = [[] for _ in rows.sizes]
    by_component = _loadings(np.stack(correlations), unseen, points.shape[1])
    for k, own in enumerate(shares):
        loadings = iter(by_component[k])
        for c, ranked in enumerate(rows.ordered):
            if ranked:
                column = next(loadings)
                noise = 1 - float(column @ column) * (1 - around)
                table = _cut(own[c], points @ column, noise)
            elif hidden is None:
                table = np.repeat(own[c][None], len(prior), axis=0)
            else:
                seen = rows.states[:, c] >= 0
                counts = hidden[k][:, seen] @ rows.evidence(c)[seen]
                counts += TABLE_PULL * np.outer(prior, own[c])
                table = counts / counts.sum(axis=1, keepdims=True)
            tables[c].append(table)
    return FactorMixture(
        np.outer(weights, prior).reshape(-1), [np.concatenate(own) for own in tables]
    )


def _shares(rows: StateRows, share: Array) -> list[Array]:
    """By column the shares of states in a component."""
    found = []
    for c, (column, size) in enumerate(zip(rows.states.T, rows.sizes, strict=True)):
        seen = column >= 0
        counts = np.bincount(column[seen], share[seen], size).astype(np.float64)
        found.append(smoothed_shares(counts, rows.shares[c], rows.ordered[c], PULL))
    return found


def _correlations(
    rows: StateRows, share: Array, shares: list[list[Array]]
) -> tuple[list[Array], Array]:
    """Of ordered columns in every component, by the shares of their states in it; and for which
    pairs hardly any row has both."""
    ordered = np.flatnonzero(rows.ordered)
    seen = np.asarray(rows.states[:, ordered] >= 0, np.float64)
    found, both = [], []
    for weight, own in zip(share, shares, strict=True):
        scores = [normal_scores(states) for states in own]
        x = np.stack([np.append(score, 0.0)[rows.states[:, c]]
                      for c, score in zip(ordered, scores, strict=True)], axis=1)  # fmt: skip
        some = weight[:, None] * seen
        x = (x - (some * x).sum(axis=0) / np.maximum(some.sum(axis=0), 1e-9)) * seen
        both.append(some.T @ seen)
        left = np.array([np.square(s) @ p for s, p in zip(scores, own, strict=True)])
        left = np.sqrt(np.clip(left, LEAST_LEFT, 1.0))
        spread = np.sqrt((some * x**2).sum(axis=0) / np.maximum(some.sum(axis=0), 1e-9))
        cross = (some * x).T @ x / np.maximum(both[-1], 1e-9)
        alike = cross / np.maximum(np.outer(spread, spread), 1e-6)
        found.append(correlation_of(alike, np.outer(left, left)))
    total = sum(both, np.zeros_like(both[0]))
    sums = sum((r * n for r, n in zip(found, both, strict=True)), np.zeros_like(total))
    within = sums / (total + FEW_BOTH)
    drawn = [(r * n + CORRELATION_PULL * within) / (n + CORRELATION_PULL)
             for r, n in zip(found, both, strict=True)]  # fmt: skip
    for matrix in drawn:
        np.fill_diagonal(matrix, 1.0)
    unseen = total < FEW_BOTH
    np.fill_diagonal(unseen, False)
    return drawn, unseen


def _grid(factors: int) -> tuple[Array, Array, float]:
    """Points (points, factors), their weights, and the variance of a factor around a point."""
    line = np.linspace(-REACH[factors], REACH[factors], POINTS[factors])
    points = np.stack(np.meshgrid(*[line] * factors, indexing="ij"), axis=-1).reshape(-1, factors)
    prior = np.exp(-0.5 * np.square(points).sum(axis=1))
    kept = prior > LEAST_POINT * prior.sum()
    points, prior = points[kept], prior[kept] / prior[kept].sum()
    around = float(line[1] - line[0]) ** 2 / 12
    deviation = np.sqrt(prior @ np.square(points[:, 0]))
    return points / deviation * np.sqrt(1 - around), prior, around


def _loadings(correlation: Array, unseen: Array, number: int) -> Array:
    """Λ (components, columns, factors) by EM, from the principal axes of correlations
    (components, columns, columns); pairs of columns that no rows have are as the factors of the
    others say."""
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, 1e-6)[:, None]
    # pairs of different rows need not fit together
    correlation = (vectors * values) @ vectors.swapaxes(1, 2)
    scale = np.sqrt(np.diagonal(correlation, axis1=1, axis2=2))
    correlation = correlation / (scale[:, :, None] * scale[:, None])
    loadings = vectors[..., -number:] * np.sqrt(np.maximum(values[..., -number:] - 1, 0.1))
    gaps = bool(unseen.any())
    for _ in range(LOADING_ROUNDS):
        if gaps:
            correlation = np.where(unseen, loadings @ loadings.swapaxes(1, 2), correlation)
        noise = np.maximum(1 - np.square(loadings).sum(axis=2), LEAST_NOISE)
        precise = loadings / noise[..., None]
        inner = np.linalg.inv(np.eye(number) + loadings.swapaxes(1, 2) @ precise)
        project = inner @ precise.swapaxes(1, 2)  # (…, factors, columns): E[z | x] = project · x
        cross = correlation @ project.swapaxes(1, 2)
        loadings = cross @ np.linalg.inv(inner + project @ cross)
    most = np.sqrt((1 - LEAST_NOISE) / np.maximum(np.square(loadings).sum(axis=2), 1e-12))
    return np.asarray(loadings * np.minimum(most, 1.0)[..., None])


def _cut(share: Array, mean: Array, variance: float) -> Array:
    """P(state | z) (points, states) of a column with this mean at the points."""
    noise = np.sqrt(max(variance, LEAST_NOISE))
    ends = ndtri(np.append(0.0, np.cumsum(share)).clip(0, 1))
    ends[-1] = np.inf
    table = np.maximum(np.diff(ndtr((ends - mean[:, None]) / noise), axis=1), 1e-9)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
