"""Laws of a joint family, tested on two real variables by brute force on a grid.

The box extends twelve standard deviations around the mean of a unit, according to ``moments``;
the ``normalisation`` law detects errors in these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array, JointFamily, Region
from fedcircuits.testing.leaves.subject import expect, expect_close

NOTHING: Mapping[int, Region] = {}
DRAWS = 4000
RULE = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class JointSubject:
    family: JointFamily
    p: dict[str, Array]
    rng: np.random.Generator
    units: int = field(init=False)
    mean: Array = field(init=False)  # (units, 2)
    deviation: Array = field(init=False)  # (units, 2)

    def __post_init__(self) -> None:
        first, second = self.family.moments(np.full((1, 2), np.nan), self.p, NOTHING)
        object.__setattr__(self, "units", len(first))
        object.__setattr__(self, "mean", first[:, 0])
        object.__setattr__(self, "deviation", np.sqrt(second - np.square(first))[:, 0])

    def log_density(
        self, x: Array, regions: Mapping[int, Region] = NOTHING, p: dict[str, Array] | None = None
    ) -> Array:
        answer = self.family.log_density(torch.as_tensor(x), self.tensors(p), regions)
        return np.asarray(answer.numpy())

    def tensors(
        self, p: dict[str, Array] | None = None, dtype: torch.dtype = torch.float64
    ) -> dict[str, torch.Tensor]:
        return {k: torch.as_tensor(v).to(dtype) for k, v in (p or self.p).items()}

    def line(
        self, unit: int, column: int, lower: float = -np.inf, upper: float = np.inf
    ) -> tuple[Array, Array]:
        """Nodes and weights to integrate a column within an interval."""
        centre, width = self.mean[unit, column], 12 * self.deviation[unit, column]
        a, b = max(lower, centre - width), min(upper, centre + width)
        knots = np.linspace(a, b, 25)
        half = np.diff(knots)[:, None] / 2
        nodes = (knots[:-1, None] + half * (1 + RULE[0])).reshape(-1)
        return nodes, (half * RULE[1]).reshape(-1)

    def plane(self, unit: int, regions: Mapping[int, tuple[float, float]]) -> tuple[Array, Array]:
        """Points (n, 2) and weights (n,) of a rectangle, times the density."""
        (x, u), (y, v) = (self.line(unit, c, *regions.get(c, (-np.inf, np.inf))) for c in (0, 1))
        points = np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)
        return points, np.outer(u, v).reshape(-1) * np.exp(self.log_density(points)[unit])

    def draws(self, unit: int, count: int) -> Array:
        blank = np.full((count, 2), np.nan)
        return self.family.complete(blank, np.full(count, unit), self.p, NOTHING, self.rng)

    def interval(self, unit: int, column: int, low: float, high: float) -> tuple[float, float]:
        centre, width = self.mean[unit, column], self.deviation[unit, column]
        return float(centre + low * width), float(centre + high * width)


def normalisation(s: JointSubject) -> None:
    """The density integrates to 1; with everything missing it is 1."""
    for unit in range(s.units):
        total = float(s.plane(unit, {})[1].sum())
        expect_close(total, 1.0, f"the density of unit {unit} integrates to", 1e-6, 0.0)
    blank = s.log_density(np.full((1, 2), np.nan))
    expect_close(blank, np.zeros_like(blank), "log density of nothing seen", 0.0, 1e-9)


def marginals(s: JointSubject) -> None:
    """A missing value is integrated out, in rows of any mixture of patterns."""
    for unit in range(s.units):
        for column in (0, 1):
            nodes, weights = s.line(unit, 1 - column)
            value = s.interval(unit, column, 0.3, 0.7)[0]
            full = np.full((len(nodes), 2), value)
            full[:, 1 - column] = nodes
            right = float(np.exp(s.log_density(full)[unit]) @ weights)
            part = np.full((3, 2), np.nan)
            part[0, column], part[2] = value, s.mean[unit]
            density = np.exp(s.log_density(part)[unit])
            expect_close(density[0], right, f"marginal of column {column}", 1e-6, 0.0)
            peak = float(np.exp(s.log_density(part[2:])[unit, 0]))
            expect_close(density[1:], np.array([1.0, peak]), "rows beside it", 1e-6, 0.0)


def regions(s: JointSubject) -> None:
    """Masses of one interval, of two, of a rectangle, and of an interval beside a seen value."""
    blank = np.full((1, 2), np.nan)
    for unit in range(s.units):
        first, second = s.interval(unit, 0, -0.5, 1.0), s.interval(unit, 1, 0.2, 9.0)
        tail = s.interval(unit, 0, 2.0, 3.0)
        one, far = (float(s.plane(unit, {0: r})[1].sum()) for r in (first, tail))
        box = float(s.plane(unit, {0: first, 1: second})[1].sum())
        cases: list[tuple[Mapping[int, Region], float]] = [
            ({0: (first,)}, one),
            ({0: (first, tail)}, one + far),
            ({0: (first,), 1: (second,)}, box),
        ]
        for region, right in cases:
            mass = float(np.exp(s.log_density(blank, region)[unit, 0]))
            expect_close(mass, right, f"mass of {dict(region)}", 1e-4, 1e-6)
        _region_beside_value(s, unit, first)


def _region_beside_value(s: JointSubject, unit: int, ends: tuple[float, float]) -> None:
    nodes, weights = s.line(unit, 0, *ends)
    value = s.interval(unit, 1, 0.4, 1.0)[0]
    rows = np.stack([nodes, np.full_like(nodes, value)], -1)
    right = float(np.exp(s.log_density(rows)[unit]) @ weights)
    log_density = s.log_density(np.array([[np.nan, value]]), {0: (ends,)})
    expect_close(
        float(np.exp(log_density[unit, 0])), right, "region beside a seen value", 1e-6, 1e-12
    )


def moments(s: JointSubject) -> None:
    """E[x] and E[x²], free, inside regions and beside a seen value."""
    blank = np.full((1, 2), np.nan)
    for unit in range(s.units):
        first, second = s.interval(unit, 0, -0.5, 1.0), s.interval(unit, 1, 0.2, 9.0)
        for limits, slack in (({}, 1e-6), ({0: first}, 1e-6), ({0: first, 1: second}, 5e-3)):
            points, weights = s.plane(unit, limits)
            weights = weights / weights.sum()
            region = {c: (ends,) for c, ends in limits.items()}
            moments = s.family.moments(blank, s.p, region)
            scale = np.abs(s.mean[unit]) + s.deviation[unit]
            for power in (1, 2):
                right = weights @ points**power
                over = moments[power - 1][unit, 0] / scale**power
                what = f"E[x^{power}] in {limits}"
                expect_close(over, right / scale**power, what, 0.0, slack)
        _moments_beside_value(s, unit)


def _moments_beside_value(s: JointSubject, unit: int) -> None:
    nodes, weights = s.line(unit, 1)
    value = s.interval(unit, 0, 0.8, 1.0)[0]
    rows = np.stack([np.full_like(nodes, value), nodes], -1)
    weights = weights * np.exp(s.log_density(rows)[unit])
    right = np.array([weights @ nodes, weights @ nodes**2]) / weights.sum()
    moments = s.family.moments(np.array([[value, np.nan]]), s.p, NOTHING)
    expect_close(moments[0][unit, 0, 0], value, "E[x] of a seen value", 1e-12, 0.0)
    got = np.array([moments[0][unit, 0, 1], moments[1][unit, 0, 1]])
    expect_close(got, right, "E[x], E[x²] beside a seen value", 1e-6, 1e-9)


def highest(s: JointSubject) -> None:
    """``log_maximum`` is the density at ``complete`` without randomness, and no other is higher."""
    for unit in range(s.units):
        for rows in (np.full((1, 2), np.nan), np.array([[s.interval(unit, 0, 0.8, 1)[0], np.nan]])):
            top = float(s.family.log_maximum(torch.as_tensor(rows), s.tensors())[unit, 0])
            best = s.family.complete(rows, np.array([unit]), s.p, NOTHING, None)
            there = float(s.log_density(best)[unit, 0])
            expect_close(there, top, "density of the most probable completion", 1e-9, 1e-9)
            tries = np.repeat(rows, 500, 0)
            tries = s.family.complete(tries, np.full(500, unit), s.p, NOTHING, s.rng)
            most = float(s.log_density(tries)[unit].max())
            expect(most <= top + 1e-9, f"a draw is denser than the maximum by {most - top:.3g}")


def samples(s: JointSubject) -> None:
    """Samples fall into cells as often as the density says: free, conditional and inside
    regions."""
    for unit in range(s.units):
        value = s.interval(unit, 0, 0.8, 1.0)[0]
        near, far = s.interval(unit, 1, -0.3, 0.9), s.interval(unit, 0, 1.5, 9.0)
        cases: list[tuple[float, Mapping[int, Region]]] = [
            (np.nan, {}),
            (value, {}),
            (value, {1: (near,)}),
            (np.nan, {0: (far,)}),
            (np.nan, {0: (far,), 1: (near,)}),
        ]
        for given, region in cases:
            blank = np.array([[given, np.nan]])
            rows = np.repeat(blank, DRAWS, 0)
            x = s.family.complete(rows, np.full(DRAWS, unit), s.p, region, s.rng)
            expect(not np.isnan(x).any(), "complete leaves values missing")
            for column, ends in region.items():
                inside = (x[:, column] >= ends[0][0]) & (x[:, column] <= ends[0][1])
                expect(inside, f"{np.mean(~inside):.1%} of draws lie outside {region}")
            for free in map(int, np.flatnonzero(np.isnan(blank[0]))):
                _right_shares(s, unit, blank, free, x[:, free], region)


def _right_shares(
    s: JointSubject, unit: int, blank: Array, column: int, x: Array, region: Mapping[int, Region]
) -> None:
    ends = region.get(column, ((-np.inf, np.inf),))[0]
    whole = float(s.log_density(blank, region)[unit, 0])
    for level in (0.15, 0.5, 0.85):
        cut = float(np.quantile(x, level))
        part = dict(region) | {column: ((ends[0], cut),)}
        right = float(np.exp(s.log_density(blank, part)[unit, 0] - whole))
        what = f"share of draws of column {column} below {cut:.4g} in {dict(region)}"
        expect_close(float(np.mean(x < cut)), right, what, 0.0, 0.045)


def statistics(s: JointSubject) -> None:
    """Sums over parts add to the sum over all; weight 2 is the row twice."""
    x = _rows(s, 40)
    weight = s.rng.integers(0, 3, (s.units, len(x))).astype(np.float64)
    whole, head, tail = (_sums(s, x[i], weight[:, i]) for i in (np.s_[:], np.s_[:13], np.s_[13:]))
    for name, value in whole.items():
        expect_close(head[name] + tail[name], value, f"sums of {name!r} in parts", 1e-9, 1e-9)
    twice = _sums(s, np.repeat(x, 2, 0), np.ones((s.units, 2 * len(x))))
    double = _sums(s, x, np.full((s.units, len(x)), 2.0))
    for name, value in twice.items():
        expect_close(double[name], value, f"sums of {name!r} with weight 2", 1e-9, 1e-9)


def start(s: JointSubject) -> None:
    """The initial parameters are a distribution, whatever is missing."""
    many = _rows(s, 200)
    for x in (many, many[:1], np.full((3, 2), np.nan), np.empty((0, 2))):
        p = {name: value[None] for name, value in s.family.start(x).items()}
        wrong = s.family.check(p)
        expect(wrong is None, f"start from {len(x)} rows: {wrong}")
        log_density = s.log_density(x, p=p)
        expect(
            log_density.shape == (1, len(x)), f"start gives {len(log_density)} units, expected one"
        )
        expect(np.isfinite(log_density), f"start from {len(x)} rows: a log density is not finite")


def maximum(s: JointSubject) -> None:
    """EM with a fifth of the values missing increases the likelihood, beyond that of the truth."""
    for unit in range(s.units):
        x = _rows(s, 2000, unit)
        weight = np.zeros((s.units, len(x)))
        weight[unit] = s.rng.uniform(0, 2, len(x))
        p, before = _fit(s, x, s.rng.exponential(1.0, weight.shape), s.p, 1), -np.inf
        for _ in range(30):
            p = _fit(s, x, weight, p, 1)
            after = float(s.log_density(x, p=p)[unit] @ weight[unit])
            slack = 1e-7 * abs(after)
            expect(after >= before - slack, f"EM lost {before - after:.4g} of log likelihood")
            before = after
        true = float(s.log_density(x)[unit] @ weight[unit])
        expect(before >= true - 0.1, f"the fit is {true - before:.4g} less likely than the truth")


def degenerate_data(s: JointSubject) -> None:
    """Constant rows, one row, collinear columns or zero weight give a distribution."""
    centre = s.mean[0]
    line = centre + np.linspace(-1, 1, 50)[:, None] * s.deviation[0]
    for what, x in (("constant", np.tile(centre, (50, 1))), ("one", centre[None]), ("line", line)):
        p = _fit(s, x, np.ones((s.units, len(x))), s.p, 10)
        wrong = s.family.check(p)
        expect(wrong is None, f"after {what} rows: {wrong}")
        expect(np.isfinite(s.log_density(x, p=p)), f"after {what} rows the density is not finite")
    kept = _fit(s, line, np.zeros((s.units, len(line))), s.p, 1)
    for name, value in s.p.items():
        expect(np.array_equal(kept[name], value), f"a count of zero must keep {name!r}")


def refused_values(s: JointSubject) -> None:
    """``check`` accepts these parameters, and none that are not finite."""
    wrong = s.family.check(s.p)
    expect(wrong is None, f"the parameters given are refused: {wrong}")
    for name, value in s.p.items():
        for bad in (np.nan, np.inf):
            refused = s.family.check(s.p | {name: np.full_like(value, bad)})
            expect(refused is not None, f"check accepts {name} = {bad}")


def single_precision(s: JointSubject) -> None:
    x = torch.as_tensor(_rows(s, 50)).float()
    p = s.tensors(dtype=torch.float32)
    single = s.family.log_density(x, p, NOTHING)
    double = s.family.log_density(x.double(), {k: v.double() for k, v in p.items()}, NOTHING)
    expect(single.dtype == torch.float32, f"float32 in, {single.dtype} out")
    expect_close(single.double().numpy(), double.numpy(), "float32 log density", 1e-3, 1e-3)


def gradients(s: JointSubject) -> None:
    x = torch.as_tensor(_rows(s, 4))
    names = list(s.p)
    values = tuple(torch.as_tensor(s.p[n]).requires_grad_() for n in names)

    def answer(*p: torch.Tensor) -> torch.Tensor:
        return s.family.log_density(x, dict(zip(names, map(_even, p), strict=True)), NOTHING)

    torch.autograd.gradcheck(answer, values, atol=1e-4, rtol=1e-3)


def _even(value: torch.Tensor) -> torch.Tensor:
    """A symmetric matrix stays one while a single element is moved."""
    square = value.ndim == 3 and value.shape[-1] == value.shape[-2]
    return (value + value.mT) / 2 if square and torch.allclose(value, value.mT, 1e-3) else value


def _rows(s: JointSubject, count: int, unit: int = 0) -> Array:
    """Draws of a unit with a fifth of the values missing."""
    x = s.draws(unit, count)
    x[s.rng.random(x.shape) < 0.2] = np.nan
    return x


def _sums(
    s: JointSubject, x: Array, weight: Array, p: dict[str, Array] | None = None
) -> dict[str, Array]:
    sums = s.family.statistics(torch.as_tensor(x), torch.as_tensor(weight), s.tensors(p))
    return {name: value.numpy() for name, value in sums.items()}


def _fit(
    s: JointSubject, x: Array, weight: Array, p: dict[str, Array], rounds: int
) -> dict[str, Array]:
    for _ in range(rounds):
        p = s.family.maximise(_sums(s, x, weight, p), p)
    return p


LAWS: dict[str, Callable[[JointSubject], None]] = {
    "refused values": refused_values,
    "normalisation": normalisation,
    "marginals": marginals,
    "regions": regions,
    "moments": moments,
    "mode": highest,
    "samples": samples,
    "statistics": statistics,
    "start": start,
    "maximum": maximum,
    "degenerate data": degenerate_data,
    "single precision": single_precision,
    "gradients": gradients,
}
