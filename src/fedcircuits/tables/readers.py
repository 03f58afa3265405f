"""Tables from files: csv (also packed), parquet and npz, chosen by the suffix.

A file comes from outside: whatever is wrong with it (absent, empty, binary, ragged, truncated,
another delimiter) ends in one TableError that names the file. Nothing is unpickled. A small file
may claim or unpack to any size: above ``most_bytes``, a gigabyte unless the caller says otherwise,
it is refused before it is read.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcircuits.errors import ExtraMissingError, TableError
from fedcircuits.tables.csv_files import TextFrame, text_frame
from fedcircuits.tables.gaps import MISSING
from fedcircuits.tables.packed import DAMAGED, existing, refuse_bomb

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
    return text_frame(existing(path), delimiter, names, encoding, missing, most_bytes)


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
