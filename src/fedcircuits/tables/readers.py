"""Tables from files: csv (also packed), parquet and npz, chosen by the suffix.

Files come from outside: whatever is wrong with one (absent, empty, binary, ragged, truncated,
another delimiter) ends in one TableError that names the file. Nothing is unpickled. A small file
may claim or unpack to any size: above ``most_bytes``, one gigabyte by default, it is refused before
it is read.

All cells of a csv file are read as text, which reading.py interprets. Its encoding, delimiter and
header are detected (packed.py, layout.py). Words such as 'NA' and '-' are missing values (gaps.py),
and blank lines are skipped. Rows with more or fewer cells than the header are left out with a
warning if they are few, and refused if they are many: padded, they would pass for missing values.
"""

from __future__ import annotations

import csv
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import ExtraMissingError, TableError
from fedcircuits.tables.gaps import CASES, DASHES, MISSING, SIGNS
from fedcircuits.tables.layout import CsvLayout, headings, layout_of, without_extras
from fedcircuits.tables.packed import (
    DAMAGED,
    MIXED,
    encoding_of,
    existing,
    opened_text,
    refuse_bomb,
    refuse_foreign,
    refuse_large,
)
from fedcircuits.tables.schema import ReadingHabits

if TYPE_CHECKING:
    import pyarrow


SUFFIXES = (
    ".csv", ".csv.gz", ".csv.zip", ".tsv", ".tsv.gz", ".txt", ".zip", ".parquet", ".pq", ".npz",
)  # fmt: skip
MOST_BYTES = 1 << 30  # that a packed file may unpack to


def suffix_of(path: str | PathLike[str]) -> str:
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if Path(path).name.lower().endswith(suffix):
            return ".parquet" if suffix == ".pq" else suffix
    excel = Path(path).suffix.lower() in (".xls", ".xlsx", ".ods")
    hint = "; save the sheet as csv" if excel else ""
    raise TableError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}{hint}")


