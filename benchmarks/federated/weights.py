"""Weights of the root, and columns that several parties hold: the paper's rules beside ours.

Vertical: "sizes" is the paper's rule, "cooccurrence" counts which clusters meet in a row, "em" goes
on from there by EM on the weights alone; all three on one circuit. "mixed" is the default: several
circuits; "told" has share_clusters, "em" goes on with EM on its weights. Hybrid: "pooled" is the
paper's one mixture a shared subspace, under every product; "cluster" keeps a leaf of every cluster;
"divided" is the default. Rows are the same within a seed; wins count the seeds in which the row
beats the first of its split.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated.scores import macro_f1, spread
from benchmarks.federated.sets import Data, halves, hybrid, hybrid_with_label, vertical
from benchmarks.runner import Cell, Json, print_table

Settings = dict[str, object]
OWN: Settings = {"ensemble": 1}
TOLD: Settings = {"share_clusters": True}
VERTICAL: dict[str, Settings] = {
    "sizes (paper)": {"weights": "sizes"},
    "cooccurrence": {**OWN, "weights": "cooccurrence"},
    "em": {**OWN, "weights": "em"},
    "mixed": {"weights": "cooccurrence"},
    "mixed, told": {**TOLD, "weights": "cooccurrence"},
    "mixed, em": {"weights": "em"},
}
HYBRID: dict[str, Settings] = {
    "pooled, sizes (paper)": {"shared_leaves": "pooled", "weights": "sizes"},
    "pooled, cooccurrence": {"shared_leaves": "pooled", "weights": "cooccurrence"},
    "cluster, cooccurrence": {"shared_leaves": "cluster", "weights": "cooccurrence"},
    "divided, cooccurrence": {"shared_leaves": "divided", "weights": "cooccurrence"},
}
CASES: dict[str, tuple[Callable[[Data], fc.Federation], dict[str, Settings]]] = {
    "vertical, 2": (lambda d: vertical(d, 2), VERTICAL),
    "vertical, 3": (lambda d: vertical(d, 3), VERTICAL),
    "hybrid, 2": (hybrid, HYBRID),
    "hybrid, 2, label shared": (hybrid_with_label, HYBRID),
}
MOST = 10_000  # rows of a set, to learn from and to test


def run(sets: Sequence[str], seeds: Sequence[int]) -> list[Json]:
    results: list[Json] = []
    for name in sets:
        rows: list[dict[str, Cell]] = []
        for split, (cut, settings) in CASES.items():
            rows += _case(name, split, cut, settings, seeds)
        print(f"\n{name}, at most {MOST:,} rows: weights and shared leaves")
        print_table(rows)
        results += [{"table": "weights", "set": name, **row} for row in rows]
    return results


def _case(
    name: str,
    split: str,
    cut: Callable[[Data], fc.Federation],
    settings: dict[str, Settings],
    seeds: Sequence[int],
) -> list[dict[str, Cell]]:
    likelihood = np.empty((len(settings), len(seeds)))
    macro = np.empty_like(likelihood)
    for column, seed in enumerate(seeds):
        data = halves(name, seed, MOST)
        federation = cut(data)
        for i, own in enumerate(settings.values()):
            likelihood[i, column], macro[i, column] = _scores(data, federation, own)
    return [
        {
            "split": split,
            "rule": rule,
            "log-likelihood": spread(likelihood[i]),
            "above the paper's": float((likelihood[i] - likelihood[0]).mean()),
            "wins": f"{int((likelihood[i] > likelihood[0]).sum())} of {len(seeds)}" if i else "",
            "macro-F1": spread(macro[i]),
        }
        for i, rule in enumerate(settings)
    ]


def _scores(data: Data, federation: fc.Federation, own: Settings) -> tuple[float, float]:
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fc.FedPC(target=data.target, random_state=data.seed).set_params(**own)
        asked = model.fit(federation).collect()
    return asked.score(data.test), macro_f1(asked, data)
