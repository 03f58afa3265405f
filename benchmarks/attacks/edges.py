"""Thresholds of trees that parties grow together: how many are a value of another party's row?

If a number in the model occurs exactly once in the federation, in a row of another party, it
reveals that party's value to everyone who holds the trees.
"""

from functools import partial
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.attacks.measuring import Measure, attempt, made
from benchmarks.attacks.wire import Tap, walked

ATTACKED: list[tuple[str, dict[str, Any]]] = [
    ("FedTrees(grow='together')", {}),
    ("FedTrees(grow='together', summation=Secret())", {"summation": fc.Secret()}),
]


def measures(seed: int) -> list[Measure]:
    found = []
    for title, settings in ATTACKED:
        attack = partial(copied, settings, seed)
        found.append(attempt("edges that are others' values", {"method": title}, attack))
    return found


def copied(settings: dict[str, Any], seed: int) -> float:
    """Of the different edges that the first party learns: the share that single values of others
    are."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(600, 3)) * [1, 10, 100]
    kind = np.where(values[:, 0] + values[:, 1] / 10 + rng.normal(size=600) > 0, "a", "b")
    columns = {**{f"x{i}": values[:, i] for i in range(3)}, "kind": kind}
    split = fc.split(fc.Table.of(columns), 3, by="rows", seed=seed, allow_collect=True)
    tap = Tap()
    quick = {"target": "kind", "grow": "together", "trees": 10, "random_state": seed}
    made(fc.FedTrees, {**quick, **settings}).fit(split, engine=tap)
    own, others = _numbers(split, [split.names[0]]), _numbers(split, split.names[1:])
    edges = {float(np.float32(v)) for v in thresholds(tap)}
    return len((edges & others) - own) / max(1, len(edges))


def thresholds(tap: Tap) -> list[float]:
    """Of the trees that the parties ended with; a leaf has none."""
    trees = [v for v in walked(tap.results, whole=_is_tree) if _is_tree(v)]
    return [float(t) for tree in trees for t in tree.threshold[tree.children[:, 0] >= 0]]


def _is_tree(value: Any) -> bool:
    return hasattr(value, "threshold") and hasattr(value, "children")


def _numbers(split: fc.Federation, names: Any) -> set[float]:
    tables = [split[name].table for name in names]
    return {float(np.float32(v)) for t in tables for v in t.values[:, :3].reshape(-1)}
