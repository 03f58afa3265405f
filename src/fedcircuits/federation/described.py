"""Parties on other machines: the description of a table that stays at its site, where the parts of
a model are kept, and what a caller can ask sites besides running a protocol: whether they are
reachable, which models they keep, and to delete a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.recipes import Held
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.notebook import shown
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

NAME = re.compile(r"[\w][\w .-]{0,99}")
NONE: Mapping[str, Sequence[int]] = MappingProxyType({})
FORGOTTEN, NOTHING = GONE = ("forgotten", "keeps no such model")  # when asked to forget


class DescribedTable(Table):
    """Columns, number of rows and whether they have ids; asking it for values is an error.

    ``series``: of every series its steps and channels; there it is an array without rows.

    ``chosen``: names of the runs in which its site determined which of its rows to use, in order.
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
            "these rows stay at their site and cannot be read here: query the model instead"
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
            f"{name!r} is not a valid name of a run, model or party: expected up to 100 letters, "
            "digits, spaces, _, - and single dots, starting with a letter or digit"
        )
    return name


def chosen_rows(table: Table, where: object, count: int) -> Table:
    """So many rows of a table: at these places, or at those that its site keeps."""
    if isinstance(table, DescribedTable) and isinstance(where, Held):
        shapes = {name: array.shape[1:] for name, array in table.series.items()}
        about = (table.schema, count, table.row_ids is not None, shapes)
        return DescribedTable(*about, chosen=(*table.chosen, where.model))
    return table.rows(where)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- inquiries


class KeptHere(Protocol):
    """What the caller itself keeps."""

    def forget(self, model: str) -> bool: ...


class Connection(Protocol):
    """An engine whose parties are sites."""

    @property
    def where(self) -> Whereabouts | None: ...

    @property
    def kept_here(self) -> KeptHere: ...

    def describe_there(
        self, sites: Sequence[str], timeout: float
    ) -> Mapping[str, Mapping[str, Any] | PartyLostError]: ...

    def forget_there(
        self, sites: Sequence[str], model: str, timeout: float
    ) -> Mapping[str, tuple[bool, str]]: ...

    def close(self) -> None: ...


def connection_of(engine: object) -> Connection:
    """FederationError unless parties are sites."""
    if getattr(engine, "where", None) is None:
        raise FederationError(
            "this federation runs in this process and has no sites: connect to sites with "
            "Federation.connect(…)"
        )
    return engine  # type: ignore[return-value]


def status(connection: Connection, sites: Sequence[str], timeout: float) -> pd.DataFrame:
    """One line per site; nothing else is known about a site that is away."""
    lines = {}
    for site, facts in connection.describe_there(sites, timeout).items():
        if isinstance(facts, PartyLostError):
            lines[site] = [False, None, None, None]
            continue
        lines[site] = [True, facts.get("rows"), facts.get("models", []), facts.get("version")]
    columns = ["there", "rows", "models", "version"]
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return frame.astype({"rows": "Int64"}).rename_axis("site")


def models(connection: Connection, sites: Sequence[str], timeout: float) -> dict[str, list[str]]:
    """The sites that keep a part of each model; PartyLostError for a site that is away."""
    kept: dict[str, list[str]] = {}
    for site, facts in connection.describe_there(sites, timeout).items():
        if isinstance(facts, PartyLostError):
            raise facts
        for model in facts.get("models", []):
            kept.setdefault(str(model), []).append(site)
    return dict(sorted(kept.items()))


def forget(
    connection: Connection, sites: Sequence[str], model: str, timeout: float
) -> dict[str, str]:
    """The outcome by site. The caller keeps its own part if no site agrees."""
    answers = connection.forget_there(sites, model, timeout)
    if any(gone or not why for gone, why in answers.values()):
        connection.kept_here.forget(model)
    return {site: FORGOTTEN if gone else why or NOTHING for site, (gone, why) in answers.items()}
