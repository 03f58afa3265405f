"""Binary tables: ``fc.best_density`` alone, beside the best published figures of tractable models.

The function sees train and validation rows of the public split and chooses on rows that it holds
back itself; test rows are read once. Published figures are quoted from the papers of the twenty
binary sets as PEERS.md of the project lists them, the best of LearnSPN, ID-SPN, RAT-SPN, EiNet and
hidden Chow–Liu trees.
"""

import time

import numpy as np
import torch

import fedcircuits as fc
from benchmarks.data import density_set
from benchmarks.runner import Cell, Json, print_table

SETS = ("nltcs", "plants", "baudio", "bnetflix", "tretail")
PUBLISHED = {
    "nltcs": -5.99, "plants": -12.54, "baudio": -39.79, "bnetflix": -56.3, "tretail": -10.84,
}  # fmt: skip
BUDGET = 300.0  # CPU seconds a table


def run(sets: tuple[str, ...] = SETS, budget: float = BUDGET) -> list[Json]:
    torch.set_num_threads(1)
    rows: list[dict[str, Cell]] = []
    for name in sets:
        with np.load(density_set(name)) as file:
            train, valid, test = (file[part].astype(int) for part in ("train", "valid", "test"))
        begin = time.process_time()
        model = fc.best_density(np.concatenate([train, valid]), budget, random_state=0)
        seconds = time.process_time() - begin
        for line in model.tried_:
            print(f"  {name}: {line.name}: {line.score} in {line.seconds:.1f} s")
        score = float(model.score(fc.Table.of(test, schema=model.schema_)))
        rows.append(
            {
                "table": name, "test": score, "best published": PUBLISHED[name],
                "cpu s": seconds, "chosen": str(model.chosen_),
            }
        )  # fmt: skip
    print(f"\nbest_density on binary tables, budget {budget:g} CPU s each, one thread")
    print_table(rows)
    return [{"part": "tables", **row} for row in rows]
