"""Laws of a distribution: density, masses, moments, quantiles, mode and samples are consistent."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from scipy.special import chdtrc

from fedcircuits.circuits.graph.family import IMPOSSIBLE, Array
from fedcircuits.testing.leaves.subject import LEVELS, Subject, expect, expect_close

DRAWS = 4000


def normalisation(s: Subject) -> None:
    """The density sums to 1 over the support."""
    ends = s.cuts(np.array([1e-12, 1 - 1e-12]))
    low, high = (-np.inf, np.inf) if s.atomic else (float(ends[0]), float(ends[-1]))
    expect_close(s.expectation(0, low, high), 1.0, "the density sums to", 1e-6, 0.0)


def density(s: Subject) -> None:
    """The mass of every interval (or atom) is the density summed over it."""
    if s.atomic:
        masses = np.array([s.mass(x - s.gap, x + s.gap) for x in s.atoms[:2000]])
        expect_close(s.density(s.atoms[:2000]), masses, "mass of one value", 1e-6, 1e-12)
        return
    cuts = s.cuts(np.linspace(0.001, 0.999, 17))
    for a, b in pairwise(cuts):
        what = f"mass of ({a:.6g}, {b:.6g})"
        expect_close(s.mass(a, b), s.expectation(0, a, b), what, 1e-5, 1e-9)


def support(s: Subject) -> None:
    """The density is zero where an interval has no mass."""
    if s.variable.kind == "count":
        outside = np.array([-1.0, 0.5])
    elif s.variable.discrete:
        return
    else:
        outside = _empty_points(s)
    if len(outside):
        worst = float(s.log_density(outside).max())
        expect(worst <= 0.99 * IMPOSSIBLE, f"log density outside the support is {worst:.6g}")


def _empty_points(s: Subject) -> Array:
    ends = s.quantiles(np.array([1e-9, 1 - 1e-9]))
    reach = ends[1] - ends[0] + s.gap * s.atomic
    points = np.array([ends[0] - 2 * reach, ends[1] + 2 * reach])
    points = points[[float(s.log_density(x)) < -1e6 for x in points]]  # else: very unlikely only
    between = s.atoms[:-1] + s.gap
    return np.concatenate([points, between])


def cdf(s: Subject) -> None:
    """Increases from 0 to 1."""
    for end in (-np.inf, np.inf):
        nothing = s.family.moments(s.p, end, end)
        expect_close(nothing, np.zeros(3), f"moments of the interval ({end}, {end})", 0.0, 0.0)
    cuts = s.cuts(LEVELS)
    values = np.array([float(s.family.cdf(x, s.p)) for x in (-np.inf, *cuts, np.inf)])
    expect_close(values[[0, -1]], np.array([0.0, 1.0]), "cdf at both infinities", 0.0, 1e-9)
    step = np.diff(values).min()
    expect(step >= -1e-12, f"the cdf falls by {-step:.3g}")
    between = np.array([s.mass(a, b) for a, b in pairwise(cuts)])
    expect_close(np.diff(values[1:-1]), between, "difference of cdf against mass", 1e-9, 1e-12)


def quantile(s: Subject) -> None:
    """The smallest x with cdf(x) >= u."""
    levels = np.concatenate([[1e-6, 1e-3], np.linspace(0.013, 0.987, 21), [1 - 1e-3, 1 - 1e-6]])
    for u, x in zip(levels, s.quantiles(levels), strict=True):
        above = s.mass(-np.inf, float(x) + s.gap * s.atomic)
        if s.atomic:
            below = s.mass(-np.inf, float(x) - s.gap)
            good = above >= u - 1e-9 and below < u + 1e-9
            expect(good, f"quantile({u:.6g}) = {x:.6g}, but the cdf is {below:.9g} to {above:.9g}")
        else:
            expect_close(above, u, f"cdf(quantile({u:.6g}))", 0.0, 1e-8)


def moments(s: Subject) -> None:
    """Partial moments agree with the density, in the bulk and in both tails, and add up."""
    edges = s.cuts(np.array([1e-9, 1e-6, 0.01, 0.3, 0.6, 0.95, 1 - 1e-6, 1 - 1e-9]))
    pairs = [*pairwise(edges), (edges[0], edges[-1])]
    for a, b in pairs:
        moments = s.family.moments(s.p, float(a), float(b))
        right = np.array([s.expectation(k, float(a), float(b)) for k in range(3)])
        size = max(abs(a), abs(b)) ** np.arange(3)
        for k in range(3):
            slack = (1e-6 * right[0] + 1e-15) * max(size[k], 1e-300)
            what = f"E[x^{k}; {a:.6g} < x < {b:.6g}]"
            expect_close(float(moments[k]), right[k], what, 1e-5, slack)
    whole = s.family.moments(s.p, -np.inf, np.inf)
    middle = float(edges[len(edges) // 2])
    low, high = (s.family.moments(s.p, *ends) for ends in ((-np.inf, middle), (middle, np.inf)))
    sure = np.isfinite(whole) & np.isfinite(low) & np.isfinite(high)
    expect_close(low[sure] + high[sure], whole[sure], "both halves against the whole", 1e-9, 1e-9)


def mode(s: Subject) -> None:
    """No value of a grid has a higher density."""
    grid = s.atoms if s.atomic else s.quantiles(np.linspace(0.01, 0.99, 199))
    best, there = float(s.log_density(grid).max()), float(s.log_density(s.family.mode(s.p)))
    expect(there >= best - 1e-6, f"log density {there:.6g} at the mode, {best:.6g} elsewhere")


def samples(s: Subject) -> None:
    """Samples fall into intervals as often as their masses say."""
    x = s.draws(DRAWS)
    expect(x.shape == (DRAWS,), f"expected one draw for every distribution, got shape {x.shape}")
    _fits(s, x, s.cuts(np.linspace(0.03, 0.97, 24)), -np.inf, np.inf)


def truncated_samples(s: Subject) -> None:
    """The same within an interval, also in a tail."""
    for low, high in ((0.2, 0.45), (0.0, 0.1), (0.9, 1.0), (1 - 1e-6, 1.0), (0.0, 1e-6)):
        lower, upper = _ends(s, low, high)
        if s.mass(lower, upper) <= 0:
            continue
        x = s.draws(DRAWS, lower, upper)
        outside = float(np.mean((x < lower) | (x > upper)))
        expect(outside == 0, f"{outside:.1%} of draws from ({lower:.6g}, {upper:.6g}) lie outside")
        _fits(s, x, s.cuts(low + (high - low) * np.linspace(0.1, 0.9, 9)), lower, upper)


def _ends(s: Subject, low: float, high: float) -> tuple[float, float]:
    a, b = (float(x) for x in s.quantiles(np.array([max(low, 1e-12), min(high, 1 - 1e-12)])))
    lower = -np.inf if low == 0 else a - s.gap * s.atomic
    return lower, np.inf if high == 1 else b + s.gap * s.atomic


def _fits(s: Subject, x: Array, cuts: Array, lower: float, upper: float) -> None:
    """A chi-square test that a correct sampler fails once in ten million times."""
    cuts = np.concatenate([[lower], cuts[(cuts > lower) & (cuts < upper)], [upper]])
    masses = np.array([s.mass(a, b) for a, b in pairwise(cuts)])
    wanted = masses / masses.sum() * len(x)
    counts = np.histogram(x, np.concatenate([[-np.inf], cuts[1:-1], [np.inf]]))[0]
    common = wanted >= 5
    rare = int(counts[~common].sum())
    expect(rare <= 40 + 3 * wanted[~common].sum(), f"{rare} draws where hardly any should fall")
    distance = float((np.square(counts - wanted)[common] / wanted[common]).sum())
    chance = float(chdtrc(max(int(common.sum()) - 1, 1), distance))
    where = f"between {lower:.6g} and {upper:.6g}"
    expect(chance > 1e-7, f"chi-square {distance:.1f} in {common.sum()} bins {where}")


def single_precision(s: Subject) -> None:
    """float32 agrees closely with float64 on the same float32 numbers."""
    x = torch.as_tensor(s.atoms if s.atomic else s.quantiles(np.linspace(0.01, 0.99, 99))).float()
    p = s.tensors(dtype=torch.float32)
    wide = {k: v.double() for k, v in p.items()}
    single, double = s.family.log_density(x, p), s.family.log_density(x.double(), wide)
    expect(single.dtype == torch.float32, f"float32 in, {single.dtype} out")
    expect_close(single.double().numpy(), double.numpy(), "float32 log density", 1e-3, 1e-3)
