"""Bytes that cross while learning: FedPC, FedAvg and SplitNN, run and counted by one ledger.

The networks have as many numbers as the circuit: one hidden layer of the width that makes it so.
"until best" counts rounds up to the loss of held rows that was not beaten any more; training itself
goes on for five rounds to know. FedPC leaves what it has learned with the parties; "model" is what
would cross besides if all of it was brought to one place, the bytes of its file.
"""

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import f1_score

import fedcircuits as fc
from benchmarks.federated import averaging, networks
from benchmarks.federated.averaging import Learned
from benchmarks.federated.scores import macro_f1
from benchmarks.federated.sets import Data, halves, horizontal, vertical
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program

PICTURE = Path(__file__).parents[2] / "docs" / "communication.png"
MOST = {"breast cancer": 569, "credit": 10_000, "adult": 10_000}  # rows
ROUNDS = 100  # at most
SEED: dict[str, object] = {"seed": 0}


def run(picture: Path = PICTURE) -> list[Json]:
    torch.set_num_threads(1)
    rows: list[dict[str, Cell]] = []
    for name, most in MOST.items():
        rows += [row for own in measured(name, most).values() for row in own]
    print("\nBytes of training, at equal model size")
    print_table(rows)
    _draw(rows, picture)
    print(f"drawn: {picture}")
    return [{"table": "communication", **row} for row in rows]


def measured(name: str, most: int) -> dict[str, list[dict[str, Cell]]]:
    """By split the row of FedPC and that of the network."""
    data = halves(name, 0, most)
    return {
        "horizontal": _by_rows(data, horizontal(data)),
        "vertical": _by_columns(data, vertical(data)),
    }


