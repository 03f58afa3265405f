"""Figures of single fits in a file of JSON lines, so that hours of work can be taken up again.

``kept(key, work)`` gives the figures of a key by the file, or by work, and then writes them there.
The file has the name of the commit: figures of other code are not taken up. Without a file (small
runs, tests) everything is worked out.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
FOLDER = Path(__file__).parents[2] / "build" / "paper"


class Pieces:
    """``seconds`` are the CPU seconds that the figures asked for have cost, whenever that was."""

    def __init__(self, path: Path | None = None, seeds: int | None = None) -> None:
        self.path, self.most_seeds, self.seconds = path, seeds, 0.0
        self.known: dict[str, dict[str, Any]] = {}
        if path is not None and path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.known = {own["key"]: own for own in map(json.loads, lines)}

    def __call__(self, key: str, work: Callable[[], T]) -> T:
        """``work`` gives what JSON can hold: numbers, texts, lists and dictionaries of them."""
        if key not in self.known:
            begin = time.process_time()
            found = work()
            seconds = round(time.process_time() - begin, 1)
            self.known[key] = {"key": key, "found": found, "cpu_seconds": seconds}
            if self.path is not None:
                print(f"  {key}: {seconds:,.0f} CPU seconds", flush=True)
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(self.known[key]) + "\n")
        self.seconds += self.known[key]["cpu_seconds"]
        found = self.known[key]["found"]
        return found


CURRENT = [Pieces()]


def kept(key: str, work: Callable[[], T]) -> T:
    """In the file of this run."""
    return CURRENT[-1](key, work)


def some(seeds: Sequence[int], full: bool) -> Sequence[int]:
    """One seed of a small run; those of a full one, or as many as it may take."""
    return seeds[: CURRENT[-1].most_seeds if full else 1]


def place(folder: Path = FOLDER) -> Path:
    """The file of the commit that is checked out."""
    command = ["git", "-C", str(FOLDER.parents[1]), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return folder / f"{done.stdout.strip() or 'unknown'}.jsonl"
