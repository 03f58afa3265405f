"""Leaves for a part of the table, column by column.

Discrete columns take frequencies that are drawn towards the whole table's by as many rows as suits
them, histograms too (shrinking.py): what few rows say of many categories does not drown the rest.
A column of numbers takes the family of highest likelihood on held-out rows, in ``FOLDS`` folds.

    real    gaussian, student_t; in parts of ``MANY`` rows also histogram and, where the whole
            column is positive, gamma and exponential; in parts of fewer than ``FEW`` gaussian;
            where single values are heavy, as zeros often are, histogram only
    count   poisson, count_histogram; with fewer than ``FEW`` rows what is best on the whole table

A family that calls some values impossible is mixed with a trace of one that does not (a wide
Student t, a Poisson), so that no row to come has probability 0. Weights count as repetitions.

A table that is part of a larger one may be learned in its context: bins, least variances and what
unseen categories are likely to be come from the larger table then. With a least count nothing of a
leaf goes by fewer rows (learning/least_counts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.circuit import Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import IMPOSSIBLE, Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.learning.independence import Index
from fedcircuits.learning.least_counts import pooled, without_few
from fedcircuits.learning.spn.fits import HEAVY, Grid, Scale, fitted, log_density
from fedcircuits.learning.spn.shrinking import drawn, drawn_in_order
from fedcircuits.tables.schema import Schema

FEW = 20
MANY = 30  # rows from which on real columns may take histograms and positive families
FOLDS = 3
MOST_ROWS = 3000  # that a choice looks at
GAIN = 0.01  # nats per row by which a family must beat the simplest
DEFAULT = {"real": "gaussian", "count": "poisson"}
OTHERS = {"real": ("student_t", "histogram"), "count": ("count_histogram",)}
POSITIVE = ("gamma", "exponential")
OPEN = {"real": "student_t", "count": "poisson"}  # what bounded families are mixed with
HISTOGRAM = ("histogram", "count_histogram")
Built = tuple[list[Node], dict[str, Arrays]]


@dataclass(frozen=True, slots=True)
class _Folds:
    """Numbers of a part, and the weights that all folds but one have."""

    x: Array  # (rows, columns)
    w: Array  # (rows, columns)
    fold: Index  # (rows,)
    others: Array  # (rows, folds, columns): 0 for the rows of the fold

    @classmethod
    def of(cls, x: Array, w: Array, fold: Index) -> _Folds:
        return cls(x, w, fold, w[:, None] * (fold[:, None] != np.arange(FOLDS))[..., None])

    def of_columns(self, at: list[int]) -> _Folds:
        if len(at) == self.x.shape[1]:
            return self
        return _Folds(self.x[:, at], self.w[:, at], self.fold, self.others[..., at])


class Marginals:
    """Builds leaves for parts of one table."""

    def __init__(
        self,
        values: Array,
        schema: Schema,
        weight: Array,
        rng: np.random.Generator,
        context: Array | None = None,
        least: int = 1,
        sure: float = 0.0,
    ) -> None:
        self.values, self.schema, self.least = values, schema, least
        self.sure = sure  # nats of all rows by which a family must beat the simplest as well
        self.weight, self.rng = weight.astype(np.float64), rng
        self.numbers = [i for i, v in enumerate(schema) if not v.size]
        self.judged: dict[int, tuple[Index, dict[int, dict[str, float]]]] = {}
        self.samples: dict[int, tuple[Index, Index]] = {}
        self.place = {c: i for i, c in enumerate(self.numbers)}
        known = values if context is None else context  # what scales, bins and priors come from
        known = without_few(known, least)
        counted = self.weight if context is None else np.ones(len(context))
        x, w = _filled(known[:, self.numbers], counted)
        self.scale = Scale.of(x, w)
        grids = {
            c: Grid.of(known[:, c], counted, schema.variables[c].kind == "count", least=least)
            for c in self.numbers
        }
        self.grids = {c: grid.of_part(values[:, c]) for c, grid in grids.items()}
        enough = float(counted.sum()) >= FEW / HEAVY
        self.lumpy = {c for c, grid in grids.items() if enough and grid.lumpy}
        self.prior = _shares(known, counted, schema, least)
        self.positive = {c: bool((w[:, i] == 0).all() or x[w[:, i] > 0, i].min() > 0)
                         for c, i in self.place.items()}  # fmt: skip
        counts = [c for c in self.numbers if schema.variables[c].kind == "count"]
        self.usual = {c: "histogram" if c in self.lumpy else DEFAULT["real"] for c in self.numbers}
        self.usual |= dict(zip(counts, self._chosen(np.arange(len(values)), counts), strict=True))

    def nodes(self, name: str, rows: Index, columns: Index) -> Built:
        """Leaves over the columns and, if there are several, a product of them called ``name``."""
        families: dict[tuple[str, int], list[int]] = {}
        for c, rule in zip(columns.tolist(), self._rules(rows, columns.tolist()), strict=True):
            apart = c if rule in (*HISTOGRAM, *POSITIVE) else -1 - self.schema.variables[c].size
            families.setdefault((rule, apart), []).append(c)
        nodes: list[Node] = []
        values: dict[str, Arrays] = {}
        tops = [name] if len(families) == 1 else [f"{name}.{j}" for j in range(len(families))]
        for top, ((rule, _), members) in zip(tops, families.items(), strict=True):
            more, learned = self._leaf(top, rule, members, rows)
            nodes += more
            values |= learned
        if len(tops) > 1:
            nodes.append(Product(name, tuple(tops)))
        return nodes, values

    # ------------------------------------------------------------------ one family

    def _leaf(self, name: str, rule: str, members: list[int], rows: Index) -> Built:
        leaf = Leaf(name, rule, tuple(self.schema.names[c] for c in members))
        if rule in ("bernoulli", "categorical"):
            return [leaf], {name: self._frequencies(members, rows, rule)}
        if rule in (*HISTOGRAM, *POSITIVE):
            return self._mixed(name, rule, members[0], rows)
        x, w = self._numbers(rows, members)
        return [leaf], {name: _one_unit(fitted(rule, x, w, self.scale_of(members)))}

    def _frequencies(self, members: list[int], rows: Index, rule: str) -> Arrays:
        part, w = self.values[rows[:, None], members], self.weight[rows]
        size = self.schema.variables[members[0]].size
        counts = np.stack([w @ (part == code) for code in range(size)], axis=-1)  # (members, size)
        prior = np.stack([self.prior[c] for c in members])
        counts = drawn(pooled(counts, self.least, prior), prior)
        share = counts / counts.sum(axis=1, keepdims=True)
        return {"probability": (share[:, 1] if rule == "bernoulli" else share)[None]}

    def _mixed(self, name: str, rule: str, column: int, rows: Index) -> Built:
        """The family and a trace of one that is positive everywhere."""
        x, w = self._numbers(rows, [column])
        trace = _trace(w)[0]
        scope, kind = (self.schema.names[column],), self.schema.variables[column].kind
        nodes: list[Node] = [
            Leaf(f"{name}:in", rule, scope),
            Leaf(f"{name}:out", OPEN[kind], scope),
            Sum(name, (f"{name}:in", f"{name}:out")),
        ]
        values: dict[str, Arrays] = {
            f"{name}:in": _one_unit(self._bounded(rule, column, rows, x, w)),
            f"{name}:out": _one_unit(_wide(kind, self.scale_of([column]))),
            name: {WEIGHT: np.array([[1 - trace, trace]])},
        }
        return nodes, values

    def _bounded(self, rule: str, column: int, rows: Index, x: Array, w: Array) -> Arrays:
        if rule in POSITIVE:
            return fitted(rule, x, w, self.scale_of([column]))
        grid, counts = self.grids[column], self._in_bins(column, rows)
        return {"edges": grid.edges[None], "probability": (counts / counts.sum())[None]}

    # ------------------------------------------------------------------ the choice

    def _rules(self, rows: Index, columns: list[int]) -> list[str]:
        numbers = [c for c in columns if c in self.place]
        best: Mapping[int, str] = self.usual
        if numbers and len(rows) >= FEW:
            best = dict(zip(numbers, self._chosen(rows, numbers), strict=True))
        return [best[c] if c in self.place else self._discrete(c) for c in columns]

    def _discrete(self, column: int) -> str:
        return "bernoulli" if self.schema.variables[column].kind == "boolean" else "categorical"

    def _chosen(self, rows: Index, columns: list[int]) -> list[str]:
        """The best family for every column of numbers, by held-out rows."""
        gain = max(GAIN, self.sure / max(min(len(rows), MOST_ROWS), 1))
        return [_best(score, gain) for score in self.scores(rows, columns)]

    def scores(self, rows: Index, columns: list[int]) -> list[dict[str, float]]:
        """Mean held-back log-likelihood by family, the simplest first, for every column. They are
        kept: a part is judged before it is built."""
        kept, known = self.judged.setdefault(id(rows), (rows, {}))
        assert kept is rows
        new = [c for c in columns if c not in known]
        if new:
            known.update(zip(new, self._judged(rows, new), strict=True))
        return [known[c] for c in columns]

    def forget(self, rows: Index) -> None:
        """No part of these rows is left to judge."""
        self.judged.pop(id(rows), None)
        self.samples.pop(id(rows), None)

    def some(self, rows: Index) -> Index:
        """At most ``MOST_ROWS`` of the rows, always the same: what choices look at."""
        if len(rows) <= MOST_ROWS:
            return rows
        kept, sample = self.samples.get(id(rows), (None, rows))
        if kept is not rows:
            sample = self.rng.choice(rows, MOST_ROWS, replace=False)
            self.samples[id(rows)] = (rows, sample)
        return sample

    def _judged(self, rows: Index, columns: list[int]) -> list[dict[str, float]]:
        rows = self.some(rows)
        fold = self.rng.permutation(len(rows)) % FOLDS
        many = len(rows) >= MANY
        part = _Folds.of(*self._numbers(rows, columns), fold)
        total: list[dict[str, float]] = [
            dict.fromkeys(self._candidates(c, many), 0.0) for c in columns
        ]
        for rule in dict.fromkeys(r for t in total for r in t):
            at = [i for i, t in enumerate(total) if rule in t]
            scores = self._held_back(rule, [columns[i] for i in at], rows, part.of_columns(at))
            for i, score in zip(at, scores, strict=True):
                total[i][rule] = float(score)
        seen = np.maximum(part.w.sum(axis=0), 1e-300)
        return [{r: s / n for r, s in t.items()} for t, n in zip(total, seen, strict=True)]

    def _candidates(self, column: int, many: bool) -> tuple[str, ...]:
        kind = self.schema.variables[column].kind
        if kind == "real" and column in self.lumpy:
            return ("histogram",)
        if kind == "real" and not many:
            return DEFAULT[kind], "student_t"
        more = POSITIVE if kind == "real" and self.positive[column] else ()
        return (DEFAULT[kind], *OTHERS[kind], *more)

    def _held_back(self, rule: str, columns: list[int], rows: Index, part: _Folds) -> Array:
        """Summed log-likelihood of the rows of every fold, learned from the others; (columns,)."""
        x, fold, scale = part.x, part.fold, self.scale_of(columns)
        if rule in HISTOGRAM:
            log = np.stack([self._binned(c, rows, fold) for c in columns], axis=1)
        else:
            each = fitted(rule, x[:, None], part.others, scale)
            log = log_density(rule, x, {n: a[fold] for n, a in each.items()})
        if rule in (*HISTOGRAM, *POSITIVE):
            kind = self.schema.variables[columns[0]].kind
            trace = _trace(part.others)[fold]
            wide = log_density(OPEN[kind], x, _wide(kind, scale))
            log = np.logaddexp(np.log1p(-trace) + log, np.log(trace) + wide)
        return np.asarray((np.maximum(log, IMPOSSIBLE) * part.w).sum(axis=0))

    def _binned(self, column: int, rows: Index, fold: Index) -> Array:
        """Log densities of the rows of every fold, by the histogram of the others."""
        grid, codes = self.grids[column], self.grids[column].codes[rows]
        seen, bins = codes >= 0, len(grid.share)
        counted = np.bincount((fold * bins + codes)[seen], self.weight[rows][seen], FOLDS * bins)
        held = counted.astype(np.float64).reshape(FOLDS, bins)
        others = held[np.arange(FOLDS) - 1] + held[np.arange(FOLDS) - 2]  # of three folds
        share = grid.share_without(held)
        counts = drawn_in_order(pooled(others, self.least, share), share)
        log = np.log(counts / counts.sum(axis=1, keepdims=True)) - np.log(np.diff(grid.edges))
        return np.where(seen, log[fold, np.maximum(codes, 0)], -np.inf)

    def _in_bins(self, column: int, rows: Index) -> Array:
        grid = self.grids[column]
        counts = pooled(grid.counted(rows, self.weight[rows]), self.least, grid.share)
        return drawn_in_order(counts, grid.share)

    # ------------------------------------------------------------------ the table

    def _numbers(self, rows: Index, columns: list[int]) -> tuple[Array, Array]:
        """Values (rows, columns) with 1 for missing ones, and weights that are 0 there, or where a
        column has too few values."""
        x, w = _filled(self.values[rows[:, None], columns], self.weight[rows])
        return x, np.where(w.sum(axis=0) < self.least, 0.0, w) if self.least > 1 else w

    def scale_of(self, columns: list[int]) -> Scale:
        return self.scale.part([self.place[c] for c in columns])


def _filled(part: Array, weight: Array) -> tuple[Array, Array]:
    seen = ~np.isnan(part)
    return np.where(seen, part, 1.0), np.where(seen, weight[:, None], 0.0)


def _shares(context: Array, weight: Array, schema: Schema, least: int) -> dict[int, Array]:
    """Smoothed frequencies of every discrete column over a whole table."""
    shares = {}
    for c, variable in enumerate(schema):
        if variable.size:
            column = context[:, c]
            seen = ~np.isnan(column)
            codes = column[seen].astype(np.int64)
            counts = np.bincount(codes, weight[seen], variable.size).astype(np.float64)
            shown = pooled(counts, least)
            shares[c] = (shown + 0.5) / (counts.sum() + 0.5 * variable.size)
    return shares


def _best(score: dict[str, float], gain: float) -> str:
    """The first, unless another is better by the gain."""
    first = next(iter(score))
    best = max(score, key=lambda rule: score[rule])
    return best if score[best] > score[first] + gain else first


def _trace(w: Array) -> Array:
    """The weight of the open family (columns,): half a row, at most a tenth."""
    return np.asarray(np.minimum(0.5 / (w.sum(axis=0) + 1), 0.1))


def _wide(kind: str, scale: Scale) -> dict[str, Array]:
    if kind == "count":
        return {"rate": np.maximum(scale.mean, 1e-3)}
    return {
        "location": scale.mean,
        "scale": 2 * np.sqrt(scale.variance),
        "degrees": np.full_like(scale.mean, 4.0),
    }


def _one_unit(p: Arrays) -> dict[str, Array]:
    return {n: np.asarray(a)[None] for n, a in p.items()}
