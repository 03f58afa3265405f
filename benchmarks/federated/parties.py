"""More parties for the same rows: time and bytes from 2 to 64 of them, and 1,000 in one thread.

Rows of adult, split at random. "slowest" is the slowest party and the coordinator in CPU seconds:
what training takes where each has a core. "wall" is a process each on this machine.
"""

import time
import warnings
from pathlib import Path

import torch
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated.clock import Stopwatch
from benchmarks.federated.scores import macro_f1
from benchmarks.federated.sets import Data, halves
from benchmarks.runner import Cell, Json, print_table

PICTURE = Path(__file__).parents[2] / "docs" / "parties.png"
PARTIES = (1, 2, 4, 8, 16, 32, 64)
MANY = 1000
ROWS = 40_000


def run(picture: Path = PICTURE) -> list[Json]:
    torch.set_num_threads(1)
    data = halves("adult", 0, ROWS)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        _row(data, 2)  # the server that processes are forked from takes seconds to start
        rows = [_row(data, number) for number in (*PARTIES, MANY)]
    print(f"\n{len(data.train):,} rows of adult split over parties")
    print_table(rows)
    _draw(rows[:-1], picture)
    print(f"drawn: {picture}")
    return [{"table": "parties", **row} for row in rows]


def _row(data: Data, number: int) -> dict[str, Cell]:
    federation = fc.split(data.train, number, target=data.target, seed=0)
    watch = Stopwatch()
    model = fc.FedPC(target=data.target, random_state=0).fit(federation, engine=watch)
    wall: Cell = ""
    if number < MANY:
        begin = time.perf_counter()
        fc.FedPC(target=data.target, random_state=0).fit(federation, engine="process")
        wall = time.perf_counter() - begin
    whole = model.collect()
    return {
        "parties": number,
        "cpu s, all": watch.total,
        "cpu s, slowest": watch.slowest,
        "wall s, processes": wall,
        "messages": len(model.ledger_),
        "bytes": model.ledger_.bytes,
        "bytes per party": model.ledger_.bytes / number,
        "log-likelihood": whole.score(data.test),
        "macro-F1": macro_f1(whole, data),
    }


def _draw(rows: list[dict[str, Cell]], path: Path) -> None:
    number = [int(r["parties"] or 0) for r in rows]
    figure = Figure(figsize=(8, 3.2), dpi=150)
    left, right = figure.subplots(1, 2)
    for name, style in (
        ("cpu s, all", "s-"),
        ("wall s, processes", "^-"),
        ("cpu s, slowest", "o-"),
    ):
        left.plot(number, [float(r[name] or 0) for r in rows], style, label=name, markersize=4)
    left.set_ylabel("seconds of training")
    right.plot(
        number, [float(r["bytes"] or 0) / 1e3 for r in rows], "o-", label="all", markersize=4
    )
    each = [float(r["bytes per party"] or 0) / 1e3 for r in rows]
    right.plot(number, each, "s-", label="a party", markersize=4)
    right.set_ylabel("kB that crossed in training")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(number, [str(n) for n in number])
        axis.set_xlabel("parties")
        axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
