"""Circuits with hostile parameters, rows and statistics, given to every pass of a program.

Run as a script with NUMBA_BOUNDSCHECK=1 compiled loops raise IndexError wherever they would read
beyond an array. Whatever else happens must be a number or an error of ours.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import torch

from fedcircuits.circuits.evaluation.counts import Counts
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FedcircuitsError
from tests.circuits.strategies import STRUCTURES, Model, model_of, random_rows, schema_of

NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308, -1e308, 1e-320, 1e150, 0.5, 2.0**63)
SORTS = ("boolean", "category", "count", "real", "pixel")


def spoiled(array: Array, rng: np.random.Generator, share: float) -> Array:
    """The same with some numbers, or all of them, replaced by hostile ones."""
    changed = np.array(array)
    where = rng.random(changed.shape) < share
    changed[where] = rng.choice(NUMBERS, int(where.sum()))
    if rng.random() < 0.1:
        changed[...] = rng.choice(NUMBERS)
    return changed


def hostile_model(rng: np.random.Generator) -> Model:
    structure = str(rng.choice([*STRUCTURES, "random", "random"]))
    sorts = tuple(str(s) for s in rng.choice(SORTS, int(rng.integers(2, 5))))
    circuit, sane = model_of(structure, schema_of(sorts), int(rng.integers(2**31)))
    share = float(rng.choice([0.0, 0.02, 0.3]))
    values = {
        node: {name: spoiled(array, rng, share) for name, array in arrays.items()}
        for node, arrays in sane.values.items()
    }
    return circuit, Parameters(values)


def all_passes(model: Model, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Upwards, downwards, M-step and completions; FedcircuitsError says what is refused."""
    circuit, parameters = model
    program = CircuitProgram(circuit, dtype)
    packed = program.pack(parameters)
    rows = random_rows(circuit.schema, rng, int(rng.integers(1, 70)))
    x = torch.from_numpy(spoiled(rows, rng, float(rng.choice([0.0, 0.1, 0.5]))))
    program.log_values(x, packed)
    weight = torch.from_numpy(spoiled(np.ones(len(x)), rng, 0.1))
    counts: Counts = program.counts(x, packed, weight)
    spoilt = counts.like(spoiled(counts.flat(), rng, float(rng.choice([0.0, 0.1]))))
    after = program.maximise(spoilt, packed)
    program.log_values(x, after)
    program.complete(x, after, None)
    program.complete(x, after, rng)


def run(seed: int) -> str:
    """What came of it: a number, or the error that refused it."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            all_passes(hostile_model(rng), rng, torch.float64)
        except FedcircuitsError as error:
            return type(error).__name__
    return "numbers"


if __name__ == "__main__":
    first, last = (int(a) for a in sys.argv[1:])
    found = [run(seed) for seed in range(first, last)]
    print({what: found.count(what) for what in sorted(set(found))})
