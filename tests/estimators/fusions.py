"""Owners of speeds, and fusions that learn quickly from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Compute, Effect, Flow, Program, through

ROWS, STEPS = 160, 4
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
SPEEDS = RNG.normal(size=(4, ROWS, STEPS, 1)) + 1.2 * EVENT[:, None, None]
QUICK = fc.SequenceEncoder(width=3, epochs=8, learning_rate=0.02, batch=40)


def table(i: int, rows: slice = slice(None), labels: bool = True, **more: Any) -> fc.Table:
    columns = {"event": EVENT[rows], **more} if labels else (more or None)
    return fc.Table.from_series({"speed": SPEEDS[i][rows]}, columns, np.arange(ROWS)[rows])


def owners(rows: slice = slice(None), count: int = 4, **options: Any) -> fc.Federation:
    return fc.Federation({f"owner {i}": table(i, rows, **options) for i in range(count)})


TRAIN, TEST = owners(slice(0, 120)), owners(slice(120, None))


def model(**options: Any) -> fc.FeatureFusion:
    settings: dict[str, Any] = {"epochs": 12, "batch": 40, "graph_draws": 3, "random_state": 0}
    return fc.FeatureFusion(options.pop("encoder", QUICK), **{**settings, **options})


def one_by_one(programs: Any, kept: Any = None) -> Any:
    """The memory engine, where nobody is trained together with others."""
    alone = {name: Program(unbatched, {"program": program}) for name, program in programs.items()}
    return memory.run(alone, kept)


def unbatched(program: Program[Any]) -> Flow[Any]:
    def alone(effect: Effect) -> Flow[object]:
        if isinstance(effect, Compute):
            effect = replace(effect, batch=None)
        return (yield effect)

    return (yield from through(program.start(), alone))
