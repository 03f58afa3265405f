"""What a model believes about single variables, before and after evidence, for pictures.

real               densities p(v) and p(v, evidence) / p(evidence) on a grid
count              probabilities of the values that have nearly all the mass
category, boolean  probabilities of all values

All of these are exact. Only where to look is found by drawing rows: the range of a grid, and which
variables change most (by the total variation of their binned draws, before and after).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.regions import EVERYTHING, Event, describe
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

DRAWS, POINTS, BINS = 1000, 160, 12
MOST_COUNTS = 40  # values of a count that are looked at one by one
MOST_SHOWN = 16  # variables, where the user names none


@dataclass(frozen=True, slots=True)
class Belief:
    variable: Variable
    points: Array  # (points,) values, or codes
    before: Array  # (points,) densities or probabilities
    after: Array | None  # None without evidence, and where it fixes a real or a count
    known: bool  # whether the evidence speaks of this variable
    value: float | None  # what the evidence fixes it to


class Beliefs:
    """Asks a distribution about one variable at a time, given x (1, variables) and an event."""

    def __init__(self, distribution: Distribution, x: Array, event: Event) -> None:
        if len(x) != 1:
            raise QueryError(
                f"a picture shows one case: expected one row of evidence, got {len(x)}"
            )
        self.ask, self.x, self.event = distribution, x, event
        self.schema: Schema = distribution.circuit.schema
        self.nothing = np.full_like(x, np.nan)
        self.log_evidence = float(distribution.log_probability(x, event)[0])
        if np.isneginf(self.log_evidence):
            raise QueryError("the evidence has probability zero under the model")
        fixed = (n for n, v in zip(self.schema.names, x[0], strict=True) if not np.isnan(v))
        named = {n for box in event for n in box}.union(fixed)
        self.known = [n for n in self.schema.names if n in named]
        rng = np.random.default_rng(0)
        self.drawn = [distribution.sample(np.repeat(self.nothing, DRAWS, axis=0), rng)]
        if self.known:
            self.drawn.append(distribution.sample(np.repeat(x, DRAWS, axis=0), rng, event))

    def words(self) -> str:
        """The evidence, in the user's own values."""
        boxes = []
        for box in self.event:
            parts = [describe(region, self.schema[name]) for name, region in box.items()]
            boxes.append(" and ".join(parts))
        event = " or ".join(boxes) if len(boxes) < 4 else f"one of {len(boxes)} cases"
        fixed = [
            f"{v.name} = {value:.4g}" if v.kind == "real" else f"{v.name} = {v.decode(value)}"
            for v, value in zip(self.schema, self.x[0], strict=True)
            if not np.isnan(value)
        ]
        return " and ".join([*fixed, *filter(None, [event])])

    def shown(self, columns: Sequence[str] | None = None) -> list[Belief]:
        """Of the columns, each once, or of the variables that the evidence changes most."""
        if columns is None:
            return [self.of(name) for name in self.most_changed(MOST_SHOWN)]
        if not columns:
            raise QueryError("columns: name at least one variable, or leave it out")
        return [self.of(name) for name in dict.fromkeys(columns)]

    def most_changed(self, most: int) -> list[str]:
        """What is known first, then the variables whose distribution changes most."""
        if not self.known:
            return list(self.schema.names[:most])
        changes = {v.name: self._change(v) for v in self.schema if v.name not in self.known}
        others = sorted(changes, key=lambda n: -changes[n])
        return [*self.known, *others][:most]

    def _change(self, variable: Variable) -> float:
        before, after = (d[:, self.schema.index(variable.name)] for d in self.drawn)
        if variable.size:
            ends = np.arange(variable.size + 1) - 0.5
        else:
            ends = np.unique(np.quantile(before, np.linspace(0, 1, BINS + 1)))
            ends = np.concatenate([[-np.inf], ends, [np.inf]])
        shares = [np.histogram(d, ends)[0] / DRAWS for d in (before, after)]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    def of(self, name: str) -> Belief:
        variable, at = self.schema[name], self.schema.index(name)
        fixed = self.x[0, at]
        points = self._points(variable, at)
        before = np.exp(self._logs(self.nothing, EVERYTHING, at, points))
        if not np.isnan(fixed):
            after = (points == fixed).astype(float) if variable.size else None
            return Belief(variable, points, before, after, True, float(fixed))
        if not self.known:
            return Belief(variable, points, before, None, False, None)
        after = np.exp(self._logs(self.x, self.event, at, points) - self.log_evidence)
        return Belief(variable, points, before, after, name in self.known, None)

    def _logs(self, x: Array, event: Event, at: int, points: Array) -> Array:
        rows = np.repeat(x, len(points), axis=0)
        rows[:, at] = points
        return self.ask.log_probability(rows, event)

    def _points(self, variable: Variable, at: int) -> Array:
        if variable.size:
            return np.arange(float(variable.size))
        ends = np.array([np.quantile(d[:, at], [0.005, 0.995]) for d in self.drawn])
        low, high = float(ends.min()), float(ends.max())
        if variable.kind == "count":
            low, high = np.floor(low), np.ceil(high)
            return np.unique(np.rint(np.linspace(low, high, min(int(high - low) + 1, POINTS))))
        room = 0.06 * (high - low) or 1.0
        grid = np.linspace(low - room, high + room, POINTS)
        return np.unique(np.concatenate([grid, self._steps(variable.name, grid[0], grid[-1])]))

    def _steps(self, name: str, low: float, high: float) -> Array:
        """Both sides of the places where evidence cuts a density off."""
        cuts = {e for box in self.event for i in box.get(name, ()) for e in i if low < e < high}
        at = np.array(sorted(cuts))
        return np.concatenate([np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
