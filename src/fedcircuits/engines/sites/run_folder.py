"""One party's part of one run on disk (store.py lists the files), and how files are written: whole
or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from threading import Lock

from fedcircuits.engines.driving import Data
from fedcircuits.errors import SiteError
from fedcircuits.federation.described import checked_name
from fedcircuits.federation.recipes import pack, unpack

ENTRY = struct.Struct("<IIQ")  # size of sender and tag, number, size of the data
Mail = tuple[str, int, str, bytes]  # sender, number, tag, data
HandOut = Callable[[str, str, int, int], object]  # model, party, rows from and to


@dataclass(slots=True)
class RunFolder:
    """One party's part of one run."""

    path: Path

    @property
    def begun(self) -> bool:
        return (self.path / "recipe").exists()

    def open(self, recipe: bytes, again: bool = True) -> None:
        """Make the folder; refuse a run whose name is taken by one that has not ended."""
        if self.begun and not again:
            raise SiteError(
                f"a run {self.path.parent.name!r} was interrupted: resume it, forget it, or "
                "choose another name"
            )
        if self.begun and (self.path / "recipe").read_bytes() != recipe:
            raise SiteError(
                f"a run {self.path.parent.name!r} was started before with another plan: choose "
                "another name, or forget the old run"
            )
        if not self.begun:
            write(self.path / "recipe", recipe)

    def check_rows(self, mark: str) -> None:
        """A run continues with the rows that it started with, or not at all."""
        path = self.path / "rows"
        if not path.exists():
            write(path, mark.encode())
        elif path.read_text() != mark:
            raise SiteError(
                f"the rows of this site have changed since {self.path.parent.name!r} was started: "
                "restore them, or forget the run and start again"
            )

    @property
    def counted(self) -> bool:
        """Whether it was admitted as a question: one that is taken up again is not another one."""
        return (self.path / "counted").exists()

    def mark_counted(self) -> None:
        write(self.path / "counted", b"")

    def own_key(self, what: str) -> bytes:
        """Bytes that only this site knows, the same when the run is taken up again."""
        path = self.path / f"own.{checked_name(what)}"
        if not path.exists():
            write(path, token_bytes(32))
        return path.read_bytes()

    def once(self, hand_out: HandOut, model: str, party: str, start: int, stop: int) -> object:
        """Rows that only this run has, the same when it is taken up again."""
        path = self.path / f"once.{checked_name(model)}.{start}.{stop}"
        if not path.exists():
            write(path, pack(hand_out(model, party, start, stop)))
        return unpack(path.read_bytes())

    def inbox(self) -> Inbox:
        return Inbox(self.path / "inbox")

    def kept(self) -> KeptOnDisk:
        return KeptOnDisk(self.path)

    def done(self) -> None:
        """Everything is removed at once: no run continues from a part of it."""
        gone = self.path.with_name(f".{self.path.name}.{token_hex(4)}")
        with suppress(OSError):
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(OSError):  # other parties of the run live here too
            self.path.parent.rmdir()


class Inbox:
    """Mail on disk: existing and arriving messages."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        self.there = list(self._read())
        self._file = path.open("ab")

    def _read(self) -> Iterator[Mail]:
        data, at = (self.path.read_bytes() if self.path.exists() else b""), 0
        while at + ENTRY.size <= len(data):
            way, number, size = ENTRY.unpack_from(data, at)
            end = at + ENTRY.size + way + size
            if end > len(data):
                break
            sender, tag = data[at + ENTRY.size : end - size].decode().split("\0")
            yield sender, number, tag, data[end - size : end]
            at = end
        if at < len(data):
            os.truncate(self.path, at)

    def add(self, sender: str, number: int, tag: str, data: Data) -> None:
        way = f"{sender}\0{tag}".encode()
        with self._lock, disk_errors(self.path):
            if not self._file.closed:
                self._file.write(ENTRY.pack(len(way), number, len(data)) + way)
                self._file.write(data)
                self._file.flush()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self._file.close()


@dataclass(slots=True)
class KeptOnDisk(MutableMapping[str, object]):
    """Results of computations by name, which no other site sees."""

    folder: Path
    _ready: dict[str, object] = field(default_factory=dict)

    def _path(self, name: str) -> Path:
        return self.folder / f"kept.{blake2b(name.encode(), digest_size=16).hexdigest()}"

    def __contains__(self, name: object) -> bool:
        return name in self._ready or (isinstance(name, str) and self._path(name).exists())

    def __getitem__(self, name: str) -> object:
        if name not in self._ready:
            if name not in self:
                raise KeyError(name)
            self._ready[name] = unpack(self._path(name).read_bytes())
        return self._ready[name]

    def __setitem__(self, name: str, value: object) -> None:
        self._ready[name] = value
        write(self._path(name), pack(value))

    def __delitem__(self, name: str) -> None:
        self._ready.pop(name, None)
        self._path(name).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ready)

    def __len__(self) -> int:
        return len(self._ready)


def write(path: Path, data: bytes, rights: int = 0o666) -> None:
    """Whole or not at all; ``rights`` of others end with what their user withholds."""
    part = path.with_name(f".{path.name}.{token_hex(4)}")
    with disk_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights)
        with open(made, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name, too, outlives a loss of power
        finally:
            os.close(folder)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A full or closed disk is an error of this site, with a text that others may see."""
    try:
        yield
    except OSError as error:
        what = "its disk is full" if error.errno == errno.ENOSPC else "its store cannot be written"
        raise SiteError(f"{what}; the details are in its log") from error
