"""What a circuit means, written a second time: node by node, in linear space, with scipy.

values      p of every unit of every node for complete rows; NaN sums a variable out where a leaf
            is of one variable a distribution
completions all ways to fill the NaN of a row, with the mass of each: discrete variables are
            enumerated (counts up to a bound), real ones stand at the points of a quadrature rule
            and carry its weights. So every query is a sum over completions.
trees       all induced trees of the root: which input every sum on the way took, and how probable
            that is together with the row
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import logsumexp, roots_legendre

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.tables.schema import Schema

CUTS = (-2.0, -1.0, 0.0, 0.5, 1.5, 3.0)  # where densities and events may have corners
MOST = 40  # counts are below it
PIXELS = np.arange(256) / 255
Edge = tuple[str, int, int]  # sum, unit, input
Path = tuple[Array, Counter[Edge]]

# ---------------------------------------------------------------------- leaves


def density(family: str, x: Array, p: Arrays) -> Array:
    """f(x) of one-dimensional distributions; x broadcasts against the parameters."""
    match family:
        case "bernoulli":
            one = np.clip(p["probability"], 1e-12, 1 - 1e-12)
            return np.where(x == 1, one, 1 - one)
        case "categorical":
            codes = np.arange(p["probability"].shape[-1])
            return np.asarray((p["probability"] * (x[..., None] == codes)).sum(-1))
        case "indicator":
            return np.asarray(x == p["code"], dtype=np.float64)
        case "poisson":
            return np.asarray(stats.poisson.pmf(x, p["rate"]))
        case "binomial":
            return np.asarray(stats.binom.pmf(x, p["trials"], p["probability"]))
        case "gaussian":
            return np.asarray(stats.norm.pdf(x, p["mean"], np.sqrt(p["variance"])))
        case "student_t":
            return np.asarray(stats.t.pdf(x, p["degrees"], p["location"], p["scale"]))
        case "gamma":
            return np.asarray(stats.gamma.pdf(x, p["shape"], scale=1 / p["rate"]))
        case "exponential":
            return np.asarray(stats.expon.pdf(x, scale=1 / p["rate"]))
        case "gaussian_mass":
            return _pixel_mass(x, p["mean"], np.sqrt(p["variance"]))
        case "histogram" | "count_histogram":
            return _bin_density(x[..., None], p["edges"], p["probability"])
    raise AssertionError(family)


def _pixel_mass(x: Array, mean: Array, deviation: Array) -> Array:
    low = np.where(x <= 0, -np.inf, (x - mean) / deviation)
    high = np.where(x >= 1, np.inf, (x + 1 / 255 - mean) / deviation)
    right = low > 0  # the far tails need the nearer of the two functions
    above = stats.norm.sf(low) - stats.norm.sf(high)
    return np.asarray(np.where(right, above, stats.norm.cdf(high) - stats.norm.cdf(low)))


def _bin_density(x: Array, edges: Array, probability: Array) -> Array:
    inside = (x >= edges[..., :-1]) & (x < edges[..., 1:])
    return np.asarray((inside * probability / np.diff(edges)).sum(-1))


def _leaf(leaf: Leaf, x: Array, p: Arrays) -> Array:
    """(units, rows) of x (rows, width)."""
    if leaf.family == "multivariate_gaussian":
        units = zip(p["mean"], p["covariance"], strict=True)
        return np.stack([_joint(x, mean, covariance) for mean, covariance in units])
    spread = {n: a[:, None] for n, a in p.items()}  # (units, 1, width, …)
    found = density(leaf.family, np.nan_to_num(x), spread)
    return np.asarray(np.where(np.isnan(x), 1.0, found).prod(-1))


def _joint(x: Array, mean: Array, covariance: Array) -> Array:
    found = np.ones(len(x))
    open_, which = np.unique(np.isnan(x), axis=0, return_inverse=True)
    for number, missing in enumerate(open_):
        seen, rows = np.flatnonzero(~missing), which.ravel() == number
        if len(seen):
            part = covariance[np.ix_(seen, seen)]
            found[rows] = stats.multivariate_normal.pdf(x[rows][:, seen], mean[seen], part)
    return found


# ---------------------------------------------------------------------- nodes


def values(circuit: Circuit, parameters: Parameters, x: Array) -> dict[str, Array]:
    """p of every unit, (units, rows) by name."""
    found: dict[str, Array] = {}
    for node in circuit.nodes:
        if isinstance(node, Leaf) and node.family == CIRCUIT:
            inner, own = parameters.circuits[node.name]
            columns = [circuit.schema.index(v) for v in inner.schema.names]
            found[node.name] = values(inner, own, x[:, columns])[inner.root.name]
        elif isinstance(node, Leaf):
            columns = [circuit.schema.index(v) for v in node.scope]
            found[node.name] = _leaf(node, x[:, columns], parameters[node.name])
        elif isinstance(node, Product):
            found[node.name] = _product(node, [found[c] for c in node.children])
        elif isinstance(node, Sum):
            below = np.concatenate([found[c] for c in node.children])
            found[node.name] = parameters[node.name]["weight"] @ below
    return found


def _product(node: Product, children: list[Array]) -> Array:
    if not node.outer:
        return np.asarray(np.prod(children, axis=0))
    left, right = children
    pairs = [a * b for a in left for b in right]
    return np.stack(pairs)


def probability(circuit: Circuit, parameters: Parameters, x: Array) -> Array:
    """p(x) of the root's only unit, (rows,)."""
    return np.asarray(values(circuit, parameters, x)[circuit.root.name][0])


