"""Conditions in words whose meaning is known: a text, and a function of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Row = Mapping[str, object]
Atoms = Callable[[np.random.Generator], "Condition"]


@dataclass(frozen=True)
class Condition:
    text: str
    holds: Callable[[Row], bool]


def condition(rng: np.random.Generator, depth: int, atom: Atoms) -> Condition:
    """One of the atoms, or up to ``depth`` levels of not, and, or above them."""
    if not depth or rng.random() < 0.5:
        return atom(rng)
    one, two = condition(rng, depth - 1, atom), condition(rng, depth - 1, atom)
    match int(rng.integers(0, 3)):
        case 0:
            return Condition(f"not ({one.text})", lambda row: not one.holds(row))
        case 1:
            text = f"({one.text}) and ({two.text})"
            return Condition(text, lambda row: one.holds(row) and two.holds(row))
        case _:
            text = f"({one.text}) or ({two.text})"
            return Condition(text, lambda row: one.holds(row) or two.holds(row))
