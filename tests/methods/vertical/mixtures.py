"""EM for block-diagonal mixtures in one place, as a textbook has it, and data to try it on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array

Held = npt.NDArray[np.bool_]  # (rows, parties)
NAMES = ("north", "east", "south", "west")


def clustered(rows: int = 240, columns: int = 7, seed: int = 0, apart: float = 1.5) -> Array:
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=rows)
    x = rng.normal(size=(rows, columns)) + apart * rng.normal(size=(3, columns))[group]
    x = x @ rng.normal(size=(columns, columns))
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def blocks_of(columns: int, parties: int) -> list[list[int]]:
    return [part.tolist() for part in np.array_split(np.arange(columns), parties)]


def federation(
    x: Array, blocks: Sequence[Sequence[int]], held: Held | None = None, *, seed: int = 3,
    allow_collect: bool = True,
) -> fc.Federation:  # fmt: skip
    """A party for each block of columns, with the rows it holds in an order of its own."""
    rng = np.random.default_rng(seed)
    tables = {}
    for i, block in enumerate(blocks):
        rows = np.arange(len(x)) if held is None else np.flatnonzero(held[:, i])
        rows = rng.permutation(rows)
        own = fc.Table.of(x[np.ix_(rows, list(block))], names=[f"x{j}" for j in block])
        tables[NAMES[i]] = fc.Table(own.schema, own.values, 1000 + rows)
    return fc.Federation(tables, allow_collect=allow_collect)


def quiet(model: Any, parties: fc.Federation, **how: Any) -> Any:
    """The fitted model, without a warning that EM has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(parties, **how)


@dataclass
class Central:
    """All columns in one place; what a party lacks of a row is left out of its block."""

    x: Array
    blocks: Sequence[Sequence[int]]
    weights: Array
    means: Array
    covariances: list[Array]  # by block (components, columns, columns)
    rows: Array  # weights of rows
    held: Held
    reg: float = 1e-6

    def log_joint(self) -> Array:
        """(components, rows)."""
        found = np.repeat(np.log(self.weights)[:, None], len(self.x), axis=1)
        for b, block in enumerate(self.blocks):
            for k in range(len(self.weights)):
                mean, covariance = self.means[k, list(block)], self.covariances[b][k]
                logs = multivariate_normal(mean, covariance).logpdf(self.x[:, list(block)])
                found[k] += np.where(self.held[:, b], logs, 0.0)
        return found

    def step(self) -> float:
        """One iteration; the log-likelihood per row before it."""
        joint = self.log_joint()
        logs = np.logaddexp.reduce(joint, axis=0)
        resp = np.exp(joint - logs) * self.rows
        bound = float(logs @ self.rows / self.rows.sum())
        for b, block in enumerate(self.blocks):
            x, mine = self.x[:, list(block)], self.held[:, b]
            w = self.rows * mine
            middle = w @ x / w.sum()
            variance = w @ np.square(x - middle) / w.sum()
            for k in range(len(self.weights)):
                r = resp[k] * mine
                mean = r @ x / r.sum()
                d = x - mean
                self.means[k, list(block)] = mean
                covariance = (r[:, None] * d).T @ d / r.sum()
                self.covariances[b][k] = covariance + self.reg * np.diag(variance)
        self.weights = resp.sum(axis=1) / resp.sum()
        return bound


def central(
    x: Array, blocks: Sequence[Sequence[int]], means: Array, rows: Array | None = None,
    held: Held | None = None, reg: float = 1e-6,
) -> Central:  # fmt: skip
    """Begun with these means, equal weights and unit covariances."""
    number = len(means)
    return Central(
        x,
        blocks,
        np.full(number, 1 / number),
        means.copy(),
        [np.repeat(np.eye(len(b))[None], number, axis=0) for b in blocks],
        np.ones(len(x)) if rows is None else rows,
        np.ones((len(x), len(blocks)), bool) if held is None else held,
        reg,
    )