def log_probability(circuit: Circuit, parameters: Parameters, x: Array) -> Array:
    """log p(x) of complete rows, where p itself may be too small for a number."""
    found: dict[str, Array] = {}
    for node in circuit.nodes:
        if isinstance(node, Leaf):
            columns = [circuit.schema.index(v) for v in node.scope]
            found[node.name] = _log_leaf(node, x[:, columns], parameters[node.name])
        elif isinstance(node, Product):
            children = [found[c] for c in node.children]
            pairs = [a + b for a in children[0] for b in children[-1]]
            found[node.name] = np.stack(pairs) if node.outer else np.sum(children, axis=0)
        elif isinstance(node, Sum):
            below = np.concatenate([found[c] for c in node.children])
            logs = _log(parameters[node.name]["weight"])[:, :, None] + below
            found[node.name] = np.asarray(logsumexp(logs, axis=1))
    return np.asarray(found[circuit.root.name][0])


def _log_leaf(leaf: Leaf, x: Array, p: Arrays) -> Array:
    """(units, rows), without a detour over p where that may underflow."""
    if leaf.family == "multivariate_gaussian":
        units = zip(p["mean"], p["covariance"], strict=True)
        found = [stats.multivariate_normal.logpdf(x, m, c) for m, c in units]
        return np.stack([np.reshape(f, len(x)) for f in found])
    q = {n: a[:, None] for n, a in p.items()}  # (units, 1, width, …)
    match leaf.family:
        case "gaussian":
            logs = stats.norm.logpdf(x, q["mean"], np.sqrt(q["variance"]))
        case "gamma":
            logs = stats.gamma.logpdf(x, q["shape"], scale=1 / q["rate"])
        case "exponential":
            logs = stats.expon.logpdf(x, scale=1 / q["rate"])
        case "poisson":
            logs = stats.poisson.logpmf(x, q["rate"])
        case "binomial":
            logs = stats.binom.logpmf(x, q["trials"], q["probability"])
        case _:
            logs = _log(density(leaf.family, x, q))
    return np.asarray(logs.sum(-1))


