"""Mixed tables: likelihood, class and training time of our learners beside the peers'.

    python -m benchmarks.run mixed

Everybody learns from the same rows (data.py says how they are made) and predicts the class of the
test rows by Bayes. SPFlow and deeprob-kit split rows by k-means and columns by RDC at their default
of 0.3, down to a tenth of the rows of breast cancer and 200 rows of adult. Counts are categories to
their Gaussian circuits and discrete histograms to MSPN: masses, as ours are. CPU seconds, one
thread; test rows are read once, for the table.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.data import mixed_adult, mixed_breast_cancer
from benchmarks.environments import cache_folder
from benchmarks.runner import Cell, Json, best, print_table, run_peer

COLUMNS = ("learner", "cpu s", "test", "macro-F1")
SETS = {"breast cancer": (mixed_breast_cancer, 40), "adult": (mixed_adult, 200)}
PEERS = {
    "SPFlow 0.0.48 MSPN": ("spflow_old", "mspn"),
    "SPFlow 0.0.48 Gaussian": ("spflow_old", "gaussian"),
    "deeprob-kit Gaussian": ("deeprob_kit", "rdc-gaussian"),
}


def learners(target: str) -> dict[str, Callable[[], fc.Model]]:
    return {
        "LearnSPN": lambda: fc.LearnSPN(random_state=0),
        "LearnSPN, target": lambda: fc.LearnSPN(target=target, random_state=0),
        "LearnSPN, refined": lambda: fc.LearnSPN(refine=20, random_state=0),
        "LearnSPN, 8 mixed": lambda: fc.LearnSPN(ensemble=8, random_state=0),
        "mixture of 8 products": lambda: fc.MixtureOfProducts(random_state=0),
        "hidden Chow–Liu": lambda: fc.HiddenChowLiuTree(random_state=0),
        "einsum network by class": lambda: fc.EinsumNetwork(target=target, random_state=0),
    }


def run() -> list[Json]:
    torch.set_num_threads(1)
    results: list[Json] = []
    for name, (load, min_rows) in SETS.items():
        try:
            train, test = load()
        except fc.errors.DatasetError as error:
            print(f"  {name}: {error}")
            continue
        target = train.names[-1]
        table = [_ours(title, make, train, test) for title, make in learners(target).items()]
        path = _written(name, train, test)
        table += [_theirs(title, path, train.schema, min_rows) for title in PEERS]
        print(f"\n{name}: {len(train):,} rows × {len(train.schema)} columns, {len(test):,} to test")
        print_table([{**dict.fromkeys(COLUMNS, ""), **row} for row in table])
        results += [{"set": name, **row} for row in table]
    return results


def _ours(
    title: str, make: Callable[[], fc.Model], train: fc.Table, test: fc.Table
) -> dict[str, Cell]:
    with threadpool_limits(1):
        begin = time.process_time()
        model = make().fit(train)
        seconds = time.process_time() - begin
    target = train.names[-1]
    found = model.predict(test, target)
    score = f1_score(test.column(target), found, average="macro")
    row: dict[str, Cell] = {"learner": f"fedcircuits {title}", "cpu s": seconds}
    return {**row, "test": model.score(test), "macro-F1": float(score)}


def _written(name: str, train: fc.Table, test: fc.Table) -> Path:
    path = cache_folder() / "inputs" / f"mixed {name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, train=train.values, test=test.values)
    return path


def _theirs(title: str, path: Path, schema: fc.Schema, min_rows: int) -> dict[str, Cell]:
    peer, learner = PEERS[title]
    with np.load(path) as file:
        most = np.maximum(file["train"].max(axis=0), file["test"].max(axis=0))
    sizes = [v.size or (int(m) + 1 if v.discrete else 0) for v, m in zip(schema, most, strict=True)]
    job: dict[str, Json] = {"kind": "learn", "path": str(path), "learner": learner, "repeats": 1}
    settings: dict[str, Json] = {"min_rows": min_rows, "seed": 0, "sizes": [*sizes]}
    found = run_peer(peer, {**job, "settings": settings, "classes": sizes[-1]}, timeout=600)
    if "error" in found:
        print(f"  {found['error']}")
    row: dict[str, Cell] = {"learner": title, "cpu s": best(found)}
    return {**row, "test": found.get("check"), "macro-F1": found.get("macro_f1")}  # type: ignore[dict-item]
