"""How a party grows its trees from its rows: bagged, or boosted by itself or with others.

Rows count by class so that every party, or the parties of a group together, learn as if classes had
their overall shares: parties that prefer other classes then mean the same by their probabilities.

    bagged    every tree is of rows drawn with replacement and of a share of the columns; the answer
              is the mean of the trees. Nothing crosses.
    boosted   every tree is of what those before it got wrong, and has probabilities as values,
              P_t(y | x) ∝ P(y) exp(step). The answer is their product P(y) Π P_t(y | x) / P(y), a
              sum of log-odds. boosting.py says what crosses in a group; from a party alone nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow, compute
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.methods.trees import boosting
from fedcircuits.methods.trees.bag import base_of, multiply_trees
from fedcircuits.methods.trees.flat_tree import FlatTree
from fedcircuits.methods.trees.predictors import DecisionTreeLeaf, Predictor, average_predictions
from fedcircuits.methods.trees.threshold import Judged
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table


@dataclass(frozen=True, slots=True)
class Material:
    """What trees of one party are grown from: rows that have the target."""

    party: str
    x: Table
    y: Array  # (rows,)
    target: Variable
    overall: Array  # (outputs,): shares of the classes, or the mean
    stamp: str  # of all that the trees depend on, in the names of kept work

    def weights(self, tally: Array) -> Array:
        """(rows,): rows of a class count so much that classes of the tally have overall shares."""
        if not self.target.size or not len(self.y):
            return np.ones(len(self.y))
        counts = self.overall / np.maximum(tally / tally.sum(), 1e-300)
        return np.asarray(counts[self.y.astype(np.int64)])


@dataclass(frozen=True, slots=True)
class Grove:
    """Trees of one party, or of a group, whose first party keeps them."""

    trees: Mapping[str, Predictor]
    scopes: Sequence[Sequence[str]]  # of every tree
    tally: Array  # rows of every class that they were grown from
    unseen: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)  # rows, by tree
    boosted: bool = False

    @property
    def seen(self) -> Array:
        return (self.tally > 0).astype(np.float64)

    def judged(self, own: Material) -> Judged:
        """The party's rows under trees that have not seen them; under all if they are boosted."""
        vectors = []
        for name, tree in self.trees.items():
            found = tree.predict_vector(own.x)
            if name in self.unseen and len(self.trees) > 1:
                found = np.where(self.unseen[name][:, None], found, np.nan)
            vectors.append(found)
        if not vectors or not len(own.y):
            answers = np.full((len(own.y), len(own.overall)), np.nan)
        elif self.boosted:
            answers = multiply_trees(vectors, base_of(own.overall, self.seen))
        else:
            answers = average_predictions(vectors)
        return Judged(answers, own.y.astype(np.int64), own.weights(self.tally))


def tally_of(y: Array, target: Variable) -> Array:
    """Rows of every class (classes,), or of a number the rows and their sum (2,)."""
    known = y[~np.isnan(y)]
    if target.size:
        return np.bincount(known.astype(np.int64), minlength=target.size).astype(np.float64)
    return np.array([float(len(known)), known.sum()])


# ---------------------------------------------------------------------- bagged


@dataclass(frozen=True, slots=True)
class _Growing:
    leaf: Predictor
    table: Table
    target: str
    weight: Array
    seed: int

    def __call__(self) -> Predictor:
        own: Predictor = clone(self.leaf)
        if "random_state" in own.get_params():  # type: ignore[attr-defined]
            own.set_params(random_state=self.seed)  # type: ignore[attr-defined]
        return own.fit(self.table, self.target, sample_weight=self.weight)


def bagged(own: Material, leaf: Predictor, trees: int, share: float, seed: int) -> Flow[Grove]:
    """``share`` of the columns are read by each tree; a single one is of all rows and columns."""
    grown: dict[str, Predictor] = {}
    scopes, unseen = [], {}
    for i in range(trees if len(own.y) and len(own.x.names) else 0):
        name = f"{own.party}/tree {i + 1}"
        rng = np.random.default_rng([seed, zlib.crc32(own.party.encode()), i])
        work = _growing(own, leaf, share if trees > 1 else 1.0, trees > 1, rng)
        grown[name] = yield from compute(f"growing {name} ({own.stamp})", work)
        scopes.append([n for n in work.table.names if n != own.target.name])
        unseen[name] = work.weight == 0
    return Grove(grown, scopes, tally_of(own.y, own.target), unseen)


def _growing(
    own: Material, leaf: Predictor, share: float, draw: bool, rng: np.random.Generator
) -> _Growing:
    rows, columns = len(own.y), list(own.x.names)
    weight: Array = np.ones(rows)
    if draw:
        drawn = rng.integers(rows, size=rows)
        weight = np.bincount(drawn, minlength=rows).astype(np.float64)
        few = max(1, int(np.ceil(share * len(columns))))
        columns = [columns[i] for i in np.sort(rng.permutation(len(columns))[:few])]
    weight = weight * own.weights(tally_of(own.y, own.target))
    x = own.x.select(columns)
    schema = Schema((*x.schema.variables, own.target))
    table = Table(schema, np.column_stack([x.values, own.y]))
    return _Growing(leaf, table, own.target.name, weight, int(rng.integers(2**31)))


# ---------------------------------------------------------------------- boosted


def boosted(own: Material, trees: int, group: Sequence[str], summation: Summation) -> Flow[Grove]:
    """``own.x`` has its columns in the order of all parties of the group."""
    tally = tally_of(own.y, own.target)
    if len(group) > 1:
        members = summation.members(group)
        found, tally = yield from _together(own, tally, trees, summation, own.party, members)
    elif len(own.y):
        step = f"growing {own.party}'s trees ({own.stamp})"
        rows, base = _rows(own, tally), base_of(own.overall, tally)
        found = yield from compute(step, lambda: boosting.grow_alone(rows, base, trees))
    else:
        found = []
    names = [f"{group[0]}/tree {i + 1}" for i in range(len(found))]
    leaves = [DecisionTreeLeaf.from_arrays(t.to_arrays(), own.x.schema, own.target) for t in found]
    scopes = [list(own.x.names)] * len(found)
    return Grove(dict(zip(names, leaves, strict=True)), scopes, tally, boosted=True)


def add_up(own: Material, trees: int, group: Sequence[str], summation: Summation) -> Flow[Array]:
    """A server's part in a group, ``own`` without rows; returns the group's rows of every class."""
    members, tally = summation.members(group), np.zeros(len(own.overall))
    return (yield from _together(own, tally, trees, summation, own.party, members))[1]


def _together(
    own: Material, tally: Array, trees: int, summation: Summation, me: str, members: Sequence[str]
) -> Flow[tuple[list[FlatTree], Array]]:
    collective = summation.at(me, members)
    told = f"how many of its rows have which class of {own.target.name}"
    whole = np.array((yield from collective.sum("boost/classes", tally, told)))
    if not whole.sum():
        return [], whole
    rows = _rows(own, whole)
    found = yield from boosting.grow(rows, base_of(own.overall, whole), trees, collective)
    return found, whole


def _rows(own: Material, tally: Array) -> boosting.Rows:
    y = own.y.astype(np.int64)
    return boosting.Rows(own.x.schema, own.x.values, y, own.weights(tally))
