"""Laws of learning: statistics add up, and the fit is a maximum that never degenerates."""

from __future__ import annotations

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array, LinearFamily
from fedcircuits.testing.leaves.subject import Subject, expect, expect_close

ROWS = 4000
SLACK = 2e-5  # log likelihood per row that a prior or a floor may cost


def statistics(s: Subject) -> None:
    """A row's statistics do not depend on its companions; weight 2 is the row twice."""
    x = s.draws(60)
    together = _statistics(s, x, s.p)
    alone = np.concatenate([_statistics(s, x[i : i + 1], s.p) for i in range(len(x))], -1)
    expect_close(together, alone, "statistics of rows together against alone", 1e-9, 1e-12)
    expect(np.isfinite(together), "statistics of possible values must be finite")
    weight = s.rng.integers(0, 3, len(x)).astype(np.float64)
    weighted = s.family.maximise(np.array(weight.sum()), (together * weight).sum(-1), s.p)
    twice = _statistics(s, np.repeat(x, weight.astype(int)), s.p)
    repeated = s.family.maximise(np.array(float(twice.shape[-1])), twice.sum(-1), s.p)
    for name in weighted:
        what = f"{name} from weights against repetition"
        expect_close(weighted[name], repeated[name], what, 1e-6, 1e-9)


def maximum(s: Subject) -> None:
    """The fit to a large weighted sample is close to the truth and a local maximum."""
    x, weight = s.draws(ROWS), s.rng.uniform(0, 2, ROWS)
    start = _fit(s, x, s.rng.exponential(1.0, ROWS), s.p, 1)
    best = _fit(s, x, weight, start, 200)
    slack = SLACK * weight.sum()
    top, true = _likelihood(s, x, weight, best), _likelihood(s, x, weight, s.p)
    expect(top >= true - slack, f"the fit is less likely than the truth by {true - top:.4g}")
    for u, cut in ((u, s.cuts(np.array([u]))) for u in (0.1, 0.3, 0.5, 0.7, 0.9)):
        estimate, right = (float(s.family.cdf(float(cut[0]), p)) for p in (best, s.p))
        expect_close(estimate, right, f"cdf of the fit at the {u} quantile", 0.0, 0.06)
    other = _fit(s, x, weight * s.rng.exponential(1.0, ROWS) ** 2, start, 200)
    for step in (-0.5, -0.1, 0.1, 0.5, 1.0):
        near = {k: best[k] + step * (other[k] - best[k]) for k in best}
        if s.family.check(near) is None:
            gain = _likelihood(s, x, weight, near) - top
            expect(gain <= slack, f"parameters near the fit are likelier by {gain:.4g}")


def start(s: Subject) -> None:
    """The initial parameters give positive probability to every value seen."""
    many = s.draws(200)
    for x in (many, many[:1], np.repeat(many[:1], 50), np.empty(0)):
        p = s.family.start(x, s.variable)
        wrong = s.family.check(p)
        expect(wrong is None, f"start from {len(x)} rows: {wrong}")
        for name, shape in s.family.shapes(s.variable).items():
            expect(np.ndim(p[name]) == len(shape), f"start gives {name!r} leading axes")
        lowest = float(s.log_density(x, p).min(initial=0.0))
        expect(
            lowest > -1e6, f"start from {len(x)} rows gives one of them log density {lowest:.6g}"
        )


def degenerate_data(s: Subject) -> None:
    """Constant data, one row, tiny or zero weight give a distribution."""
    middle = float(s.quantiles(np.array([0.5]))[0])
    for value in {middle, 0.0, 1.0}:
        if float(s.log_density(np.array(value))) < -1e6:
            continue
        for rows, weight in ((100, 1.0), (1, 1.0), (1, 1e-9)):
            what = f"{rows} rows of {value:.6g} with weight {weight}"
            x = np.full(rows, value)
            fit = _fit(s, x, np.full(rows, weight), s.p, 10)
            _still_a_distribution(s, fit, value, what)
    zero = np.zeros_like(_statistics(s, np.array([middle]), s.p)[..., 0])
    kept = s.family.maximise(np.zeros(()), zero, s.p)
    for name, old in s.p.items():
        expect(np.array_equal(kept[name], old), f"a count of zero must keep {name!r}")
    _zero_beside_others(s)


