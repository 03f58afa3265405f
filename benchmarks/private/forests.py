"""Test log-likelihood of private forests: sets × splits × parties × rules, one line a setting.

    python -m benchmarks.private.forests --sets nltcs plants --seeds 5 --out forests.json

Splits are those of the paper: k-means finds as many clusters as there are parties, whose rows are
spread evenly (iid), by shares drawn from Dirichlet(β) for each cluster, or go to one party each.
Every forest is learned on shares and opened in the end; "central" learns the same forest from the
same rows in one place. The figure is log Σ w p(x), the forest's own likelihood, of the test rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

import fedcircuits as fc
from benchmarks.data import density_set
from benchmarks.runner import Json, write_json
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.learning.em import EMSchedule
from fedcircuits.methods.private_forest.structures import (
    ForestShape,
    joined,
    joined_parameters,
    learned_alone,
    random_start,
    structure,
    structure_weights,
)

SPLITS = ("iid", "Dir(10)", "Dir(0.5)", "clustered")
RULES: dict[str, dict[str, object]] = {
    "average": {"combine": "average"},
    "together": {"combine": "average", "together": 10},
    "concatenate": {"combine": "concatenate"},
    "em": {"combine": "em"},
}
SHAPE = ForestShape(3, units=33)  # 99 weights, as the paper's 100
LEAST = 50  # rows of a party, else shares are drawn again


def tables(name: str) -> tuple[fc.Table, fc.Table]:
    data = np.load(density_set(name))
    width = data["train"].shape[1]
    schema = fc.Schema(tuple(fc.Variable(f"x{i}", "boolean", (0, 1)) for i in range(width)))
    train, test = (fc.Table(schema, data[part].astype(float)) for part in ("train", "test"))
    return train, test


def parties_of(table: fc.Table, parties: int, split: str, seed: int) -> fc.Federation:
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.arange(len(table)) % parties)
    if split != "iid":
        found = KMeans(parties, n_init=1, random_state=seed).fit(table.values)
        owner = found.labels_.astype(np.int64)
        if split != "clustered":
            owner = _drawn(owner, parties, float(split[4:-1]), rng)
    rows = {f"party {i + 1}": table.rows(np.flatnonzero(owner == i)) for i in range(parties)}
    return fc.Federation(rows, allow_collect=True)


def _drawn(cluster: np.ndarray, parties: int, beta: float, rng: np.random.Generator) -> np.ndarray:
    while True:
        shares = rng.dirichlet(np.full(parties, beta), size=parties)
        owner = np.array([rng.choice(parties, p=shares[k]) for k in cluster])
        if np.bincount(owner, minlength=parties).min() >= LEAST:
            return owner


def central(train: fc.Table, test: fc.Table, shape: ForestShape, seed: int) -> float:
    """The same forest from all rows in one place."""
    order = np.random.default_rng(seed).permutation(len(train))
    held, rows = np.split(train.values[order], [len(train) // 10])
    draws = [np.random.default_rng([seed, i]) for i in range(shape.structures)]
    circuits = [structure(train.schema, shape, rng) for rng in draws]
    starts = [random_start(c, rng) for c, rng in zip(circuits, draws, strict=True)]
    schedule = EMSchedule(epochs=150)
    found = [
        learned_alone(c, s, rows, held, schedule) for c, s in zip(circuits, starts, strict=True)
    ]
    weights = structure_weights(np.array([judged for _, judged in found]), "rank")
    parameters = joined_parameters(circuits, [p for p, _ in found], weights)
    return fc.CircuitModel(joined(circuits), parameters).score(test)


def scores(
    rule: str,
    train: fc.Table,
    test: fc.Table,
    shape: ForestShape,
    parties: int,
    split: str,
    seeds: int,
) -> tuple[list[float], int]:
    """Test log-likelihoods by seed, and sum weights."""
    if rule == "central":
        return [central(train, test, shape, seed) for seed in range(seeds)], 0
    found, weights = [], 0
    for seed in range(seeds):
        federation = parties_of(train, parties, split, seed)
        model = PrivateForest(
            shape.structures, units=shape.units, random_state=seed, **RULES[rule]
        ).fit(federation)
        weights = model.sum_weights_
        found.append(model.open_parameters().score(test))
    return found, weights


def run(
    sets: Sequence[str] = ("nltcs",),
    splits: Sequence[str] = SPLITS,
    parties: Sequence[int] = (3, 5),
    rules: Sequence[str] = ("central", *RULES),
    shape: ForestShape = SHAPE,
    seeds: int = 2,
) -> list[Json]:
    lines: list[Json] = []
    for name in sets:
        train, test = tables(name)
        for count, split, rule in ((n, s, r) for n in parties for s in splits for r in rules):
            if rule == "central" and (split != "iid" or count != parties[0]):
                continue
            began = time.perf_counter()
            try:
                found, weights = scores(rule, train, test, shape, count, split, seeds)
            except fc.FedcircuitsError as error:
                print(f"{name:9} {count} {split:10} {rule:12} left out: {error}", flush=True)
                continue
            mean, deviation = float(np.mean(found)), float(np.std(found))
            seconds = (time.perf_counter() - began) / seeds
            lines.append({
                "set": name, "parties": count, "split": split, "rule": rule, "mean": mean,
                "deviation": deviation, "weights": weights, "seconds": seconds,
            })  # fmt: skip
            print(
                f"{name:9} {count} {split:10} {rule:12} {mean:9.3f} ±{deviation:.3f} "
                f"{weights:4d} weights {seconds:6.1f} s",
                flush=True,
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["nltcs"])
    parser.add_argument("--splits", nargs="+", default=list(SPLITS))
    parser.add_argument("--parties", nargs="+", type=int, default=[3, 5])
    parser.add_argument("--rules", nargs="+", default=["central", *RULES])
    parser.add_argument("--structures", type=int, default=3)
    parser.add_argument("--units", type=int, default=33)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    shape = ForestShape(chosen.structures, units=chosen.units)
    lines = run(chosen.sets, chosen.splits, chosen.parties, chosen.rules, shape, chosen.seeds)
    if chosen.out is not None:
        write_json(chosen.out, {"section": "private", "results": lines})


if __name__ == "__main__":
    main()
