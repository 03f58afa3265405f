"""Owners of series about the same rows: what fusions are compared on.

semi-synthetic  2,856 windows of 12 steps at 207 detectors, drawn from a model of METR-LA, and
                whether an hour is of a weekend. It stands in for METR-LA, whose labels were never
                published: figures on it are not figures on METR-LA.
week            the 168 hours of one real week at the same detectors, the same label: 48 hours of it
                are of a weekend, so that figures vary a lot
digits          1,797 images of 8 × 8 grey values from scikit-learn; each of 8 owners has one row of
                an image as a series of 8 steps, and 10 digits are to be told apart

Rows are split 80 / 20, the eighth of the training rows that everybody stops by makes 70 / 10 / 20.
"random" mixes rows; neighbouring hours are alike, so that a split by "time", the last fifth to test
on, is the harder one and the one that a forecaster would meet.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import fedcircuits as fc

Split = Literal["random", "time"]
DATA = Path(os.environ.get("FEDCIRCUITS_DATA", "../shared/data"))
TARGET = "label"


@dataclass(frozen=True, slots=True)
class Owners:
    """Series (owners, rows, steps, channels), labels, and a given graph of owners."""

    name: str
    series: npt.NDArray[np.float32]
    y: npt.NDArray[np.generic]
    graph: npt.NDArray[np.float64] | None

    def split(
        self, how: Split, seed: int, test: float = 0.2
    ) -> tuple[fc.Federation, fc.Federation]:
        rows = len(self.y)
        order = (
            np.random.default_rng(seed).permutation(rows) if how == "random" else np.arange(rows)
        )
        cut = round((1 - test) * rows)
        return self.federation(order[:cut]), self.federation(order[cut:])

    def federation(self, rows: npt.NDArray[np.integer]) -> fc.Federation:
        categories = {TARGET: np.unique(self.y).tolist()}
        return fc.Federation(
            {
                f"owner {i}": fc.Table.from_series(
                    {"series": own[rows]}, {TARGET: self.y[rows]}, rows, categories=categories
                )
                for i, own in enumerate(self.series)
            }
        )


def load(name: str, owners: int | None = None) -> Owners:
    """All owners, or so many of them drawn at random."""
    found = {"semi-synthetic": _semi_synthetic, "week": _week, "digits": _digits}[name]()
    if owners is None or owners >= len(found.series):
        return found
    some = np.random.default_rng(0).permutation(len(found.series))[:owners]
    graph = None if found.graph is None else found.graph[np.ix_(some, some)]
    return Owners(found.name, found.series[some], found.y, graph)


def _semi_synthetic() -> Owners:
    with np.load(DATA / "metr_la_semisynthetic.npz") as file:
        speed = file["speed_quarter_mph"].astype(np.float32) / 4  # (rows, owners, steps)
        y, graph = file["weekend"].astype(bool), file["adjacency"].astype(np.float64)
    return Owners("semi-synthetic", speed.transpose(1, 0, 2)[..., None], y, graph)


def _week() -> Owners:
    with np.load(DATA / "metr_la_week1.npz") as file:
        named = {n: file[n] for n in file.files}
    speed = next(a for a in named.values() if a.shape == (2016, 207)).astype(np.float32)
    windows = speed.reshape(168, 12, 207).transpose(2, 0, 1)[..., None]
    day = np.arange(168) // 24  # from a Thursday
    graph = named["adjacency"].astype(np.float64)
    return Owners("week", windows, np.isin(day, [2, 3]), graph)


def _digits() -> Owners:
    images, y = load_digits(return_X_y=True)
    series = images.reshape(-1, 8, 8).transpose(1, 0, 2)[..., None].astype(np.float32)
    return Owners("digits", series, y, None)
