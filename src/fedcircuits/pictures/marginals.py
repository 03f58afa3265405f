"""Small multiples: the distribution of every variable, before evidence in grey, after it in
colour.

Reals are shown as densities, counts as stems, categories and booleans as bars with percentages.
Variables with evidence come first and are marked; an exact value is drawn as a line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.regions import EVERYTHING, Event, describe
from fedcircuits.errors import QueryError
from fedcircuits.pictures.drawing import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    KNOWN,
    PALE,
    TEXT,
    Drawing,
    axes_at,
    sheet,
    shortened,
    text_width,
)
from fedcircuits.tables.schema import Schema, Variable, spelled_day

# ---------------------------------------------------------------------- beliefs
#
# What a model believes about single variables, before and after evidence, for pictures.
#
# real               densities p(v) and p(v, evidence) / p(evidence) on a grid
# count              probabilities of the values that have nearly all the mass
# category, boolean  probabilities of all values
#
# All of these are exact. Only where to look is found by drawing rows: the range of a grid, and
# which variables change most (by the total variation of their binned draws, before and after).


DRAWS, POINTS, BINS = 1000, 160, 12
MOST_COUNTS = 40  # values of a count that are looked at one by one
MOST_SHOWN = 16  # variables, where the user names none
YEAR = 365.2425  # days


@dataclass(frozen=True, slots=True)
class Belief:
    variable: Variable
    points: Array  # (points,) values, or codes
    before: Array  # (points,) densities or probabilities
    after: Array | None  # None without evidence, and where it fixes a real or a count
    known: bool  # whether the evidence speaks of this variable
    value: float | None  # what the evidence fixes it to


def evidence_words(schema: Schema, x: Array, event: Event) -> str:
    """Evidence of one row x (1, variables) and an event, as text in the user's values."""
    boxes = []
    for box in event:
        parts = [_condition(region, schema[name]) for name, region in box.items()]
        boxes.append(" and ".join(parts))
    words = " or ".join(boxes) if len(boxes) < 4 else f"one of {len(boxes)} cases"
    fixed = [
        f"{v.name} = {value:.4g}"
        if v.kind == "real" and not v.dated
        else f"{v.name} = {v.decode(value)}"
        for v, value in zip(schema, x[0], strict=True)
        if not np.isnan(value)
    ]
    return " and ".join([*fixed, *filter(None, [words])])


def _condition(region: Region, variable: Variable) -> str:
    if not variable.dated:
        return describe(region, variable)
    spans = []
    for lower, upper in region:
        ends = ((">=", lower), ("<=", upper))
        named = [
            f"{variable.name} {sign} {spelled_day(at)}" for sign, at in ends if math.isfinite(at)
        ]
        spans.append(" and ".join(named))
    return " or ".join(spans)


class Beliefs:
    """Marginals of single variables given x (1, variables) and an event."""

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
        """The evidence as text in the user's values."""
        return evidence_words(self.schema, self.x, self.event)

    def shown(self, columns: Sequence[str] | None = None) -> list[Belief]:
        """The marginals of the columns, or of the variables that the evidence changes most."""
        if columns is None:
            return [self.of(name) for name in self.most_changed(MOST_SHOWN)]
        if not columns:
            raise QueryError("columns: name at least one variable, or leave it out")
        return [self.of(name) for name in dict.fromkeys(columns)]

    def most_changed(self, most: int) -> list[str]:
        """Variables with evidence first, then those whose distribution changes most."""
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
        """Points on both sides of where evidence truncates a density."""
        cuts = {e for box in self.event for i in box.get(name, ()) for e in i if low < e < high}
        at = np.array(sorted(cuts))
        return np.concatenate([np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])


WIDE, TALL = 2.05, 1.24  # inches of a panel, with its title and its axis
HEAD, TITLE, AXIS, UNIT, GAP = 0.62, 0.24, 0.18, 0.16, 0.22
PLOT = TALL - TITLE - AXIS
MOST_BARS, MOST_PAIRS = 6, 3  # categories; those where both bars have their percentage


