"""Small tables of categories and booleans that several tests learn from."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedcircuits as fc

CLOSE = 2e-5  # nats


def table(rows: int = 240, seed: int = 0) -> fc.Table:
    """Three kinds of rows: four booleans, a category of three, a label."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    chance = np.random.default_rng(9).uniform(0.1, 0.9, (3, 4))
    columns: dict[str, Any] = {f"v{i}": rng.random(rows) < chance[kind, i] for i in range(4)}
    shifted = (kind + (rng.random(rows) < 0.2)) % 3
    columns["colour"] = np.array(["red", "green", "blue"])[shifted]
    columns["ill"] = np.where(kind == 2, "yes", "no")
    return fc.Table.of(columns)


TABLE = table()


def related(rows: int = 120, seed: int = 0, missing: float = 0.0) -> fc.Table:
    """Booleans and categories of three that hang together, with gaps."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    columns: dict[str, Any] = {
        "colour": np.array(["red", "green", "blue"])[(kind + (rng.random(rows) < 0.2)) % 3],
        "v0": rng.random(rows) < 0.2 + 0.3 * kind,
        "v1": rng.random(rows) < 0.8 - 0.3 * kind,
        "size": np.array(["s", "m", "l"])[(kind + (rng.random(rows) < 0.4)) % 3],
        "v2": rng.random(rows) < 0.5,
    }
    found = fc.Table.of(columns)
    values = found.values.copy()
    values[rng.random(values.shape) < missing] = np.nan
    return fc.Table(found.schema, values)
