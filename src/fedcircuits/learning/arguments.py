"""Which numbers settings may be: of Python or numpy, no truth values, within a range."""

from __future__ import annotations

import numpy as np

from fedcircuits.errors import ParameterError


def as_number(value: object) -> float:
    """NaN, which is in no range, if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return float("nan")
    return float(value)


def is_size(value: object) -> bool:
    """Whether it is a whole number from 1."""
    return isinstance(value, int | np.integer) and as_number(value) >= 1


def require_seed(value: object) -> None:
    """ParameterError unless it is None or a whole number that generators take."""
    whole = isinstance(value, int | np.integer)
    if value is not None and not (whole and 0 <= as_number(value) < 2.0**63):
        raise ParameterError(f"random_state must be None or a whole number from 0, got {value!r}")
