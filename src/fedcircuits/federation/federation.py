"""Who takes part: parties with their tables, and how the data are split between them.

The 0/1 matrix M (parties × variables) says who holds what. Variables with equal columns of M form a
subspace. Nobody declares how data are split; it is read off M:

    horizontal   every party holds every variable: different rows of the same table
    vertical     every variable has one holder: different columns about the same rows
    hybrid       anything between
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.errors import FederationError, TableError
from fedcircuits.federation import described
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.described import DescribedTable, connection_of
from fedcircuits.federation.doubts import doubts, with_ids
from fedcircuits.tables.declared import DeclaredTable, read_table
from fedcircuits.tables.notebook import listed, shown, width
from fedcircuits.tables.rare import pool_rare
from fedcircuits.tables.schema import OTHER, Schema
from fedcircuits.tables.stored import StoredTable
from fedcircuits.tables.table import Table

COORDINATOR = "coordinator"  # the role that plans and joins; it holds no rows
LEAST_COUNT = 5  # rows, by default: what crosses never counts fewer of a party's rows
SplitKind = Literal["horizontal", "vertical", "hybrid"]


@dataclass(frozen=True, slots=True)
class Party:
    """One owner of data.

    ``allow_collect``: what it has learned may leave it. ``least_count``: every count of its rows
    that leaves it covers at least this many. ``inferred``: its schema was inferred rather than
    declared, so categories of fewer rows are pooled in training. ``most_questions``: the most query
    rows that it answers about one circuit; None for any number.

    >>> Party("north", Table.of({"age": [31, 47, 52]})).allow_collect
    False
    """

    name: str
    table: Table = field(repr=False)
    allow_collect: bool = False
    least_count: int = LEAST_COUNT
    inferred: bool = False
    most_questions: int | None = None


@dataclass(frozen=True, slots=True)
class Subspace:
    """Variables that the same parties hold."""

    holders: tuple[str, ...]
    variables: tuple[str, ...]


class Federation:
    """``Federation({"north": "north.csv", "south": frame}, row_id="patient")``.

    Parameters
    ----------
    parties : mapping of str to table
        Tables are anything that ``Table.of`` takes, or paths of csv and parquet files.
    row_id : str or mapping of str to str, optional
        The column that identifies rows, of all parties or by party; it joins different columns.
    allow_collect : bool or collection of str, default=False
        Whether learned circuits may leave their parties: all, or the named ones.
    least_count : int or mapping of str to int, default=5
        The smallest number of a party's rows that any count leaving the party may cover, for all or
        by party. Names of categories leave a party, too: in training, categories of fewer rows are
        pooled into "other", and ``notes`` names these columns. The schema of a ``Table`` counts as
        declared by the user: its categories stay.
    most_questions : int or mapping of str to int, optional
        The most query rows that a party answers about one circuit whose leaves stay with it
        (``FedPC``); by default any number.
    declared : DeclaredTable, optional
        How files are read and what their columns mean (schema.toml).

    >>> bank = {"id": [3, 1, 2], "loan": [10.5, 3.0, 8.5]}
    >>> telco = {"id": [1, 2, 3], "calls": [12, 40, 7]}
    >>> Federation({"bank": bank, "telco": telco}, row_id="id").kind
    'vertical'
    """

    def __init__(
        self,
        parties: Mapping[str, object],
        row_id: str | Mapping[str, str] | None = None,
        *,
        allow_collect: bool | Collection[str] = False,
        least_count: int | Mapping[str, int] = LEAST_COUNT,
        most_questions: int | Mapping[str, int] | None = None,
        declared: DeclaredTable | None = None,
    ) -> None:
        if not parties:
            raise FederationError("a federation needs at least one party, got none")
        tables = _tables(parties, row_id, declared or DeclaredTable())
        self.parties = {
            name: Party(
                _name(name),
                tables[name],
                _allowed(name, allow_collect),
                _least(name, least_count),
                not isinstance(data, Table),
                _most(name, most_questions),
            )
            for name, data in parties.items()
        }
        by_name = row_id if isinstance(row_id, Mapping) else None
        by_party: dict[str, object] = {"allow_collect": allow_collect, "least_count": least_count}
        by_party |= {"most_questions": most_questions, "row_id": by_name}
        for argument, given in by_party.items():
            if isinstance(given, Collection) and (odd := set(given) - set(parties)):
                raise FederationError(f"{argument} names {sorted(odd)[0]!r}, which is not a party")
        self.engine: object = None  # where the parties run, if not with the caller
        self.schema: Schema = agree({n: p.table.schema for n, p in self.parties.items()})
        if row_id is not None or any(p.inferred for p in self):
            matched = self.kind != "horizontal"
            for words in doubts({p.name: p.table for p in self}, matched):
                warnings.warn(words, UserWarning, stacklevel=2)

    @classmethod
    def connect(
        cls,
        kit: str | os.PathLike[str],
        *,
        sites: Collection[str] | None = None,
        timeout: float = 10.0,
    ) -> Federation:
        """A federation of sites on other machines, each with its table (docs/sites.md).

        Parameters
        ----------
        kit : str or path
            The coordinator's kit, a folder made by ``fedcircuits provision``, or its
            consortium.toml.
        sites : collection of str, optional
            Those that take part; by default all of the consortium.
        timeout : float, default=10.0
            Seconds to wait for every site to describe its table.
        """
        serving = import_module("fedcircuits.engines.sites.serving")  # rooms above this one
        engine, parties = serving.connect(Path(kit), sites), {}
        try:
            described = engine.describe_all(timeout)
        except BaseException:
            engine.close()
            raise
        for name, facts in described.items():
            about = facts["rows"], facts["ids"], facts["series"]
            table = DescribedTable(Schema(facts["variables"]), *about)
            parties[name] = Party(name, table, facts["allow_collect"], facts["least_count"])
        return cls.of_sites(parties, engine)

    @classmethod
    def of_sites(cls, parties: Mapping[str, Party], engine: object) -> Federation:
        """Parties that an engine reaches elsewhere; their tables are described."""
        made = cls(
            {name: party.table for name, party in parties.items()},
            allow_collect=[n for n, p in parties.items() if p.allow_collect],
            least_count={n: p.least_count for n, p in parties.items()},
        )
        made.engine = engine
        return made

    # ------------------------------------------------------------------ of sites

    def status(self, timeout: float = 10.0) -> pd.DataFrame:
        """One row per site: whether it is reachable, its rows, its models, its version."""
        return described.status(connection_of(self.engine), self.names, timeout)

    def models(self, timeout: float = 10.0) -> dict[str, list[str]]:
        """The sites that keep a part of each model."""
        return described.models(connection_of(self.engine), self.names, timeout)

    def forget(self, model: str, timeout: float = 10.0) -> dict[str, str]:
        """Have all sites delete a model, or an interrupted training. Returns the outcome by site:
        "forgotten", or the reason why not. A site's policy may forbid it."""
        return described.forget(connection_of(self.engine), self.names, model, timeout)

    def close(self) -> None:
        """End the connection to sites; what they keep stays."""
        connection_of(self.engine).close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ its parties

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
        """The federation of these parties."""
        return self.with_tables({n: self[n].table for n in names})

    def with_tables(self, tables: Mapping[str, Table]) -> Federation:
        """These parties with other tables, and with their permissions."""
        other = Federation(
            tables,
            allow_collect=[n for n in tables if self[n].allow_collect],
            least_count={n: self[n].least_count for n in tables},
            most_questions={n: m for n in tables if (m := self[n].most_questions) is not None},
        )
        other.parties = {n: replace(p, inferred=self[n].inferred) for n, p in other.parties.items()}
        other.engine = self.engine
        return other

    def without_empty(self) -> Federation:
        """The same without columns that are empty only at some parties, which cannot learn them."""
        full = {party.name: _with_values(party.table) for party in self}
        somewhere = set().union(*full.values())
        tables = {party.name: party.table for party in self}
        for name, table in tables.items():
            empty = [c for c in table.names if c in somewhere and c not in full[name]]
            if empty and full[name]:
                kept = [c for c in (*table.names, *table.series) if c not in empty]
                tables[name] = table.select(kept)
        return self._if_changed(tables)

    def pooled(self) -> Federation:
        """The same with categories of few rows pooled, unless they were declared."""
        pooled = {p.name: pool_rare(p.table, p.least_count)[0] for p in self if p.inferred}
        return self._if_changed({p.name: p.table for p in self} | pooled)

    def _if_changed(self, tables: Mapping[str, Table]) -> Federation:
        same = all(tables[p.name] is p.table for p in self)
        return self if same else self.with_tables(tables)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the data are used."""
        pooled: dict[tuple[tuple[str, ...], int], list[str]] = {}
        for p in self:
            if p.inferred and (columns := pool_rare(p.table, p.least_count)[1]):
                pooled.setdefault((tuple(columns), p.least_count), []).append(p.name)
        return tuple(
            f"{listed(names)}: categories of {', '.join(map(repr, columns))} that occur in fewer "
            f"than {least} rows are pooled as {OTHER!r}, because category names are sent to "
            "others. least_count=1, or a Table with declared categories, keeps them"
            for (columns, least), names in pooled.items()
        )

    def _repr_html_(self) -> str:
        heads = ["party", "rows", "columns"]
        rows = [(p.name, len(p.table), ", ".join(p.table.names)) for p in self]
        caption = f"Federation: {self.kind}, {len(self)} parties, {len(self.schema)} variables"
        return shown(caption, heads, rows)

    def __repr__(self) -> str:
        lines = [
            f"Federation: {self.kind}, {len(self)} parties, {width(self.schema.names)}",
            *(
                f"  {p.name}: {len(p.table):,} rows × {width(p.table.names, p.table.series)}"
                for p in list(self)[:12]
            ),
        ]
        return "\n".join(lines + (["  …"] if len(self) > 12 else []))


def subspaces(held: Mapping[str, Sequence[str]], variables: Sequence[str]) -> list[Subspace]:
    """Variables grouped by who holds them, in the order of their first variable."""
    sets = {name: frozenset(columns) for name, columns in held.items()}
    groups: dict[tuple[str, ...], list[str]] = {}
    for variable in variables:
        holders = tuple(name for name, columns in sets.items() if variable in columns)
        groups.setdefault(holders, []).append(variable)
    return [Subspace(holders, tuple(names)) for holders, names in groups.items()]


def kind_of(spaces: Sequence[Subspace], parties: int) -> SplitKind:
    if all(len(s.holders) == parties for s in spaces):
        return "horizontal"
    return "vertical" if all(len(s.holders) == 1 for s in spaces) else "hybrid"


def row_ids(party: Party) -> npt.NDArray[np.generic]:
    if party.table.row_ids is None:
        raise FederationError(
            f"{party.name} has no row ids: name the column that identifies rows, Federation(…, "
            "row_id='…')"
        )
    return party.table.row_ids


def _with_values(table: Table) -> set[str]:
    """The columns that have a value; all of a table that is not here."""
    if isinstance(table, DescribedTable | StoredTable):
        return set(table.names)
    gaps = np.isnan(table.values)
    return {name for i, name in enumerate(table.names) if not gaps[:, i].all()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not name or name == COORDINATOR:
        raise FederationError(
            f"a party needs a name, text other than {COORDINATOR!r}, got {name!r}"
        )
    return name


def _tables(
    parties: Mapping[str, object], row_id: str | Mapping[str, str] | None, declared: DeclaredTable
) -> dict[str, Table]:
    """The tables, or one FederationError for all parties."""
    tables, problems = {}, []
    for name, data in parties.items():
        try:
            own = row_id.get(name) if isinstance(row_id, Mapping) else row_id
            tables[name] = _table(name, data, own, declared)
        except FederationError as error:
            problems.append(error)
    if len(problems) > 1:
        raise FederationError("; ".join(map(str, problems)))
    if problems:
        raise problems[0]
    return tables


def _table(name: str, data: object, row_id: str | None, declared: DeclaredTable) -> Table:
    try:
        if isinstance(data, str | os.PathLike):
            table = with_ids(read_table(Path(data), declared, row_id), declared.reading)
        elif isinstance(data, DescribedTable | StoredTable):
            return data
        elif isinstance(data, Table) and data.row_ids is not None:
            table = data
        else:
            table = with_ids(Table.of(data, row_id=row_id), declared.reading)
        if table.row_ids is not None and len(set(map(str, table.row_ids.tolist()))) < len(table):
            raise TableError("two rows have the same id (4 and '4' are alike): ids must be unique")
        return table
    except TableError as error:
        absent = str(error).startswith("row_id: there is no")
        named = f"; name its ids by row_id={{{name!r}: '…'}}" if absent else ""
        raise FederationError(f"party {name!r}: {error}{named}") from error


def _least(name: str, least: int | Mapping[str, int]) -> int:
    count = least.get(name, LEAST_COUNT) if isinstance(least, Mapping) else least
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise FederationError(f"least_count is a whole number of rows from 1, got {count!r}")
    return count


def _most(name: str, most: int | Mapping[str, int] | None) -> int | None:
    count = most.get(name) if isinstance(most, Mapping) else most
    if isinstance(count, bool) or not (count is None or (isinstance(count, int) and count >= 0)):
        raise FederationError(f"most_questions is a number of rows from 0, or None, got {count!r}")
    return count


def _allowed(name: str, allow: bool | Collection[str]) -> bool:
    return allow if isinstance(allow, bool) else name in allow
