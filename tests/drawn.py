"""Keys that a party draws, drawn here: for tests that run roles without an estimator."""

from __future__ import annotations

from typing import TypeVar

from fedcircuits.federation.recipes import filled, fresh_key

T = TypeVar("T")


def drawn(value: T) -> T:
    """The same with a fresh key in every open place."""
    return filled(value, lambda place: fresh_key())
