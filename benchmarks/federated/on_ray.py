"""A table that no worker has whole: 1, 2 and 4 workers of Ray, and a model on paper up to 64.

    python -m benchmarks.run ray        # with the extra ray

The same 64 parts of 5 million rows, and 8 of MNIST, are learned by workers that take turns over
their parts, so the model is the same to the last bit whatever their number. On a machine with fewer
cores than workers wall time says little: "slowest" is the CPU time of the worker that has computed
longest, what training takes where each has a core. "added MB" is the most memory that a worker took
above what it had before.

The model on paper: a machine takes the CPU seconds of its parts, the coordinator its own; a party's
messages follow each other, each a latency, and those of all pass the coordinator's line one after
the other. CPU seconds of parts and coordinator, messages and bytes are measured in memory,
with a clock at every party; "on paper" for 1, 2 and 4 workers stands beside what these have taken.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.environments import cache_folder
from benchmarks.federated.clock import Stopwatch
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.engines.ray import RayEngine, cluster
from fedcircuits.errors import DatasetError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.testing import trials

ROWS, COLUMNS, PARTS = 5_000_000, 10, 64
IMAGES, IMAGE_PARTS = 4_000, 8
WORKERS = (1, 2, 4)
MACHINES = (1, 2, 4, 8, 16, 32, 64)
LATENCY, BANDWIDTH = 0.5e-3, 1.25e8  # seconds per message, bytes per second: 1 Gbit in one building
Row = dict[str, Cell]


def run(sets: tuple[str, ...] = ("5 million rows", "MNIST")) -> list[Json]:
    torch.set_num_threads(1)
    found: list[Row] = []
    paper: list[Row] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name in sets:
            if (federation := _federation(name)) is None:
                continue
            watch = Stopwatch()
            model = _model(name).fit(federation, engine=watch)
            sizes = (len(model.ledger_), model.ledger_.bytes)
            paper += _on_paper(name, federation, watch, *sizes)
            found += _on_workers(name, federation, model, paper)
    _print(found, paper)
    return [{"kind": "workers", **row} for row in found] + [{"kind": "paper", **r} for r in paper]


def _model(name: str) -> fc.FedPC:
    if name == "MNIST":
        network = fc.EinsumNetwork(units=8, epochs=2, batch_size=100)
        return fc.FedPC(network, clusters=1, random_state=0)
    return fc.FedPC(fc.MixtureOfProducts(8, max_iter=20), clusters=2, random_state=0)


def _federation(name: str) -> fc.Federation | None:
    if name == "MNIST":
        return _images()
    path = _written(cache_folder() / f"rows-{ROWS}.parquet")
    return fc.split(fc.ParquetRows(path, fc.Schema.real(COLUMNS)), PARTS)


def _print(found: list[Row], paper: list[Row]) -> None:
    print(f"\nParts of a table on workers of Ray; this machine has {os.cpu_count()} cores")
    print_table(found)
    print(f"\nOn paper: {LATENCY * 1e3:g} ms per message, {BANDWIDTH / 1e6:g} MB per second")
    print_table(paper)


# ---------------------------------------------------------------------- tables


def _written(path: Path) -> Path:
    """Rows of five groups, written piece by piece."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng, part = np.random.default_rng(0), path.with_suffix(".part")
    centres = rng.normal(scale=3.0, size=(5, COLUMNS))
    schema = pa.schema([(f"x{i}", pa.float64()) for i in range(COLUMNS)])
    with pq.ParquetWriter(part, schema) as file:
        for _ in range(PARTS):
            group = rng.integers(5, size=ROWS // PARTS)
            rows = centres[group] + rng.normal(size=(len(group), COLUMNS))
            file.write_table(pa.Table.from_arrays(list(rows.T), schema=schema))
    part.replace(path)
    return path


def _images() -> fc.Federation | None:
    try:
        pixels = fc.datasets.arrays("mnist")["x_train"][:IMAGES].reshape(IMAGES, -1)
    except DatasetError as error:
        print(f"  MNIST left out: {error}")
        return None
    values = pixels.astype(float) / 255.0
    return fc.split(fc.Table(fc.Schema.real(values.shape[1]), values), IMAGE_PARTS, seed=0)


# ---------------------------------------------------------------------- workers


def _on_workers(
    name: str, federation: fc.Federation, expected: fc.FedPC, paper: list[Row]
) -> list[Row]:
    rows: list[Row] = []
    for number in WORKERS:
        engine = RayEngine(workers=number, patience=600.0)
        before = _ready(engine, federation)
        begin = time.perf_counter()
        model = _model(name).fit(federation, engine=engine)
        wall = time.perf_counter() - begin
        after = {process: _cpu(process) for process in before}
        spent = [after[p] - seconds for p, (seconds, _) in before.items()]
        added = [_memory(p, "VmHWM") - held for p, (_, held) in before.items()]
        same = model.joint_.parameters == expected.joint_.parameters and all(
            view.parameters == model.views_[party].parameters
            for party, view in expected.views_.items()
        )
        assert same, "workers have learned another model than memory"
        on_paper = next(r for r in paper if (r["table"], r["machines"]) == (name, number))
        rows.append(
            {
                "table": name,
                "workers": number,
                "parts": len(federation),
                "wall s": wall,
                "cpu s, all": sum(spent),
                "cpu s, slowest": max(spent),
                "on paper s": on_paper["computing s"],
                "against one": float(rows[0]["cpu s, slowest"] or 0) / max(spent) if rows else 1.0,
                "MB before": max(held for _, held in before.values()),
                "added MB, most": max(added),
                "table MB": sum(len(p.table) * len(p.table.schema) for p in federation) * 8 / 1e6,
            }
        )
        print(f"  {name}, {number} workers: {max(spent):.1f} s, {max(added):.0f} MB", flush=True)
        engine.stop()
    return rows


def _ready(engine: RayEngine, federation: fc.Federation) -> dict[int, tuple[float, float]]:
    """Started workers by process: CPU seconds, and MB that they hold."""
    engine({p: Program(trials.keep, {"table": np.ones(1)}) for p in federation.names})
    ray = cluster.library()
    found = ray.get([worker.ready.remote() for worker in cluster.WORKERS.values()])
    for process in found:
        Path(f"/proc/{process}/clear_refs").write_text("5")  # the most it has held: from now on
    return {process: (_cpu(process), _memory(process, "VmRSS")) for process in found}


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int, what: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1e3


# ---------------------------------------------------------------------- on paper


def _on_paper(
    name: str, federation: fc.Federation, watch: Stopwatch, messages: int, size: int
) -> list[Row]:
    """Parts are dealt to machines in turn, as workers get them."""
    own, parts = watch.seconds[COORDINATOR], [watch.seconds[p] for p in federation.names]
    rows: list[Row] = []
    for number in MACHINES:
        if number > len(parts):
            break
        slowest = max(sum(parts[i::number]) for i in range(number))
        network = messages / len(parts) * LATENCY + size / BANDWIDTH  # parties wait in parallel
        whole = slowest + own + (network if number > 1 else 0.0)
        rows.append(
            {
                "table": name,
                "machines": number,
                "computing s": slowest,
                "coordinator s": own,
                "messages": messages,
                "bytes": size,
                "network s": network if number > 1 else 0.0,
                "critical path s": whole,
                "against one": (sum(parts) + own) / whole,
                "rows per machine": -(-sum(len(p.table) for p in federation) // number),
            }
        )
    return rows
