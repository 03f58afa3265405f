"""Figures of single fits in a file of JSON lines, so that a long run can be taken up again.

A line has set, split, seed, row, and figures. What is there already is not run again; a line says
nothing of the code that it comes from, so begin a new file after a change.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.federated.scores import spread
from benchmarks.runner import Json

Figures = dict[str, float]
Key = tuple[str, str, int, str]  # set, split, seed, row


class Kept:
    """``found(key, work)`` gives the figures of a key, by the file or by work."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.figures: dict[Key, Figures] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                own = json.loads(line)
                key = (own.pop("set"), own.pop("split"), own.pop("seed"), own.pop("row"))
                self.figures[key] = own

    @classmethod
    def asked(cls, description: str) -> tuple["Kept", int | None]:
        """What the command line says: a file, and how many owners."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--owners", type=int)
        parser.add_argument("--keep", type=Path, help="a file of JSON lines to add to")
        given = parser.parse_args()
        return cls(given.keep), given.owners

    def found(self, key: Key, work: Callable[[], Figures]) -> Figures:
        if key not in self.figures:
            start = time.process_time()
            own = work()
            own["cpu_seconds"] = time.process_time() - start
            self.figures[key] = own
            shown = ", ".join(f"{name} {value:.3f}" for name, value in own.items())
            print(*key, shown, sep=" · ", flush=True)
            self._write(key, own)
        return self.figures[key]

    def _write(self, key: Key, own: Figures) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        names = dict(zip(("set", "split", "seed", "row"), key, strict=True))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**names, **own}) + "\n")

    def over_seeds(self, name: str, split: str, row: str, figure: str) -> list[float]:
        return [
            own[figure]
            for (a, b, _, r), own in sorted(self.figures.items())
            if (a, b, r) == (name, split, row) and figure in own
        ]

    def spread(self, name: str, split: str, row: str, figure: str) -> str | None:
        """Mean ± deviation over the seeds that were run."""
        values = self.over_seeds(name, split, row, figure)
        return spread(np.array(values)) if values else None

    def results(self) -> list[Json]:
        return [
            {"set": a, "split": b, "seed": seed, "row": row, **own}
            for (a, b, seed, row), own in self.figures.items()
        ]
