"""Whether it pays to divide the rows of a part, by the likelihood of held-out rows.

Parts are described by what suits them best: Chow–Liu trees of discrete columns, normals of reals,
other leaves side by side. Rows divided into parts of shares s have the mean log-likelihood
Σ s (log s + score of the part), which is exact for values of a column, and a lower bound for
clusters, since those overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log

import numpy as np

from fedcircuits.learning.chow_liu.trees import spanning_tree
from fedcircuits.learning.evidence import dependent
from fedcircuits.learning.independence import Floats, Index
from fedcircuits.learning.spn.dependence import Dependence
from fedcircuits.learning.spn.marginals import GAIN, Marginals
from fedcircuits.learning.spn.normals import NormalGroup, Normals

SMALL = 5  # times the fewest rows: of a part whose clusters are judged
LEAST = 0.5  # times the fewest rows: of a part that is divided by values
SURE = 10.0  # nats that leaves of a class, or values of a column, must gain on held-out rows


class PartJudge:
    """Judges parts of one table."""

    def __init__(
        self,
        marginals: Marginals,
        dependence: Dependence,
        weight: Floats,
        fewest: float,
        least_count: int,
        target: int | None,
        trees: bool,
    ) -> None:
        self.marginals, self.dependence, self.weight = marginals, dependence, weight
        self.normals = Normals(marginals, least_count)
        self.fewest, self.target, self.trees = fewest, target, trees
        self.discrete = np.array([v.size > 0 for v in marginals.schema])
        self.scored: dict[tuple[int, bytes], tuple[Index, float]] = {}

    def normals_of(self, rows: Index, columns: Index) -> list[NormalGroup]:
        return self.normals.of(rows, columns) if self.trees else []

    # ------------------------------------------------------------------ clusters

    def clusters_pay(self, rows: Index, columns: Index, parts: list[Index]) -> bool:
        """Whether clusters describe more than leaves of one part do: columns in normals, and all
        where a part is small and clusters are smaller still, or where a class is to be told:
        clusters that are not there cost more then."""
        normals = self.normals_of(rows, columns)
        if normals and not self._pays(rows, parts, partial(self._worth, normals)):
            return False
        small = self._size(rows) < SMALL * self.fewest
        by_class = self.target is not None and bool(self.discrete[self.target])
        judged = (small or by_class) and bool(self.marginals.numbers) and self.trees
        return not judged or self._pays(rows, parts, partial(self._score, columns))

    def _pays(self, rows: Index, parts: list[Index], score: Callable[[Index], float]) -> bool:
        return self._divided(parts, score) > score(rows)

    def _worth(self, normals: list[NormalGroup], rows: Index) -> float:
        """Mean log-likelihood of the normals' columns or, if a target is among them, of that given
        the others."""
        columns = [n.columns for n in normals]
        if self.target is None or not any(self.target in c for c in columns):
            return sum(self.normals.score(rows, c) for c in columns)
        with_target = next(c for c in columns if self.target in c)
        others = with_target[with_target != self.target]
        return self.normals.score(rows, with_target) - self.normals.score(rows, others)

    # ------------------------------------------------------------------ values of a column

    def decisive(self, rows: Index, columns: Index) -> int | None:
        """The discrete column that the numbers of a part depend on most, if any by evidence: trees
        and normals tie columns of one kind only."""
        discrete = self.discrete[columns]
        if self.dependence.scored is None or not self.trees or discrete.all() or not discrete.any():
            return None
        if self._size(rows) < LEAST * self.fewest:
            return None
        chance = self.dependence.chance(rows, columns, self.weight[rows])
        tied = dependent(chance, self.dependence.threshold)
        evidence = np.where(tied, -np.log(np.maximum(chance, 1e-300)), 0.0)  # (columns, columns)
        strength = evidence[np.ix_(discrete, ~discrete)].sum(axis=1)
        best = int(strength.argmax())
        return int(columns[discrete][best]) if strength[best] > SURE else None

    def values_pay(self, rows: Index, columns: Index, column: int, classes: list[Index]) -> bool:
        """Whether the remaining columns are described better for each class of one apart."""
        others = columns[columns != column]
        gain = self._divided(classes, partial(self._score, others)) - self._score(columns, rows)
        return gain > max(GAIN, SURE / self._size(rows))

    # ------------------------------------------------------------------ scores

    def _divided(self, parts: list[Index], score: Callable[[Index], float]) -> float:
        sizes = [self._size(p) for p in parts]
        shares = [size / sum(sizes) for size in sizes]
        return sum(s * (log(s) + score(p)) for s, p in zip(shares, parts, strict=True))

    def _size(self, rows: Index) -> float:
        return float(self.weight[rows].sum(dtype=np.float64))

    def _score(self, columns: Index, rows: Index) -> float:
        """Mean log-likelihood that new rows are likely to have under leaves of a part. It is kept:
        a part is judged beside its like, and again when it is split."""
        kept, score = self.scored.get((id(rows), columns.tobytes()), (None, 0.0))
        if kept is not rows:
            score = self._new_score(columns, rows)
            self.scored[id(rows), columns.tobytes()] = (rows, score)
        return score

    def _new_score(self, columns: Index, rows: Index) -> float:
        discrete = self.discrete[columns]
        score = self.normals.score(rows, columns[~discrete])
        if not discrete.any():
            return score
        pairs = self.dependence.pairs(rows, columns[discrete], self.weight[rows])
        gain = pairs.gain()
        linked = sum(float(gain[e]) for e in spanning_tree(gain, 0.0) if e[1] >= 0)
        return score + (pairs.own_score() + linked) / self._size(rows)
