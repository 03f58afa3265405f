"""What a user should know of columns that a circuit keeps apart, with the evidence of the test."""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.evidence import dependent
from fedcircuits.learning.independence import Index, groups
from fedcircuits.tables.schema import Schema

SHOWN = 8  # columns in a note
HEAVY = 0.1  # share of the rows that have one value of a real column
MOST_ROWS = 10_000  # that are looked at


def notes_of(chance: Array, schema: Schema, target: int | None, level: float) -> tuple[str, ...]:
    """``chance``: the p-value of every pair of columns on all rows."""
    if len(schema) < 2:
        return ()
    parts = groups(dependent(chance, level, target))
    notes = []
    if target is not None:
        with_target = next(g for g in parts if target in g)
        apart = np.setdiff1d(np.arange(len(schema)), with_target)
        if len(apart):
            listed = _listed(apart, chance[target, apart], schema)
            name = schema.names[target]
            notes.append(f"independent of the target {name!r} at level {level:g}: {listed}")
    alone = np.array([g[0] for g in parts if len(g) == 1 and g[0] != target], dtype=np.int64)
    if len(alone) and (target is None or len(alone) < len(schema) - 1):
        least = chance[alone].min(axis=1)
        listed = _listed(alone, least, schema)
        notes.append(f"independent of every other column at level {level:g}: {listed}")
    return tuple(notes)


def notes_of_ties(values: Array, schema: Schema) -> tuple[str, ...]:
    """A density has no mass at a single value: where many rows have it, questions that end there
    split them."""
    some = values[:: -(-len(values) // MOST_ROWS)]
    real = [i for i, v in enumerate(schema) if v.kind == "real"]
    tied = [schema.names[i] for i in real if _is_tied(some[:, i])]
    if not tied:
        return ()
    shown = ", ".join(map(repr, tied[:SHOWN]))
    more = f" and {len(tied) - SHOWN} more" if len(tied) > SHOWN else ""
    return (
        f"many rows have the same value of the real columns {shown}{more}: a condition that ends "
        "at such a value counts about half of these rows; end it between two values, or declare "
        "the columns as counts or categories",
    )


def _is_tied(column: Array) -> bool:
    seen = column[~np.isnan(column)]
    counts = np.unique(seen, return_counts=True)[1]
    return len(counts) > 1 and bool(counts.max() >= max(HEAVY * len(seen), 5))


def _listed(columns: Index, p: Array, schema: Schema) -> str:
    """The surest of them first to doubt."""
    order = np.argsort(p, kind="stable")
    shown = [f"{schema.names[columns[i]]!r} (p = {p[i]:.2g})" for i in order[:SHOWN]]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
