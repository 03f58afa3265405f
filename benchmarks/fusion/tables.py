"""Tables 2 and 3 of Ma, Hoang and Chen (2023), every row, with controls that they do not have.

Encoders are trained once a seed and split, and all heads read the same ones. F1 is of the second of
two classes, macro of more; AUC of the scores, one against the rest. "complete" and "expected" are
controls: what a graph that is no graph, or one that is learned and not drawn, gives.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

import fedcircuits as fc
from benchmarks.federated.scores import spread
from benchmarks.fusion.sets import TARGET, Owners, Split, load
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.learning.encoders import Frozen, SequenceEncoder

TABLE_2: dict[str, dict[str, Any]] = {
    "A horizontal averaging": {"training": "averaged", "head": "vote"},
    "B majority vote": {"head": "vote"},
    "C tuned threshold": {"head": "threshold"},
    "D best owner": {"head": "best"},
    "E mean pooling": {"head": "mean", "align": None},
    "F transformer": {"head": "transformer", "align": None, "epochs": 30, "patience": 10},
    "G concatenation": {"head": "concat"},
    "H fusion, no alignment": {"align": None},
    "J fusion, tied": {"align": None, "training": "tied"},
    "K fusion, aligned": {},
    "K' the same, permutation": {"align": "sinkhorn"},
    "L joint, pre-trained": {"training": "joint", "epochs": 10, "patience": 5},
    "M joint, from scratch": {"training": "scratch", "epochs": 30, "patience": 10},
}
GRAPHS = (None, "given", "knn", "complete", "expected", "learned")
FEW = 20  # epochs where owners cannot be trained at once


def table_3(graph: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for align in (None, "linear"):
        for name in GRAPHS:
            if name != "given" or graph is not None:
                word = "aligned" if align else "not aligned"
                chosen = graph if name == "given" else name
                found[f"{word}, {name or 'no'} graph"] = {"align": align, "graph": chosen}
    return found


def scores(model: FeatureFusion, test: fc.Federation) -> tuple[float, float]:
    """F1 and AUC of rows in the order of the first owner."""
    truth = next(iter(test)).table.values[:, 0]
    found = model.predict_proba(test)
    if found.shape[1] == 2:
        f1 = f1_score(truth, found.argmax(axis=1), zero_division=0.0)
        return float(f1), float(roc_auc_score(truth, found[:, 1]))
    f1 = f1_score(truth, found.argmax(axis=1), average="macro", zero_division=0.0)
    return float(f1), float(roc_auc_score(truth, found, multi_class="ovr"))


def encoders_of(train: fc.Federation, epochs: int, seed: int) -> dict[str, Frozen]:
    """Every owner's encoder, trained apart."""
    encoder = SequenceEncoder(epochs=epochs)
    apart = FeatureFusion(encoder, head="vote", random_state=seed).fit(train, target=TARGET)
    return {name: Frozen(view.encoder) for name, view in apart.views_.items()}


def run_one(
    data: Owners, how: Split, seed: int, epochs: int, rows: Mapping[str, dict[str, Any]]
) -> dict[str, tuple[float, float]]:
    train, test = data.split(how, seed)
    ready = encoders_of(train, epochs, seed)
    found = {}
    for name, options in rows.items():
        encoder: Any = ready
        if options.get("training", "apart") in ("averaged", "tied", "scratch"):
            encoder = SequenceEncoder(epochs=min(epochs, FEW))
        model = FeatureFusion(encoder, random_state=seed, **options).fit(train, target=TARGET)
        found[name] = scores(model, test)
        print(f"{data.name}, {how}, seed {seed}, {name}: F1 {found[name][0]:.3f}", flush=True)
    return found


def run(
    name: str = "semi-synthetic", owners: int | None = None, seeds: int = 5, epochs: int = 60,
    splits: tuple[Split, ...] = ("random", "time"), only: str = "",
) -> list[Json]:  # fmt: skip
    data = load(name, owners)
    rows = {f"2 {n}": o for n, o in TABLE_2.items()}
    rows |= {f"3 {n}": o for n, o in table_3(data.graph).items()}
    rows = {n: o for n, o in rows.items() if only in n}
    results: list[Json] = []
    for how in splits:
        runs = [run_one(data, how, seed, epochs, rows) for seed in range(seeds)]
        shown: list[dict[str, Cell]] = []
        for row in rows:
            f1, auc = np.array([r[row] for r in runs]).T
            shown.append({"row": row, "F1": spread(f1), "AUC": spread(auc)})
            results.append({
                "set": name, "owners": len(data.series), "split": how, "row": row,
                "F1": f1.tolist(), "AUC": auc.tolist(),
            })  # fmt: skip
        print(f"\n{name}, {len(data.series)} owners, split: {how}, {seeds} seeds")
        print_table(shown)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default="semi-synthetic")
    parser.add_argument("--owners", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--splits", nargs="+", default=["random", "time"])
    parser.add_argument("--only", default="", help="rows with this text")
    told = parser.parse_args()
    run(told.set, told.owners, told.seeds, told.epochs, tuple(told.splits), told.only)
