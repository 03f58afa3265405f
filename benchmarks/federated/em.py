"""Table 3: one pass against EM across parties, with the same architecture, split by columns.

Leaves are einsum networks on random binary graphs (RAT-SPNs). "one pass" learns them at the parties
and counts; "EM after it" goes on with at most so many rounds of EM over the whole circuit, of which
the best on a tenth of the rows stays; "EM alone" begins with leaves after a single epoch. Synthetic
rows are of five Gaussians with full covariances in ten columns. Bytes are those of training.
"""

import time
import warnings

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated.sets import Data, halves, vertical
from benchmarks.runner import Cell, Json, print_table

ROUNDS = 10
CLUSTERS = 8
SETS = {"synthetic": 3000, "breast cancer": 569, "credit": 4000, "adult": 4000}  # rows


def run() -> list[Json]:
    torch.set_num_threads(1)
    rows: list[dict[str, Cell]] = []
    for name, most in SETS.items():
        data = synthetic(most) if name == "synthetic" else halves(name, 0, most)
        rows += compared(data)
    print("\nOne pass against EM across 2 parties, the same architecture, split by columns")
    print_table(rows)
    return [{"table": "em", **row} for row in rows]


def compared(data: Data) -> list[dict[str, Cell]]:
    """A row for each way to train."""
    cases = {
        "one pass": (10, 0),
        f"EM after it, {ROUNDS} rounds": (10, ROUNDS),
        f"EM alone, {ROUNDS} rounds": (1, ROUNDS),
    }
    federation = vertical(data)
    rows: list[dict[str, Cell]] = []
    for title, (epochs, rounds) in cases.items():
        leaf = fc.EinsumNetwork(4, depth=2, repetitions=2, epochs=epochs, batch_size=64)
        leaf.set_params(validation=0.0, step=0.5)
        model = fc.FedPC(leaf, clusters=CLUSTERS, refine=rounds, random_state=0)
        begin = time.process_time()
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(federation)
        seconds = time.process_time() - begin
        whole = model.collect()
        rows.append(
            {
                "set": data.name,
                "rows": len(data.train),
                "training": title,
                "log-likelihood, test": whole.score(data.test),
                "train": whole.score(data.train),
                "cpu s": seconds,
                "bytes": model.ledger_.bytes,
            }
        )
    return rows


def synthetic(rows: int) -> Data:
    """Five Gaussians in ten columns."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(5):
        mean, turn = rng.normal(0, 3, 10), rng.normal(size=(10, 10))
        parts.append(mean + rng.normal(size=(rows, 10)) @ turn)
    values = np.stack(parts)[rng.integers(5, size=rows), np.arange(rows)]
    table = fc.Table.of(values)
    table = fc.Table(table.schema, table.values, np.arange(rows))
    cut = int(0.7 * rows)
    return Data("synthetic", "x9", table.rows(slice(0, cut)), table.rows(slice(cut, None)), 0)
