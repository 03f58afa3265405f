"""Who takes part: parties with their tables, and how the data are split between them.

The 0/1 matrix M (parties × variables) says who holds what. Variables with equal columns of M form a
subspace. Nobody declares how data are split; it is read off M:

    horizontal   every party holds every variable: different rows of the same table
    vertical     every variable has one holder: different columns about the same rows
    hybrid       anything between
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.errors import FederationError, TableError
from fedcircuits.federation.agreement import agree
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

COORDINATOR = "coordinator"  # the role that plans and joins; it holds no rows
SplitKind = Literal["horizontal", "vertical", "hybrid"]


@dataclass(frozen=True, slots=True)
class Party:
    """One owner of data. ``allow_collect`` lets what it has learned leave it.

    >>> Party("north", Table.of({"age": [31, 47, 52]})).allow_collect
    False
    """

    name: str
    table: Table
    allow_collect: bool = False


@dataclass(frozen=True, slots=True)
class Subspace:
    """Variables that the same parties hold."""

    holders: tuple[str, ...]
    variables: tuple[str, ...]


class Federation:
    """``Federation({"north": "north.csv", "south": frame}, row_id="patient")``.

    Tables are whatever ``Table.of`` takes, or paths of csv and parquet files. ``row_id`` names the
    column that says which rows of different parties are about the same thing; where parties hold
    different columns it is what joins them. ``allow_collect`` (all, or names of parties) lets
    learned circuits leave their parties.

    >>> bank = {"id": [3, 1, 2], "loan": [10.5, 3.0, 8.5]}
    >>> telco = {"id": [1, 2, 3], "calls": [12, 40, 7]}
    >>> Federation({"bank": bank, "telco": telco}, row_id="id").kind
    'vertical'
    """

    def __init__(
        self,
        parties: Mapping[str, object],
        row_id: str | None = None,
        *,
        allow_collect: bool | Collection[str] = False,
    ) -> None:
        if not parties:
            raise FederationError("a federation needs at least one party, got none")
        self.parties = {
            name: Party(_name(name), _table(name, data, row_id), _allowed(name, allow_collect))
            for name, data in parties.items()
        }
        if isinstance(allow_collect, Collection) and (odd := set(allow_collect) - set(parties)):
            raise FederationError(f"allow_collect names {sorted(odd)[0]!r}, which is no party")
        self.schema: Schema = agree({n: p.table.schema for n, p in self.parties.items()})

    def __len__(self) -> int:
        return len(self.parties)

    def __iter__(self) -> Iterator[Party]:
        return iter(self.parties.values())

    def __getitem__(self, name: str) -> Party:
        try:
            return self.parties[name]
        except KeyError:
            raise FederationError(
                f"there is no party {name!r}: there are {', '.join(self.parties)}"
            ) from None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parties)

    @property
    def matrix(self) -> pd.DataFrame:
        """M: which party (row) holds which variable (column)."""
        held = {p.name: [v in p.table.schema for v in self.schema.names] for p in self}
        return pd.DataFrame.from_dict(held, orient="index", columns=list(self.schema.names))

    @property
    def subspaces(self) -> list[Subspace]:
        return subspaces({p.name: p.table.names for p in self}, self.schema.names)

    @property
    def kind(self) -> SplitKind:
        return kind_of(self.subspaces, len(self))

    def select(self, names: Sequence[str]) -> Federation:
        """The same with some of the parties."""
        chosen = {n: self[n].table for n in names}
        return Federation(chosen, allow_collect=[n for n in names if self[n].allow_collect])

    def __repr__(self) -> str:
        lines = [
            f"Federation: {self.kind}, {len(self)} parties, {len(self.schema)} variables",
            *(
                f"  {p.name}: {len(p.table):,} rows × {len(p.table.schema)} variables"
                for p in list(self)[:12]
            ),
        ]
        return "\n".join(lines + (["  …"] if len(self) > 12 else []))


def subspaces(held: Mapping[str, Sequence[str]], variables: Sequence[str]) -> list[Subspace]:
    """Variables grouped by who holds them, in the order of their first variable."""
    sets = {name: frozenset(own) for name, own in held.items()}
    found: dict[tuple[str, ...], list[str]] = {}
    for variable in variables:
        holders = tuple(name for name, own in sets.items() if variable in own)
        found.setdefault(holders, []).append(variable)
    return [Subspace(holders, tuple(names)) for holders, names in found.items()]


def kind_of(spaces: Sequence[Subspace], parties: int) -> SplitKind:
    if all(len(s.holders) == parties for s in spaces):
        return "horizontal"
    return "vertical" if all(len(s.holders) == 1 for s in spaces) else "hybrid"


def row_ids(party: Party) -> npt.NDArray[np.generic]:
    if party.table.row_ids is None:
        raise FederationError(
            f"{party.name} has no row ids: name the column that tells rows apart, "
            "Federation(…, row_id='…')"
        )
    return party.table.row_ids


def _name(name: object) -> str:
    if not isinstance(name, str) or not name or name == COORDINATOR:
        raise FederationError(
            f"a party needs a name, text other than {COORDINATOR!r}, got {name!r}"
        )
    return name


def _table(name: str, data: object, row_id: str | None) -> Table:
    try:
        if isinstance(data, str | os.PathLike):
            return Table.read(Path(data), row_id=row_id)
        if isinstance(data, Table) and data.row_ids is not None:
            if len(np.unique(data.row_ids)) < len(data):
                raise TableError("expected different ids of rows, some occur twice")
            return data
        return Table.of(data, row_id=row_id)
    except TableError as error:
        raise FederationError(f"party {name!r}: {error}") from error


def _allowed(name: str, allow: bool | Collection[str]) -> bool:
    return allow if isinstance(allow, bool) else name in allow