def marginals_drawing(model: Beliefs, columns: Sequence[str] | None = None) -> Drawing:
    """Panels for ``columns``, or for the variables that the evidence changes most."""
    beliefs, words, of = model.shown(columns), model.words(), len(model.schema)
    across = min(4, max(1, math.ceil(math.sqrt(len(beliefs)))))
    rows = math.ceil(len(beliefs) / across)
    foot = AXIS + (UNIT if any(b.variable.unit for b in beliefs) else 0.0)
    step = TITLE + PLOT + foot + GAP
    width = max(across * (WIDE + GAP) - GAP, 4.2)
    height = HEAD + rows * step - GAP

    def paint(figure: Figure, left: float, bottom: float) -> None:
        _paint_head(sheet(figure, left, bottom + height - HEAD, width, HEAD), words, beliefs, of)
        for i, belief in enumerate(beliefs):
            x = left + (i % across) * (WIDE + GAP)
            y = bottom + height - HEAD - (i // across) * step - TITLE - PLOT
            _paint_panel(figure, x, y, belief)

    return Drawing(width, height, paint)


def _paint_head(axes: Axes, words: str, beliefs: list[Belief], of: int) -> None:
    room = int(axes.get_xlim()[1] / text_width("m", 11))
    title = f"given {words}" if words else "what the model has learned"
    axes.text(0, 0.42, shortened(title, room), size=10, weight="bold", color=INK, parse_math=False)
    x = 0.0
    for color, word in ((BEFORE, "before"), (AFTER, "after")) if words else ():
        axes.add_patch(Rectangle((x, 0.205), 0.12, 0.07, facecolor=color, linewidth=0))
        axes.text(x + 0.18, 0.2, word, size=TEXT, color=FAINT)
        x += 0.3 + text_width(word)
    count = "all" if len(beliefs) == of else f"{len(beliefs)} of {of}"
    axes.text(x, 0.2, f"{count} variables shown", size=TEXT, color=FAINT)


def _paint_panel(figure: Figure, left: float, bottom: float, belief: Belief) -> None:
    """A title and a plot; ``bottom`` is the plot's axis."""
    variable = belief.variable
    top = sheet(figure, left, bottom + PLOT, WIDE, TITLE)
    name, color = shortened(variable.name, 24), INK
    if belief.known:
        name, color = shortened(variable.name, 18), KNOWN
        top.text(WIDE, 0.08, "known", size=TEXT - 1, color=KNOWN, ha="right")
    top.text(0, 0.08, name, size=TEXT + 0.5, weight="bold", color=color, parse_math=False)
    if variable.size:
        _paint_bars(figure, left, bottom, belief)
        return
    axes = axes_at(figure, left, bottom, WIDE, PLOT)
    if variable.kind == "count" and len(belief.points) <= MOST_COUNTS:
        _paint_stems(axes, belief)
    else:
        _paint_curves(axes, belief)
    _tidy(axes, belief)


# ---------------------------------------------------------------------- numbers


def _paint_curves(axes: Axes, belief: Belief) -> None:
    x = belief.points
    axes.fill_between(x, belief.before, color=_colors(belief)[0], alpha=0.4, linewidth=0)
    if belief.after is not None:
        axes.fill_between(x, belief.after, color=AFTER, alpha=0.25, linewidth=0)
        axes.plot(x, belief.after, color=AFTER, linewidth=1.3)
    axes.set_xlim(x[0], x[-1])


def _paint_stems(axes: Axes, belief: Belief) -> None:
    x = belief.points
    axes.vlines(x, 0, belief.before, color=_colors(belief)[0], linewidth=3.5)
    if belief.after is not None:
        axes.vlines(x, 0, belief.after, color=AFTER, linewidth=1.3)
        axes.plot(x, belief.after, "o", color=AFTER, markersize=2.6)
    axes.set_xlim(x[0] - 0.7, x[-1] + 0.7)


def _tidy(axes: Axes, belief: Belief) -> None:
    if belief.value is not None:
        low, high = axes.get_xlim()
        axes.axvline(belief.value, color=AFTER, linewidth=2)
        axes.set_xlim(min(low, belief.value), max(high, belief.value))
    for side in ("left", "top", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(BEFORE)
    axes.set_yticks([])
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="x", labelsize=TEXT - 1.5, colors=FAINT, length=2, pad=2)
    if belief.variable.dated:
        axes.set_xticks(*_dates(*axes.get_xlim()))
        return
    axes.set_xticks(_ticks(*axes.get_xlim(), belief.variable.discrete))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    if belief.variable.unit:
        unit = shortened(belief.variable.unit, 24)
        axes.set_xlabel(unit, size=TEXT - 1, color=FAINT, labelpad=1, parse_math=False)


def _ticks(low: float, high: float, whole: bool) -> list[float]:
    """Round numbers, not so close to an end that their labels would leave the panel."""
    room = 0.07 * (high - low)
    ticks = MaxNLocator(4, integer=whole).tick_values(low, high)
    return [t for t in ticks if low + room <= t <= high - room]


def _dates(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks of days since 1970: years, or days for short ranges."""
    if high - low > 4 * YEAR:
        years = _ticks(1970 + low / YEAR, 1970 + high / YEAR, True)
        return [(year - 1970) * YEAR for year in years], [f"{year:.0f}" for year in years]
    days = _ticks(low, high, True)[::2]  # their names are long
    return days, [spelled_day(day) for day in days]


# ---------------------------------------------------------------------- bars


def _paint_bars(figure: Figure, left: float, bottom: float, belief: Belief) -> None:
    names, shares = _bars(belief)
    room = max(text_width(n, TEXT - 0.5) for n in names) + 0.06
    height = min(PLOT + AXIS / 2, 0.34 * len(names))
    axes = axes_at(figure, left + room, bottom + PLOT - height, WIDE - room, height)
    thick = 0.8 / len(shares)
    for i, (values, color) in enumerate(zip(shares, _colors(belief), strict=True)):
        y = np.arange(float(len(names))) + thick * (i - (len(shares) - 1) / 2)
        axes.barh(y, values, thick * 0.92, color=color, linewidth=0)
        if len(names) <= MOST_PAIRS or i == len(shares) - 1:
            _paint_percentages(axes, y.tolist(), values)
    axes.set_xlim(0, 1.45)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks(range(len(names)), names, size=TEXT - 0.5, color=INK, parse_math=False)
    axes.tick_params(axis="y", length=0, pad=3)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color(PALE)


def _paint_percentages(axes: Axes, heights: list[float], values: list[float]) -> None:
    for y, value in zip(heights, values, strict=True):
        axes.text(value + 0.03, y, percent(value), size=TEXT - 2, color=FAINT, va="center_baseline")


def _colors(belief: Belief) -> list[str]:
    if belief.after is None and not belief.known:
        return [AFTER]
    return [BEFORE, AFTER]


def _bars(belief: Belief) -> tuple[list[str], list[list[float]]]:
    """Names and probabilities; if there are many, the rarer ones share a bar."""
    shares = [belief.before] if belief.after is None else [belief.before, belief.after]
    names = [shortened(label, 13) for label in belief.variable.labels]
    if len(names) <= MOST_BARS:
        return names, [s.tolist() for s in shares]
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    kept, rest = np.sort(order[: MOST_BARS - 1]), order[MOST_BARS - 1 :]
    joined = [[*s[kept].tolist(), float(s[rest].sum())] for s in shares]
    return [*(names[k] for k in kept), f"{len(rest)} others"], joined


def percent(share: float) -> str:
    """A probability in whole percent, never rounded to 0 % or 100 %."""
    if 0 < share < 0.005:
        return "< 1 %"
    if 0.995 < share < 1:
        return "> 99 %"
    return f"{share:.0%}".replace("%", " %")