def _log(p: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


def best_path(circuit: Circuit, parameters: Parameters, x: Array) -> Array:
    """The same with sums and open leaves maximised, for leaves of one discrete variable each."""
    found: dict[str, Array] = {}
    for node in circuit.nodes:
        if isinstance(node, Leaf):
            found[node.name] = np.ones((node.units, len(x)))
            for i, v in enumerate(node.scope):
                own = {n: a[:, i, None] for n, a in parameters[node.name].items()}  # (units, 1, …)
                points, _ = grid(circuit.schema, v)
                seen = x[:, circuit.schema.index(v)]
                top = density(node.family, points[None], own).max(axis=1, keepdims=True)
                here = density(node.family, np.nan_to_num(seen)[None], own)
                found[node.name] *= np.where(np.isnan(seen), top, here)
        elif isinstance(node, Product):
            found[node.name] = _product(node, [found[c] for c in node.children])
        elif isinstance(node, Sum):
            below = np.concatenate([found[c] for c in node.children])
            weight = parameters[node.name]["weight"]
            found[node.name] = (weight[:, :, None] * below).max(axis=1)
    return np.asarray(found[circuit.root.name][0])


# ---------------------------------------------------------------------- completions


@dataclass(frozen=True, slots=True)
class Completions:
    points: Array  # (n, variables)
    mass: Array  # (n,) p of the point times the weight of its quadrature
    schema: Schema

    def total(self, mask: npt.NDArray[np.bool_] | None = None) -> float:
        return float(self.mass.sum() if mask is None else self.mass[mask].sum())

    def column(self, name: str) -> Array:
        return self.points[:, self.schema.index(name)]


def grid(schema: Schema, name: str, pixels: tuple[str, ...] = ()) -> tuple[Array, Array]:
    """Points of a variable and their weights; variables named in pixels have 256 values."""
    variable = schema[name]
    if variable.size:
        return np.arange(float(variable.size)), np.ones(variable.size)
    if variable.kind == "count":
        return np.arange(float(MOST)), np.ones(MOST)
    return (PIXELS, np.ones(256)) if name in pixels else _line()


def _line() -> tuple[Array, Array]:
    """Gauss–Legendre between the cuts, and on both tails after x = cut ± u / (1 − u)."""
    u, w = roots_legendre(20)
    points, weights = [], []
    for a, b in itertools.pairwise(CUTS):
        points.append((a + b) / 2 + (b - a) / 2 * u)
        weights.append((b - a) / 2 * w)
    u, w = roots_legendre(60)
    share = (1 + u) / 2
    reach, jacobian = share / (1 - share), w / 2 / np.square(1 - share)
    return (
        np.concatenate([*points, CUTS[0] - reach, CUTS[-1] + reach]),
        np.concatenate([*weights, jacobian, jacobian]),
    )


def completions(circuit: Circuit, parameters: Parameters, row: Array) -> Completions:
    pixels = tuple(v for n in circuit.leaves() if n.family == "gaussian_mass" for v in n.scope)
    grids = [
        grid(circuit.schema, v.name, pixels) if np.isnan(x) else (np.array([x]), np.ones(1))
        for v, x in zip(circuit.schema, row, strict=True)
    ]
    points = np.stack([g.ravel() for g in np.meshgrid(*(p for p, _ in grids), indexing="ij")], 1)
    weights = np.meshgrid(*(w for _, w in grids), indexing="ij")
    weight = np.prod([w.ravel() for w in weights], axis=0)
    return Completions(points, weight * probability(circuit, parameters, points), circuit.schema)


# ---------------------------------------------------------------------- induced trees


def count_trees(circuit: Circuit, parameters: Parameters) -> int:
    """How many induced trees the root has."""
    found: dict[str, npt.NDArray[np.int64]] = {}
    for node in circuit.nodes:
        if isinstance(node, Leaf):
            found[node.name] = np.ones(node.units, dtype=np.int64)
        elif isinstance(node, Product) and node.outer:
            found[node.name] = np.outer(*(found[c] for c in node.children)).ravel()
        elif isinstance(node, Product):
            found[node.name] = np.prod([found[c] for c in node.children], axis=0)
        else:
            below = np.concatenate([found[c] for c in node.children])
            found[node.name] = (parameters[node.name]["weight"] > 0) @ below
    return int(found[circuit.root.name][0])


def trees(circuit: Circuit, parameters: Parameters, x: Array) -> list[Path]:
    """p of every induced tree with each row (rows,), and the edges it takes below sums.

    A leaf that is reached counts as an edge as well: (leaf, unit, 0).
    """
    leaves = values(circuit, parameters, x)

    def under(name: str, unit: int) -> Iterator[Path]:
        node = circuit[name]
        if isinstance(node, Leaf):
            yield leaves[name][unit], Counter([(name, unit, 0)])
        elif isinstance(node, Sum):
            inputs = [(c, u) for c in node.children for u in range(circuit.units[c])]
            weight = parameters[name]["weight"][unit]
            for i in np.flatnonzero(weight):
                for p, edges in under(*inputs[i]):
                    yield weight[i] * p, edges + Counter([(name, unit, int(i))])
        else:
            units = [unit] * len(node.children)
            if isinstance(node, Product) and node.outer:
                units = list(divmod(unit, circuit.units[node.children[1]]))
            parts = [list(under(c, u)) for c, u in zip(node.children, units, strict=True)]
            for combination in itertools.product(*parts):
                p = np.prod([part for part, _ in combination], axis=0)
                yield p, sum((edges for _, edges in combination), Counter())

    return list(under(circuit.root.name, 0))


def expected(
    circuit: Circuit, parameters: Parameters, x: Array, weight: Array
) -> dict[Edge, Array]:
    """Posterior (rows,) of every edge, times the weight of the row."""
    paths = trees(circuit, parameters, x)
    total = np.sum([p for p, _ in paths], axis=0)
    share = np.divide(weight, total, out=np.zeros(len(x)), where=total > 0)
    found: dict[Edge, Array] = {}
    for p, edges in paths:
        for edge, times in edges.items():
            found[edge] = found.get(edge, np.zeros(len(x))) + times * p * share
    return found
