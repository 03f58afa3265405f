"""Tables of mixed kinds and learners that parties share a circuit of, small enough for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedcircuits as fc


def mixed(rows: int = 240, seed: int = 0, missing: float = 0.0) -> fc.Table:
    """Three kinds of rows: numbers, a count, a category, a boolean, a label."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    x = rng.normal(size=(rows, 2)) + 2.0 * np.stack([kind, -kind], axis=1)
    columns: dict[str, Any] = {
        "x": x[:, 0], "y": 40 + 5 * x[:, 1] + x[:, 0], "calls": rng.poisson(2 + 3 * kind),
        "colour": np.array(["red", "green", "blue"])[(kind + (rng.random(rows) < 0.2)) % 3],
        "wet": rng.random(rows) < 0.2 + 0.3 * kind,
        "label": np.array(["low", "middle", "high"])[kind],
    }  # fmt: skip
    found = fc.Table.of(columns)
    values = found.values.copy()
    values[rng.random(values.shape) < missing] = np.nan
    return fc.Table(found.schema, values)


def mixture(**more: Any) -> fc.MixtureOfProducts:
    return fc.MixtureOfProducts(3, max_iter=8, random_state=0, **more)


def hidden_tree(**more: Any) -> fc.HiddenChowLiuTree:
    more = {"validation": 0.0} | more
    return fc.HiddenChowLiuTree(4, epochs=8, random_state=0, **more)


def einsum(**more: Any) -> fc.EinsumNetwork:
    more = {"validation": 0.0} | more
    return fc.EinsumNetwork(3, repetitions=2, epochs=8, target="label", random_state=0, **more)


def normals(**more: Any) -> fc.MixtureOfNormals:
    return fc.MixtureOfNormals(3, max_iter=8, random_state=0, **more)


LEARNERS: dict[str, Any] = {
    "MixtureOfProducts": mixture, "HiddenChowLiuTree": hidden_tree, "EinsumNetwork": einsum,
    "MixtureOfNormals": normals,
}  # fmt: skip
