"""The bytes of a file, plain or compressed (.gz, .zip), and the encoding of its text.

A small file may unpack to any size: above a limit it is refused before it is read. A zip archive
must contain exactly one file.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import IO, TextIO, cast

from fedcircuits.errors import TableError

MIXED = "utf-8 and cp1252"  # lines of two programs in one file
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def existing(path: str | PathLike[str]) -> Path:
    """The path of a readable file that is not empty."""
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


FOREIGN = (
    (b"\xd0\xcf\x11\xe0", "an Excel workbook: save the sheet as csv"),
    (b"PAR1", "a parquet file: let its name end in .parquet"),
    (b"%PDF", "a PDF: get the table as csv"),
    (b"\x1f\x8b", "packed by gzip: let its name end in .csv.gz"),
    (b"SQLite format 3", "a database: export the table as csv"),
    (b"\x93NUMPY", "an array of numpy: write it as npz"),
    (b"{\\rtf", "a text document: get the table as csv"),
)
MARKUP = re.compile(rb"\s*(<!doctype|<html|<table|<head|<\?xml)", re.I)
JSON = re.compile(rb"\s*(\[\s*)?\{\s*(\"[^\"]*\"\s*:|\})")


def refuse_foreign(file: Path) -> None:
    """TableError for a file that is not csv, whatever its name, naming what it is."""
    with opened(file) as data:
        head = data.read(512).removeprefix(codecs.BOM_UTF8)
    what = next((words for start, words in FOREIGN if head.startswith(start)), "")
    if head.startswith(b"PK\x03\x04"):
        what = _archived(file)
    elif MARKUP.match(head):
        what = "a web page or XML: a page to log in, instead of the file? Get the table as csv"
    elif JSON.match(head):
        what = "JSON: write it as csv, a column per field"
    if what:
        raise TableError(f"{file}: expected a csv file, got {what}")


def _archived(file: Path) -> str:
    names = zipfile.ZipFile(file).namelist() if not file.name.lower().endswith(".zip") else []
    if any(name.startswith("xl/") for name in names):
        return "an Excel workbook: save the sheet as csv"
    if "content.xml" in names:
        return "a sheet of LibreOffice: save it as csv"
    return "a zip archive: unpack it, or let its name end in .zip"


def refuse_bomb(file: Path, size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise TableError(
            f"{file}: {file.stat().st_size:,} bytes unpack to more than {most_bytes:,}; if you "
            "trust the file, give a larger most_bytes="
        )


def opened(file: Path) -> IO[bytes]:
    """The file opened for reading, decompressed."""
    if file.name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.open(file, "rb"))
    if file.name.lower().endswith(".zip"):
        archive = zipfile.ZipFile(file)
        return archive.open(_only_member(file, archive))
    return file.open("rb")


def opened_text(file: Path, encoding: str) -> TextIO:
    if encoding != MIXED:
        codecs.lookup(encoding)
    else:
        return io.TextIOWrapper(opened(file), "utf-8-sig", newline="", errors=MIXED)
    return io.TextIOWrapper(opened(file), encoding=encoding, newline="")


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    """Decodes a byte that is not UTF-8 as Windows-1252."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.start + 1].decode("cp1252", "replace"), error.start + 1


codecs.register_error(MIXED, _as_windows)


def refuse_large(file: Path, most_bytes: int) -> None:
    """TableError for a file that unpacks to more than this many bytes."""
    if not file.name.lower().endswith((".gz", ".zip")):
        return
    size = 0
    with opened(file) as packed:
        while size <= most_bytes and (part := packed.read(1 << 20)):
            size += len(part)
    refuse_bomb(file, size, most_bytes)


# Windows-1252 would read the two bytes as Ã¶ and the like.
IN_UTF_8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")


def encoding_of(file: Path) -> str:
    """The encoding, by the first bytes or by whether all of the file is UTF-8."""
    with opened(file) as data:
        head = data.read(4096)
        for mark, encoding in MARKS.items():
            if head.startswith(mark):
                return encoding
        if (wide := _wide(head)) is not None:
            return wide
        decoder = codecs.getincrementaldecoder("utf-8")()
        part, several = head, False
        try:
            while part:
                decoder.decode(part)
                several |= not part.isascii()
                part = data.read(1 << 20)
        except UnicodeDecodeError:
            return MIXED if several or IN_UTF_8.search(part) else "cp1252"
    return "utf-8-sig"


def _wide(head: bytes) -> str | None:
    """UTF-16 without a byte-order mark: every second byte of Latin text is zero, and no other."""
    even, odd = head[0:256:2], head[1:256:2]
    if len(odd) < 2:
        return None
    if odd.count(0) > 0.8 * len(odd) and not even.count(0):
        return "utf-16-le"
    return "utf-16-be" if even.count(0) > 0.8 * len(even) and not odd.count(0) else None


def _only_member(file: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = [
        member
        for member in archive.infolist()
        if not member.is_dir() and not member.filename.startswith("__MACOSX/")
    ]
    if len(members) != 1:
        names = ", ".join(member.filename for member in members[:8]) or "none"
        raise TableError(f"{file}: expected an archive of one file, got {names}; unpack it first")
    if members[0].flag_bits & 1:
        raise TableError(f"{file}: the archive is locked by a password; unpack it first")
    return members[0]
