"""Attacks as a section: every figure of this checkout, beside those of an earlier one.

    python -m benchmarks.attacks --before ../before

``--before`` runs the same attacks on another checkout, in a process of its own that imports its
package and these attacks. What it lacks, a setting or a method, is left empty.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.attacks import (
    columns,
    edges,
    known,
    liar,
    linking,
    membership,
    naming,
    read_back,
    reconstruct,
)
from benchmarks.attacks.measuring import HERE, Measure, commit, described
from benchmarks.runner import THREAD_LIMITS, Cell, Json, print_table

ATTACKS: dict[str, ModuleType] = {
    "read_back": read_back,
    "membership": membership,
    "naming": naming,
    "known": known,
    "linking": linking,
    "reconstruct": reconstruct,
    "columns": columns,
    "edges": edges,
    "liar": liar,
}
SEEDS = {"edges": 3, "membership": 2, "columns": 2}  # others have one
Row = dict[str, Cell]


def measured(name: str) -> list[Measure]:
    """The attack with every seed; means of what was measured."""
    values: dict[tuple[str, str], list[float]] = {}
    rows: dict[tuple[str, str], Measure] = {}
    for seed in range(SEEDS.get(name, 1)):
        for found in ATTACKS[name].measures(seed):
            key = (json.dumps(dict(found.row)), found.figure)
            rows[key] = found
            values.setdefault(key, []).extend([] if found.value is None else [found.value])
    means = {key: float(np.mean(of)) if of else None for key, of in values.items()}
    return [Measure(m.figure, m.row, means[key]) for key, m in rows.items()]


def measured_in(folder: Path, name: str) -> list[Measure]:
    """The same in another checkout."""
    paths = os.pathsep.join([str(folder / "src"), str(HERE)])
    environment = {**os.environ, **dict.fromkeys(THREAD_LIMITS, "1"), "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.attacks", "--one", name],
        cwd=HERE,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [Measure(**found) for found in json.loads(done.stdout.splitlines()[-1])]


def as_json(found: Sequence[Measure]) -> list[Json]:
    return [{"figure": m.figure, "row": dict(m.row), "value": m.value} for m in found]


def table(now: Sequence[Measure], before: Sequence[Measure] | None = None) -> list[Row]:
    """One row for what was attacked; figures side by side, now and before."""
    rows: dict[str, Row] = {}
    for when, found in (("before", before or ()), ("now", now)):
        for m in found:
            row = rows.setdefault(json.dumps(dict(m.row)), dict(m.row))
            row[m.figure if before is None else f"{m.figure}, {when}"] = m.value
    return [row for row in rows.values() if any(isinstance(v, float) for v in row.values())]


def run(names: Sequence[str] = (), before: Path | None = None) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for name in names or ATTACKS:
        earlier = None if before is None else measured_in(before, name)
        now = measured(name)
        print(f"\n{_first(ATTACKS[name])}\n")
        print_table([_shown(row) for row in table(now, earlier)])
        old: Json = None if earlier is None else as_json(earlier)
        results.append({"attack": name, "at": commit(), "now": as_json(now), "before": old})
    return results


def added(earlier: dict[str, Any], found: dict[str, Any], only: str) -> dict[str, Any]:
    """Earlier figures, and beside or instead of them those that were attacked now."""
    kept = [m for m in earlier["now"] if only not in described(m["row"])]
    new = [m for m in found["now"] if only in described(m["row"])]
    of_these = f"; of rows with “{only}”: "
    at = re.sub(f"{re.escape(of_these)}\\w+", "", earlier["at"]) + of_these + found["at"]
    return {**found, "at": at, "now": kept + new}


def _shown(row: Mapping[str, Any]) -> Row:
    return {name: "–" if value is None else value for name, value in row.items()}


def _first(module: ModuleType) -> str:
    return str(module.__doc__).split("\n\n")[0]
