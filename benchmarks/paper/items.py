"""One table or figure of a paper: what it shows, how it is run again, and the rows that come out.

An item runs at two sizes with the same code. A small one has one seed and few rows, and shows that
the way from data to figure works; figures to be believed come from the full one. Rows have what the
paper prints, ours, other libraries run here (or as the paper found them, and then so named) and
plain baselines on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

COLUMNS = ("setting", "paper", "ours", "peers", "plain baselines")


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table; what there is none of stays empty."""

    setting: str
    paper: str = ""
    ours: str = ""
    peers: str = ""
    baseline: str = ""

    def cells(self) -> list[str]:
        return [self.setting, self.paper, self.ours, self.peers, self.baseline]


@dataclass(frozen=True, slots=True)
class Item:
    """``run(full)`` gives the rows."""

    key: str  # fedpc-table-1
    title: str
    about: str
    run: Callable[[bool], Sequence[Line]]


@dataclass(frozen=True, slots=True)
class Missing:
    """What is not run again, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Paper:
    key: str
    title: str
    items: Sequence[Item]
    missing: Sequence[Missing]


def number(values: Sequence[float] | float, digits: int = 2) -> str:
    """Mean, with ± deviation where there are several; with a real minus."""
    found = np.atleast_1d(np.asarray(values, float))
    text = f"{found.mean():.{digits}f}"
    if len(found) > 1:
        text += f" ± {found.std(ddof=1):.{digits}f}"
    return text.replace("-", "−")


def listed(figures: Mapping[str, Sequence[float] | float], digits: int = 2) -> str:
    """``FedPC 0.79, FedTrees 0.81``"""
    return ", ".join(f"{name} {number(own, digits)}" for name, own in figures.items())
