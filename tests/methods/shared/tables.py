"""Tables made for tests of parties with few rows, and what they learn from them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import fedcircuits as fc

CLASSES = 4


def spoken(rows: int, seed: int = 0) -> fc.Table:
    """Reals that hang together within classes, a category and a boolean: made for this test."""
    rng, same = np.random.default_rng(seed), np.random.default_rng(99)
    kind = rng.integers(CLASSES, size=rows)
    middle, mixing = same.normal(size=(CLASSES, 6)), same.normal(size=(CLASSES, 6, 2))
    x = middle[kind] + np.einsum("nij,nj->ni", mixing[kind], rng.normal(size=(rows, 2)))
    x += 0.3 * rng.normal(size=x.shape)
    columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(6)}
    columns["form"] = np.array(["a", "b", "c"])[(kind + (rng.random(rows) < 0.4)) % 3]
    columns["up"] = x[:, 0] + 0.3 * rng.normal(size=rows) > 0
    columns["speaker"] = np.array([f"s{k}" for k in range(CLASSES)])[kind]
    return fc.Table.of(columns)


def apart(rows: int, seed: int) -> fc.Table:
    """Independent columns with a common value, a few numbers far out and counts in two heaps."""
    rng = np.random.default_rng(seed)
    share = np.where(rng.random(rows) < 0.08, 1.0, rng.beta(0.6, 0.9, rows))
    far = np.where(rng.random(rows) < 0.01, rng.uniform(2e3, 9e3, rows), share)
    counts = np.where(rng.random(rows) < 0.02, 98, rng.poisson(0.3, rows))
    income = np.where(rng.random(rows) < 0.1, 0.0, rng.lognormal(8, 1, rows))
    humps = rng.normal(size=rows) + 8 * (rng.random(rows) < 0.5)
    return fc.Table.of({"far": far, "counts": counts, "income": income, "humps": humps})


def learned(parties: fc.Federation, **options: Any) -> fc.FedPC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # notes, which tests look at
        return fc.FedPC(target="speaker", random_state=0, **options).fit(parties)
