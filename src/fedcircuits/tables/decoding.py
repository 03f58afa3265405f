"""Back from the numbers of the circuit to the user's own values."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.tables.columns import Floats
from fedcircuits.tables.schema import Scalar, Variable


def values_of(variable: Variable, values: Floats) -> NDArray[np.generic]:
    """An array (rows,): NaN where a real is missing, None where another kind is."""
    if variable.kind == "real":
        return values.copy()
    missing = np.isnan(values)
    whole = np.where(missing, 0, values).astype(np.int64)
    decoded = _array(variable.categories)[whole] if variable.size else whole
    if not missing.any():
        return decoded
    with_none: NDArray[np.generic] = np.where(missing, np.array(None, dtype=object), decoded)
    return with_none


def series_of(variable: Variable, values: Floats) -> pd.Series:
    """A series: integers for counts, a Categorical for categories, nullable where needed."""
    if variable.kind == "real":
        return pd.Series(values)
    missing = np.isnan(values)
    whole = np.where(missing, -1, values).astype(np.int64)
    plain = variable.kind == "count" or variable.categories in ((0, 1), (False, True))
    if not plain:
        return pd.Series(pd.Categorical.from_codes(whole, list(variable.categories)))
    logical = variable.size and all(isinstance(c, bool) for c in variable.categories)
    numbers = whole.astype(bool) if logical else whole
    if not missing.any():
        return pd.Series(numbers)
    column = pd.Series(numbers, dtype="boolean" if logical else "Int64")
    column[missing] = pd.NA
    return column


def summary(variable: Variable, values: Floats) -> str:
    """Categories or range, unit and share of missing values, in a few words."""
    present = values[~np.isnan(values)]
    if variable.size:
        listed = ", ".join(map(repr, variable.categories))
        text = listed if len(listed) <= 40 else f"{variable.size:,} categories"
    else:
        text = f"{present.min():.4g} … {present.max():.4g}" if present.size else "no values"
    text += f" {variable.unit}" if variable.unit else ""
    missing = 1 - present.size / max(len(values), 1)
    if not missing:
        return text
    share = f"{missing:.1%}".replace("%", " %") if missing >= 0.001 else "under 0.1 %"
    return f"{text}, {share} missing"


def _array(categories: tuple[Scalar, ...]) -> NDArray[np.generic]:
    array = np.array(categories)
    alike = len({type(c) for c in categories}) == 1
    return array if alike else np.array(categories, dtype=object)