def parquet_table(path: str | PathLike[str], most_bytes: int = MOST_BYTES) -> pyarrow.Table:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ImportError:
        raise ExtraMissingError("parquet files need pyarrow: pip install pyarrow") from None
    file = existing(path)
    try:
        about = pyarrow.parquet.read_metadata(file)
        groups = (about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        cells = 8 * about.num_rows * about.num_columns  # as numbers: one value may stand for many
        refuse_bomb(file, max(sum(groups), cells), most_bytes)
        return pyarrow.parquet.read_table(file, partitioning=None)
    except (pyarrow.lib.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(f"{file}: not a readable parquet file ({reason})") from None


def npz_arrays(
    path: str | PathLike[str], most_bytes: int = MOST_BYTES
) -> NDArray[np.generic] | dict[str, NDArray[np.generic]]:
    """One array of two dimensions (or with named fields), or columns of one dimension by name."""
    file = existing(path)
    try:
        with file.open("rb") as opened:
            if opened.read(6) == b"\x93NUMPY":
                raise TableError(f"{file}: expected an npz file with named arrays, got one array")
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            refuse_bomb(file, sum(m.file_size for m in members), most_bytes)
            arrays = {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}
    except TableError:
        raise
    except (ValueError, OSError, KeyError, NotImplementedError, RuntimeError, *DAMAGED) as error:
        raise TableError(f"{file}: not a readable npz file without objects ({error})") from None
    only = next(iter(arrays.values())) if len(arrays) == 1 else None
    if only is not None and (only.ndim == 2 or only.dtype.names):
        return only
    if arrays and all(a.ndim == 1 for a in arrays.values()):
        return arrays
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
    raise TableError(
        f"{file}: expected one array of two dimensions or columns of one dimension, got {shapes}"
    )


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[np.generic]:
    """An array whose header declares exactly the bytes present, so that no more memory is
    allocated."""
    with archive.open(member) as packed:
        version = np.lib.format.read_magic(packed)
        read = np.lib.format.read_array_header_2_0
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else read
        shape, _, dtype = read(packed)
        left = member.file_size - packed.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"{member.filename} claims the shape {shape} of {dtype} in {left:,} bytes")
    with archive.open(member) as packed:
        return np.asarray(np.lib.format.read_array(packed, allow_pickle=False))


NO_DELIMITERS = "\0\r\n\"'"
FEW_ODD = 0.1  # of the rows, which may have another number of cells


class TextFrame(pd.DataFrame):  # type: ignore[misc]
    """A frame of a csv file: all columns are text, also after selecting or renaming."""

    @property
    def habits(self) -> ReadingHabits:
        """How the file is likely to write numbers and dates: as the files before it
        (``following``), and by its delimiter."""
        known: ReadingHabits = self.attrs.get("habits", ReadingHabits())
        semicolons = self.attrs.get("delimiter") == ";"
        return replace(known, point=",") if semicolons and known.point is None else known

    def following(self, habits: ReadingHabits) -> TextFrame:
        """The same frame, to be read like other files where it is ambiguous."""
        self.attrs["habits"] = habits
        return self

    @property
    def _constructor(self) -> type[TextFrame]:
        return TextFrame


def csv_frame(
    path: str | PathLike[str],
    *,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = MISSING,
    most_bytes: int = MOST_BYTES,
) -> TextFrame:
    """The frame of a csv file; ``names`` are for a file without a header line."""
    file = existing(path)
    try:
        refuse_large(file, most_bytes)
        refuse_foreign(file)
        if encoding is not None and not re.fullmatch(r"[\w.-]{1,40}", encoding, re.ASCII):
            raise LookupError(f"unknown encoding {encoding[:40]!r}")
        encoding = encoding or encoding_of(file)
        return _frame(file, delimiter, names, encoding, missing)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{file}: expected text in {encoding}, got other bytes ({error.reason}); try "
            'encoding="latin-1", or check that this is a csv file'
        ) from None
    except (LookupError, UnicodeError) as error:
        raise TableError(f"{file}: {error}; expected an encoding such as 'utf-8'") from None
    except DAMAGED as error:
        raise TableError(f"{file}: the file is damaged ({error}); get it again") from None
    except csv.Error as error:
        quote = "; is a quote opened and not closed?" if "end of data" in str(error) else ""
        raise TableError(f"{file}: not a csv file ({error}){quote}") from None


def _frame(
    file: Path,
    delimiter: str | None,
    names: Sequence[str] | None,
    encoding: str,
    missing: Sequence[str],
) -> TextFrame:
    if delimiter is not None and (len(delimiter) != 1 or delimiter in NO_DELIMITERS):
        raise TableError(f"delimiter: expected one character, got {delimiter[:20]!r}")
    if delimiter is not None and not delimiter.isascii():
        raise TableError(f"delimiter: expected a character of ASCII, got {delimiter!r}")
    layout = layout_of(file, encoding, delimiter, headed=names is None)
    header, notes = headings(file, layout.header) if names is None else (list(names), ())
    if len(header) != len(layout.header):
        raise TableError(
            f"{file}: expected names for {len(layout.header)} columns, got {len(header)}"
        )
    words = sorted({form(word) for word in missing for form in CASES} - set(DASHES))
    parsed, odd = _parsed(file, layout, header, encoding, words)
    parsed, extras = without_extras(parsed)
    mixed = ("text partly in UTF-8, partly in Windows-1252",) if encoding == MIXED else ()
    notes = (*layout.notes, *mixed, *notes, *odd, *extras)
    if notes:
        warnings.warn(f"{file}: {'; '.join(notes)}", UserWarning, stacklevel=5)
    frame = TextFrame(_without_dashes(parsed, set(missing)))
    frame.attrs["delimiter"] = layout.delimiter
    return frame


