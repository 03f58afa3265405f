"""Where EM begins if all that is known are counts of pairs of values: rows are drawn from the
Chow–Liu tree of these, and clustered. Nobody's rows are looked at, so that counts with noise keep
their guarantee."""

from __future__ import annotations

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.trees import chow_liu_circuit
from fedcircuits.learning.independence import Index, mutual_information
from fedcircuits.learning.summed.clusters import (
    DRAWN,
    FEWEST,
    MOST,
    ROUNDS,
    ClusteredRows,
    SummedCentres,
    SummedFeatures,
)
from fedcircuits.learning.summed.sketches import Sketch
from fedcircuits.tables.schema import Schema

SMOOTHING = 1.0  # rows of every pair of values


def clustered_by_pairs(
    tables: Array,
    starts: Index,
    schema: Schema,
    clusters: int,
    classes: int | None,
    rng: np.random.Generator,
) -> ClusteredRows:
    """So many clusters, or so many of each class, of rows drawn from the tree of these counts."""
    counts = np.diagonal(tables)
    sketch = Sketch.first(schema).with_counts(counts)
    values = _drawn(tables, starts, schema, clusters, rng)
    features = SummedFeatures.of(sketch, classes)
    centres = SummedCentres.drawn(features, features.moments(values), clusters, classes, rng)
    moves, t = True, 0
    while moves and t < ROUNDS:
        sums = centres.sums(values).reshape(len(centres.points), -1)
        centres, moves = centres.moved(sums)
        t += 1
    rows = int(np.median([c.sum() for c in sketch.counts]))
    information = mutual_information(tables, starts)
    return ClusteredRows(values, centres.nearest(values), information, sketch, rows)


def _drawn(
    tables: Array, starts: Index, schema: Schema, clusters: int, rng: np.random.Generator
) -> Array:
    circuit, parameters = chow_liu_circuit(schema, tables, starts, SMOOTHING)
    program = CircuitProgram(circuit)
    wanted = int(np.clip(DRAWN * clusters, FEWEST, MOST))
    nothing = torch.full((wanted, len(schema)), torch.nan, dtype=torch.float64)
    return program.complete(nothing, program.pack(parameters), rng)[0]
