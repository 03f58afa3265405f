"""Tables from files: csv (also gzipped), parquet and npz, chosen by the suffix.

A file comes from outside: whatever is wrong with it (absent, empty, binary, ragged, truncated,
another delimiter) ends in one TableError that names the file. Nothing is unpickled. A small file
may claim or unpack to any size: above ``most_bytes``, a gigabyte unless the caller says otherwise,
it is refused before it is read.

In a csv all cells are text, which reading.py makes sense of. Cells such as '', '?', '-', 'NA' and
'null' are missing, in any case; blank lines are skipped. A row with fewer cells than the header is
refused: filled up, it would pass for missing values. The delimiter is the one of , ; tab and | that
parts the header line into most cells. Text that is no UTF-8 is taken for Windows-1252, which
contains Latin-1.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import ExtraMissingError, TableError
from fedcircuits.tables.frames import MOST_COLUMNS, refuse_repeated

if TYPE_CHECKING:
    import pyarrow

MISSING = (
    "", "?", "NA", "N/A", "n.a.", "nan", "null", "#N/A", "-", "--", ".", "missing", "not available",
    "k.A.", "n/d",
)  # fmt: skip
CASES = (str, str.lower, str.upper, str.title, str.capitalize)
DELIMITERS = (",", ";", "\t", "|")
SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq", ".npz")
MOST_BYTES = 1 << 30  # that a packed file may unpack to
LONGEST_LINE = 1 << 22  # characters of the header of a csv file
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)


def suffix_of(path: str | PathLike[str]) -> str:
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if Path(path).name.lower().endswith(suffix):
            return ".parquet" if suffix == ".pq" else suffix
    raise TableError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}")


def existing(path: str | PathLike[str]) -> Path:
    file = Path(path)
    if not file.exists():
        near = f" in {file.parent.resolve()}" if not file.is_absolute() else ""
        raise TableError(f"{file}: there is no such file{near}")
    if not file.is_file():
        raise TableError(f"{file}: expected a file, got a folder")
    try:
        with file.open("rb") as opened:
            if not opened.read(1):
                raise TableError(f"{file}: the file is empty")
    except OSError as error:
        raise TableError(f"{file}: cannot be read ({error.strerror})") from None
    return file


class TextFrame(pd.DataFrame):  # type: ignore[misc]
    """A frame of a csv file: all its columns are text, also after some are picked or renamed."""

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
) -> pd.DataFrame:
    """The frame of a csv file; ``names`` are for a file without a header line."""
    file = existing(path)
    try:
        if file.name.lower().endswith(".gz"):
            _refuse_bomb(file, _unpacked(file, most_bytes), most_bytes)
        encoding = encoding or _encoding(file)
        delimiter = delimiter or _delimiter(file, encoding)
        return _csv_frame(file, delimiter, names, encoding, missing)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{file}: expected text in {encoding}, got other bytes ({error.reason}); try "
            'encoding="latin-1", or check that this is a csv file'
        ) from None
    except LookupError as error:
        raise TableError(f"{file}: {error}; expected an encoding such as 'utf-8'") from None
    except _DAMAGED as error:
        raise TableError(f"{file}: the file is damaged ({error}); get it again") from None
    except csv.Error as error:
        raise TableError(f"{file}: not a csv file ({error})") from None


def _encoding(file: Path) -> str:
    """By its first bytes, or by whether all of it is UTF-8."""
    opened = gzip.open if file.name.lower().endswith(".gz") else open
    with opened(file, "rb") as data:
        if data.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            return "utf-16"
        data.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while part := data.read(1 << 20):
                decoder.decode(part)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8-sig"


def _delimiter(file: Path, encoding: str) -> str:
    """The one that parts the first lines alike, into most cells."""
    with _opened(file, encoding) as lines:
        bounded = iter(lambda: lines.readline(LONGEST_LINE), "")
        first = [line for line in islice(bounded, 20) if line.strip()]

    def cells(delimiter: str) -> tuple[bool, int]:
        try:
            counts = [len(row) for row in csv.reader(first, delimiter=delimiter)]
        except csv.Error:
            return False, 0
        return len(set(counts)) == 1, counts[0] if counts else 0

    best = max(DELIMITERS, key=lambda d: (cells(d)[1] > 1, *cells(d)))
    return best if cells(best)[1] > 1 else ","


def _refuse_bomb(file: Path, size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise TableError(
            f"{file}: {file.stat().st_size:,} bytes unpack to more than {most_bytes:,}; if you "
            "trust the file, give a larger most_bytes="
        )


def _unpacked(file: Path, most: int) -> int:
    """How many bytes are in a gzip file, counted to just above ``most``."""
    size = 0
    with gzip.open(file, "rb") as packed:
        while size <= most and (part := packed.read(1 << 20)):
            size += len(part)
    return size


def _csv_frame(
    file: Path, delimiter: str, names: Sequence[str] | None, encoding: str, missing: Sequence[str]
) -> pd.DataFrame:
    if len(delimiter) != 1:
        raise TableError(f"delimiter: expected one character, got {delimiter!r}")
    first = _first_row(file, delimiter, encoding)
    header = list(first if names is None else names)
    _check_header(file, header, len(first), delimiter)
    frame = _parsed(file, header, None if names is not None else 0, delimiter, encoding, missing)
    if len(frame) and frame.iloc[:, -1].isna().any():
        _refuse_short_row(file, len(header), delimiter, encoding)
    return frame


def _opened(file: Path, encoding: str) -> TextIO:
    if file.name.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding=encoding, newline="")
    return file.open(encoding=encoding, newline="")


def _first_row(file: Path, delimiter: str, encoding: str) -> list[str]:
    with _opened(file, encoding) as lines:
        if "\0" in lines.read(4096):
            raise TableError(
                f"{file}: expected the text of a csv file, got binary data (for UTF-16 text, "
                'encoding="utf-16")'
            )
        lines.seek(0)
        bounded = iter(lambda: lines.readline(LONGEST_LINE), "")
        for row in csv.reader(bounded, delimiter=delimiter, skipinitialspace=True):
            if len(row) > MOST_COLUMNS:
                raise TableError(f"{file}: expected at most {MOST_COLUMNS:,} columns, got more")
            if row:
                return [cell.strip() for cell in row]
    raise TableError(f"{file}: the file is empty")


def _check_header(file: Path, header: list[str], width: int, delimiter: str) -> None:
    if len(header) != width:
        raise TableError(f"{file}: expected names for {width} columns, got {len(header)}")
    other = next((d for d in (";", "\t", "|") if d in header[0] and d != delimiter), None)
    if width == 1 and other:
        raise TableError(
            f"{file}: got one column named {header[0][:60]!r}; the file seems to be delimited by "
            f"{other!r}, so read it with delimiter={other!r}"
        )
    numeric = all(re.fullmatch(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", name, re.I) for name in header)
    hint = " (the file seems to have no header: pass names=[…])" if numeric else ""
    refuse_repeated(header, f"{file}{hint}: ")


def _parsed(
    file: Path,
    header: list[str],
    line: int | None,
    delimiter: str,
    encoding: str,
    missing: Sequence[str],
) -> pd.DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                file,
                sep=delimiter,
                names=header,
                header=line,
                index_col=False,
                encoding=encoding,
                dtype=str,
                na_values=sorted({form(word) for word in missing for form in CASES}),
                keep_default_na=False,
                skipinitialspace=True,
                low_memory=False,
            )
        return TextFrame(frame)
    except pd.errors.ParserWarning:
        raise TableError(
            f"{file}: the rows have more cells than the {len(header)} names of the header"
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise TableError(_explained(file, str(error))) from None


def _explained(file: Path, error: str) -> str:
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", error)
    if not found:
        return f"{file}: not a csv file ({error.strip()})"
    expected, line, cells = found.groups()
    return (
        f"{file}: line {line} has {cells} cells, expected {expected}; correct the line (put a "
        "cell that holds the delimiter in quotes)"
    )


def _refuse_short_row(file: Path, width: int, delimiter: str, encoding: str) -> None:
    with _opened(file, encoding) as lines:
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        for row in rows:
            if row and len(row) < width:
                raise TableError(
                    f"{file}: line {rows.line_num} has {len(row)} cells, expected {width}; "
                    "correct the line, or leave the missing cells empty between delimiters"
                )


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
        _refuse_bomb(file, max(sum(groups), cells), most_bytes)
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
            _refuse_bomb(file, sum(m.file_size for m in members), most_bytes)
            arrays = {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}
    except TableError:
        raise
    except (ValueError, OSError, KeyError, NotImplementedError, RuntimeError, *_DAMAGED) as error:
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
    """An array whose header says as many bytes as there are, so that no more room is made."""
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
