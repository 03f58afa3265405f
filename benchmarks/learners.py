"""Learners: likelihood and training time on public tables, ours beside the peers'.

    python -m benchmarks.run learners

Everything is learned from the train rows. Validation rows choose among our learners and stop EM;
test rows are read once, for the table. Times are CPU seconds, one thread.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

import fedcircuits as fc
from benchmarks.data import density_set
from benchmarks.runner import Cell, Json, best, print_table, run_peer

COLUMNS = ("learner", "cpu s", "valid", "test", "chosen")
SETS = ("nltcs", "plants", "baudio", "bnetflix", "tretail")
PUBLISHED = {"nltcs": -6.00, "plants": -12.5, "baudio": -39.8, "bnetflix": -56.4, "tretail": -10.85}
OURS: dict[str, Callable[[], fc.Model]] = {
    "mixture of 50 products": lambda: fc.MixtureOfProducts(50, random_state=0),
    "Chow–Liu tree": lambda: fc.ChowLiuTree(random_state=0),
    "LearnSPN": lambda: fc.LearnSPN(min_rows=200, clusters=2, trees=False, random_state=0),
    "LearnSPN, Chow–Liu leaves": lambda: fc.LearnSPN(min_rows=200, clusters=2, random_state=0),
    "LearnSPN, 8 mixed": lambda: fc.LearnSPN(ensemble=8, random_state=0),
    "hidden Chow–Liu, 64": lambda: fc.HiddenChowLiuTree(64, epochs=20, random_state=0),
    "einsum network, 16": lambda: fc.EinsumNetwork(16, epochs=20, random_state=0),
}
PEERS = {
    "deeprob-kit G-test": ("deeprob_kit", "gtest"),
    "deeprob-kit G-test, Chow–Liu leaves": ("deeprob_kit", "gtest-clt"),
    "deeprob-kit XPC": ("deeprob_kit", "xpc"),
}


def run(sets: tuple[str, ...] = SETS) -> list[Json]:
    torch.set_num_threads(1)
    results: list[Json] = []
    for name in sets:
        try:
            path = density_set(name)
        except FileNotFoundError as error:
            print(f"  {error}")
            continue
        with np.load(path) as file:
            rows = {split: file[split].astype(bool) for split in ("train", "valid", "test")}
        table: list[dict[str, Cell]] = [_ours(title, make, rows) for title, make in OURS.items()]
        chosen = max(table, key=lambda row: float(row["valid"] or -np.inf))
        chosen["chosen"] = f"goal {PUBLISHED[name]}"
        table += [_theirs(title, *PEERS[title], str(path)) for title in PEERS]
        print(f"\n{name}: mean log-likelihood")
        print_table([{**dict.fromkeys(COLUMNS, ""), **row} for row in table])
        results += [{"set": name, **row} for row in table]
    return results


def _ours(title: str, make: Callable[[], fc.Model], rows: dict[str, np.ndarray]) -> dict[str, Cell]:
    begin = time.process_time()
    model = make().fit(rows["train"])
    seconds = time.process_time() - begin
    scores = {split: model.score(rows[split]) for split in ("valid", "test")}
    return {"learner": f"fedcircuits {title}", "cpu s": seconds, **scores}


def _theirs(title: str, peer: str, learner: str, path: str) -> dict[str, Cell]:
    settings: dict[str, Json] = {"min_rows": 200, "seed": 0}
    job: dict[str, Json] = {"kind": "learn", "path": path, "learner": learner, "repeats": 1}
    found = run_peer(peer, {**job, "settings": settings})
    if "error" in found:
        print(f"  {found['error']}")
    return {"learner": title, "cpu s": best(found), "test": found.get("check")}  # type: ignore[dict-item]
