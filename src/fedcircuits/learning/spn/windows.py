"""A column in cells, and for every cell a distribution: mixed, they are that of the column.

A column has one distribution f, the best that its owner knows (marginals.py). A cell k has a window
w_k ≥ 0, and all windows together are 1 everywhere. The leaf of the cell is f · w_k, normalised, so
that the leaves of all cells, mixed by their rows, are f again: whatever joins columns by their
cells says no less of a single column than its owner knows alone.

    categories   a common category is in its cell alone; all others are in that of rare ones or, if
                 these have none, in all cells, by rows
    histograms   bins are in the cells that their rows are in, by these rows
    families     bins at quantiles of f. Windows overlap: a cell is a normal distribution as wide as
                 the cell plus a kernel that suits the number of rows
    kernels      f is the mixture of these normal distributions, with slightly heavy tails. It is
                 chosen if held-out rows are likelier than under any family
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, ndtr
from scipy.stats import poisson
from scipy.stats import t as student_t

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array, Arrays, Family, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.learning.independence import Index
from fedcircuits.learning.least_counts import pooled
from fedcircuits.learning.spn.marginals import FOLDS, HISTOGRAM, OPEN, Marginals
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

KERNEL = 0.5  # deviations, at a row: a kernel is as wide as this many of them over rows^(1/5)
TAIL = 0.05  # of a kernel: a Student t of twice its width
DEGREES = 4.0
BINS, REACH = 96, 4.5  # of a family, and normal deviations from its first to its last
BALANCED = 20  # rounds in which windows get the shares of their cells
MOST_STATES = 96  # of a smooth column
DISTINCT = 0.5  # of its values at least
REPEATED = 0.05  # of its rows at most have one value
FEWEST = 20  # values
INSIDE = 6  # bins of a state
OUTER = np.array([0.0, 0.004, 0.02, 0.08, 0.2, 0.5, 1.0])  # of the outer ones
_TAIL_GRID = np.geomspace(4, 40, 12)
KERNEL_GRID = np.concatenate([-_TAIL_GRID[::-1], np.linspace(-3.8, 3.8, 39), _TAIL_GRID])
TRACE = 0.5  # rows: of the whole column in the leaf of a cell
LearnedCell = tuple[Circuit, Parameters]


def cell_leaves(
    table: Table, column: str, cells: Index, least: int, parts: int = 1
) -> dict[int, LearnedCell]:
    """A leaf from every state of a column, by its number; ``cells``: of rows, −1 where the value is
    missing. Each is in so many ``parts``, which are its states. ``least``: rows that whatever is
    counted stands for; a column with fewer values is learned as if it had none."""
    part, kept = table.select([column]), np.unique(cells[cells >= 0])
    weight, rng = np.ones(len(part)), np.random.default_rng(0)
    marginals = Marginals(part.values, part.schema, weight, rng, least=least)
    x = part.values[:, 0]
    seen = np.flatnonzero(~np.isnan(x))
    if len(seen) < max(least, 1):
        nodes, values = marginals.nodes("cell", np.arange(len(x)), np.array([0]))
        return {0: (Circuit(tuple(nodes), part.schema), Parameters(values))}
    label = np.searchsorted(kept, cells[seen])
    if parts > 1:
        return dict(enumerate(_of_quantiles(part.schema, marginals, x, seen, label, parts)))
    if part.schema.variables[0].size:
        leaves = _of_categories(part.schema, marginals, seen, label)
    else:
        leaves = _of_numbers(part.schema, marginals, x, seen, label)
    return dict(zip(kept.tolist(), leaves, strict=True))


def parts_of(table: Table, column: str, cells: Index, least: int) -> int:
    """In how many parts of equal probability each cell of a column is: one unless the column is
    smooth."""
    x = table.select([column]).values[:, 0]
    repeated, number = np.unique(x[~np.isnan(x)], return_counts=True)[1], int(cells.max(initial=0))
    known = int(repeated.sum())
    if table.schema[column].kind != "real" or known < max(least, FEWEST):
        return 1
    smooth = len(repeated) >= DISTINCT * known and repeated.max() <= REPEATED * known
    return max(MOST_STATES // (number + 1), 1) if smooth else 1


# ---------------------------------------------------------------------- categories


def _of_categories(
    schema: Schema, marginals: Marginals, seen: Index, label: Index
) -> list[LearnedCell]:
    """With a trace of the whole column: no table is sure of a category."""
    variable, share, leaves = schema.variables[0], marginals.prior[0], []
    rule = "bernoulli" if variable.kind == "boolean" else "categorical"
    circuit = Circuit((Leaf("cell", rule, schema.names),), schema)
    codes, sizes = marginals.values[seen, 0].astype(np.int64), np.bincount(label)
    common = np.bincount(codes, minlength=len(share)) >= marginals.least
    windows = np.zeros((len(sizes), len(share)))  # (cells, categories)
    windows[label, codes] = common[codes]
    rest = ~windows.any(axis=1)  # the cell of rare categories, if there is one
    held = rest.astype(np.float64) if rest.any() else windows @ share
    windows[:, ~common] = (held / held.sum())[:, None]
    for own, rows in zip(windows, sizes, strict=True):
        inside, trace = own * share, TRACE / (rows + 1)
        mixed = (1 - trace) * inside / inside.sum() + trace * share
        found = mixed[1:][None] if rule == "bernoulli" else mixed[None, None]
        leaves.append((circuit, Parameters({"cell": {"probability": found}})))
    return leaves


# ---------------------------------------------------------------------- numbers


@dataclass(frozen=True, slots=True)
class _CellNormals:
    """A normal distribution of every cell, as wide as the cell and a kernel; each (cells,)."""

    weight: Array
    mean: Array
    variance: Array

    @classmethod
    def of(cls, x: Array, label: Index, cells: int) -> _CellNormals:
        rows = np.maximum(np.bincount(label, minlength=cells), 1e-9)
        mean = np.bincount(label, x, cells) / rows
        within = np.bincount(label, np.square(x - mean[label]), cells) / rows
        every, wide = np.sort(x), KERNEL * _spread(x) * len(x) ** -0.2
        near = np.array([_around(every, x[label == k]) for k in range(cells)])
        kernel = np.minimum(wide, near / 4)
        least = max(1e-6 * float(x.var()), 1e-300)
        return cls(rows / rows.sum(), mean, np.maximum(within + kernel**2, least))

    def logs(self, x: Array) -> Array:
        """Weighted log densities (cells, points)."""
        distance = np.square(x - self.mean[:, None]) / self.variance[:, None]
        scale = np.log(self.weight) - 0.5 * np.log(2 * np.pi * self.variance)
        return np.asarray(scale[:, None] - 0.5 * distance)

    def windows(self, x: Array) -> Array:
        """The share of every cell at points (cells, points). Beyond the outer cells it stays."""
        logs = self.logs(np.clip(x, self.mean.min(), self.mean.max()))
        return np.asarray(np.exp(logs - logsumexp(logs, axis=0)))


def _of_numbers(
    schema: Schema, marginals: Marginals, x: Array, seen: Index, label: Index
) -> list[LearnedCell]:
    values, cells = x[seen], int(label.max()) + 1
    normals = _CellNormals.of(values, label, cells)
    if schema.variables[0].kind == "real" and not marginals.lumpy:
        scores = marginals.scores(seen, [0])[0]
        if _kernel_score(values, label, cells) >= max(scores.values()):
            each = zip(normals.mean, normals.variance, strict=True)
            return [_kernel(schema, *own) for own in each]
    bins = _Bins.of(schema, marginals, seen)
    if bins.counted:
        grid, shares = marginals.grids[0], np.bincount(label) / len(label)
        ones = np.ones(len(seen))
        counts = np.stack([grid.counted(seen[label == k], ones[label == k]) for k in range(cells)])
        windows = pooled(counts, marginals.least, grid.share) + 1e-6 * shares[:, None]
    else:
        windows = normals.windows((bins.edges[1:] + bins.edges[:-1]) / 2)
    return [bins.leaf(schema, own) for own in _balanced(windows, bins.mass, normals.weight)]


def _balanced(windows: Array, mass: Array, share: Array) -> Array:
    """Probabilities of bins in every cell (cells, bins), of windows whose cells have these shares
    of the column, as far as they overlap."""
    for _ in range(BALANCED):
        windows = windows / windows.sum(axis=0)
        windows = windows * (share / np.maximum(windows @ mass, 1e-300))[:, None]
    inside = windows / windows.sum(axis=0) * mass
    return np.asarray(inside / inside.sum(axis=1, keepdims=True))


def _kernel_score(x: Array, label: Index, cells: int) -> float:
    """Mean log-likelihood of rows under kernels of the others."""
    fold, logs = np.arange(len(x)) % FOLDS, np.zeros(len(x))
    fold = np.random.default_rng(0).permutation(fold)
    for k in range(FOLDS):
        rest = fold != k
        if not rest.any() or rest.all():
            return -np.inf
        known, own = np.unique(label[rest], return_inverse=True)
        normals = _CellNormals.of(x[rest], own.reshape(-1), len(known))
        held, deviation = x[~rest], 2 * np.sqrt(normals.variance)
        tail = _student(held, normals.mean, deviation) + np.log(normals.weight)[:, None]
        within = np.log(1 - TAIL) + normals.logs(held)
        logs[~rest] = logsumexp(np.concatenate([within, tail + np.log(TAIL)]), axis=0)
    return float(logs.mean())


def _student(x: Array, mean: Array, scale: Array) -> Array:
    p = {"location": mean[:, None], "scale": scale[:, None]}
    z = (x - p["location"]) / p["scale"]
    return np.asarray(np.log(3 / 8) - np.log(p["scale"]) - 2.5 * np.log1p(z**2 / 4))  # 4 degrees


def _kernel(schema: Schema, mean: float, variance: float) -> LearnedCell:
    nodes = Leaf("in", "gaussian", schema.names), Leaf("out", "student_t", schema.names)
    at, deviation = np.array([[mean]]), np.array([[2 * np.sqrt(variance)]])
    values: dict[str, Arrays] = {
        "in": {"mean": at, "variance": np.array([[variance]])},
        "out": {"location": at, "scale": deviation, "degrees": np.array([[DEGREES]])},
        "cell": {WEIGHT: np.array([[1 - TAIL, TAIL]])},
    }
    return Circuit((*nodes, Sum("cell", ("in", "out"))), schema), Parameters(values)


# ---------------------------------------------------------------------- smooth numbers


def _of_quantiles(
    schema: Schema, marginals: Marginals, x: Array, seen: Index, label: Index, parts: int
) -> list[LearnedCell]:
    """Leaves between quantiles of the column, for every part of every cell."""
    values, cells = x[seen], int(label.max()) + 1
    rows = np.repeat(np.bincount(label) / len(label) / parts, parts)
    bins = _Bins.of(schema, marginals, seen)
    if _kernel_score(values, label, cells) >= max(marginals.scores(seen, [0])[0].values()):
        bins = _Bins.of_kernels(_CellNormals.of(values, label, cells), bins)
    within = np.tile(np.linspace(0, 1, INSIDE + 1), (len(rows), 1))
    within[0], within[-1] = OUTER, 1 - OUTER[::-1]
    ends = np.append(0.0, np.cumsum(rows))
    edges = _rising(bins.quantile(ends[:-1, None] + within * rows[:, None]))
    every = [replace(bins, edges=own) for own in edges]
    return [own.leaf(schema, mass) for own, mass in zip(every, np.diff(within), strict=True)]


def _rising(edges: Array) -> Array:
    """Edges of bins that have some width."""
    low, high = float(edges[0, 0]), float(edges[-1, -1])
    reach = max(high - low, 1e-9 * max(abs(low), abs(high)), 1e-12)
    least = 1e-9 * reach * np.arange(edges.shape[1])
    return np.asarray(np.maximum.accumulate(edges, axis=1) + least)


@dataclass(frozen=True, slots=True)
class _Bins:
    """The distribution of a column in bins, and what lies beyond them."""

    edges: Array  # (bins + 1,)
    mass: Array  # (bins,)
    beyond: tuple[str, Mapping[str, Array], float]  # family, parameters, weight
    counted: bool  # whether bins are of rows

    @classmethod
    def of(cls, schema: Schema, marginals: Marginals, seen: Index) -> _Bins:
        nodes, values = marginals.nodes("f", seen, np.array([0]))
        inner, kind = nodes[0], schema.variables[0].kind
        assert isinstance(inner, Leaf)
        rule, own = inner.family, {n: np.asarray(a) for n, a in values[inner.name].items()}
        trace = float(np.asarray(values["f"][WEIGHT])[0, 1]) if len(nodes) > 1 else None
        beyond = values["f:out"] if len(nodes) > 1 else _wide(marginals, kind)
        trace = min(TRACE / (len(seen) + 1), 0.1) if trace is None else trace
        if rule in HISTOGRAM:
            edges, mass = own["edges"].reshape(-1), own["probability"].reshape(-1)
        elif rule == "poisson":
            edges, mass = _of_poisson(float(own["rate"].reshape(-1)[0]))
        else:
            edges, mass = _bins_at_quantiles(rule, {n: a.reshape(-1)[0] for n, a in own.items()})
        return cls(edges, mass, (OPEN[kind], beyond, trace), rule in HISTOGRAM)

    @classmethod
    def of_kernels(cls, normals: _CellNormals, bins: _Bins) -> _Bins:
        """The sum of kernels of cells; what lies beyond is as in other ``bins``."""
        deviation = np.sqrt(normals.variance)
        edges = np.unique(normals.mean[:, None] + deviation[:, None] * KERNEL_GRID)
        z = (edges[:, None] - normals.mean) / deviation
        below = ((1 - TAIL) * ndtr(z) + TAIL * student_t.cdf(z / 2, DEGREES)) @ normals.weight
        return replace(bins, edges=edges, mass=np.diff(below) / (below[-1] - below[0]))

    def quantile(self, p: Array) -> Array:
        below = np.append(0.0, np.cumsum(self.mass))
        return np.asarray(np.interp(p, below / below[-1], self.edges))

    def leaf(self, schema: Schema, probability: Array) -> LearnedCell:
        rule, own, trace = self.beyond
        inner = "count_histogram" if schema.variables[0].kind == "count" else "histogram"
        nodes = Leaf("in", inner, schema.names), Leaf("out", rule, schema.names)
        values: dict[str, Arrays] = {
            "in": {"edges": self.edges[None, None], "probability": probability[None, None]},
            "out": dict(own),
            "cell": {WEIGHT: np.array([[1 - trace, trace]])},
        }
        return Circuit((*nodes, Sum("cell", ("in", "out"))), schema), Parameters(values)


def _wide(marginals: Marginals, kind: str) -> dict[str, Array]:
    scale = marginals.scale_of([0])
    if kind == "count":
        return {"rate": np.maximum(scale.mean, 1e-3)[None]}
    wide = 2 * np.sqrt(scale.variance)
    return {"location": scale.mean[None], "scale": wide[None], "degrees": np.array([[DEGREES]])}


def _bins_at_quantiles(rule: str, p: Mapping[str, Array]) -> tuple[Array, Array]:
    """Edges and masses of bins at quantiles of a family, finer in its tails."""
    steps, kind = ndtr(np.linspace(-REACH, REACH, BINS + 1)), family(rule)
    assert isinstance(kind, Family)
    edges, at = np.unique(kind.quantile(steps, p), return_index=True)
    mass = np.diff(np.append(steps[at[:-1]], steps[-1]))
    return edges, mass / mass.sum()


def _of_poisson(rate: float) -> tuple[Array, Array]:
    low, high = poisson.ppf([1e-6, 1 - 1e-6], rate)
    step = max(int(np.ceil((high - low + 1) / BINS)), 1)
    edges = np.arange(low, high + 1 + step, step) - 0.5
    mass = np.diff(poisson.cdf(edges, rate))
    return edges, mass / mass.sum()


def _around(every: Array, x: Array) -> float:
    """The width of the cell with as many rows on either side."""
    if not len(x):
        return 0.0
    low, high = np.searchsorted(every, [x.min(), x.max()])
    ends = np.clip([low - len(x), high + len(x)], 0, len(every) - 1)
    return float(every[ends[1]] - every[ends[0]])


def _spread(every: Array) -> float:
    """A deviation that rows far out hardly move."""
    low, high = np.quantile(every, [0.25, 0.75])
    deviation = float(every.std())
    return min(deviation, float(high - low) / 1.34) or deviation