def _still_a_distribution(s: Subject, p: dict[str, Array], value: float, what: str) -> None:
    wrong = s.family.check(p)
    expect(wrong is None, f"after {what}: {wrong}")
    there = float(s.log_density(np.array(value), p))
    expect(np.isfinite(there) and there > -1e6, f"after {what}: log density {there:.6g} there")
    if not s.atomic:
        reach = 1e-9 * (1 + abs(value))
        held = float(s.family.mass(p, value - reach, value + reach))
        expect(held < 0.999, f"after {what}: all mass within {reach:.1g} of one point")


def _zero_beside_others(s: Subject) -> None:
    """A unit that no row reached is kept while its neighbour is fitted."""
    p, x = s.repeated(2), s.draws(50)
    total = _statistics(s, x, s.p).sum(-1)
    sums = np.stack([np.zeros_like(total), total], -1)
    pair = s.family.maximise(np.array([0.0, 50.0]), sums, p)
    alone = s.family.maximise(np.array(50.0), total, s.p)
    for name, value in s.p.items():
        expect(np.array_equal(pair[name][0], value), f"a count of zero must keep {name!r}")
        expect_close(pair[name][1], alone[name], f"{name} beside a count of zero", 1e-9, 1e-12)


def linear_form(s: Subject) -> None:
    """natural · statistics + constant is the log density, with ``width`` statistics."""
    if not isinstance(s.family, LinearFamily):
        return
    x = s.atoms if s.atomic else s.quantiles(np.linspace(0.01, 0.99, 50))
    coefficients, constant = (t.numpy() for t in s.family.natural(s.tensors()))
    statistics = _statistics(s, x, s.p)
    expect(np.isfinite(statistics), "statistics must be finite")
    width = s.family.width(s.variable)
    expect(len(statistics) == width, f"width says {width} statistics, there are {len(statistics)}")
    terms = coefficients[:, None] * statistics
    slack = 1e-9 + 1e-13 * float(np.abs(terms).max() + np.abs(constant))
    total = terms.sum(0) + constant
    expect_close(total, s.log_density(x), "natural · statistics + constant", 1e-9, slack)


def affine(s: Subject) -> None:
    """Parameters of (x − shift) / scale give the density of the changed variable."""
    if not isinstance(s.family, LinearFamily):
        return
    for shift, scale in ((0.7, 3.0), (-20.0, 0.1)):
        moved = s.family.affine(s.p, np.array(shift), np.array(scale))
        if moved is None:
            return
        x = s.quantiles(np.linspace(0.01, 0.99, 50))
        log_density = s.log_density((x - shift) / scale, moved) - np.log(scale)
        what = f"density of (x − {shift}) / {scale}"
        expect_close(log_density, s.log_density(x), what, 1e-6, 1e-6)


def _fit(s: Subject, x: Array, weight: Array, p: dict[str, Array], rounds: int) -> dict[str, Array]:
    count, before = np.asarray(weight.sum()), -np.inf
    for _ in range(rounds):
        p = s.family.maximise(count, (_statistics(s, x, p) * weight).sum(-1), p)
        after = _likelihood(s, x, weight, p)
        if abs(after - before) <= 1e-12 * (1 + abs(after)):
            break
        before = after
    return p


def _statistics(s: Subject, x: Array, p: dict[str, Array]) -> Array:
    return np.asarray(s.family.statistics(torch.as_tensor(x), s.tensors(p)).numpy())


def _likelihood(s: Subject, x: Array, weight: Array, p: dict[str, Array]) -> float:
    return float(s.log_density(x, p) @ weight)
