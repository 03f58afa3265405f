"""Parameters and variables to try a family on when none are given."""

from __future__ import annotations

from itertools import product

import numpy as np

from fedcircuits.circuits.graph.family import Array, Family, JointFamily, TabledFamily
from fedcircuits.tables.schema import Variable

SCALARS = (0.5, 0.02, 1.0, 3.0)
Shapes = dict[str, tuple[int | None, ...]]


def matching_variables(family: Family, parameters: dict[str, Array] | None) -> tuple[Variable, ...]:
    """One variable of every kind the family models; just one where parameters must fit it."""
    every = {
        "real": Variable("x"),
        "count": Variable("x", "count", most=2 if isinstance(family, TabledFamily) else None),
        "category": Variable("x", "category", tuple("abc")),
        "boolean": Variable("x", "boolean"),
    }
    if parameters is None:
        return tuple(every[kind] for kind in every if kind in family.kinds)
    sizes = [Variable("x", "category", tuple(map(str, range(n)))) for n in range(2, 65)]
    for candidate in (every["real"], every["count"], every["boolean"], *sizes):
        if candidate.kind in family.kinds and _fits(family.shapes(candidate), parameters):
            return (candidate,)
    raise AssertionError(f"{family.name}: no variable has parameters of these shapes")


def _fits(shapes: Shapes, parameters: dict[str, Array]) -> bool:
    return all(_ends_in(np.shape(parameters.get(k, ())), shape) for k, shape in shapes.items())


def _ends_in(whole: tuple[int, ...], end: tuple[int | None, ...]) -> bool:
    last = whole[len(whole) - len(end) :]
    return len(whole) >= len(end) and all(
        wanted in (None, got) for wanted, got in zip(end, last, strict=True)
    )


def example(family: Family | JointFamily, shapes: Shapes) -> dict[str, Array]:
    """The first of some usual values that the family accepts."""
    units = isinstance(family, JointFamily)
    choices = [_choices(shape, start) for start, shape in enumerate(shapes.values())]
    for values in product(*choices):
        p = {
            name: np.array([value, value]) if units else value
            for name, value in zip(shapes, values, strict=True)
        }
        if family.check(p) is None:
            return p
    raise ValueError(f"family {family.name!r} accepts none of the usual values: give parameters")


def _choices(shape: tuple[int | None, ...], start: int) -> list[Array]:
    if not shape:
        turned = SCALARS[start % 4 :] + SCALARS[: start % 4]
        return [np.array(value) for value in turned]
    if len(shape) == 1:
        sizes = (3, 4) if shape[0] is None else (shape[0],)
        shares = [np.arange(1.0, n + 1) / (n * (n + 1) / 2) for n in sizes]
        return shares + [np.square(np.arange(n)) - 0.5 for n in sizes]
    size = shape[0] or 2
    return [np.eye(size) + 0.3 * (1 - np.eye(size))]
