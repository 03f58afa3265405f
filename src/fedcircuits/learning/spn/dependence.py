"""The test of a table's columns: what ``Settings.test`` stands for, on any part of the table.

auto    G-test between two discrete columns (categories and booleans), RDC for every other pair
g       the same, but all columns must be discrete
rdc     RDC for every pair
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.learning.independence import (
    BinaryPairs,
    Flags,
    Floats,
    Index,
    OneHot,
    PairTables,
    pair_tables,
    rdc,
)
from fedcircuits.learning.spn.clustering import Features
from fedcircuits.tables.schema import Schema

THRESHOLD = {"g": 5.0, "rdc": 0.3}


class Dependence:
    def __init__(
        self,
        values: Array,
        schema: Schema,
        weight: Array,
        test: str,
        threshold: float | None,
        features: Features,
        rng: np.random.Generator,
    ) -> None:
        self.values, self.schema, self.weight, self.rng = values, schema, weight, rng
        self.test, self.features = test, features
        self.discrete = np.array([v.size > 0 for v in schema])
        if test == "g" and not self.discrete.all():
            odd = schema.variables[int((~self.discrete).argmax())]
            raise ParameterError(
                f"test 'g': expected categories and booleans, but {odd.name!r} is a {odd.kind}; "
                "use 'auto' or 'rdc'"
            )
        only_g = bool(self.discrete.all()) and test != "rdc"
        self.by_g = threshold if only_g and threshold is not None else THRESHOLD["g"]
        self.by_rdc = THRESHOLD["rdc"] if threshold is None or only_g else threshold
        self.binary = bool(self.discrete.all()) and features.binary
        self.places = np.cumsum(self.discrete) - 1  # of a column among the discrete ones
        self.hot = None if self.binary else self._one_hot()

    def _one_hot(self) -> OneHot:
        chosen = tuple(v for v in self.schema if v.size)
        return OneHot.of(self.values[:, self.discrete], chosen)

    def of(self, rows: Index, columns: Index, features: Features, weight: Floats) -> Flags:
        """Which pairs of a part's columns depend on each other (columns, columns)."""
        discrete = self.discrete[columns]
        if self.test != "rdc" and self.binary:
            return BinaryPairs.of(features.matrix, weight).dependent(self.by_g)
        if self.test != "rdc" and discrete.all():
            return self.pairs(rows, columns, weight).dependent(self.by_g)
        variables = tuple(self.schema.variables[c] for c in columns)
        part = self.values[rows[:, None], columns]
        found = np.asarray(rdc(part, variables, self.rng, self.weight[rows]) > self.by_rdc)
        if self.test != "rdc" and discrete.sum() > 1:
            pairs = self.pairs(rows, columns[discrete], weight)
            found[np.ix_(discrete, discrete)] = pairs.dependent(self.by_g)
        return found

    def pairs(self, rows: Index, columns: Index, weight: Floats) -> BinaryPairs | PairTables:
        """Counts of every pair of discrete columns."""
        if self.hot is None:
            return BinaryPairs.of(self.features.part(rows, columns).matrix, weight)
        hot = self.hot.part(rows, self.places[columns])
        return PairTables(pair_tables(hot.matrix, weight), hot.starts)
