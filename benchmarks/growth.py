"""Growth: how training time grows with the rows, and the memory of a file that is larger.

    python -m benchmarks.run growth

Synthetic mixed tables of 10,000 to 1,000,000 rows: reals, counts, categories and booleans that
depend on a hidden group. Learners as they come, but EM goes over the rows a fixed number of times,
so that all sizes do the same work per row; "ratio" is CPU time per row, relative to the smallest.
Then a parquet file of 5,000,000 rows with texts and gaps is learned piece by piece in a process of
its own, whose peak of memory is the kernel's.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table

SIZES = (10_000, 100_000, 1_000_000)
LEARNERS: dict[str, Callable[[], fc.Model]] = {
    "LearnSPN": lambda: fc.LearnSPN(random_state=0),
    "MixtureOfProducts, 20 iterations": lambda: fc.MixtureOfProducts(
        max_iter=20, tol=0.0, random_state=0
    ),
    "HiddenChowLiuTree, 2 epochs": lambda: fc.HiddenChowLiuTree(epochs=2, random_state=0),
    "EinsumNetwork, 2 epochs": lambda: fc.EinsumNetwork(epochs=2, random_state=0),
}
FILE_ROWS, GROUP = 5_000_000, 250_000
WORKER = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
import measure, torch
import fedcircuits as fc
torch.set_num_threads(1)
base = measure.start_memory()
begin = time.process_time()
model = fc.MixtureOfProducts(max_iter=10, random_state=0).fit(sys.argv[1])
seconds = time.process_time() - begin
print(json.dumps({"cpu s": seconds, "base MB": base, "peak MB": measure.peak_mb(),
                  "train": model.history_[-1]}))
"""


def mixed_frame(rows: int, rng: np.random.Generator, gaps: float = 0.0) -> pd.DataFrame:
    """Seven columns of all kinds that depend on one of four groups."""
    group = rng.integers(0, 4, rows)
    age = rng.normal(np.array([25.0, 40.0, 55.0, 70.0])[group], 6)
    towns = (group + (rng.random(rows) < 0.3) * rng.integers(0, 5, rows)) % 5
    frame = pd.DataFrame(
        {
            "age": age,
            "income": np.exp(rng.normal(6 + 0.02 * age, 0.4)),
            "visits": rng.poisson(np.array([1, 3, 6, 12])[group]),
            "town": np.array(["Bonn", "Kiel", "Mainz", "Trier", "Ulm"])[towns],
            "job": pd.Categorical.from_codes(
                group // 2 + (rng.random(rows) < 0.2), ["none", "part", "full"]
            ),
            "smokes": rng.random(rows) < 0.1 + 0.2 * group,
            "insured": rng.random(rows) < 0.9 - 0.2 * group,
        }
    )
    return frame.mask(rng.random(frame.shape) < gaps) if gaps else frame


def run() -> list[Json]:
    torch.set_num_threads(1)
    table: list[dict[str, Cell]] = []
    rng = np.random.default_rng(0)
    tables = {rows: fc.Table.of(mixed_frame(rows, rng)) for rows in SIZES}
    with threadpool_limits(1):
        for title, make in LEARNERS.items():
            make().fit(tables[SIZES[0]].rows(slice(0, 1000)))  # compiled before it is timed
            table += _grown(title, make, tables)
    print_table(table)
    print(f"\na parquet file of {FILE_ROWS:,} rows, mixture of 8 products, 10 iterations")
    large = from_file(FILE_ROWS)
    print_table([large])
    results: list[Json] = [{**row} for row in (*table, {"learner": "file", **large})]
    return results


def _grown(
    title: str, make: Callable[[], fc.Model], tables: dict[int, fc.Table]
) -> list[dict[str, Cell]]:
    lines: list[dict[str, Cell]] = []
    first = 0.0
    for rows, table in tables.items():
        begin = time.process_time()
        make().fit(table)
        seconds = time.process_time() - begin
        first = first or seconds / rows
        ratio = seconds / rows / first
        lines.append({"learner": title, "rows": rows, "cpu s": seconds, "ratio": ratio})
    return lines


def from_file(rows: int) -> dict[str, Cell]:
    """CPU seconds and peak memory of learning from a parquet file, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        write_parquet(path, rows)
        peers = str(Path(__file__).parent / "peers")
        done = subprocess.run(
            [sys.executable, "-c", WORKER, str(path), peers],
            check=True,
            capture_output=True,
            text=True,
        )
        size = path.stat().st_size / 2**20
    found: dict[str, Cell] = json.loads(done.stdout.splitlines()[-1])
    return {"rows": rows, "file MB": size, "table MB": rows * 7 * 8 / 2**20, **found}


def write_parquet(path: Path, rows: int) -> None:
    rng = np.random.default_rng(1)
    writer = None
    for begin in range(0, rows, GROUP):
        frame = mixed_frame(min(GROUP, rows - begin), rng, gaps=0.05)
        group = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, group.schema)
        writer.write_table(group)
    if writer is not None:
        writer.close()
