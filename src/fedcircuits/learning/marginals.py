"""Leaves for a part of the table, column by column."""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.family import Array, Arrays, Family, family
from fedcircuits.circuits.schema import Schema
from fedcircuits.circuits.structures import by_kind
from fedcircuits.learning.independence import Floats, Index


class Marginals:
    def __init__(
        self,
        values: Array,
        schema: Schema,
        weight: Floats,
        smoothing: float,
        rng: np.random.Generator,
    ) -> None:
        self.values, self.schema, self.weight, self.smoothing = values, schema, weight, smoothing

    def of(self, rows: Index, columns: Index) -> list[tuple[str, Index, Arrays]]:
        """Families, the columns each takes, and their parameters (1, columns, …)."""
        groups: dict[tuple[str, int], list[int]] = {}
        for c in columns:
            v = self.schema.variables[c]
            groups.setdefault((by_kind(v), v.size), []).append(int(c))
        return [self._leaf(rule, np.array(members), rows) for (rule, _), members in groups.items()]

    def _leaf(self, rule: str, members: Index, rows: Index) -> tuple[str, Index, Arrays]:
        part, w = self.values[np.ix_(rows, members)], self.weight[rows]
        if rule == "bernoulli":
            seen = ~np.isnan(part)
            n = w @ seen
            ones = w @ np.nan_to_num(part)
            return (
                rule,
                members,
                {"probability": ((ones + self.smoothing) / (n + 2 * self.smoothing))[None]},
            )
        kind = family(rule)
        assert isinstance(kind, Family)
        found = [
            kind.start(c[~np.isnan(c)], self.schema.variables[m]) for c, m in zip(part.T, members)
        ]
        return rule, members, {n: np.stack([f[n] for f in found])[None] for n in found[0]}
