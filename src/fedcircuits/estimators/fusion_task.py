"""What a fusion predicts: classes or a number, and the truth to hold it against.

Kinds of columns are guessed from their values: labels 0, 1 and 2 look like counts, and like reals
beside a missing one. For a target few whole numbers are more often labels, so they are taken as
classes (task="auto") unless the user says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.fusion_setup import ids_in_question
from fedcircuits.federation.agreement import in_agreed
from fedcircuits.federation.federation import Federation
from fedcircuits.learning.table import Table

if TYPE_CHECKING:
    from fedcircuits.estimators.feature_fusion import FeatureFusion

Task: TypeAlias = Literal["auto", "classes", "number"]
FEW = 20  # different whole numbers


def for_task(model: FeatureFusion, federation: Federation, target: str | None) -> Federation:
    """The federation with its target as classes or as a number, as the task is."""
    name = target if target is not None else model.target
    if not isinstance(name, str) or name not in federation.schema:
        return federation  # which is refused later
    variable = federation.schema[name]
    if model.task == "number" and variable.size:
        return _as_number(federation, variable)
    if model.task not in ("auto", "classes") or variable.size:
        return federation
    values = _values(federation, name)
    few = len(values) <= FEW and bool((values % 1 == 0).all())
    if not len(values) or (model.task == "auto" and not few):
        return federation
    classes = [int(v) if v % 1 == 0 else float(v) for v in values.tolist()]
    return _retyped(federation, name, {"kinds": {name: "category"}, "categories": {name: classes}})


def _values(federation: Federation, name: str) -> Array:
    """Different numbers of all parties."""
    tables = [in_agreed(p.table, federation.schema) for p in federation]
    held = [t.values[:, t.schema.index(name)] for t in tables if name in t.schema]
    found = np.unique(np.concatenate(held))
    return found[np.isfinite(found)]


def _as_number(federation: Federation, variable: Variable) -> Federation:
    if any(isinstance(c, str) for c in variable.categories):
        raise FederationError(
            f"task='number': {variable.name!r} is {variable.described()}, and text is no number"
        )
    return _retyped(federation, variable.name, {"kinds": {variable.name: "real"}})


def _retyped(federation: Federation, name: str, options: dict[str, object]) -> Federation:
    tables = {
        p.name: Table.of(p.table, **options) if name in p.table.schema else p.table  # type: ignore[arg-type]
        for p in federation
    }
    return Federation(tables, allow_collect=[p.name for p in federation if p.allow_collect])


def truth_of(
    federation: Federation, ids: list[str], target: Variable, given: npt.ArrayLike | None
) -> Array:
    """(rows,) codes or numbers: those given, or what parties hold; NaN where nobody knows."""
    if given is not None:
        said = np.asarray(given)
        if said.shape != (len(ids),):
            raise QueryError(
                f"y must have a value for each of {len(ids)} rows, got an array of the shape "
                f"{said.shape}"
            )
        return Table.of({target.name: said}, schema=Schema((target,))).values[:, 0]
    found: dict[str, float] = {}
    for party in federation:
        if target.name in party.table.schema:
            column = party.table.column(target.name)
            for i, value in zip(ids_in_question(party), column.tolist(), strict=True):
                if i not in found or np.isnan(found[i]):
                    found[i] = target.encode(value)
    return np.array([found.get(i, np.nan) for i in ids])
