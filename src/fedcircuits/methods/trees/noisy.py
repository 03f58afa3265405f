"""Trees of several parties with differential privacy (privacy/differential.py): everything that
crosses about rows is noisy.

The noise of a histogram grows with the columns and with every level of a tree, and would drown the
choice of splits. Splits are therefore drawn at random, identically by all from the public seed, and
only the values of leaves are learned: totally random trees, boosted (Maddock et al., Federated
boosted decision trees with differential privacy, 2022).

    count/target     how many of a party's rows have which class, with all of the noise, since the
                     coordinator reads it. A row changes one of them: sensitivity 1.
    boost/known, boost/blocks/d, boost/cells   noisy counts that edges are found by (edges.py)
    boost/leaves/t   noisy sums of gradients g and curvatures h of its rows in the leaves of tree t.
                     A row is in one leaf: sensitivity √(1 + 1/16) for two classes, as |g| ≤ 1 and
                     h ≤ 1/4, and √(2 + 1/4) for more, as |g|² ≤ 2 and |h|² ≤ 1/4.

Columns with a public range are cut evenly, without reading rows. Each level of a tree splits one
column, at a different threshold in every node. All rows have equal weight. A leaf whose curvature
drowns in noise changes scores less: its curvature is taken to be at least the noise's deviation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow, tell
from fedcircuits.federation.sums.checked import MOST_ROWS, CheckedSums, noisy_problem
from fedcircuits.methods.trees.decision_tree import (
    DecisionTreeLeaf,
    FlatTree,
    Integers,
    Predictor,
)
from fedcircuits.methods.trees.edges import edges_of
from fedcircuits.methods.trees.gradient_trees import Cells, GrowingTree, gradients, outputs_of
from fedcircuits.methods.trees.growing import LabelledRows, TreesPlan
from fedcircuits.privacy.differential import Noise
from fedcircuits.tables.schema import Schema

CLASSES, EDGES = 0.05, 0.25  # shares of the budget; the rest is for leaves
DEPTH = 4
PACE = 20.0  # rate × trees: random trees take longer steps than chosen ones
EVEN = 32  # cells of a public range
Ranges: TypeAlias = Mapping[str, tuple[float, float]]
DROWNED = (
    "the trees have no splits: noise drowned the counts from which bins are made; give public "
    "ranges, DifferentialPrivacy(…, ranges={'age': (0, 120)}), fewer columns, more rows or a "
    "larger epsilon"
)
LEAVES = "noisy sums of gradients in the leaves of a tree with random splits"


def are_empty(trees: Iterable[Predictor]) -> bool:
    """Whether none of these trees has a split."""
    return all(isinstance(t, DecisionTreeLeaf) and len(t.tree_.children) == 1 for t in trees)


def shares_of(trees: int, schema: Schema, ranges: Ranges) -> list[float]:
    """The budget shares of all releases: classes, edges (several, together one share), leaves."""
    finds = any(not v.size and v.name not in ranges for v in schema)
    edges = EDGES if finds else 0.0
    return [CLASSES, *[edges] * finds, *[(1 - CLASSES - edges) / trees] * trees]


def noisy_tally(tally: Array, noise: Noise) -> Array:
    """Rows of every class of one party, as the coordinator may see them."""
    return replace(noise, honest=1).added("count/target", tally, 1.0, CLASSES)


def sensitivity(outputs: int) -> float:
    """The largest norm of g and h of one row; both are rounded to a grid."""
    return sqrt(17 / 16 if outputs == 1 else 9 / 4) * (1 + 1e-6)


def boost_noisily(
    rows: LabelledRows, group: Sequence[str], plan: TreesPlan, noise: Noise
) -> Flow[list[FlatTree]]:
    """Trees of all rows of a group; a server has no rows and adds no noise."""
    sums, rng = CheckedSums.of(plan.summation, rows.party, group), np.random.default_rng(plan.seed)
    cells = Cells.of(rows.x.schema, (yield from _edges(rows, sums, plan.ranges, noise)))
    codes, y, base = cells.codes(rows.x.values), rows.y.astype(np.int64), rows.overall
    outputs, trees = outputs_of(len(base)), plan.number(True)
    share = shares_of(trees, rows.x.schema, plan.ranges)[-1]
    deviation = noise.total_deviation(sensitivity(outputs), share)
    fits = partial(noisy_problem, most=MOST_ROWS, deviation=deviation)
    scores, grown = np.zeros((len(y), outputs)), []
    for t in range(trees):
        terms = gradients(scores, base, y, np.ones(len(y)))
        tree = random_tree(cells, codes, outputs, rng)
        leaf_sums = noise.added(f"leaves/{t}", tree.sums(terms), sensitivity(outputs), share)
        total = yield from sums.add(f"boost/leaves/{t}", leaf_sums, LEAVES, fits)
        g, h = np.split(np.asarray(total), 2, axis=1)
        tree.terms = list(np.hstack([g, np.maximum(h, deviation)]))
        flat, moved = tree.grown(min(1.0, PACE / trees), base)
        scores += moved[tree.place]
        grown.append(flat)
        yield from tell("boost", t + 1, trees)
    return grown


def _edges(
    rows: LabelledRows, sums: CheckedSums, ranges: Ranges, noise: Noise
) -> Flow[list[Array]]:
    """The edges of every number, from its public range or else from noisy counts."""
    numbers = [v.name for v in rows.x.schema if not v.size]
    unknown = [n for n in numbers if n not in ranges]
    x = rows.x.select(unknown)
    agreed = yield from edges_of(x, sums, MOST_ROWS, rows.least, noise, EDGES)
    edges = dict(zip(unknown, agreed, strict=True))
    even = {n: np.linspace(*ranges[n], EVEN + 1)[1:-1] for n in numbers if n in ranges}
    return [(edges | even)[n].astype(np.float32).astype(np.float64) for n in numbers]


def random_tree(
    cells: Cells, codes: Integers, outputs: int, rng: np.random.Generator
) -> GrowingTree:
    """Questions that do not depend on rows, and where the rows of one party arrive by them."""
    tree = GrowingTree.planted(cells, codes)
    columns = np.unique(cells.column[cells.asks])
    for _ in range(DEPTH if len(columns) else 0):
        asked = np.flatnonzero(cells.asks & (cells.column == rng.choice(columns)))
        chosen = np.zeros((len(tree.level), 2 + 4 * outputs))
        chosen[:, 0] = rng.choice(asked, len(chosen))
        chosen[:, 1] = rng.integers(2, size=len(chosen))
        tree.split(chosen)
    return tree
