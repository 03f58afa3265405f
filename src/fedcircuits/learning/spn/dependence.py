"""The test of a table's columns: what ``SPNSettings.test`` stands for, on any part of the table.

evidence   columns of any kinds depend where chance would hardly make as much (evidence.py); the
           threshold is the level of significance, corrected for the number of pairs
g          G-test of categories and booleans: G per degree of freedom above twice the threshold
rdc        the randomised dependence coefficient of every pair above the threshold, however many
           rows there are

Users are told of columns that a circuit keeps apart, with the evidence of the test (``notes_of``),
and of real columns with ties.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.learning.evidence import ScoredTable, dependent, p_values
from fedcircuits.learning.independence import (
    BinaryPairs,
    Flags,
    Floats,
    Index,
    OneHot,
    PairTables,
    groups,
    pair_tables,
    rdc,
)
from fedcircuits.learning.spn.clustering import Features
from fedcircuits.tables.schema import Schema

THRESHOLD = {"evidence": 0.05, "g": 5.0, "rdc": 0.3}
SHOWN = 8  # columns in a note
HEAVY = 0.1  # share of the rows that have one value of a real column
MOST_ROWS = 10_000  # that are looked at


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
        self.threshold = THRESHOLD[test] if threshold is None else threshold
        if test == "g" and not self.discrete.all():
            odd = schema.variables[int((~self.discrete).argmax())]
            raise ParameterError(
                f"test 'g': expected categories and booleans, but {odd.name!r} is a {odd.kind}; "
                "use 'evidence' or 'rdc'"
            )
        self.binary = bool(self.discrete.all()) and features.binary
        self.places = np.cumsum(self.discrete) - 1  # of a column among the discrete ones
        self.hot = None if self.binary else self._one_hot()
        scored = test == "evidence" and not self.binary
        self.first: Array | None = None  # p-values of the first part, the whole table
        self.scored = ScoredTable.of(values, schema) if scored else None
        nothing = np.zeros(0, np.int64)
        self.last = (nothing, nothing, np.zeros((0, 0)))  # rows, columns and p-values of a part

    def _one_hot(self) -> OneHot:
        chosen = tuple(v for v in self.schema if v.size)
        return OneHot.of(self.values[:, self.discrete], chosen)

    def of(
        self,
        rows: Index,
        columns: Index,
        features: Features,
        weight: Floats,
        target: int | None = None,
    ) -> Flags:
        """Which pairs of a part's columns depend on each other (columns, columns)."""
        if self.test == "evidence":
            if self.scored is None:
                chance = BinaryPairs.of(features.matrix, weight).chance()
            else:
                chance = self.chance(rows, columns, weight)
            self.first = chance if self.first is None else self.first
            at = np.flatnonzero(columns == target)
            return dependent(chance, self.threshold, int(at[0]) if len(at) else None)
        if self.test == "g":
            if self.binary:
                return BinaryPairs.of(features.matrix, weight).dependent(self.threshold)
            return self.pairs(rows, columns, weight).dependent(self.threshold)
        variables = tuple(self.schema.variables[c] for c in columns)
        part = self.values[rows[:, None], columns]
        return np.asarray(rdc(part, variables, self.rng, self.weight[rows]) > self.threshold)

    def chance(self, rows: Index, columns: Index, weight: Floats) -> Array:
        """The p-value of every pair (columns, columns) of a table that is not binary. Those of the
        last part are kept: its columns are grouped by them, and then it is divided by one."""
        assert self.scored is not None
        tested, known, chance = self.last
        if rows is tested and np.isin(columns, known).all():
            at = np.searchsorted(known, columns)
            return chance if len(at) == len(chance) else np.asarray(chance[np.ix_(at, at)])
        chance = p_values(self.scored.part(rows, columns), weight)
        self.last = rows, columns, chance
        return chance

    def pairs(self, rows: Index, columns: Index, weight: Floats) -> BinaryPairs | PairTables:
        """Counts of every pair of discrete columns."""
        if self.hot is None:
            return BinaryPairs.of(self.features.part(rows, columns).matrix, weight)
        hot = self.hot.part(rows, self.places[columns])
        return PairTables(pair_tables(hot.matrix, weight), hot.starts)


# ---------------------------------------------------------------------- notes


def notes_of(chance: Array, schema: Schema, target: int | None, level: float) -> tuple[str, ...]:
    """``chance``: the p-value of every pair of columns on all rows."""
    if len(schema) < 2:
        return ()
    parts = groups(dependent(chance, level, target))
    notes = []
    if target is not None:
        with_target = next(g for g in parts if target in g)
        apart = np.setdiff1d(np.arange(len(schema)), with_target)
        if len(apart):
            listed = _listed(apart, chance[target, apart], schema)
            name = schema.names[target]
            notes.append(f"independent of the target {name!r} at level {level:g}: {listed}")
    alone = np.array([g[0] for g in parts if len(g) == 1 and g[0] != target], dtype=np.int64)
    if len(alone) and (target is None or len(alone) < len(schema) - 1):
        least = chance[alone].min(axis=1)
        listed = _listed(alone, least, schema)
        notes.append(f"independent of every other column at level {level:g}: {listed}")
    return tuple(notes)


def notes_of_ties(values: Array, schema: Schema) -> tuple[str, ...]:
    """A density has no mass at a single value: where many rows have it, questions that end there
    split them."""
    some = values[:: -(-len(values) // MOST_ROWS)]
    real = [i for i, v in enumerate(schema) if v.kind == "real"]
    tied = [schema.names[i] for i in real if _is_tied(some[:, i])]
    if not tied:
        return ()
    shown = ", ".join(map(repr, tied[:SHOWN]))
    more = f" and {len(tied) - SHOWN} more" if len(tied) > SHOWN else ""
    return (
        f"many rows have the same value of the real columns {shown}{more}: a condition that ends "
        "at such a value counts about half of these rows; end it between two values, or declare "
        "the columns as counts or categories",
    )


def _is_tied(column: Array) -> bool:
    seen = column[~np.isnan(column)]
    counts = np.unique(seen, return_counts=True)[1]
    return len(counts) > 1 and bool(counts.max() >= max(HEAVY * len(seen), 5))


def _listed(columns: Index, p: Array, schema: Schema) -> str:
    """The surest of them first to doubt."""
    order = np.argsort(p, kind="stable")
    shown = [f"{schema.names[columns[i]]!r} (p = {p[i]:.2g})" for i in order[:SHOWN]]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
