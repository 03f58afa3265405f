"""What lies somewhere else: a table that its site describes, and where a model's parts are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedcircuits.errors import FederationError
from fedcircuits.federation.recipes import Held
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.notebook import shown
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

NAME = re.compile(r"[\w][\w .-]{0,99}")
NONE: Mapping[str, Sequence[int]] = MappingProxyType({})


class DescribedTable(Table):
    """Columns, number of rows and whether they have ids; asking it for values is an error.

    ``series``: of every series its steps and channels; there it is an array without rows.

    ``chosen``: names of runs in which its site found out which of its rows to take, one after the
    other.
    """

    __slots__ = ("chosen", "rows_there")
    rows_there: int
    chosen: tuple[str, ...]

    def __init__(
        self,
        schema: Schema,
        rows: int,
        ids: bool,
        series: Mapping[str, Sequence[int]] = NONE,
        chosen: tuple[str, ...] = (),
    ) -> None:
        facts: dict[str, object] = {"schema": schema, "rows_there": rows, "chosen": chosen}
        facts["readings"] = ()  # the site's own
        facts["series"] = {n: np.zeros((0, *shape), np.float32) for n, shape in series.items()}
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

    def _repr_html_(self) -> str:
        rows = [(v.name, v.kind_in_words) for v in self.schema]
        return shown(repr(self), ["column", "kind"], rows)

    def __repr__(self) -> str:
        columns = f"{len(self.schema)} variables"
        columns += f" and {len(self.series)} series" if self.series else ""
        return f"{len(self):,} rows × {columns}, at their site"


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


def chosen_rows(table: Table, where: object, count: int) -> Table:
    """So many rows of a table: at these places, or at those that its site keeps."""
    if isinstance(table, DescribedTable) and isinstance(where, Held):
        shapes = {name: array.shape[1:] for name, array in table.series.items()}
        about = (table.schema, count, table.row_ids is not None, shapes)
        return DescribedTable(*about, chosen=(*table.chosen, where.model))
    return table.rows(where)  # type: ignore[arg-type]
