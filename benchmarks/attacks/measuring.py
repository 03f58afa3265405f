"""A measure is one figure of one attack on one setting; what a checkout cannot do has none."""

import inspect
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.runner import Cell
from fedcircuits.errors import FedcircuitsError

HERE = Path(__file__).parents[2]
PAGE = pages.RESULTS / "attacks.json"
ONLY = [""]  # what attacks have in their rows that are run; others are left out


@dataclass(frozen=True)
class Measure:
    """``row`` says what was attacked and how; the figure is None where a checkout lacks it."""

    figure: str
    row: Mapping[str, Cell]
    value: float | None


def attempt(figure: str, row: Mapping[str, Cell], attack: Callable[[], float]) -> Measure:
    """The attack's figure; None, with a line on the screen, where the checkout lacks a setting or
    refuses it."""
    if ONLY[0] not in described(row):
        return Measure(figure, row, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Measure(figure, row, float(attack()))
        except (TypeError, FedcircuitsError) as error:
            print(f"not attacked: {described(row)}: {error}", file=sys.stderr)
            return Measure(figure, row, None)


def described(row: Mapping[str, Cell]) -> str:
    return ", ".join(str(value) for value in row.values())


def made(estimator: Any, settings: Mapping[str, Any]) -> Any:
    """The estimator, in the words of the checkout: ``summation`` was ``summing`` once."""
    known = inspect.signature(estimator).parameters
    renamed = {"summation": "summing"} if "summing" in known else {}
    return estimator(**{renamed.get(name, name): value for name, value in settings.items()})


def commit() -> str:
    """Of this checkout, on which figures depend."""
    said = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return subprocess.run(said, capture_output=True, text=True, check=False).stdout.strip()


def kept(path: Path) -> list[Any]:
    """The results that a file has, or else those that the page was made of."""
    if path.is_file():
        return list(json.loads(path.read_text(encoding="utf-8"))["results"])
    return list(json.loads(PAGE.read_text(encoding="utf-8"))["measured"][path.stem])
