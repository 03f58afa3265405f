"""What is predicted: classes or a number.

Kinds of columns are inferred from their values: labels 0, 1 and 2 look like counts, and like reals
if one of them is missing. As the target, a few whole numbers are more often labels, so they are
taken as classes (task="auto") unless the user says otherwise.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fedcircuits.arguments import Choice
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.methods.meeting.task import TargetTask
from fedcircuits.tables.schema import Schema, Variable

Task: TypeAlias = Literal["auto", "classes", "number"]
TASK = Choice(*get_args(Task))


def task_of_parties(schema: Schema, name: str | None, task: Task) -> TargetTask:
    """What parties find out about the target when they meet (methods/meeting/task.py)."""
    TASK.check("task", task, FederationError)
    if not isinstance(name, str) or name not in schema:
        return "given"  # it is refused later
    variable = schema[name]
    if task == "number":
        _refuse_text(variable)
        return "number" if variable.size else "given"
    return "given" if variable.size else task


def _refuse_text(variable: Variable) -> None:
    if any(isinstance(c, str) for c in variable.categories):
        raise FederationError(
            f"task='number': {variable.name!r} is {variable.described()}, and text is no number"
        )


def score_predictions(
    variable: Variable, predicted: Array | npt.NDArray[np.int64], truth: Array
) -> float:
    """The share of right classes, or R² of numbers; rows whose truth is NaN do not count."""
    known = ~np.isnan(truth)
    if not known.any():
        raise QueryError(f"no row has a value of {variable.name!r} to compare predictions with")
    predicted, truth = predicted[known], truth[known]
    if variable.size:
        return float((predicted == truth).mean())
    spread = np.square(truth - truth.mean()).sum()
    return float(1 - np.square(truth - predicted).sum() / spread) if spread else 0.0
