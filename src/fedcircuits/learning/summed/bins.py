"""Columns of numbers that a circuit by sums describes by histograms, and where EM begins with them.

    real     one value is common, as zeros often are, or a few values lie far from all others: a
             normal distribution, however many are mixed, would go by these alone
    count    the rows are spread over bins otherwise than by a Poisson distribution, by more than
             the bins cost to learn (half the log of the rows for each of them)

Bins are those of the sketch. Neighbours that differ by no more than chance are merged, so that
``BINS`` or fewer are left; a common value keeps its own. ``TAILS`` bins on either side, each much
wider than the one before, reach far beyond, so that no number is impossible. What smoothing puts in
a bin falls with the square of its width, so that tails hardly change means and variances.

A normal distribution finds a row that lies far out so unlikely that it outweighs all others. So
beside all components stands one more, of independent columns, that is as wide as the numbers are
and reaches as far beyond: rows that nothing else describes are its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, pdtr

from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.graph.structures import by_kind
from fedcircuits.circuits.leaves import CountHistogram, Histogram, finite
from fedcircuits.learning.starts import start_from
from fedcircuits.learning.summed.sketches import Sketch, joined

BINS, FEWEST = 40, 12  # at most, and about how many there are at least
ALIKE = 3.0  # nats of all rows that merging two bins may lose
FAR = 10.0  # the ends of a column with outliers, in widths of nine tenths of the rows
SKEW = 6.0  # these nine tenths, in widths of the half of the rows in the middle
SURE = 0.02  # nats per row by which bins must beat a Poisson distribution as well
OUTSIDE = 0.1  # pseudo-rows of a bin
TAILS, MIDDLE, REACH = 3, 100.0, 1e4  # bins on either side, how far the last two of them reach
OUTER, SHARE = "outside", 0.01  # the component of rows that lie outside all others, as EM begins
FAMILY = {"real": "histogram", "count": "count_histogram"}


@dataclass(frozen=True, slots=True)
class WithTails(Histogram):
    """Fitted with fewer pseudo-rows for bins that are wider than the numbers seen."""

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        return _with_tails(count, sums, p)


@dataclass(frozen=True, slots=True)
class CountWithTails(CountHistogram):
    """The same of counts."""

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        return _with_tails(count, sums, p)


def _with_tails(count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
    behind = np.moveaxis(_behind(p["edges"]), -1, 0)
    new = finite.frequencies(count, np.maximum(sums, 0.0) + behind, 0.0, p["probability"])
    return {"edges": np.asarray(p["edges"]), "probability": new}


RULES: Rules = {"histogram": WithTails(), "count_histogram": CountWithTails()}


def binned_columns(sketch: Sketch, single: bool = False) -> dict[int, str]:
    """The family of each column that takes a histogram. ``single``: nothing else describes it, so
    that reals which are not normal take one as well."""
    families = {}
    for i, variable in enumerate(sketch.schema):
        if not variable.levels and sketch.counts[i].any():
            real = variable.kind == "real"
            odd = sketch.lumpy(i) or _far(sketch, i) if real else _not_poisson(sketch, i)
            odd = odd or (real and single and _not_normal(sketch, i))
            if odd:
                families[i] = FAMILY[variable.kind]
    return families


def histogram_start(sketch: Sketch, column: int, x: Array, assignment: Array) -> Arrays:
    """Unit k of a histogram from rows weighted by column k of assignment (rows, units), with one
    row behind it that looks as the whole column does."""
    edges, held = _bins(sketch, column)
    held = held + _behind(edges)
    at = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(held) - 1)
    counts = np.zeros((assignment.shape[1], len(held)))
    np.add.at(counts.T, at[~np.isnan(x)], assignment[~np.isnan(x)])
    counts += held / held.sum()
    probability = counts / counts.sum(axis=1, keepdims=True)
    return {"edges": np.tile(edges, (len(counts), 1, 1)), "probability": probability[:, None]}


def with_outside(
    circuit: Circuit, start: Parameters, rows: Array, sketch: Sketch
) -> tuple[Circuit, Parameters]:
    """The circuit with one more component under its root, for rows that lie outside all others;
    the circuit as it is where no column has numbers of any size."""
    schema, root = circuit.schema, circuit.root
    numbers = {v.name: i for i, v in enumerate(schema) if not v.levels}
    if not numbers or not isinstance(root, Sum):
        return circuit, start
    rules = {n: FAMILY[schema[n].kind] for n in numbers}
    leaves = [Leaf(f"{OUTER}:{v.name}", rules.get(v.name) or by_kind(v), (v.name,)) for v in schema]
    top = Product(OUTER, tuple(leaf.name for leaf in leaves)) if len(leaves) > 1 else leaves[0]
    nodes: tuple[Node, ...] = (*leaves, top) if len(leaves) > 1 else (top,)
    every, rng = np.ones((len(rows), 1)), np.random.default_rng(0)
    values = dict(start_from(Circuit(nodes, schema), rows, every, rng).values)
    for name, i in numbers.items():
        values[f"{OUTER}:{name}"] = _three(sketch, i)
    weight = np.hstack([(1 - SHARE) * start.values[root.name][WEIGHT], [[SHARE]]])
    wider = Sum(root.name, (*root.children, top.name), root.units)
    rest = tuple(n for n in circuit.nodes if n.name != root.name)
    merged = {**start.values, **values, root.name: {WEIGHT: weight}}
    return Circuit((*rest, *nodes, wider), schema), Parameters(merged)


def _three(sketch: Sketch, column: int) -> Arrays:
    """All rows in one bin between the tails."""
    edges, held = _bins(sketch, column)
    low = int(np.flatnonzero(held)[0])  # bins below the numbers seen
    inner = np.append(edges[: low + 1], edges[-TAILS - 1 :])
    counts = _behind(inner)
    counts[low] += 10.0
    return {"edges": inner[None, None], "probability": (counts / counts.sum())[None, None]}


def _behind(edges: Array) -> Array:
    """Pseudo-rows of bins (…, bins): fewer by the square of its width in one that is wider than
    all numbers seen together."""
    first = np.where(edges[..., :1] == -0.5, edges[..., :1], edges[..., TAILS : TAILS + 1])
    seen = edges[..., -TAILS - 1 : -TAILS] - first
    return np.asarray(OUTSIDE * np.minimum(seen / np.diff(edges), 1.0) ** 2)


def _bins(sketch: Sketch, column: int) -> tuple[Array, Array]:
    """Edges, and rows in every bin; those of the tails are empty."""
    edges, held = _seen(sketch, column)
    if sketch.schema.variables[column].kind == "count":
        return _whole(edges, held)
    width = edges[-1] - edges[0]
    far = np.array([REACH * (width + abs(edges[-1])), MIDDLE * width, width])
    bounds = np.concatenate([edges[0] - far, edges, edges[-1] + far[::-1]])
    return bounds, np.concatenate([np.zeros(TAILS), held, np.zeros(TAILS)])


def _seen(sketch: Sketch, column: int) -> tuple[Array, Array]:
    edges, held = sketch.edges[column], sketch.counts[column]
    whole = sketch.schema.variables[column].kind == "count"
    return _merged(*(_halves(edges, held) if whole else (edges, held)))


def _merged(edges: Array, held: Array) -> tuple[Array, Array]:
    """Neighbours that differ little in one bin, until there are ``BINS`` of them at most."""
    alike = ALIKE
    while True:
        ends = joined(np.diff(edges), held, alike, held.sum() / FEWEST)
        if len(ends) <= BINS + 1 or alike > held.sum():
            return edges[ends], np.add.reduceat(held, ends[:-1])
        alike *= 2


def _halves(edges: Array, held: Array) -> tuple[Array, Array]:
    """The same bins between whole numbers."""
    halves = np.maximum(np.ceil(edges) - 0.5, -0.5)
    kept = np.flatnonzero(np.diff(halves) > 0)
    if not len(kept):
        return np.array([halves[0], halves[0] + 1]), np.array([held.sum()])
    kept[0] = 0  # what lies below the first whole number
    return np.append(halves[kept], halves[-1]), np.add.reduceat(held, kept)


def _whole(edges: Array, held: Array) -> tuple[Array, Array]:
    """From 0 on, and far beyond."""
    low = [] if edges[0] <= 0 else [-0.5]
    end, width = edges[-1], edges[-1] - edges[0]
    far = [end + width, end + MIDDLE * width, np.floor(REACH * (end + 1)) + 0.5]
    rows = np.concatenate([np.zeros(len(low)), held, np.zeros(TAILS)])
    return np.array([*low, *edges, *far]), rows


def _far(sketch: Sketch, column: int) -> bool:
    edges, counts = sketch.edges[column], sketch.counts[column]
    share = np.append(0.0, np.cumsum(counts) / counts.sum())
    low, first, third, high = np.interp([0.05, 0.25, 0.75, 0.95], share, edges)
    return bool(edges[-1] - edges[0] > FAR * (high - low) or high - low > SKEW * (third - first))


def _not_poisson(sketch: Sketch, column: int) -> bool:
    edges, held = _seen(sketch, column)
    total = held.sum()
    halves, seen = _halves(sketch.edges[column], sketch.counts[column])
    mean = max(float(seen @ (halves[1:] + halves[:-1]) / 2 / total), 1e-3)
    below = np.where(edges < 0, 0.0, pdtr(np.maximum(np.floor(edges), 0.0), mean))
    chance = np.maximum(np.diff(below), 1e-12)
    return _worth_bins(held, chance, 1 + (edges[0] > 0))


def _not_normal(sketch: Sketch, column: int) -> bool:
    edges, held = _seen(sketch, column)
    seen, ends = sketch.counts[column], sketch.edges[column]
    middle = (ends[1:] + ends[:-1]) / 2
    mean = float(seen @ middle / seen.sum())
    deviation = float(np.sqrt(seen @ np.square(middle - mean) / seen.sum())) or 1.0
    chance = np.maximum(np.diff(ndtr((edges - mean) / deviation)), 1e-12)
    return _worth_bins(held, chance, 2)


def _worth_bins(held: Array, chance: Array, outer: int) -> bool:
    """Whether bins with these rows, and ``outer`` more, gain more over another distribution than
    they cost."""
    total, bins = held.sum(), len(held) + outer
    gain = float(held @ np.log(np.maximum(held / total, 1e-12) / chance)) / total
    return bool(gain > SURE + bins * np.log(total) / (2 * total))
