"""One party's real columns under every component of a mixture: a Gaussian with full covariance.

Columns are standardised here and mapped back at the end, so that offsets and units do not matter:
z = (x − shift) / scale. Sums of an M-step are taken about an origin o, in component k with
d = z − o_k and responsibilities w:

    count Σw    first Σw d    second Σw d dᵀ        mean = o + first / count
    covariance = second / count − (first / count)(first / count)ᵀ + reg_covar · I

so that sums of different rows add up and nothing cancels. ``reg_covar`` is in the units of z: a
share of each column's own variance. A column that never changes has scale 1.

Where values are missing, they are integrated out (leaves/multivariate_gaussian.py). A component of
few rows, some of which are seen in part, then has fewer rows than its covariance needs, and is sure
of what it has not seen. So it borrows: where a share s of its rows is seen in part, its covariance
of W columns gets 2 (W + 1) s further rows, that vary as rows do within all components, with their
correlations a little shrunk. Nothing is borrowed where rows are whole or not there at all, and
little where there are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.linalg import solve_triangular

from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.leaves.multivariate_gaussian import MultivariateGaussian
from fedcircuits.circuits.leaves.normal import LOG_ROOT_TWO_PI
from fedcircuits.errors import ParameterError

CHUNK = 4096  # rows at a time: what they need stays in the cache
SAME = 1e-14  # deviation of a column that never changes, relative to its largest value
BORROWED = 2.0  # rows for each row of a covariance and the mean, if all rows are seen in part
FAMILY = MultivariateGaussian()


@dataclass(frozen=True, slots=True, eq=False)
class GaussianFactor:
    """The real columns of one party.

    A state has mean (components, columns) and covariance (components, columns, columns), in the
    units of z.
    """

    names: tuple[str, ...]
    z: Array  # (columns, rows), NaN missing
    shift: Array  # (columns,)
    scale: Array  # (columns,)
    overall: Array  # (columns, columns): covariance of all rows, with reg_covar
    reg_covar: float
    gaps: bool

    @classmethod
    def of(cls, names: tuple[str, ...], x: Array, weight: Array, reg_covar: float) -> Self:
        """``x`` (rows, columns), ``weight`` (rows,)."""
        shift, scale = column_scales(x, weight)
        z = np.ascontiguousarray(((x - shift) / scale).T)
        filled = np.nan_to_num(z)
        total = max(float(weight.sum()), 1e-300)
        overall = (filled * weight) @ filled.T / total + reg_covar * np.eye(len(names))
        overall[np.diag_indices(len(names))] += (np.isnan(z) * weight).sum(axis=1) / total
        return cls(names, z, shift, scale, overall, reg_covar, bool(np.isnan(z).any()))

    @property
    def n_parameters(self) -> int:
        """Numbers that a component learns."""
        width = len(self.names)
        return width + width * (width + 1) // 2

    # ------------------------------------------------------------------ one iteration of EM

    def terms(self, state: Arrays, rows: slice) -> Array:
        """(components, rows): log-density of the rows in the user's units."""
        if self.gaps:
            x = np.ascontiguousarray(self.z[:, rows].T)
            logs = FAMILY.log_density(torch.from_numpy(x), _tensors(state), {}).numpy()
            return np.asarray(logs - ~np.isnan(x) @ np.log(self.scale))
        z, width = self.z[:, rows], len(self.names)
        out = np.empty((len(state["mean"]), z.shape[1]))
        for k, mean in enumerate(state["mean"]):
            root = self._root(state, k)
            inverse = solve_triangular(root, np.eye(width), lower=True)
            constant = np.log(np.diag(inverse)).sum() - np.log(self.scale).sum()
            constant -= width * LOG_ROOT_TWO_PI
            for a in range(0, z.shape[1], CHUNK):
                y = inverse @ (z[:, a : a + CHUNK] - mean[:, None])
                out[k, a : a + CHUNK] = constant - 0.5 * np.einsum("ij,ij->j", y, y)
        return out

    def statistics(self, weight: Array, state: Arrays, origin: Arrays, rows: slice) -> Arrays:
        """Additive sums of rows; weight is (components, rows)."""
        if self.gaps:
            return self._with_gaps(weight, state, origin, rows)
        z, width = self.z[:, rows], len(self.names)
        first = np.zeros((len(weight), width))
        second = np.zeros((len(weight), width, width))
        for a in range(0, z.shape[1], CHUNK):
            for k, mean in enumerate(origin["mean"]):
                d = z[:, a : a + CHUNK] - mean[:, None]
                weighted = d * weight[k, a : a + CHUNK]
                first[k] += weighted.sum(axis=1)
                second[k] += weighted @ d.T
        return {"count": weight.sum(axis=1), "first": first, "second": second}

    def maximise(self, sums: Arrays, state: Arrays, origin: Arrays) -> Arrays:
        """The state that follows from the sums; a component without rows keeps its own."""
        known = sums["count"] > 1e-300
        count = np.where(known, sums["count"], 1.0)
        step = sums["first"] / count[:, None]
        second = sums["second"] / count[:, None, None] - step[:, :, None] * step[:, None, :]
        covariance = (second + np.swapaxes(second, 1, 2)) / 2
        if self.gaps:
            covariance = self._borrowed(covariance, sums["whole"], sums["partial"])
        covariance += self.reg_covar * np.eye(len(self.names))
        return {
            "mean": np.where(known[:, None], origin["mean"] + step, state["mean"]),
            "covariance": np.where(known[:, None, None], covariance, state["covariance"]),
        }

    def _with_gaps(self, weight: Array, state: Arrays, origin: Arrays, rows: slice) -> Arrays:
        """The family's sums are about the state's mean; they are moved to the origin."""
        x, w = np.ascontiguousarray(self.z[:, rows].T), torch.from_numpy(weight)
        statistics = FAMILY.statistics(torch.from_numpy(x), w, _tensors(state))
        count, first, second = (statistics[n].numpy() for n in ("count", "first", "second"))
        move = state["mean"] - origin["mean"]
        cross = first[:, :, None] * move[:, None, :]
        square = move[:, :, None] * move[:, None, :]
        second = second + cross + np.swapaxes(cross, 1, 2) + count[:, None, None] * square
        first = first + count[:, None] * move
        known = ~np.isnan(x)
        whole, some = known.all(axis=1), known.any(axis=1)
        sums = {"count": count, "first": first, "second": second}
        return {**sums, "whole": weight @ whole, "partial": weight @ (some & ~whole)}

    def _borrowed(self, covariance: Array, whole: Array, partial: Array) -> Array:
        """Covariances (components, columns, columns), drawn towards what components have within
        them by the rows of which only a part was seen."""
        seen = whole + partial
        within = np.einsum("k,kij->ij", seen / max(float(seen.sum()), 1e-300), covariance)
        within = within * (1 - FAMILY.shrinkage) + FAMILY.shrinkage * np.diag(np.diag(within))
        lent = BORROWED * (len(within) + 1) * partial / np.maximum(seen, 1e-300)
        share = (lent / np.maximum(seen + lent, 1e-300))[:, None, None]
        return np.asarray(covariance + share * (within - covariance))

    def _root(self, state: Arrays, component: int) -> Array:
        try:
            return np.linalg.cholesky(state["covariance"][component])
        except np.linalg.LinAlgError:
            raise ParameterError(
                f"component {component} has collapsed in {_listed(self.names)}: its covariance is "
                f"not positive definite with reg_covar={self.reg_covar:g}; raise reg_covar, or "
                "use fewer components"
            ) from None

    # ------------------------------------------------------------------ starts

    def of_all_rows(self, components: int) -> Arrays:
        """All components as all rows are."""
        return {
            "mean": np.zeros((components, len(self.names))),
            "covariance": np.repeat(self.overall[None], components, axis=0),
        }

    def restarted(self, state: Arrays, component: int, row: int | None) -> Arrays:
        """One component at a row of the party, or in the middle, as wide as all rows."""
        mean, covariance = state["mean"].copy(), state["covariance"].copy()
        mean[component] = 0.0 if row is None else np.nan_to_num(self.z[:, row])
        covariance[component] = self.overall
        return {"mean": mean, "covariance": covariance}

    # ------------------------------------------------------------------ the user's units

    def in_user_units(self, state: Arrays) -> Arrays:
        """The state in the user's units."""
        return {
            "mean": state["mean"] * self.scale + self.shift,
            "covariance": state["covariance"] * self.scale[:, None] * self.scale,
        }

    def from_user_units(self, names: tuple[str, ...], values: Arrays, size: int) -> Arrays:
        """A state from values in the user's units, some of which may be absent; columns that are
        not of this factor are integrated out."""
        at, state = [names.index(n) for n in self.names], dict(self.of_all_rows(size))
        if "mean" in values:
            state["mean"] = (values["mean"][:, at] - self.shift) / self.scale
        if "covariance" in values:
            covariance = values["covariance"][:, at][:, :, at]
            state["covariance"] = covariance / self.scale[:, None] / self.scale
        return state

    def leaf(self, state: Arrays, component: int) -> tuple[str, Arrays]:
        """The family and parameters of one component, for a circuit."""
        values = self.in_user_units(state)
        mean, covariance = values["mean"][[component]], values["covariance"][[component]]
        if len(self.names) == 1:
            return "gaussian", {"mean": mean, "variance": covariance[:, :, 0]}
        return "multivariate_gaussian", {"mean": mean, "covariance": covariance}

    def collapsed(self, state: Arrays) -> Mapping[int, str]:
        """Components that vary no more than reg_covar in a column that varies over all rows, given
        the columns before it; and that column."""
        least = 2 * max(self.reg_covar, 1e-12)
        usual = np.square(np.diag(np.linalg.cholesky(self.overall + 1e-15 * np.eye(len(self.z)))))
        columns = {}
        for k in range(len(state["mean"])):
            spread = np.square(np.diag(self._root(state, k)))
            thin = np.flatnonzero((spread < least) & (usual > 100 * least))
            if len(thin):
                columns[k] = self.names[int(thin[0])]
        return columns


def column_scales(x: Array, weight: Array) -> tuple[Array, Array]:
    """Mean and deviation of every column, in two passes; 0 and 1 for empty columns."""
    seen = ~np.isnan(x)
    w = seen * weight[:, None]
    total = np.where(w.sum(axis=0) > 0, w.sum(axis=0), 1.0)
    filled = np.where(seen, x, 0.0)
    shift = (w * filled).sum(axis=0) / total
    centred = np.where(seen, x - shift, 0.0)
    shift = shift + (w * centred).sum(axis=0) / total
    scale = np.sqrt((w * np.square(np.where(seen, x - shift, 0.0))).sum(axis=0) / total)
    largest = np.abs(filled).max(axis=0, initial=0.0)
    return shift, np.where(scale > SAME * largest, scale, 1.0)


def _tensors(p: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in p.items()}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")
