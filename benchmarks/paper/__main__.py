"""Rerun the tables and figures of the papers and write the page of results.

    make paper                                          # small: one seed, few rows
    make paper FULL=1                                   # hours: all seeds, all rows, peers
    make paper FULL=1 SEEDS=1                           # all rows, one seed
    python -m benchmarks.paper fedpc-table-1 mixture    # some items, or all of a paper

Every item writes docs/results/paper.json as it ends; items that are not run again keep their rows,
and the page docs/results/paper.md is made from the file. An item that fails keeps its rows too, and
the others go on. A full run that was broken off goes on where it was: its figures are in
build/paper, in a file with the name of the commit (pieces.py).
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.paper import circuits, forests, fusion, mixtures
from benchmarks.paper.items import COLUMNS, Item, Paper
from benchmarks.paper.pieces import CURRENT, Pieces, place
from benchmarks.runner import machine_facts
from fedcircuits.errors import DatasetError

PAPERS: Sequence[Paper] = (circuits.PAPER, forests.PAPER, mixtures.PAPER, fusion.PAPER)
INTRODUCTION = (
    "This page reproduces every table and figure of the four papers for which data are available. "
    "`make paper` runs them at small scale (one seed, few rows: this shows that they run, not how "
    "good they are). `make paper FULL=1` runs them in full, or with fewer seeds by `SEEDS=1`, and "
    "resumes if it was interrupted. Each section states its size. The figures come from the JSON "
    "file next to this page. The other results pages have longer tables on the same subjects."
)


def record(item: Item, full: bool) -> dict[str, Any]:
    """The rows of an item and how they came about."""
    began, pieces = time.process_time(), CURRENT[-1]
    already, known = pieces.seconds, set(pieces.known)
    rows = [line.cells() for line in item.run(full)]
    own = sum(p["cpu_seconds"] for key, p in pieces.known.items() if key not in known)
    seconds = time.process_time() - began - own + pieces.seconds - already  # also of earlier runs
    most, size = pieces.most_seeds, "full" if full else "small"
    options = " --full" * full + f" --seeds {most}" * (full and most is not None)
    size += f", at most {most} seed{'s' * (most > 1)}" if full and most is not None else ""
    spent = round(max(seconds, 0.0), 1)
    about = {"size": size, "options": options, "commit": place().stem, "cpu seconds": spent}
    return {"rows": rows, **about}


def page(found: dict[str, dict[str, Any]], machine: dict[str, Any]) -> dict[str, Any]:
    """The page of everything that was found."""
    where = f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}"
    blocks: list[dict[str, Any]] = [
        {"code": "make paper\nmake paper FULL=1"},
        {"text": f"{INTRODUCTION} Last run: {where}, one thread."},
    ]
    for paper in PAPERS:
        blocks.append({"heading": paper.title})
        for item in paper.items:
            blocks += _item(item, found.get(item.key))
        blocks.append({"heading": "Not reproduced, and why", "level": 3})
        rows = [[missing.name, missing.why] for missing in paper.missing]
        blocks.append({"columns": ["what", "why"], "rows": rows})
    return {"title": "Reproducing the papers", "blocks": blocks, "found": found}


def _item(item: Item, found: dict[str, Any] | None) -> list[dict[str, Any]]:
    head = [{"heading": item.title, "level": 3}]
    if found is None:
        return [*head, {"text": f"Not run yet: `python -m benchmarks.paper {item.key}`."}]
    seconds = found["cpu seconds"]
    cost = "" if seconds is None else f", {seconds:,.0f} CPU seconds"
    code = f"commit {found['commit']}" if "commit" in found else "run with older code"
    if "error" in found:
        return [*head, {"text": f"Could not be run here: {found['error']}"}]
    return [
        *head,
        {"text": f"{item.about} Size: {found['size']}{cost}; {code}."},
        {"code": f"python -m benchmarks.paper {item.key}{found['options']}"},
        {"columns": list(COLUMNS), "rows": found["rows"]},
    ]


def chosen(words: Sequence[str]) -> list[Item]:
    """Items by their keys or by that of their paper; all if none is named."""
    every = [(paper.key, item) for paper in PAPERS for item in paper.items]
    if unknown := set(words) - {k for k, _ in every} - {item.key for _, item in every}:
        keys = ", ".join(item.key for _, item in every)
        raise SystemExit(f"no item {min(unknown)!r}: expected {keys}, or fedpc, forest, …")
    return [item for key, item in every if not words or key in words or item.key in words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", nargs="*", help="keys of items or papers; all by default")
    parser.add_argument("--full", action="store_true", help="all seeds and rows, and peers: hours")
    parser.add_argument("--seeds", type=int, help="at most so many seeds of a full run")
    parser.add_argument("--output", type=Path, default=pages.RESULTS / "paper.json")
    told = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    path: Path = told.output
    found = json.loads(path.read_text("utf-8"))["found"] if path.is_file() else {}
    CURRENT.append(Pieces(place() if told.full else None, told.seeds))
    try:
        failed = [item.key for item in chosen(told.items) if not _run(item, told.full, found, path)]
    finally:
        CURRENT.pop()
    print(f"\nwritten: {path} and {path.with_suffix('.md')}")
    if failed:
        again = f"python -m benchmarks.paper {' '.join(failed)}{' --full' * told.full}"
        raise SystemExit(f"failed, and left as they were: {', '.join(failed)}; again by  {again}")


def _run(item: Item, full: bool, found: dict[str, dict[str, Any]], path: Path) -> bool:
    """Runs an item and writes the page; whether it has come to its end."""
    print(f"\n{item.title}", flush=True)
    try:
        found[item.key] = record(item, full)
    except DatasetError as error:
        found[item.key] = {"error": str(error), "size": "", "cpu seconds": 0.0}
    except Exception:
        traceback.print_exc()
        return False
    for row in found[item.key].get("rows", []):
        print("  " + " | ".join(cell or "–" for cell in row))
    pages.write(path, page(found, machine_facts()))
    return True


if __name__ == "__main__":
    main()
