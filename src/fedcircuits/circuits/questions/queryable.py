"""Queries of a distribution, wherever its circuit lives: numbers in, numbers out, all exact.

Rows x are (rows, variables) in the numbers of the circuit; NaN means "sum this variable out". A
number that is not a code of a category or boolean is an error; a count of −1 or 2.5 has probability
zero. An event is a union of disjoint boxes (regions.py); "given" an event restricts the
variables that a row leaves open, and rejects the row if a value it has lies outside.

log_likelihood   log p(x), marginal where x has NaN
log_probability  log p(x, event)
posterior        P(variable = code | x, event)
moments          mean and variance of a variable given x and an event
sample           NaN filled by draws from p(· | x, event)
mpe              NaN filled by the most probable explanation: exact where the circuit is
                 deterministic, otherwise the best single path (max-product), a lower bound

Events are decomposed here. What remains are three queries about rows and one box, which a circuit
on this machine answers itself (distribution.py, small.py) and a federated one by asking parties.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays, Family, LinearFamily, Region
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.circuits.questions.regions import EVERYTHING, Box, Event, whole
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema

Index = npt.NDArray[np.int64]
Regions = dict[int, Region]  # of columns that rows leave open
CELLS = 1 << 16  # of a block of rows that stays in the cache


@dataclass(frozen=True, slots=True)
class Explanation:
    """The most probable completion of rows: ``model.explain(X).exact``."""

    values: Array  # (rows, variables) without NaN
    log_value: Array  # (rows,) log p of these values, joint with the seen ones
    exact: bool  # whether no other completion is more probable


class Queryable(ABC):
    circuit: Circuit

    # ------------------------------------------------------------------ what a kind must answer

    @property
    @abstractmethod
    def deterministic(self) -> bool:
        """Whether the most probable explanation is exact."""

    @abstractmethod
    def log_values_within(self, x: Array, regions: Regions) -> Array:
        """log p(x, regions), (rows,)."""

    @abstractmethod
    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        """Mean and variance of column ``at``, which is open, given x and regions."""

    @abstractmethod
    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        """NaN filled by a draw given x and regions, or without rng by the best single path."""

    # ------------------------------------------------------------------ probabilities

    def log_likelihood(self, x: Array) -> Array:
        self._check(x)
        return self.log_values_within(x, {})

    def log_probability(self, x: Array, event: Event = EVERYTHING) -> Array:
        """log p(x, event): −∞ where the event has no room beside x."""
        self._check(x)
        return self._log_joint(x, event)

    def log_evidence(self, x: Array, event: Event = EVERYTHING) -> Array:
        """The same for evidence: QueryError if it is impossible."""
        return possible(self.log_probability(x, event))

    def _log_joint(self, x: Array, event: Event) -> Array:
        total = np.full(len(x), -np.inf)
        for box in event:
            for rows, regions in self._cases(x, box):
                total[rows] = np.logaddexp(total[rows], self.log_values_within(x[rows], regions))
        return total

    @cached_property
    def _coded(self) -> list[int]:
        """Columns of categories, booleans and counts of known range."""
        return [i for i, v in enumerate(self.circuit.schema) if v.levels]

    def _check(self, x: Array, ignored: int | None = None) -> None:
        """Shape and codes; every question does this once, with the user's own numbers of rows."""
        width = len(self.circuit.schema)
        if x.ndim != 2 or x.shape[1] != width:
            raise QueryError(
                f"rows must be an array (rows, {width}), a column for each variable of the "
                f"circuit, got shape {x.shape}"
            )
        _refuse_unknown_codes(x, [c for c in self._coded if c != ignored], self.circuit.schema)

    def _cases(self, x: Array, box: Box) -> Iterator[tuple[Index, dict[int, Region]]]:
        """Rows that a box does not reject, by which of its variables they leave open."""
        columns = [self.circuit.schema.index(v) for v in box]
        values, regions = x[:, columns], list(box.values())
        inside = np.isnan(values)
        for i, region in enumerate(regions):
            for lower, upper in region:
                inside[:, i] |= (values[:, i] > lower) & (values[:, i] < upper)
        kept = np.flatnonzero(inside.all(axis=1))
        if len(kept) == 0:
            return
        patterns, which = np.unique(np.isnan(values[kept]), axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            restricted = {c: r for c, r, o in zip(columns, regions, pattern, strict=True) if o}
            yield kept[which.reshape(-1) == i], restricted

    # ------------------------------------------------------------------ one variable

    def posterior(self, x: Array, variable: str, given: Event = EVERYTHING) -> Array:
        """(rows, codes) of a category or boolean; its own value in x is ignored."""
        at, size = self.circuit.schema.index(variable), self.circuit.schema[variable].size
        if not size:
            raise QueryError(
                f"{variable!r} is a {self.circuit.schema[variable].kind}: a posterior over codes "
                "needs a category or boolean; ask for moments, or for the probability of an event"
            )
        self._check(x, ignored=at)
        joint = np.empty((len(x), size))
        for code in range(size):
            asked = x.copy()
            asked[:, at] = code
            joint[:, code] = self._log_joint(asked, given)
        top = joint.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            weights = np.exp(joint - top)
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def moments(self, x: Array, variable: str, given: Event = EVERYTHING) -> tuple[Array, Array]:
        """Mean and variance (rows,), NaN where x and the event are impossible together.

        A moment that does not exist, as of a t of few degrees, is infinite or NaN.
        """
        at = self.circuit.schema.index(variable)
        self._check(x)
        open_rows = x.copy()  # a mix of seen and open rows: seen ones are overwritten
        open_rows[:, at] = np.nan
        total = np.full(len(x), -np.inf)
        mean, variance = np.zeros(len(x)), np.zeros(len(x))
        for box in given:
            region = box.get(variable, whole(self.circuit.schema[variable]))
            for rows, regions in self._cases(x, box):
                logs = self.log_values_within(x[rows], regions)
                joined = np.logaddexp(total[rows], logs)
                within = self.moments_within(open_rows[rows], regions, at, region)
                mean[rows], variance[rows] = _mixed(
                    (_share(total[rows], joined), mean[rows], variance[rows]),
                    (_share(logs, joined), *within),
                )
                total[rows] = joined
        seen, impossible = ~np.isnan(x[:, at]), np.isneginf(total)
        mean[seen], variance[seen] = x[seen, at], 0.0
        mean[impossible] = variance[impossible] = np.nan
        return mean, variance

    # ------------------------------------------------------------------ completions

    def sample(self, x: Array, rng: np.random.Generator, given: Event = EVERYTHING) -> Array:
        """NaN filled by draws from p(· | x, given)."""
        self._check(x)
        if len(x) == 0:
            return x.copy()
        cases = [c for box in given for c in self._cases(x, box)]
        logs = np.full((len(cases), len(x)), -np.inf)
        for i, (rows, regions) in enumerate(cases):
            logs[i, rows] = self._log_values_once(x[rows], regions)
        if not cases or np.isneginf(logs.max(axis=0)).any():
            raise QueryError("cannot sample: the evidence has probability zero under the model")
        which = (logs + rng.gumbel(size=logs.shape)).argmax(axis=0)
        filled = x.copy()
        for i, (_, regions) in enumerate(cases):
            rows = np.flatnonzero(which == i)
            if len(rows):
                filled[rows] = self.completed_within(x[rows], regions, rng)
                for column, region in regions.items():
                    filled[rows, column] = _off_the_ends(filled[rows, column], region)
        return filled

    def _log_values_once(self, x: Array, regions: Regions) -> Array:
        """Of one row, if all have the same evidence, as where nothing is known."""
        first = x[:1]
        alike = bool(len(x)) and bool(((x == first) | (np.isnan(x) & np.isnan(first))).all())
        if not alike:
            return self.log_values_within(x, regions)
        return np.repeat(self.log_values_within(first, regions), len(x))

    def mpe(self, x: Array) -> Explanation:
        self._check(x)
        filled = self.completed_within(x, {}, None)
        return Explanation(filled, self.log_values_within(filled, {}), self.deterministic)


def _refuse_unknown_codes(x: Array, columns: list[int], schema: Schema) -> None:
    """QueryError for numbers that are not codes, in blocks of rows that fit the cache."""
    sizes = np.array([schema.variables[c].levels for c in columns])
    step = max(1, CELLS // max(1, len(columns)))
    for start in range(0, len(x) if columns else 0, step):
        block = x[start : start + step]
        block = block if len(columns) == x.shape[1] else block[:, columns]
        unknown = (block < 0) | (block >= sizes) | (np.floor(block) < block)  # not so for NaN
        if unknown.any():
            row, at = np.argwhere(unknown)[0]
            variable = schema.variables[columns[at]]
            raise QueryError(
                f"row {start + row}: {variable.name!r} is {variable.described()}, expected a code "
                f"from 0 to {variable.levels - 1} or NaN, got {block[row, at]:g}; "
                "Table.of turns values into codes"
            )


def _off_the_ends(drawn: Array, region: Region) -> Array:
    """Draws that a leaf cut off at an end, which is not in the region, moved to the next float."""
    for lower, upper in region:
        drawn = np.where(drawn == lower, np.nextafter(lower, np.inf), drawn)
        drawn = np.where(drawn == upper, np.nextafter(upper, -np.inf), drawn)
    return drawn


def _share(part: Array, whole: Array) -> Array:
    """exp(part − whole), nothing of what is impossible."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(part), 0.0, np.exp(part - whole))


def _mixed(one: tuple[Array, Array, Array], two: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Mean and variance of a mixture of two, each with its share; nothing of a share of zero."""
    with np.errstate(invalid="ignore"):
        mean = _part(one[0], one[1]) + _part(two[0], two[1])
        variance = sum(_part(w, v + np.square(m - mean)) for w, m, v in (one, two))
    return mean, np.asarray(variance)


def _part(share: Array, value: Array) -> Array:
    return np.where(share > 0, share * value, 0.0)


def askable(circuit: Circuit, parameters: Parameters) -> tuple[Circuit, Parameters]:
    """The same without circuits as leaves; QueryError unless it is a distribution of single
    rows."""
    circuit, parameters = inline(circuit, parameters)
    if not circuit.is_density:
        raise QueryError(
            "a circuit of predictors or fuse nodes predicts: it has no likelihood to ask for"
        )
    if circuit.units[circuit.root.name] != 1:
        raise QueryError(
            f"the root must have one unit to be asked, {circuit.root.name!r} has "
            f"{circuit.units[circuit.root.name]}"
        )
    return circuit, parameters


def around(centre: float, rule: Family, arrays: Arrays, region: Region) -> Array:
    """(3, ...): mass, E[x − centre; in], E[(x − centre)²; in] of all intervals of a region."""
    if isinstance(rule, LinearFamily):
        moved = rule.affine(arrays, np.asarray(centre), np.ones(()))
        if moved is not None:
            parts = [rule.moments(moved, a - centre, b - centre) for a, b in region]
            return np.asarray(np.sum(parts, axis=0))
    mass, one, two = np.sum([rule.moments(arrays, a, b) for a, b in region], axis=0)
    return np.stack([mass, one - centre * mass, two - 2 * centre * one + centre**2 * mass])


def possible(logs: Array) -> Array:
    """Log-probabilities (rows,) of evidence; QueryError where it is impossible."""
    impossible = np.flatnonzero(np.isneginf(logs))
    if len(impossible):
        where = "" if len(logs) == 1 else f" in row {impossible[0]}"
        raise QueryError(f"the evidence{where} has probability zero under the model")
    return logs
