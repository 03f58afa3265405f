"""Queries of the dashboard to one model, and their answers as plain values.

Evidence is given by column: ``{"low": 40, "high": None}``, ``{"value": 3}`` or
``{"codes": [0, 2]}``, where codes are positions in the categories of a column. Every answer lists
its messages.

    grids        the points at which each column is evaluated: the MOST_CODES most probable codes,
                 or POINTS numbers between quantiles of samples. They are fixed, so that curves
                 move and axes do not
    marginals    p(column = point | evidence) at every point, exact, for all columns without
                 evidence in one query, in which leaves without evidence keep their values
    within       the same for columns with a range as evidence: one query each
    averages     E[column | evidence], exact: one query each, not asked of sites
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from threading import Lock

import numpy as np

from fedcircuits.app.crossing import by_route
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.distribution import FixedRows, Index
from fedcircuits.circuits.questions.events import parse_event
from fedcircuits.circuits.questions.regions import EVERYTHING, Event, conjunction
from fedcircuits.errors import QueryError
from fedcircuits.estimators.model import Model
from fedcircuits.federation.messages import Ledger
from fedcircuits.pictures.marginals import evidence_words
from fedcircuits.tables.schema import Schema, Variable

POINTS, DRAWS, MOST_CODES = 24, 400, 40
MOST_ROWS = 100_000  # drawn at once
Plain = dict[str, object]


class Desk:
    """Answers one question at a time."""

    def __init__(self, model: Model) -> None:
        self.model, self.schema, self.ask_model = model, model.schema_, model._distribution
        self._lock = Lock()
        self.events: dict[str, float] = {}  # P(event) of the last one asked
        rng = np.random.default_rng(0)
        nothing = np.full((1, len(self.schema)), np.nan)
        drawn = self.ask_model.sample(np.repeat(nothing, DRAWS, axis=0), rng)
        self.grids = [self._grid(v, drawn[:, i]) for i, v in enumerate(self.schema)]
        self.ends = [(float(d.min()), float(d.max())) for d in drawn.T]
        sizes = np.cumsum([1, *(len(grid) for grid in self.grids)])
        self.spans = list(pairwise(sizes.tolist()))
        self.rows = np.full((int(sizes[-1]), len(self.schema)), np.nan)  # the first knows nothing
        for i, (first, last) in enumerate(self.spans):
            self.rows[first:last, i] = self.grids[i]
        self.owner = np.repeat(np.arange(-1, len(self.grids)), np.diff([0, *sizes]))
        suits = FixedRows.suits(self.ask_model, self.rows)
        self.kept = FixedRows(self.ask_model, self.rows) if suits else None
        self.before = self._marginals(nothing, EVERYTHING, range(len(self.schema)))[1]

    # ------------------------------------------------------------------ questions

    def columns(self) -> list[Plain]:
        """The columns, and their distributions without evidence."""
        return [
            {
                "name": v.name,
                "kind": v.kind,
                "unit": "" if v.dated else v.unit or "",
                "dated": v.dated,
                "labels": list(v.labels),
                "points": self.grids[i].tolist(),
                "ends": list(self.ends[i]),
                "before": self.before[v.name],
            }
            for i, v in enumerate(self.schema)
        ]

    def marginals(self, known: Mapping[str, object], within: bool = False) -> Plain:
        """Marginals of all columns without evidence, or of those with a range (``within``)."""

        def answer() -> Plain:
            x, event = self._given(known)
            ranges = {self.schema.index(n) for box in event for n in box}
            fixed = {i for i, value in enumerate(x[0]) if not np.isnan(value)}
            every = set(range(len(self.schema)))
            asked = sorted(ranges if within else every - ranges - fixed)
            log_known, marginals = self._marginals(x, event, asked)
            return {
                "marginals": marginals,
                "known": [self.schema.names[i] for i in sorted(ranges | fixed)],
                "probability": None if fixed_reals(x, self.schema) else float(np.exp(log_known)),
                "words": evidence_words(self.schema, x, event),
            }

        return self._crossing(answer)

    def averages(
        self, known: Mapping[str, object], columns: Collection[str] | None = None
    ) -> Plain:
        """Of all numbers that are not known exactly, or those among ``columns``; none of a model
        at sites. In large models each takes a while, so that a page asks for few at a time."""

        def answer() -> Plain:
            if getattr(self.model, "queries_", None) is not None:
                return {"averages": {}}
            x, event = self._given(known)
            open_numbers = (
                v.name
                for v, value in zip(self.schema, x[0], strict=True)
                if not v.size and np.isnan(value) and (columns is None or v.name in columns)
            )
            means = {n: float(self.ask_model.moments(x, n, event)[0][0]) for n in open_numbers}
            return {"averages": {n: mean for n, mean in means.items() if np.isfinite(mean)}}

        return self._crossing(answer)

    def event(self, known: Mapping[str, object], text: str) -> Plain:
        """P(event | evidence), and P(event), for an event given as text."""

        def answer() -> Plain:
            asked = parse_event(text, self.schema)
            x, event = self._given(known)
            before = self._without_evidence(text, asked)
            evidence = self._possible(x, event)
            joint = self.ask_model.log_probability(x, conjunction(asked, event))[0]
            after = float(np.exp(min(joint - evidence, 0.0)))
            return {"before": before, "after": after, "event": text.strip()}

        return self._crossing(answer)

    def completed(self, known: Mapping[str, object]) -> Plain:
        """The most probable row. A column with a range has the most probable of its points inside,
        given all evidence; the others are then completed."""

        def answer() -> Plain:
            x, event = self._given(known)
            given = [v.name for v, seen in zip(self.schema, ~np.isnan(x[0]), strict=True) if seen]
            inside = sorted({name for box in event for name in box})
            columns = [self.schema.index(name) for name in inside]
            chances = self._marginals(x, event, columns)[1] if columns else {}
            for i, name in zip(columns, inside, strict=True):
                x[0, i] = self._inside(name, known[name], chances[name])
            completed = self.ask_model.mpe(x)
            return {
                "row": {
                    v.name: _shown(v, code)
                    for v, code in zip(self.schema, completed.values[0].tolist(), strict=True)
                },
                "given": given,
                "exact": completed.exact and not inside,
                "inside": inside,
            }

        return self._crossing(answer)

    def drawn(self, known: Mapping[str, object], number: int, seed: int) -> Plain:
        """Sampled rows as csv."""
        if not 1 <= number <= MOST_ROWS:
            raise QueryError(f"expected 1 to {MOST_ROWS:,} rows, got {number:,}")

        def answer() -> Plain:
            rows = self.model.sample(number, self._mapping(known), random_state=seed)
            return {"csv": rows.to_csv(index=False)}

        return self._crossing(answer)

    # ------------------------------------------------------------------ inside

    def _grid(self, variable: Variable, drawn: Array) -> Array:
        if not variable.size:
            return _points(variable, drawn)
        codes = np.arange(float(variable.size))
        if variable.size <= MOST_CODES:
            return codes
        nothing = np.full((1, len(self.schema)), np.nan)
        rarest_first = np.argsort(self.ask_model.posterior(nothing, variable.name)[0])
        return np.sort(codes[rarest_first[-MOST_CODES:]])

    def _marginals(
        self, x: Array, event: Event, columns: Sequence[int]
    ) -> tuple[float, dict[str, list[float]]]:
        """log p(evidence), and densities or probabilities by column at its points."""
        asked = np.concatenate([[0], *(np.arange(*self.spans[i]) for i in columns)]).astype(int)
        logs = self._logs(asked, x, event)
        if np.isneginf(logs[0]):
            raise QueryError("the evidence has probability zero under the model")
        sizes = [len(self.grids[i]) for i in columns]
        parts = np.split(np.exp(logs[1:] - logs[0]), np.cumsum(sizes))[:-1]
        names = [self.schema.names[i] for i in columns]
        return float(logs[0]), {n: p.tolist() for n, p in zip(names, parts, strict=True)}

    def _inside(self, name: str, said: object, chances: Sequence[float]) -> float:
        """The most probable point of a column inside its range; its middle if none is inside."""
        best = int(np.argmax(chances))
        if chances[best] > 0:
            return float(self.grids[self.schema.index(name)][best])
        assert isinstance(said, Mapping)  # a category's codes are all points, but the rarest
        ends = [float(end) for end in (said["low"], said["high"]) if end is not None]
        middle = float(np.mean(ends))
        return middle if self.schema[name].kind == "real" else float(np.ceil(middle))

    def _without_evidence(self, text: str, asked: Event) -> float:
        """P(event), which does not depend on the evidence."""
        if text not in self.events:
            nothing = np.full((1, len(self.schema)), np.nan)
            self.events = {text: float(np.exp(self.ask_model.log_probability(nothing, asked)[0]))}
        return self.events[text]

    def _logs(self, asked: Index, x: Array, event: Event) -> Array:
        """log p(row, evidence) of rows of the grids."""
        touched = {self.schema.index(name) for box in event for name in box}
        touched |= set(np.flatnonzero(~np.isnan(x[0])).tolist())
        if self.kept is None or any(self.owner[row] in touched for row in asked):
            rows = np.repeat(x, len(asked), axis=0)
            asked_rows = self.rows[asked]
            return self.ask_model.log_probability(
                np.where(np.isnan(asked_rows), rows, asked_rows), event
            )
        total = np.full(len(asked), -np.inf)
        for box in event:
            regions = {self.schema.index(name): region for name, region in box.items()}
            total = np.logaddexp(total, self.kept.log_values(asked, x, regions))
        return total

    def _possible(self, x: Array, event: Event) -> float:
        log_probability = float(self.ask_model.log_probability(x, event)[0])
        if np.isneginf(log_probability):
            raise QueryError("the evidence has probability zero under the model")
        return log_probability

    def _given(self, known: Mapping[str, object]) -> tuple[Array, Event]:
        return self.model._given(self._mapping(known))

    def _mapping(self, known: Mapping[str, object]) -> dict[str, object]:
        return {name: _evidence(self.schema[name], said) for name, said in known.items()}

    def _crossing(self, answer: Callable[[], Plain]) -> Plain:
        """The answer with its time and its messages."""
        with self._lock:
            ledger = getattr(self.model, "queries_", None)
            already, began = len(ledger or ()), time.perf_counter()
            result = answer()
            milliseconds = 1000 * (time.perf_counter() - began)
            crossed = Ledger(ledger.entries[already:]) if ledger is not None else None
        routes = None if crossed is None else [list(row) for row in by_route(crossed).rows]
        return {**result, "milliseconds": milliseconds, "crossed": routes}


def fixed_reals(x: Array, schema: Schema) -> bool:
    """Whether a real has an exact value: evidence then has a density instead of a probability."""
    pairs = zip(schema, x[0], strict=True)
    return any(v.kind == "real" and not np.isnan(value) for v, value in pairs)


def _evidence(variable: Variable, said: object) -> object:
    """The page's evidence about a column as evidence of the library."""
    match said:
        case {"codes": [*codes]} if variable.size and all(
            isinstance(c, int) and 0 <= c < variable.size for c in codes
        ):
            return [variable.categories[c] for c in codes]
        case {"value": int(value) | float(value)} if not variable.size:
            return value
        case {"low": int() | float() | None as low, "high": int() | float() | None as high} if (
            not variable.size
        ):
            return (low, high)
    raise QueryError(
        f"{variable.name!r}: expected codes of a category, a value, or low and high of a number"
    )


def _points(variable: Variable, drawn: Array) -> Array:
    low, high = np.quantile(drawn, [0.005, 0.995])
    if variable.kind == "count":
        low, high = np.floor(low), np.ceil(high)
        return np.unique(np.rint(np.linspace(low, high, min(int(high - low) + 1, POINTS))))
    room = 0.05 * (high - low) or 1.0
    return np.linspace(low - room, high + room, POINTS)


def _shown(variable: Variable, code: float) -> str:
    if variable.size:
        return variable.labels[int(code)]
    value = variable.decode(code)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