def _parsed(
    file: Path, layout: CsvLayout, header: list[str], encoding: str, words: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """The rows, parsed fast if all have as many cells as the header."""
    try:
        with warnings.catch_warnings(), opened_text(file, encoding) as text:
            warnings.simplefilter("error", pd.errors.ParserWarning)
            for _ in range(layout.lines):
                text.readline()
            frame = pd.read_csv(
                text,
                sep=layout.delimiter,
                quotechar=layout.quote,
                names=header,
                header=None,
                index_col=False,
                dtype=str,
                na_values=list(words),
                keep_default_na=False,
                skipinitialspace=True,
                low_memory=False,
            )
    except (pd.errors.ParserWarning, pd.errors.ParserError):
        frame = None
    except pd.errors.EmptyDataError:
        return pd.DataFrame({name: [] for name in header}, dtype=object), []
    if frame is not None and not (len(frame) and frame.iloc[:, -1].isna().any()):
        return frame, []
    rows, notes = _even_rows(file, layout, len(header), encoding)
    if frame is not None and not notes:
        return frame, []
    even = pd.DataFrame(rows, columns=header, dtype=object)
    return even.mask(even.isin(list(words)), np.nan), notes


def _even_rows(
    file: Path, layout: CsvLayout, width: int, encoding: str
) -> tuple[list[list[str]], list[str]]:
    """The rows with as many cells as the header, and notes on the other lines."""
    rows: list[list[str]] = []
    odd: list[tuple[int, list[str]]] = []
    empty = 0
    for line, cells in _cells(file, layout, encoding):
        if not any(cells):
            empty += width > 1
            continue
        while len(cells) > width and not cells[-1]:
            cells.pop()
        if len(cells) == width:
            rows.append(cells)
        else:
            odd.append((line, cells))
    ends = _endings(odd)
    few = len(odd) - ends
    if few > FEW_ODD * (len(rows) + few):
        _refuse_odd(file, odd, width, bool(rows))
    notes = [f"{ends:,} of the lines at the end left out, which are no rows"] if ends else []
    notes += [f"{empty:,} lines of empty cells left out"] if empty else []
    if few:
        listed = ", ".join(str(line) for line, _ in odd[:6]) + (" …" if few > 6 else "")
        notes.append(
            f"{few:,} rows left out, whose cells are more or fewer than the {width} of the header "
            f"(lines {listed}): a cell that holds the delimiter must be in quotes"
        )
    return rows, notes


def _endings(odd: Sequence[tuple[int, list[str]]]) -> int:
    """How many of the odd lines are trailing remarks: one cell of words."""
    remarks = (
        sum(map(bool, cells)) == 1 and any(c.isalpha() for c in max(cells, key=len))
        for _, cells in reversed(odd[-12:])
    )
    return sum(1 for _ in takewhile(bool, remarks))


def _refuse_odd(file: Path, odd: Sequence[tuple[int, list[str]]], width: int, some: bool) -> None:
    if not some and all(len(cells) > width for _, cells in odd):
        raise TableError(
            f"{file}: the rows have more cells than the {width} names of the header: add the names "
            "that lack"
        )
    line, cells = odd[0]
    more = f" ({len(odd):,} such lines in all)" if len(odd) > 1 else ""
    raise TableError(
        f"{file}: line {line} has {len(cells)} cells, expected {width}{more}; correct the line: "
        "put a cell that holds the delimiter in quotes, and leave missing cells empty"
    )


def _cells(file: Path, layout: CsvLayout, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of every row, and the number of the line on which it ends."""
    with opened_text(file, encoding) as text:
        for _ in range(layout.lines):
            text.readline()
        rows = csv.reader(
            text,
            delimiter=layout.delimiter,
            quotechar=layout.quote,
            skipinitialspace=True,
            strict=True,
        )
        for row in rows:
            if row:
                yield layout.lines + rows.line_num, row


def _without_dashes(frame: pd.DataFrame, missing: set[str]) -> pd.DataFrame:
    """Dashes are missing values, except in columns of findings such as +, ++ and -."""
    dashes = [dash for dash in DASHES if dash in missing]
    if not dashes:
        return frame
    dashed = frame.isin(dashes)
    for i in np.flatnonzero(dashed.to_numpy().any(axis=0)):
        others = frame.iloc[:, i][~dashed.iloc[:, i]].dropna().unique()
        if len(others) and all(SIGNS.fullmatch(str(text).strip()) for text in others):
            dashed.iloc[:, i] = False
    return frame.mask(dashed, np.nan) if dashed.to_numpy().any() else frame