def _circuit(data: Data, federation: fc.Federation) -> tuple[dict[str, Cell], int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fc.FedPC(method="one_pass", target=data.target, random_state=0).fit(federation)
    whole = model.collect()
    circuits = [whole.parameters_, *(p for _, p in whole.parameters_.circuits.values())]
    numbers = sum(a.size for p in circuits for own in p.values.values() for a in own.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.fc"
        model.save(path)
        stored = path.stat().st_size
    row = _row(data, federation, "FedPC", numbers, model.ledger_.bytes, macro_f1(whole, data))
    return {**row, "rounds": 1, "until best": model.ledger_.bytes, "model": stored}, numbers


def _row(
    data: Data, federation: fc.Federation, title: str, numbers: int, sent: int, macro: float
) -> dict[str, Cell]:
    return {
        "set": data.name,
        "split": federation.kind,
        "parties": len(federation),
        "rows": len(data.train),
        "": title,
        "numbers": numbers,
        "bytes": sent,
        "macro-F1": macro,
    }


def _by_rows(data: Data, federation: fc.Federation) -> list[dict[str, Cell]]:
    first, numbers = _circuit(data, federation)
    rest = data.train.select(n for n in data.train.names if n != data.target)
    inputs = networks.features(rest, networks.moments(rest)).shape[1]
    classes = data.train.schema[data.target].size or 0
    width = max(1, round((numbers - classes) / (inputs + 1 + classes)))
    told: dict[str, object] = {"members": federation.names, "sizes": (inputs, width, classes)}
    programs = {COORDINATOR: Program(averaging.averaging, {**told, "most": ROUNDS, **SEED})}
    for party in federation:
        own = {"table": party.table, "target": data.target, "width": width, "seed": 0}
        programs[party.name] = Program(averaging.averaged, own)
    outcome = _finished(memory.run(programs))
    learned = outcome.results[COORDINATOR]
    found = learned.network(networks.features(_without(data), learned.sums)).argmax(dim=1)
    sent = outcome.ledger.bytes
    macro = _macro(data, found)
    row = _row(data, federation, "FedAvg", networks.size(learned.network), sent, macro)
    return [first, {**row, **_rounds(outcome, learned)}]


def _by_columns(data: Data, federation: fc.Federation) -> list[dict[str, Cell]]:
    first, numbers = _circuit(data, federation)
    *others, holder = federation.names
    tables = {p.name: _features_of(p.table, data.target) for p in federation}
    inputs = sum(networks.features(t, networks.moments(t)).shape[1] for t in tables.values())
    fixed = 2 * len(tables) * averaging.CUT + averaging.CUT * len(tables)
    width = max(1, round((numbers - fixed) / (inputs + len(tables) * (1 + averaging.CUT))))
    label = {"table": federation[holder].table, "target": data.target, "most": ROUNDS, **SEED}
    programs = {holder: Program(averaging.top, {**label, "others": others, "width": width})}
    for name in others:
        own = {"table": tables[name], "holder": holder, "width": width, **SEED}
        programs[name] = Program(averaging.bottom, own)
    outcome = _finished(memory.run(programs))
    learned = outcome.results[holder]
    assert learned.joint is not None
    bottoms = {**{n: outcome.results[n] for n in others}, holder: learned}
    order = [holder, *others]
    parts = [
        bottoms[n].network(networks.features(data.test.select(tables[n].names), bottoms[n].sums))
        for n in order
    ]
    found = learned.joint(torch.cat(parts, dim=1)).argmax(dim=1)
    size = sum(networks.size(b.network) for b in bottoms.values()) + networks.size(learned.joint)
    row = _row(data, federation, "SplitNN", size, outcome.ledger.bytes, _macro(data, found))
    return [first, {**row, **_rounds(outcome, learned)}]


def _features_of(table: fc.Table, target: str) -> fc.Table:
    return table.select(n for n in table.names if n != target)


def _without(data: Data) -> fc.Table:
    return _features_of(data.test, data.target)


def _macro(data: Data, found: torch.Tensor) -> float:
    truth = data.test.values[:, data.test.schema.index(data.target)].astype(int)
    return float(f1_score(truth, found.numpy(), average="macro"))


def _finished(outcome: Outcome[Learned]) -> Outcome[Learned]:
    for error in outcome.lost.values():
        raise error
    return outcome


def _rounds(outcome: Outcome[Learned], learned: Learned) -> dict[str, Cell]:
    best = int(np.argmin(learned.losses)) + 1
    each = outcome.ledger.bytes / learned.rounds
    return {"rounds": learned.rounds, "until best": int(each * best)}


def _draw(rows: list[dict[str, Cell]], path: Path) -> None:
    figure = Figure(figsize=(8, 3.4), dpi=150)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, split, peer in zip(
        axes, ("horizontal", "vertical"), ("FedAvg", "SplitNN"), strict=True
    ):
        own = [r for r in rows if r["split"] == split]
        names = list(dict.fromkeys(str(r["set"]) for r in own))
        bars = {
            "FedPC": [_of(own, n, "FedPC", "bytes") for n in names],
            "FedPC and its model": [
                _of(own, n, "FedPC", "bytes") + _of(own, n, "FedPC", "model") for n in names
            ],
            f"{peer}, until best": [_of(own, n, peer, "until best") for n in names],
            peer: [_of(own, n, peer, "bytes") for n in names],
        }
        _bars(axis, names, bars)
        axis.set_title(f"{split}, {own[0]['parties']} parties", fontsize=9)
    axes[0].set_ylabel("MB that crossed in training")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _of(rows: list[dict[str, Cell]], name: str, title: str, field: str) -> float:
    found = next(r for r in rows if r["set"] == name and r[""] == title)
    return float(found[field] or 0) / 1e6


def _bars(axis: Axes, names: list[str], bars: Mapping[str, list[float]]) -> None:
    colours = ("#1f5fa8", "#8db4e0", "#e8b07a", "#c0571a")
    for i, ((title, values), colour) in enumerate(zip(bars.items(), colours, strict=True)):
        at = np.arange(len(names)) + 0.2 * (i - 1.5)
        axis.bar(at, values, 0.18, label=title, color=colour)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yscale("log")
    axis.set_ylim(top=100)
    axis.legend(fontsize=7, frameon=False, loc="upper center", ncols=2)
