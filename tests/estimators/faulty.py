"""Learners that count their work in a folder, and fail while it has a file ``broken``.

They stand apart because processes of parties import them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import numpy as np

import fedcircuits as fc
from fedcircuits.errors import TableError
from fedcircuits.learning.batches import Source
from fedcircuits.tables.schema import Schema

How = Literal["raise", "explain", "exit"]


class Faulty(fc.MixtureOfProducts):
    """One mark in the folder for every leaf that was learned."""

    def __init__(self, folder: str, how: How = "raise", *, random_state: int | None = None) -> None:
        super().__init__(2, max_iter=1, random_state=random_state)
        self.folder = folder
        self.how = how

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        here = Path(self.folder)
        if (here / "broken").exists():
            if self.how == "exit":
                os._exit(3)
            if self.how == "explain":
                raise TableError("this learner is broken")
            raise RuntimeError("the patient is called Quixote")
        super()._learn(rows, schema, rng)
        (here / f"learned {len(list(here.iterdir()))}").touch()


def learned(folder: Path) -> int:
    return len(list(folder.glob("learned*")))
