"""The public files of data sets: downloaded, verified and read.

A file is used only if its sha256 matches the manifest. For HTRU2 the digest of the original is
unknown, as several spellings of the same numbers circulate: there the numbers are verified. A
download is written to a temporary file and renamed once it is complete and verified, so that a
broken connection leaves nothing behind.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import sys
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import DatasetError

Arrays = dict[str, NDArray[np.generic]]

_PIECE = 1 << 20
_TIMEOUT = 30.0  # seconds without a byte
_digests: dict[tuple[str, int, int], str] = {}  # by path, time of change and size


@dataclass(frozen=True, slots=True)
class Original:
    """A public file; ``url``: where it can be downloaded, gzipped or plain, if anywhere."""

    file: str
    sha256: str | None = None
    values_sha256: str | None = None
    url: str | None = None


def digest(path: Path) -> str:
    """The sha256 of a file, cached while the file does not change."""
    state = path.stat()
    key = (str(path.resolve()), state.st_mtime_ns, state.st_size)
    if key not in _digests:
        with path.open("rb") as opened:
            _digests[key] = hashlib.file_digest(opened, "sha256").hexdigest()
    return _digests[key]


def verify(path: Path, sha256: str | None, url: str | None) -> Path:
    if sha256 is None:
        return path
    try:
        actual = digest(path)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from None
    if actual != sha256:
        raise DatasetError(
            f"{path}: expected the sha256 {sha256}, got {actual}; the file is damaged or another "
            f"version: delete it and get it again{f' from {url}' if url else ''}"
        )
    return path


def download(original: Original, folder: Path) -> Path:
    """Download a public file into a folder atomically."""
    if original.url is None:
        raise DatasetError(f"{original.file} has no address to fetch it from")
    target = folder / original.file
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".part")
    except OSError as error:
        raise DatasetError(f"{target.parent}: cannot write there ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as out:
            _copy(original, original.url, out)
        verify(Path(part), original.sha256, original.url)
        os.replace(part, target)
    except (OSError, EOFError, http.client.HTTPException, zlib.error) as error:
        raise DatasetError(
            f"{original.file} could not be fetched from {original.url} ({error}); check the "
            f"connection, or get the file by hand and put it at {target}"
        ) from None
    finally:
        Path(part).unlink(missing_ok=True)
    return target


def _copy(original: Original, url: str, out: BinaryIO) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
        packed = url.endswith(".gz") and not original.file.endswith(".gz")
        source = gzip.GzipFile(fileobj=response) if packed else response
        done = 0
        while piece := source.read(_PIECE):
            out.write(piece)
            done += len(piece)
            if sys.stderr.isatty():
                print(f"\r{original.file}: {done / 1e6:.1f} MB", end="", file=sys.stderr)
        expected = response.headers.get("Content-Length")
        if expected and not packed and done != int(expected):
            raise OSError(f"the connection ended after {done} of {expected} bytes")
    if sys.stderr.isatty():
        print(file=sys.stderr)


def read_originals(reader: str, files: Mapping[str, Path]) -> Arrays | pd.DataFrame:
    """The content of verified originals, given by their file names."""
    return _READERS[reader](files)


def _debd(files: Mapping[str, Path]) -> Arrays:
    """Lines of comma-separated 0 and 1, for train, valid and test."""
    arrays: Arrays = {}
    for name, path in files.items():
        text = path.read_bytes()
        characters = np.frombuffer(text, dtype=np.uint8).reshape(-1, text.index(b"\n") + 1)
        arrays[name.split(".")[-2]] = characters[:, ::2] - ord("0")
    return arrays


def _idx(files: Mapping[str, Path]) -> Arrays:
    """The IDX format: four bytes, the last the number of dimensions; the dimensions, four bytes
    each; pixels."""
    arrays: Arrays = {}
    for name, path in files.items():
        data = path.read_bytes()
        shape = np.frombuffer(data, dtype=">u4", count=data[3], offset=4)
        key = ("x_" if "images" in name else "y_") + ("train" if "train" in name else "test")
        arrays[key] = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * data[3]).reshape(shape)
    return arrays


_ADULT = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
).split()


def _adult(files: Mapping[str, Path]) -> pd.DataFrame:
    parts = []
    for name, path in files.items():
        split = "test" if name.endswith("test") else "train"
        part = pd.read_csv(
            path,
            names=_ADULT,
            skiprows=1 if split == "test" else 0,  # "|1x3 Cross validator"
            skipinitialspace=True,
            na_values=["?"],
            keep_default_na=False,
        )
        parts.append(part.assign(income=part["income"].str.removesuffix("."), split=split))
    return pd.concat(parts, ignore_index=True)


def _credit(files: Mapping[str, Path]) -> pd.DataFrame:
    parts = []
    for name, path in files.items():
        part = pd.read_csv(path, index_col=0)
        parts.append(part.assign(split="unlabelled" if "test" in name else "train"))
    return pd.concat(parts, ignore_index=True)


_HTRU2 = [
    f"{p}_{s}" for p in ("profile", "dmsnr") for s in "mean std excess_kurtosis skewness".split()
]


def _htru2(files: Mapping[str, Path]) -> pd.DataFrame:
    (path,) = files.values()
    try:
        frame = pd.read_csv(path, names=[*_HTRU2, "class"], header=None)
    except (ValueError, OSError) as error:
        raise DatasetError(f"{path}: not the csv file of HTRU2 ({error})") from None
    return frame


def values_digest(frame: pd.DataFrame) -> str:
    """The sha256 of a frame's numbers, as rows of little-endian float64."""
    try:
        numbers = np.ascontiguousarray(frame.to_numpy(dtype="<f8"))
    except (ValueError, TypeError):
        return "no numbers"
    return hashlib.sha256(numbers.tobytes()).hexdigest()


_READERS: dict[str, Callable[[Mapping[str, Path]], Arrays | pd.DataFrame]] = {
    "debd": _debd,
    "idx": _idx,
    "adult": _adult,
    "credit": _credit,
    "htru2": _htru2,
}
