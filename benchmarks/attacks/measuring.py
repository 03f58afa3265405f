"""A measure is one figure of one attack on one setting; what a checkout cannot do has none."""

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.runner import Cell
from fedcircuits.errors import FedcircuitsError


@dataclass(frozen=True)
class Measure:
    """``row`` says what was attacked and how; the figure is None where a checkout lacks it."""

    figure: str
    row: Mapping[str, Cell]
    value: float | None


def attempt(figure: str, row: Mapping[str, Cell], attack: Callable[[], float]) -> Measure:
    """The attack's figure; None, with a line on the screen, where the checkout lacks a setting or
    refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Measure(figure, row, float(attack()))
        except (TypeError, FedcircuitsError) as error:
            said = ", ".join(str(value) for value in row.values())
            print(f"not attacked: {said}: {error}", file=sys.stderr)
            return Measure(figure, row, None)


def made(estimator: Any, settings: Mapping[str, Any]) -> Any:
    """The estimator, in the words of the checkout: ``summation`` was ``summing`` once."""
    known = inspect.signature(estimator).parameters
    renamed = {"summation": "summing"} if "summing" in known else {}
    return estimator(**{renamed.get(name, name): value for name, value in settings.items()})
