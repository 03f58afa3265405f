"""Laws of the form of the contract: axes, rejected values, gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array
from fedcircuits.testing.leaves.subject import Subject, expect, expect_close


def axes(s: Subject) -> None:
    """Leading axes are any batch of distributions; values broadcast against them."""
    p, x = s.repeated(2, 3), s.draws(5)
    alone = s.log_density(x)
    cube = s.log_density(x[:, None, None], p)
    _shape("log_density", cube, (5, 2, 3))
    expect_close(cube, np.broadcast_to(alone[:, None, None], cube.shape), "batch", 1e-9, 1e-12)
    rows = torch.as_tensor(x[:, None, None])
    statistics = s.family.statistics(rows, s.tensors(p)).numpy()
    full = np.broadcast_to(statistics, (len(statistics), 5, 2, 3))
    one = s.family.statistics(torch.as_tensor(x), s.tensors()).numpy()
    expect_close(full, one[:, :, None, None], "statistics in a batch", 1e-9, 1e-12)
    fitted = s.family.maximise(np.full((2, 3), 5.0), full.sum(1), p)
    for name, value in p.items():
        _shape(f"maximise()[{name!r}]", fitted[name], value.shape)
    _shape("moments", s.family.moments(p, -1.0, 1.0), (3, 2, 3))
    _shape("mass", s.family.mass(p, -1.0, 1.0), (2, 3))
    _shape("quantile", s.family.quantile(np.full((2, 3), 0.3), p), (2, 3))
    _shape("mode", s.family.mode(p), (2, 3))
    _shape("sample", s.family.sample(s.rng, p), (2, 3))


def _shape(what: str, value: Array, shape: Sequence[int]) -> None:
    expect(np.shape(value) == tuple(shape), f"{what} has shape {np.shape(value)}, not {shape}")


def refused_values(s: Subject) -> None:
    """``check`` accepts these parameters, and none that do not define a distribution."""
    wrong = s.family.check(s.p)
    expect(wrong is None, f"the parameters given are refused: {wrong}")
    for name, value in s.p.items():
        for bad in (np.nan, np.inf, -np.inf):
            with_bad = s.p | {name: np.full_like(value, bad)}
            expect(s.family.check(with_bad) is not None, f"check accepts {name} = {bad}")
        for factor in (-1.0, 0.0, 2.0):
            changed = s.p | {name: value * factor}
            if s.family.check(changed) is None:
                _sums_to_one(s, changed, f"check accepts {factor} · {name}, which")


def _sums_to_one(s: Subject, p: dict[str, Array], what: str) -> None:
    other = Subject(s.family, s.variable, p, s.rng)
    ends = other.cuts(np.array([1e-12, 1 - 1e-12]))
    low, high = (-np.inf, np.inf) if other.atomic else (ends[0], ends[-1])
    total = other.expectation(0, float(low), float(high))
    if not s.variable.levels or s.variable.levels > float(other.family.mode(p)):
        expect_close(total, 1.0, f"{what} sums to", 1e-4, 0.0)


def gradients(s: Subject) -> None:
    """Derivatives by the parameters are finite and agree with differences."""
    levels = np.array([0.111, 0.377, 0.642, 0.913])
    x = torch.as_tensor(np.unique(s.quantiles(levels)))
    names = list(s.p)
    fixed = [torch.as_tensor(s.p[name]) for name in names]

    def shifted(*steps: torch.Tensor) -> torch.Tensor:
        moved = (
            torch.where(value == 0, value + 0 * step, value + value.abs() * step)
            for value, step in zip(fixed, steps, strict=True)
        )
        return s.family.log_density(x, dict(zip(names, moved, strict=True)))

    steps = tuple(torch.zeros_like(v, requires_grad=True) for v in fixed)
    if shifted(*steps).requires_grad:
        torch.autograd.gradcheck(shifted, steps, eps=1e-6, atol=1e-4, rtol=1e-3)
