"""One table of all kinds of columns with gaps, and federations that are made of it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.tables.table import Table

QUICK = fc.MixtureOfProducts(2, max_iter=1)
NAMES = ("age", "weight", "visits", "colour", "smoker", "risk")


@functools.cache
def mixed_frame(rows: int = 150, seed: int = 0) -> pd.DataFrame:
    """Columns that depend on a hidden group; a tenth of the values is missing."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=rows)
    colours = np.array(["red", "green", "blue"])
    frame = pd.DataFrame(
        {
            "age": 30.0 + 9 * group + rng.normal(size=rows) * 3,
            "weight": 60.0 + 7 * (group == 1) + rng.normal(size=rows) * 2,
            "visits": rng.poisson(2 + 4 * group).astype(float),
            "colour": colours[np.where(rng.random(rows) < 0.7, group, rng.integers(3, size=rows))],
            "smoker": rng.random(rows) < 0.2 + 0.3 * group,
            "risk": np.where(rng.random(rows) < 0.15 + 0.35 * group, "high", "low"),
        }
    )
    gaps = rng.random(frame.shape) < 0.1
    return frame.astype({"smoker": object}).mask(gaps)


@functools.cache
def mixed_table(rows: int = 150, seed: int = 0) -> Table:
    table = Table.of(
        mixed_frame(rows, seed),
        kinds={"visits": "count", "smoker": "boolean"},
        categories={"colour": ["red", "green", "blue"], "risk": ["high", "low"]},
    )
    return Table(table.schema, table.values, 7000 + np.arange(rows))


def uneven(rows: int = 150) -> dict[str, Table]:
    """Shared and own columns, rows in any order, held by one, two or three parties."""
    whole = mixed_table(rows)
    rng = np.random.default_rng(5)
    places = {
        "north": (["age", "colour", "risk"], rng.permutation(rows)[: rows * 9 // 10]),
        "south": (["visits", "age", "smoker"], rng.permutation(rows)[: rows * 8 // 10]),
        "west": (["weight", "visits"], np.arange(rows)[::-1]),
    }
    found = {n: whole.select(columns).rows(at) for n, (columns, at) in places.items()}
    south = found["south"]
    assert south.row_ids is not None
    found["south"] = Table(south.schema, south.values, south.row_ids.astype(str))
    return found


SPLITS: dict[str, dict[str, Any]] = {
    "rows": {"parties": 3, "by": "rows", "overlap": 0.2},
    "columns": {"parties": ["north", "south"], "by": "columns"},
    "both": {"parties": 3, "by": "both", "overlap": 0.3},
}


def federation(name: str, *, allow_collect: bool = True) -> fc.Federation:
    if name == "uneven":
        return fc.Federation(uneven(), allow_collect=allow_collect)
    return fc.split(mixed_table(), allow_collect=allow_collect, seed=1, **SPLITS[name])


def three_columns() -> fc.Federation:
    """Three parties with different columns."""
    return fc.split(mixed_table(), ["north", "south", "west"], by="columns", seed=1)


FEDERATIONS = (*SPLITS, "uneven")


def gaps(rows: int = 40, seed: int = 9) -> Array:
    """New rows in the numbers of the mixed table: some whole, some empty, some twice."""
    values = mixed_table(rows, seed).values.copy()
    rng = np.random.default_rng(seed)
    values[rng.random(values.shape) < 0.3] = np.nan
    values[3] = np.nan
    values[5] = values[4]
    return values
