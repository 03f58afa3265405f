"""The conformance suite of leaf families: every law of the contract, for any implementation.

``check_leaf`` runs all laws on every distribution it is given and raises one AssertionError that
names each law that failed and by how much. Warnings count as failures. Randomness has a fixed seed
unless a generator is given, so an answer can be repeated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import product
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array, Family, JointFamily, TabledFamily
from fedcircuits.tables.schema import Variable
from fedcircuits.testing.leaves import contract, distribution, joint, learning
from fedcircuits.testing.leaves.subject import Subject

T = TypeVar("T")
LAWS: dict[str, Callable[[Subject], None]] = {
    "refused values": contract.refused_values,
    "axes": contract.axes,
    "normalisation": distribution.normalisation,
    "density": distribution.density,
    "support": distribution.support,
    "cdf": distribution.cdf,
    "quantile": distribution.quantile,
    "moments": distribution.moments,
    "mode": distribution.mode,
    "samples": distribution.samples,
    "truncated samples": distribution.truncated_samples,
    "statistics": learning.statistics,
    "start": learning.start,
    "maximum": learning.maximum,
    "degenerate data": learning.degenerate_data,
    "linear form": learning.linear_form,
    "affine": learning.affine,
    "single precision": distribution.single_precision,
    "gradients": contract.gradients,
}


def check_leaf(
    family: Family | JointFamily,
    parameters: Mapping[str, npt.ArrayLike] | None = None,
    *,
    variable: Variable | None = None,
    rng: np.random.Generator | None = None,
    without: Collection[str] = (),
) -> None:
    """Raise AssertionError unless ``family`` keeps every law of its contract.

    Parameters
    ----------
    family : Family or JointFamily
        The leaf family.
    parameters : mapping of str to array, optional
        Values with any leading axes, every distribution among them is tried; some that the family
        accepts if None. A joint family is tried on two real variables and needs the axis of units.
    variable : Variable, optional
        What the leaf stands over; by default one that fits the parameters.
    rng : numpy.random.Generator, optional
        Draws points and rows.
    without : collection of str, optional
        Names of laws a family is known not to keep (``maximum`` for a fit that is none).
    """
    rng = np.random.default_rng(20) if rng is None else rng
    if unknown := set(without) - LAWS.keys() - joint.LAWS.keys():
        raise ValueError(f"unknown laws {sorted(unknown)}: expected some of {', '.join(LAWS)}")
    if isinstance(family, JointFamily):
        variables = (Variable("a"), Variable("b"))
        values = _arrays(parameters) or example(family, family.shapes(variables))
        subject = joint.JointSubject(family, values, rng)
        _judge(family.name, joint.LAWS, [("", lambda: subject)], without)
        return
    for one in (variable,) if variable else matching_variables(family, _arrays(parameters)):
        values = _arrays(parameters) or example(family, family.shapes(one))
        _judge(family.name, LAWS, _subjects(family, one, values, rng), without)


def _subjects(
    family: Family, variable: Variable, values: dict[str, Array], rng: np.random.Generator
) -> list[tuple[str, Callable[[], Subject]]]:
    trailing = {name: len(shape) for name, shape in family.shapes(variable).items()}
    if trailing.keys() != values.keys():
        raise AssertionError(
            f"{family.name}: parameters are {sorted(values)}, shapes says {sorted(trailing)}"
        )
    leads = [np.shape(v)[: np.ndim(v) - trailing[k]] for k, v in values.items()]
    lead = np.broadcast_shapes(*leads)
    full = {
        k: np.broadcast_to(v, (*lead, *np.shape(v)[np.ndim(v) - trailing[k] :]))
        for k, v in values.items()
    }
    singles = [{k: np.array(v[at]) for k, v in full.items()} for at in np.ndindex(lead)]
    return [(_written(one), partial(Subject, family, variable, one, rng)) for one in singles]


def _written(p: Mapping[str, Array]) -> str:
    return " with " + ", ".join(f"{k} = {np.array2string(v, precision=4)}" for k, v in p.items())


def _arrays(parameters: Mapping[str, npt.ArrayLike] | None) -> dict[str, Array] | None:
    if parameters is None:
        return None
    return {name: np.asarray(value, dtype=np.float64) for name, value in parameters.items()}


def _judge(
    name: str,
    laws: Mapping[str, Callable[[T], None]],
    subjects: list[tuple[str, Callable[[], T]]],
    without: Collection[str],
) -> None:
    failures = []
    for words, make in subjects:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            subject = make()
            for law, holds in laws.items():
                if law not in without and (problem := _problem(holds, subject)):
                    failures.append(f"law {law!r} fails{words}: {problem}")
    if failures:
        raise AssertionError(f"family {name!r} breaks its contract\n  " + "\n  ".join(failures))


def _problem(holds: Callable[[T], None], subject: T) -> str | None:
    try:
        holds(subject)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a law that cannot be tried is not kept
        return f"{type(error).__name__}: {error}"
    return None


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
