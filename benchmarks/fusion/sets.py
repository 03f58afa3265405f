"""Owners of series about the same rows: what fusions are compared on.

semi-synthetic  2,856 windows of 12 steps at 207 detectors, drawn from a model of METR-LA, and
                whether an hour is of a weekend. It stands in for METR-LA: figures on it are not
                figures on METR-LA.
metr-la         the paper's own rows and labels, where the released code (released.py) has them
week            the 168 hours of one real week at the same detectors, the same label: 48 hours of it
                are of a weekend, so that figures vary a lot
counties        509 weeks in 20 counties of Hungary: a county's changes of chickenpox cases in the
                last 12 weeks, and whether cases of the whole country rise in the next; neighbours
                are the given graph (Rozemberczki and others, 2021; a file of PyTorch Geometric
                Temporal, MIT). Small, real and hard: a coming week has little to do with past ones
digits          1,797 images of 8 × 8 grey values from scikit-learn; each of 8 owners has one row of
                an image as a series of 8 steps, and 10 digits are to be told apart

Rows are split 80 / 20, the eighth of the training rows that everybody stops by makes 70 / 10 / 20.
"random" mixes rows; neighbouring hours are alike, so that a split by "time", the last fifth to test
on, is the harder one and the one that a forecaster would meet. Of digits it is the order of rows,
which has other writers at its end. The last fifth of the week has no weekend in it; there "blocks"
of 8 hours are drawn.
"""

import json
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

import fedcircuits as fc
from benchmarks.environments import cache_folder
from benchmarks.fusion import released
from fedcircuits import datasets
from fedcircuits.datasets.originals import Original, download, verify
from fedcircuits.errors import DatasetError

Split = Literal["random", "time", "blocks"]
SPLITS: dict[str, tuple[Split, Split]] = {
    "semi-synthetic": ("random", "time"),
    "week": ("random", "blocks"),
    "counties": ("random", "time"),
    "digits": ("random", "time"),
    "metr-la": ("random", "time"),
}
TARGET = "label"
BLOCK = 8
WEEKS = 12
CASES = Original(
    "chickenpox.json",
    sha256="724b48cfb274b2ecbb855bdb99b970b5ef9dd3671694fa477435dc1e08293735",
    url="https://raw.githubusercontent.com/benedekrozemberczki/pytorch_geometric_temporal/"
    "adefe44265ad8faf239fd6cf3b59b95ca3ee60aa/dataset/chickenpox.json",
)


@dataclass(frozen=True, slots=True)
class Owners:
    """Series (owners, rows, steps, channels), labels, and a given graph of owners."""

    name: str
    series: npt.NDArray[np.float32]
    y: npt.NDArray[np.generic]
    graph: npt.NDArray[np.float64] | None

    def split(self, how: Split, seed: int) -> tuple[fc.Federation, fc.Federation]:
        rows = len(self.y)
        rng = np.random.default_rng(seed)
        order = np.arange(rows)
        if how == "random":
            order = rng.permutation(rows)
        elif how == "blocks":
            order = rng.permutation(rows // BLOCK)[:, None] * BLOCK + np.arange(BLOCK)
        cut = round(0.8 * len(order))
        return self.federation(order[:cut].ravel()), self.federation(order[cut:].ravel())

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
    sets = {
        "semi-synthetic": _semi_synthetic, "week": _week, "counties": _counties,
        "digits": _digits, "metr-la": _metr_la,
    }  # fmt: skip
    found = sets[name]()
    if owners is None or owners >= len(found.series):
        return found
    some = np.random.default_rng(0).permutation(len(found.series))[:owners]
    graph = None if found.graph is None else found.graph[np.ix_(some, some)]
    return Owners(found.name, found.series[some], found.y, graph)


def _semi_synthetic() -> Owners:
    found = datasets.arrays("metr_la_semisynthetic")
    speed = found["speed_quarter_mph"].astype(np.float32) / 4  # (rows, owners, steps)
    graph = found["adjacency"].astype(np.float64)
    y = found["weekend"].astype(bool)
    return Owners("semi-synthetic", speed.transpose(1, 0, 2)[..., None], y, graph)


def _week() -> Owners:
    found = datasets.arrays("metr_la_week1")
    speed = next(a for a in found.values() if a.shape == (2016, 207)).astype(np.float32)
    windows = speed.reshape(168, 12, 207).transpose(2, 0, 1)[..., None]
    day = np.arange(168) // 24  # from a Thursday
    graph = found["adjacency"].astype(np.float64)
    return Owners("week", windows, np.isin(day, [2, 3]), graph)


def _counties() -> Owners:
    path = cache_folder() / CASES.file
    path = path if path.is_file() else download(CASES, cache_folder())
    found = json.loads(verify(path, CASES.sha256, CASES.url).read_bytes())
    change = np.array(found["FX"], np.float32)  # (weeks, counties), standardised
    windows = np.lib.stride_tricks.sliding_window_view(change, WEEKS, axis=0)[:-1]
    graph = np.zeros((change.shape[1],) * 2)
    graph[tuple(np.array(found["edges"]).T)] = 1.0
    np.fill_diagonal(graph, 0.0)
    rises = change[WEEKS:].mean(axis=1) > 0
    return Owners("counties", windows.transpose(1, 0, 2)[..., None], rises, graph)


def _digits() -> Owners:
    table = datasets.load("digits")
    target = datasets.describe("digits").target
    assert target is not None
    pixels = [n for n in table.names if n != target]
    images = table.select(pixels).values.reshape(-1, 8, 8)  # (images, rows, columns)
    series = images.transpose(1, 0, 2)[..., None].astype(np.float32)
    return Owners("digits", series, table.column(target), None)


def _metr_la() -> Owners:
    found = released.metr_la()
    if isinstance(found, str):
        raise DatasetError(found)
    graph = datasets.arrays("metr_la_week1")["adjacency"].astype(np.float64)
    series = found["x"].transpose(1, 0, 2, 3).astype(np.float32)  # (owners, rows, steps, 1)
    return Owners("metr-la", series, found["y"].astype(bool), graph)
