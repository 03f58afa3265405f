"""Columns on the command line: --schema, --kind, --drop …, and how columns were read.

Options override the schema file. ``train`` shows how every column was read and writes it beside
the model, as a schema.toml to be edited and passed back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from fedcircuits.app import report, screen
from fedcircuits.app.report import TextTable
from fedcircuits.app.screen import in_options
from fedcircuits.errors import TableError
from fedcircuits.federation.federation import Federation
from fedcircuits.tables.declared import (
    DeclaredColumn,
    DeclaredReading,
    DeclaredTable,
    read_schema,
    schema_text,
)
from fedcircuits.tables.inference import STATED, StatedKind
from fedcircuits.tables.notebook import listed
from fedcircuits.tables.reading import LEFT_OUT, ColumnReading
from fedcircuits.tables.table import Table

SUFFIX = ".schema.toml"
READING = ("delimiter", "decimal", "dates", "ids")  # options that are fields of [reading]


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The user's options for columns; None or empty: to be detected."""

    schema: Path | None = None
    kinds: Sequence[str] = ()  # COLUMN=KIND
    drop: Sequence[str] = ()
    delimiter: str | None = None
    decimal: str | None = None
    dates: str | None = None
    ids: str | None = None

    def declared(self, before: DeclaredReading | None = None) -> DeclaredTable:
        """The declaration; TableError for an unknown kind or an unreadable file. ``before``: how
        the training files were read."""
        table = DeclaredTable(before or DeclaredReading())
        table = table if self.schema is None else read_schema(self.schema)
        columns = dict(table.columns)
        for text in self.kinds:
            name, equals, kind = text.rpartition("=")
            if not equals or kind not in STATED:
                raise TableError(
                    f"--kind: expected COLUMN=KIND with one of {', '.join(STATED)}, got {text!r}"
                )
            columns[name] = DeclaredColumn(cast(StatedKind, kind))
        columns |= {name: DeclaredColumn(LEFT_OUT) for name in self.drop}
        said: dict[str, Any] = {
            name: "\t" if (name, value) == ("delimiter", "tab") else value
            for name in READING
            if (value := getattr(self, name)) is not None
        }
        reading = msgspec.structs.replace(table.reading, **said)
        return DeclaredTable(_checked(reading), columns)

    def words(self) -> list[str]:
        """The options as arguments of the command line."""
        words = ["--schema", str(self.schema)] if self.schema else []
        for option, texts in (("--kind", self.kinds), ("--drop", self.drop)):
            words += [word for text in texts for word in (option, text)]
        for name in READING:
            value = getattr(self, name)
            words += [f"--{name}", value] if value is not None else []
        return words

    def check(self, names: Sequence[str], readings: Sequence[ColumnReading]) -> None:
        """TableError if --kind or --drop names a column that no party has, a note if a schema
        does."""
        known = {*names, *(r.column for r in readings)}
        said = [("--kind", text.rpartition("=")[0]) for text in self.kinds]
        for option, name in (*said, *(("--drop", name) for name in self.drop)):
            if name not in known:
                listed = ", ".join(map(repr, sorted(known)))
                raise TableError(
                    f"{option}: there is no column {name!r} to learn from: there are {listed}"
                )
        if self.schema and (absent := [n for n in self.declared().columns if n not in known]):
            screen.warn(f"{self.schema}: no file has the columns {', '.join(map(repr, absent))}")


def _checked(reading: DeclaredReading) -> DeclaredReading:
    try:
        return msgspec.convert(msgspec.to_builtins(reading), DeclaredReading)
    except msgspec.ValidationError as error:
        raise TableError(f"--{str(error).rpartition('$.')[2].strip('`')}: {error}") from None


def readings_of(federation: Federation) -> list[ColumnReading]:
    return [reading for party in federation for reading in party.table.readings]


@contextmanager
def shown_in_table() -> Iterator[None]:
    """Suppress the warnings about columns that ``show`` lists in its table."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "left out: ", UserWarning)
        yield


def show(tables: Mapping[str, Table]) -> None:
    """Show how columns were read that are not obvious; parties whose column was read alike share
    a line."""
    converted: dict[tuple[str, str, str], list[str]] = {}
    for party, table in tables.items():
        for r in table.readings:
            if r.how:
                converted.setdefault((r.column, r.became, in_options(r.how)), []).append(party)
    lines = [[listed(parties), *words] for words, parties in converted.items()]
    if lines:
        screen.say("How columns were read:")
        screen.show(TextTable(("party", "column", "read as", "how"), lines, texts=4))
        screen.say(
            "To change this, use --kind COLUMN=KIND, --drop COLUMN, --dates, --decimal or --schema"
        )
        screen.say()


def write(model: Path, federation: Federation, reading: DeclaredReading) -> Path:
    """Write schema.toml beside the model and return its path. Like the model, it has no rare
    categories."""
    path = model.with_suffix(SUFFIX)
    readings = {r.column: r for r in readings_of(federation)}
    schema = federation.pooled().schema
    report.write(path, schema_text(schema, readings.values(), reading).encode())
    return path
