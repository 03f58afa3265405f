"""An M-step that goes as far as its rows justify.

EM forgets: between two steps nothing remains of a node but what the rows say that reach it, and be
it a thousandth of one row. Here a unit of a leaf or sum that m rows reach goes only a part of the
way to its maximum,

    now + m / (m + n) · (maximum − now), in all its parameters,

as if n rows that nobody has seen came with the others and looked as it expects them. A unit that
hundreds of rows reach hardly notices; one that next to none reach stays what it is.

The likelihood never falls, as in EM: on the straight way to its maximum the expected likelihood of
a unit rises all along, for weights, probabilities, rates and natural parameters because it is
concave, for the mean and (co)variance of normal distributions by its derivative. With w the part of
the way that is left, Δ from mean to mean, v = v* + w d and r = v* + w² Δ²,

    d/dw (log v + r / v) = w (d² + Δ² (v + v*)) / v² ≥ 0.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.evaluation.joints import JointCounts, JointStep
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafStep, LeafValues
from fedcircuits.circuits.evaluation.program import CircuitProgram, Counts, Packed
from fedcircuits.circuits.evaluation.sums import OuterSumStep, SumStep
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters


def cautious(
    program: CircuitProgram, counts: Counts, now: Packed, maximum: Packed, rows: float
) -> Packed:
    """From ``now`` towards the maximum of these expected statistics; ``rows``: the n above."""
    old, new = program.unpack(now), program.unpack(maximum)
    mixed: dict[str, Arrays] = {}
    for name, reach in reached(program, counts, now).items():
        way = np.divide(reach, reach + rows, out=np.zeros_like(reach), where=reach > 0)
        mixed[name] = {k: _between(old[name][k], new[name][k], way) for k in new[name]}
    values = Parameters(mixed)
    steps = (s.pack(values, now.frames, program.dtype) for s in program.steps)
    return Packed(now.frames, tuple(steps))


def _between(old: Array, new: Array, way: Array) -> Array:
    """What the family fixes stays to the last bit."""
    way = way.reshape(*way.shape, *[1] * (new.ndim - way.ndim))
    return np.where(new == old, old, (1 - way) * old + way * new)


def reached(program: CircuitProgram, counts: Counts, packed: Packed) -> dict[str, Array]:
    """How many rows reach every unit of leaves and sums: (units,), of leaves (units, variables),
    where a row counts that has the variable."""
    found: dict[str, Array] = {}
    for step, own, values in zip(program.steps, counts.steps, packed.values, strict=True):
        if isinstance(step, SumStep | OuterSumStep):
            assert own is not None and not isinstance(own, LeafCounts | JointCounts)
            totals = own.double().sum(2).numpy()  # (folds, units)
            found |= dict(zip(step.names, totals, strict=True))
        elif isinstance(step, LeafStep):
            assert isinstance(own, LeafCounts) and isinstance(values, LeafValues)
            for part in values.parts:
                rows, at = own.count[part.pairs].double().numpy(), 0  # (pairs, units)
                for name, width in part.leaves:
                    found[name] = rows[at : at + width].T
                    at += width
        elif isinstance(step, JointStep):
            assert isinstance(own, JointCounts)
            found[step.name] = own.sums["count"].double().numpy()
    return found
