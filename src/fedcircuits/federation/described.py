"""What lies somewhere else: a table that its site describes, and where a model's parts are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fedcircuits.errors import FederationError
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

NAME = re.compile(r"[\w][\w .-]{0,99}")


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


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where the parts of a model are: at sites of a consortium, which ``kit`` leads to."""

    consortium: str
    kit: str  # the coordinator's folder, on the machine that has trained
    sites: tuple[str, ...]


def checked_name(name: object) -> str:
    """FederationError unless a run, model or party can be called so, and a folder too."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or ".." in name:
        raise FederationError(
            f"{name!r} is no name of a run, model or party: expected up to 100 letters, digits, "
            "spaces, _, - and single dots, with a letter or digit first"
        )
    return name
