"""Real columns that depend on each other as in a multivariate normal.

Of a part of the table, real columns whose correlations are no chance form groups. A group becomes
one leaf with a full covariance where held-out rows are more likely under it than under the best
leaves side by side. Correlations are shrunk towards none, by as much as is best on these rows.

Rows with gaps in a group take no part here; where most have some, the columns stay side by side.
Weights count as repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from fedcircuits.circuits.graph.circuit import Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.evidence import dependent
from fedcircuits.learning.independence import Index, groups
from fedcircuits.learning.spn.fits import PRIOR, Scale
from fedcircuits.learning.spn.marginals import FEW, FOLDS, GAIN, Built, Marginals

LEVEL = 0.2  # of significance of a correlation
SHRINKAGES = (0.01, 0.05, 0.2)  # of correlations towards none
COMPLETE = 0.5  # of the rows must have all columns of a group
FAMILY = "multivariate_gaussian"


@dataclass(frozen=True, slots=True)
class NormalGroup:
    columns: Index
    shrinkage: float
    score: float  # mean log-likelihood of held-out rows
    beside: float  # that of the best leaves side by side


class Normals:
    """Finds and builds such groups, in parts of one table."""

    def __init__(self, marginals: Marginals, least: int) -> None:
        self.marginals, self.least = marginals, max(least, FEW)
        self.known: dict[int, tuple[Index, dict[bytes, list[NormalGroup]]]] = {}
        schema = marginals.schema
        self.real = np.array([v.kind == "real" for v in schema])
        self.real[list(marginals.lumpy)] = False

    def of(self, rows: Index, columns: Index) -> list[NormalGroup]:
        """Groups of columns of a part that are better kept as one normal. They are kept: a part is
        judged before it is built."""
        real = columns[self.real[columns]]
        if len(real) < 2 or self.marginals.weight[rows].sum() < self.least:
            return []
        kept, known = self.known.setdefault(id(rows), (rows, {}))
        assert kept is rows
        if (key := real.tobytes()) not in known:
            known[key] = self._found(rows, real)
        return known[key]

    def _found(self, rows: Index, real: Index) -> list[NormalGroup]:
        scores = []
        for at in groups(self._correlated(rows, real)):
            group = real[at]
            if len(group) > 1 and (normal := self._judged(rows, group)) is not None:
                scores.append(normal)
        return scores

    def _correlated(self, rows: Index, real: Index) -> np.typing.NDArray[np.bool_]:
        x = self.marginals.values[rows[:, None], real]
        seen = ~np.isnan(x)
        w = np.where(seen, self.marginals.weight[rows][:, None], 0.0)
        mean = (w * np.where(seen, x, 0.0)).sum(axis=0) / np.maximum(w.sum(axis=0), 1e-300)
        z = np.where(seen, x - mean, 0.0)
        deviation = np.sqrt((w * z**2).sum(axis=0) / np.maximum(w.sum(axis=0), 1e-300))
        z /= np.where(deviation > 0, deviation, 1.0)
        rows_of_both = np.maximum(w.T @ seen, 1.0)
        r = np.clip((w * z).T @ z / rows_of_both, -1.0, 1.0)
        return dependent(np.asarray(chdtrc(1.0, rows_of_both * r**2)), LEVEL)

    def _judged(self, rows: Index, group: Index) -> NormalGroup | None:
        some = self.marginals.some(rows)
        x, w = self._complete(some, group)
        if len(x) < max(COMPLETE * len(some), self.least):
            return None
        fold = self.marginals.rng.permutation(len(x)) % FOLDS
        total = np.zeros(len(SHRINKAGES))
        for k in range(FOLDS):
            mean, covariance = _moments(x[fold != k], w[fold != k], self._scale(group))
            for i, shrinkage in enumerate(SHRINKAGES):
                log = _log_density(x[fold == k], mean, _shrunk(covariance, shrinkage))
                total[i] += float(w[fold == k] @ log)
        best = int(total.argmax())
        score = float(total[best] / w.sum())
        scores = self.marginals.scores(rows, group.tolist())
        beside = float(sum(max(s.values()) for s in scores))
        return (
            NormalGroup(group, SHRINKAGES[best], score, beside) if score > beside + GAIN else None
        )

    def score(self, rows: Index, columns: Index) -> float:
        """Mean log-likelihood of held-out rows under what suits the columns best."""
        self.marginals.scores(rows, columns.tolist())  # all at once, which takes half the time
        normals = self.of(rows, columns)
        alone = columns[~np.isin(columns, [c for n in normals for c in n.columns])].tolist()
        beside = self.marginals.scores(rows, alone) if alone else []
        return sum(n.score for n in normals) + sum(max(s.values()) for s in beside)

    def nodes(self, name: str, rows: Index, normal: NormalGroup) -> Built:
        """One leaf over the group, called ``name``."""
        x, w = self._complete(rows, normal.columns)
        mean, covariance = _moments(x, w, self._scale(normal.columns))
        names = tuple(self.marginals.schema.names[c] for c in normal.columns)
        covariance = _shrunk(covariance, normal.shrinkage)
        return [Leaf(name, FAMILY, names)], {
            name: {"mean": mean[None], "covariance": covariance[None]}
        }

    def _complete(self, rows: Index, group: Index) -> tuple[Array, Array]:
        x = self.marginals.values[rows[:, None], group]
        kept = ~np.isnan(x).any(axis=1)
        return (x, self.marginals.weight[rows]) if kept.all() else (
            x[kept], self.marginals.weight[rows][kept]
        )  # fmt: skip

    def _scale(self, group: Index) -> Scale:
        return self.marginals.scale_of(group.tolist())


def _moments(x: Array, w: Array, scale: Scale) -> tuple[Array, Array]:
    """Mean and covariance, its variances drawn towards the table's as those of other leaves."""
    size = w.sum()
    mean = w @ x / size
    z = x - mean
    covariance = (w[:, None] * z).T @ z / size
    variance = np.diagonal(covariance).copy()
    drawn = (size * variance + PRIOR * scale.variance) / (size + PRIOR)
    drawn = np.maximum(np.maximum(drawn, variance), scale.narrowest)
    covariance[np.diag_indices(len(mean))] = drawn
    return mean, covariance


def _shrunk(covariance: Array, share: float) -> Array:
    shrunk = (1 - share) * covariance
    shrunk[np.diag_indices(len(shrunk))] = np.diagonal(covariance)
    return np.asarray((shrunk + shrunk.T) / 2)


def _log_density(x: Array, mean: Array, covariance: Array) -> Array:
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, (x - mean).T)
    constant = np.log(np.diagonal(root)).sum() + 0.5 * len(mean) * np.log(2 * np.pi)
    return np.asarray(-0.5 * np.square(white).sum(axis=0) - constant)
