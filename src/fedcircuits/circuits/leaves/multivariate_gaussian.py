"""Multivariate Gaussian leaf: x ~ N(mean, covariance) over W real variables at once.

Values: mean (units, W), covariance (units, W, W). Missing values and regions are handled exactly by
conditioning (``conditional_normal``), but for the mass of regions on several missing columns of one
row, which is scipy's randomised cubature with a fixed seed: absolute error about 1e-6.

EM with missing values: for d = E[x | seen] − mean and C the covariance of x given what was seen,
the sums are count Σw, first Σw d, second Σw (d dᵀ + C). They are taken about the present mean, so
that nothing cancels; then

    mean += first / count        covariance = second / count − (first/count)(first/count)ᵀ

with all eigenvalues at or above the larger of ``minimum_variance`` and 1e-12 of the largest: the
maximum of the likelihood under that bound. Units of few rows may borrow: with ``pooled`` = n each
has n pseudo-rows about its mean with the covariance that all units have within them, whose
correlations are shrunk by ``shrinkage``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from fedcircuits.arguments import Declared, Real
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    LARGEST_VALUE,
    POSITIVE,
    Array,
    Arrays,
    Domain,
    JointFamily,
    Region,
    Tensors,
    log_of,
    require,
    require_value,
)
from fedcircuits.circuits.leaves.conditional_normal import (
    Conditional,
    Pattern,
    condition,
    patterns,
    region_draws,
    region_moments,
    seen_density,
)
from fedcircuits.circuits.leaves.normal import (
    LOG_ROOT_TWO_PI,
    log_below,
    log_interval_mass,
    log_mass_of,
)
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class MultivariateGaussian(JointFamily):
    """Several real variables with a full covariance."""

    name: ClassVar[str] = "multivariate_gaussian"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {"mean": "real", "covariance": "covariance"}
    allowed: ClassVar[Declared] = {
        "minimum_variance": POSITIVE,
        "pooled": Real(least=0),
        "shrinkage": Real(least=0, below=1),
    }
    minimum_variance: float = 1e-6
    pooled: float = 0.0  # pseudo-rows of every unit
    shrinkage: float = 0.1  # of correlations in these

    def shapes(self, variables: tuple[Variable, ...]) -> dict[str, tuple[int | None, ...]]:
        width = len(variables)
        return {"mean": (width,), "covariance": (width, width)}

    def check(self, p: Arrays) -> str | None:
        mean, covariance = p["mean"], p["covariance"]
        wrong = require_value(mean, "mean") or require(
            np.abs(covariance) <= LARGEST_VALUE**2, "covariance must be finite: rescale the columns"
        )
        if wrong:
            return wrong
        if not np.allclose(covariance, np.swapaxes(covariance, -1, -2), rtol=1e-5):
            return "covariance must be symmetric"
        try:
            np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            least = float(np.linalg.eigvalsh(covariance).min())
            return f"covariance must be positive definite, its least eigenvalue is {least:.3g}"
        return None

    def log_density(self, x: Tensor, p: Tensors, regions: Mapping[int, Region]) -> Tensor:
        result = torch.zeros(len(p["mean"]), len(x), dtype=x.dtype, device=x.device)
        missing = torch.isnan(x).cpu().numpy()
        seen = missing.shape[1] - missing.sum(axis=1)
        easy = seen <= 1 if len(regions) <= 1 else np.zeros(len(x), bool)
        if easy.all() and (regions or seen.any()):  # whichever column it is, at once
            return _log_single(x, missing, p, regions)
        if easy.any():
            rows = torch.as_tensor(np.flatnonzero(easy), device=x.device)
            result = result.index_copy(1, rows, _log_single(x[rows], missing[easy], p, regions))
        others = np.flatnonzero(~easy if regions else seen > 1)
        for pattern in patterns(missing[others], tuple(regions)):
            inner = [regions[c] for c in pattern.missing if c in regions]
            if not pattern.seen and not inner:
                continue
            place = torch.as_tensor(others[pattern.rows], device=x.device)
            points = x[place if pattern.seen else place[:1]]  # all are equal
            if inner:
                given = condition(points, pattern, p)
                value = given.log_density + _log_mass(given, inner)
                value = value.expand(-1, len(place))
            else:
                value = seen_density(points, pattern.seen, p)
            for column in set(pattern.seen) & set(regions):
                value = torch.where(_inside(points[:, column], regions[column]), value, IMPOSSIBLE)
            result = result.index_copy(1, place, value)
        return result

    def log_mass(self, p: Arrays, regions: Mapping[int, Region], width: int) -> Array:
        inside, inner = list(regions), list(regions.values())
        mean = p["mean"][:, inside]  # (units, regions)
        covariance = p["covariance"][:, inside][:, :, inside]
        with np.errstate(divide="ignore"):
            if len(inner) > 1:
                return np.log(joint_mass(mean[:, None], covariance, inner)[:, 0])
            deviation = np.sqrt(covariance[:, 0, 0])
            ends = [
                ((a - mean[:, 0]) / deviation, (b - mean[:, 0]) / deviation) for a, b in inner[0]
            ]
            return np.asarray(np.logaddexp.reduce([log_mass_of(a, b) for a, b in ends]))

    def log_density_at(
        self, known: Mapping[int, float], p: Arrays, regions: Mapping[int, Region]
    ) -> Array:
        seen, inside = list(known), list(regions)
        gap = np.array(list(known.values())) - p["mean"][:, seen]  # (units, seen)
        both = p["covariance"][:, [*seen, *inside]][:, :, [*seen, *inside]]
        n = len(seen)
        solved = np.linalg.solve(both[:, :n, :n], np.concatenate(
            [gap[:, :, None], both[:, :n, n:]], axis=2))  # fmt: skip
        _, log_volume = np.linalg.slogdet(both[:, :n, :n])
        square = (gap * solved[:, :, 0]).sum(axis=1)
        log = -0.5 * (square + log_volume) - n * LOG_ROOT_TWO_PI
        if not inside:
            return np.asarray(log)
        cross = both[:, n:, :n]
        given = {
            "mean": p["mean"][:, inside] + (cross @ solved[:, :, :1])[..., 0],
            "covariance": both[:, n:, n:] - cross @ solved[:, :, 1:],
        }
        rest = {i: regions[column] for i, column in enumerate(inside)}
        return np.asarray(log + self.log_mass(given, rest, len(inside)))

    def log_maximum(self, x: Tensor, p: Tensors) -> Tensor:
        result = torch.zeros(len(p["mean"]), len(x), dtype=x.dtype, device=x.device)
        for pattern in patterns(torch.isnan(x).cpu().numpy()):
            given = condition(x[pattern.rows], pattern, p)
            root = torch.linalg.cholesky(given.covariance)
            log_volume = torch.diagonal(root, dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
            peak = -log_volume - len(pattern.missing) * LOG_ROOT_TWO_PI
            rows = torch.as_tensor(pattern.rows, device=x.device)
            result = result.index_copy(1, rows, given.log_density + peak)
        return result

    def statistics(self, x: Tensor, weight: Tensor, p: Tensors) -> dict[str, Tensor]:
        mean = p["mean"]
        first, second = torch.zeros_like(mean), torch.zeros_like(p["covariance"])
        for pattern in patterns(torch.isnan(x).cpu().numpy()):
            rows, missing, w = x[pattern.rows], pattern.missing, weight[:, pattern.rows]
            given = condition(rows, pattern, p)
            deviation = (rows - mean[:, None]).clone()  # (units, rows, W)
            deviation[:, :, missing] = given.mean - mean[:, None, missing]
            weighted = w[..., None] * deviation
            first = first + weighted.sum(1)
            second = second + weighted.mT @ deviation
            hidden = torch.zeros_like(second)
            hidden[:, torch.tensor(missing, dtype=torch.long)[:, None], missing] = (
                w.sum(1)[:, None, None] * given.covariance
            )
            second = second + hidden
        return {"count": weight.sum(1), "first": first, "second": second}

    def maximise(self, sums: Arrays, p: Arrays) -> dict[str, Array]:
        known = sums["count"] > 0
        count = np.where(known, sums["count"], 1.0)
        shift = sums["first"] / count[:, None]
        covariance = sums["second"] / count[:, None, None] - shift[:, :, None] * shift[:, None, :]
        if self.pooled:
            covariance = self._borrowed(covariance, np.where(known, sums["count"], 0.0))
        return {
            "mean": np.where(known[:, None], p["mean"] + shift, p["mean"]),
            "covariance": np.where(
                known[:, None, None], self._bounded(covariance), p["covariance"]
            ),
        }

    def _borrowed(self, covariance: Array, count: Array) -> Array:
        """Covariances (units, W, W), drawn towards their mean by rows."""
        share = count / max(count.sum(), 1e-300)
        within = (1 - self.shrinkage) * np.einsum("u,uij->ij", share, covariance)
        within[np.diag_indices(len(within))] /= 1 - self.shrinkage
        counts = count[:, None, None]
        return np.asarray((counts * covariance + self.pooled * within) / (counts + self.pooled))

    def affine(self, p: Arrays, shift: Array, scale: Array) -> dict[str, Array]:
        return {
            "mean": (p["mean"] - shift) / scale,
            "covariance": p["covariance"] / (scale[:, None] * scale),
        }

    def start(self, x: Array) -> dict[str, Array]:
        """Mean (W,) and diagonal covariance (W, W) of the seen values of x (rows, W)."""
        columns = [column[~np.isnan(column)] for column in x.T]
        mean = np.array([c.mean() if len(c) else 0.0 for c in columns])
        variance = np.array([c.var() if len(c) else 1.0 for c in columns])
        return {"mean": mean, "covariance": np.diag(np.maximum(variance, self.minimum_variance))}

    def _bounded(self, covariance: Array) -> Array:
        covariance = (covariance + np.swapaxes(covariance, -1, -2)) / 2
        values, vectors = np.linalg.eigh(covariance)
        least = np.maximum(self.minimum_variance, 1e-12 * values[:, -1:])
        lifted = (vectors * np.maximum(values, least)[:, None, :]) @ np.swapaxes(vectors, -1, -2)
        low = np.asarray((values < least).any(-1))[:, None, None]
        return np.where(low, (lifted + np.swapaxes(lifted, -1, -2)) / 2, covariance)

    def moments(self, x: Array, p: Arrays, regions: Mapping[int, Region]) -> tuple[Array, Array]:
        units = len(p["mean"])
        first = np.broadcast_to(x, (units, *x.shape)).copy()
        second = np.square(first)
        for pattern in patterns(np.isnan(x), tuple(regions)):
            means, covariances = _conditioned(x[pattern.rows], pattern, p)
            inner = [regions[c] for c in pattern.missing if c in regions]
            at = (pattern.rows[:, None], pattern.missing)
            for unit in range(units):
                root = np.linalg.cholesky(covariances[unit])
                answer = region_moments(means[unit], root, inner)
                first[unit][at], second[unit][at] = answer
        return first, second

    def complete(
        self,
        x: Array,
        unit: npt.NDArray[np.int64],
        p: Arrays,
        regions: Mapping[int, Region],
        rng: np.random.Generator | None,
    ) -> Array:
        result = x.copy()
        for k in np.unique(unit):
            rows = np.flatnonzero(unit == k)
            one = {name: torch.as_tensor(value[k : k + 1]) for name, value in p.items()}
            for pattern in patterns(np.isnan(x[rows]), tuple(regions)):
                given = condition(torch.as_tensor(x[rows[pattern.rows]]), pattern, one)
                inner = [regions[c] for c in pattern.missing if c in regions]
                mean = given.mean[0].cpu().numpy()
                if rng is not None:
                    root = np.linalg.cholesky(given.covariance[0].cpu().numpy())
                    mean = region_draws(rng, mean, root, inner)
                result[rows[pattern.rows][:, None], pattern.missing] = mean
        return result


def _log_single(
    x: Tensor, missing: npt.NDArray[np.bool_], p: Tensors, regions: Mapping[int, Region]
) -> Tensor:
    """(units, rows): log-density of rows x (rows, width) that have seen one column each, or none,
    and of the one region that there may be: the normal of a column given another."""
    seen = torch.as_tensor(missing.argmin(axis=1), device=x.device)  # (rows,)
    some = torch.as_tensor(~missing.all(axis=1), device=x.device).to(x.dtype)  # 0 for none
    mean, covariance = p["mean"], p["covariance"]
    variance = covariance[:, seen, seen]  # (units, rows)
    deviation = x.gather(1, seen[:, None])[:, 0].nan_to_num(0.0) - mean[:, seen]
    value: Tensor = -0.5 * (deviation.square() / variance + variance.log()) - LOG_ROOT_TWO_PI
    value = value * some
    for column, region in regions.items():
        slope = some * covariance[:, column, seen] / variance
        middle = mean[:, column, None] + slope * deviation
        left = covariance[:, column, column, None] - slope * covariance[:, column, seen]
        mass = _within(middle, left.clamp_min(0.0).sqrt(), region)
        known = _inside(x[:, column], region)
        same = (seen == column) & (some > 0)
        value = torch.where(same, torch.where(known, value, IMPOSSIBLE), value + mass)
    return value


def _within(mean: Tensor, deviation: Tensor, region: Region) -> Tensor:
    """Log mass of a region under normals; those without any width lie within it or not."""
    width = deviation.clamp_min(torch.finfo(deviation.dtype).tiny)
    masses = [_log_between(a, b, mean, width) for a, b in region]
    total = masses[0] if len(masses) == 1 else torch.logsumexp(torch.stack(masses), 0)
    return total.clamp_min(IMPOSSIBLE)


def _log_between(a: float, b: float, mean: Tensor, width: Tensor) -> Tensor:
    """Log mass from a to b, either of which may be infinite."""
    if b == np.inf:
        return log_below((mean - a) / width)
    if a == -np.inf:
        return log_below((b - mean) / width)
    return log_interval_mass((a - mean) / width, (b - mean) / width)


def _log_mass(given: Conditional, inner: list[Region]) -> Tensor:
    """(units, rows): log mass of regions on the first columns of the conditional."""
    if not inner:
        return torch.zeros_like(given.log_density)
    if len(inner) > 1:
        return _log_joint_mass(given, inner)
    return _within(given.mean[..., 0], given.covariance[:, 0, 0].sqrt()[:, None], inner[0])


def _log_joint_mass(given: Conditional, inner: list[Region]) -> Tensor:
    size = len(inner)
    mean = given.mean[..., :size].detach().double().cpu().numpy()  # (units, rows, regions)
    covariance = given.covariance[:, :size, :size].detach().double().cpu().numpy()
    return log_of(torch.as_tensor(joint_mass(mean, covariance, inner)).to(given.mean))


def joint_mass(mean: Array, covariance: Array, inner: list[Region]) -> Array:
    """(units, rows): mass of regions on all columns of mean (units, rows, regions)."""
    from scipy.stats import multivariate_normal

    seeded = "rng" in signature(multivariate_normal.cdf).parameters  # since scipy 1.16
    total = np.zeros(mean.shape[:2])
    for box in product(*inner):
        lower, upper = np.array(box).T
        for unit, row in np.ndindex(total.shape):
            total[unit, row] += multivariate_normal.cdf(
                upper - mean[unit, row],
                cov=covariance[unit],
                lower_limit=lower - mean[unit, row],
                abseps=1e-7,
                releps=1e-7,
                **({"rng": np.random.default_rng(0)} if seeded else {}),
            )
    return np.clip(total, 0.0, 1.0)


def _conditioned(x: Array, pattern: Pattern, p: Arrays) -> tuple[Array, Array]:
    """Mean (units, rows, missing) and covariance (units, missing, missing) given what is seen."""
    if not pattern.seen:
        mean = p["mean"][:, None, pattern.missing].repeat(len(x), axis=1)
        return mean, p["covariance"][:, pattern.missing][:, :, pattern.missing]
    given = condition(torch.as_tensor(x), pattern, _tensors(p))
    return given.mean.cpu().numpy(), given.covariance.cpu().numpy()


def _inside(x: Tensor, region: Region) -> Tensor:
    return torch.stack([(x > a) & (x < b) for a, b in region]).any(0)


def _tensors(p: Arrays) -> dict[str, Tensor]:
    return {name: torch.as_tensor(value) for name, value in p.items()}
