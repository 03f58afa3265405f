"""schema.toml: what the columns of a table mean, in a file that users read and edit.

    [reading]                  # of csv files; what is absent is detected
    delimiter = ";"
    decimal = ","
    dates = "dmy"
    missing = ["k.A.", "-"]
    ids = "loose"              # 0017 is 17, AB-3 is ab3: if parties write row ids differently

    [columns."blood pressure"]
    kind = "real"              # real, count, category, boolean, date, or left out;
                               # date+weekday+month adds these to the date
    unit = "mmHg"

    [columns.pain]
    kind = "category"
    categories = ["low", "middle", "high"]

``schema_text`` writes such a file without any cell of a table, ``read_schema`` reads it, and
``read_table`` reads a table by it. Columns that the file does not name are inferred; columns absent
from the table are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec

from fedcircuits.errors import TableError
from fedcircuits.tables.date_parts import DatePart, taken_from
from fedcircuits.tables.gaps import MISSING
from fedcircuits.tables.inference import STATED, StatedKind
from fedcircuits.tables.readers import csv_frame, npz_arrays, parquet_table, suffix_of
from fedcircuits.tables.reading import LEFT_OUT, ColumnReading
from fedcircuits.tables.schema import TIME, Scalar, Schema, Variable
from fedcircuits.tables.table import Table
from fedcircuits.tables.toml_files import shortened, toml_text, toml_values

EXAMPLES = re.compile(r""" \(['"].*['"]\)|(?<=, )\S+ as \S+, (?=else)|^\S+ as \S+, (?=else)""")
MOST_WRITTEN = 50  # categories; of more, those in the data are taken
HEAD = """\
# What the columns mean, as they were read. Change what is wrong and read again with it:
# kind is one of real, count, category, boolean, date and "left out".
"""


class DeclaredReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delimiter: str | None = None
    encoding: str | None = None
    decimal: Literal["auto", ".", ","] = "auto"
    dates: Literal["auto", "dmy", "mdy", "ymd"] = "auto"
    missing: list[str] | None = None
    ids: Literal["plain", "loose"] = "plain"


class DeclaredColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: StatedKind | Literal["date and time", "left out"]
    categories: list[str | int | float | bool] = []
    unit: str | None = None


class DeclaredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reading: DeclaredReading = DeclaredReading()
    columns: dict[str, DeclaredColumn] = {}

    def options(self, names: Iterable[str]) -> dict[str, Any]:
        """Options of ``Table.of`` for a table with these columns."""
        options = {name: self.columns[name] for name in names if name in self.columns}
        kept = {name: column for name, column in options.items() if column.kind != LEFT_OUT}
        return {
            "kinds": {n: "date" if c.kind == TIME else c.kind for n, c in kept.items()},
            "categories": {n: c.categories for n, c in kept.items() if c.categories},
            "units": {n: c.unit for n, c in kept.items() if c.unit},
            "drop": [name for name in options if name not in kept],
            "decimal": self.reading.decimal,
            "dates": self.reading.dates,
        }


def read_schema(path: str | PathLike[str]) -> DeclaredTable:
    """The content of the file; TableError names the file and key."""
    file = Path(path)
    try:
        values = toml_values(toml_text(file))
        _check_columns(values.get("columns"))
        return msgspec.convert(values, DeclaredTable)
    except OSError as error:
        raise TableError(f"{file}: cannot be read ({error.strerror})") from None
    except (msgspec.ValidationError, ValueError, OverflowError, SystemError) as error:
        raise TableError(f"{file}: {shortened(error)}") from None


def _check_columns(columns: object) -> None:
    """ValueError that names the column."""
    for name, said in columns.items() if isinstance(columns, dict) else ():
        try:
            msgspec.convert(said, DeclaredColumn)
        except msgspec.ValidationError as error:
            kinds = ", ".join([*STATED, TIME, LEFT_OUT])
            raise ValueError(f"[columns.{_key(name)}]: {error}; kind is one of {kinds}") from None


def contents(path: str | PathLike[str], reading: DeclaredReading) -> object:
    """A file without interpretation: the text of a csv, the columns of a parquet file, or the
    arrays of an npz file."""
    match suffix_of(path):
        case ".npz":
            return npz_arrays(path)
        case ".parquet":
            return parquet_table(path)
    words = MISSING if reading.missing is None else ("", *reading.missing)
    about = {"delimiter": reading.delimiter, "encoding": reading.encoding}
    return csv_frame(path, missing=words, **about)  # type: ignore[arg-type]


def read_table(
    path: str | PathLike[str], declared: DeclaredTable, row_id: str | None = None
) -> Table:
    """The table of a file, read by its declaration."""
    data: Any = contents(path, declared.reading)
    if suffix_of(path) == ".npz":
        return Table.of(data, row_id=row_id)
    names = data.column_names if suffix_of(path) == ".parquet" else list(data)
    return Table.of(data, row_id=row_id, **declared.options(n for n in names if n != row_id))


def schema_text(
    schema: Schema,
    readings: Iterable[ColumnReading] = (),
    reading: DeclaredReading | None = None,
) -> str:
    """The text of a schema.toml; ``reading``: how the files were declared to be read."""
    known = {r.column: r for r in readings}
    parts = [HEAD, *_reading(reading or DeclaredReading())]
    taken = [part for v in schema if (part := taken_from(v)) is not None]
    parts += [_column(v, known.get(v.name), taken) for v in schema if taken_from(v) is None]
    left_out = [r for r in known.values() if r.left_out and r.column not in schema]
    parts += [f'[columns.{_key(r.column)}]\nkind = "{LEFT_OUT}"{_remark(r)}\n' for r in left_out]
    return "\n".join(parts)


def _reading(reading: DeclaredReading) -> list[str]:
    """The settings that differ from detection."""
    plain = msgspec.to_builtins(DeclaredReading())
    said = {n: v for n, v in msgspec.to_builtins(reading).items() if v != plain[n]}
    lines = [f"{name} = {_value(value)}" for name, value in said.items()]
    return ["\n".join(["[reading]", *lines]) + "\n"] if lines else []


def _column(variable: Variable, reading: ColumnReading | None, taken: Sequence[DatePart]) -> str:
    how = "" if reading is None else _remark(reading)
    parts = [t.part for t in taken if t.column == variable.name]
    kind = "+".join(["date", *parts]) if parts else variable.kind_in_words
    lines = [f"[columns.{_key(variable.name)}]", f'kind = "{kind}"{how}']
    if 0 < variable.size <= MOST_WRITTEN and variable.categories not in ((0, 1), (False, True)):
        lines.append(f"categories = [{', '.join(map(_value, variable.categories))}]")
    if variable.unit and not variable.dated:
        lines.append(f"unit = {_value(variable.unit)}")
    return "\n".join(lines) + "\n"


def _remark(reading: ColumnReading) -> str:
    """How a column was read, without examples of its cells, as the file may be passed on."""
    how = EXAMPLES.sub("", " ".join(reading.how.split()))
    how = "".join(c for c in how if c.isprintable())  # others may not stand in a comment
    return f"  # {how}" if how else ""


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Scalar | list[str]) -> str:
    """A value in TOML, whose strings are those of JSON except for one character."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
