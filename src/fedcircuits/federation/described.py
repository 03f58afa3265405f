"""A table that lies somewhere else: what its site says of it, and no rows."""

from __future__ import annotations

import numpy as np

from fedcircuits.errors import FederationError
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table


class DescribedTable(Table):
    """Columns, number of rows and whether they have ids; asking it for values is an error."""

    __slots__ = ("rows_there",)
    rows_there: int

    def __init__(self, schema: Schema, rows: int, ids: bool) -> None:
        facts = {"schema": schema, "rows_there": rows, "series": {}}
        facts["row_ids"] = np.zeros(0, np.int64) if ids else None
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    @property
    def values(self) -> Floats:
        raise FederationError(
            "these rows lie at their site, and nobody else reads them: ask the model instead"
        )

    def __len__(self) -> int:
        return self.rows_there

    def __repr__(self) -> str:
        return f"{len(self):,} rows × {len(self.schema)} variables, at their site"
