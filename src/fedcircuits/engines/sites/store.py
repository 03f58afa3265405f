"""What a site keeps on its disk: runs that can be taken up again, models, an audit.

    audit.jsonl                   a line for everything that was asked, refused or left this site
    questions.json                how many questions were asked today
    runs/<run>/training           at the caller's: what is trained, to go on by the run's name
    runs/<run>/<party>/recipe     what it was asked to do
                       rows       a mark of the rows that it began with
                       own.*      bytes that it has drawn for the run
                       inbox      messages in the order in which they arrived
                       kept.*     results of long computations
                       once.*     rows that only this run has, such as masks
    models/<model>/<party>        what it has learned and keeps; at the caller's the coordinator's
                   <party>.answered   rows of questions that it has answered about it
                   .taken.<party>     which rows of it runs have had, if each is used once

Files of a run go when it has ended well. Nothing here is ever sent. A torn end of an inbox, after
a crash, is forgotten: senders send again what this site lacks.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from threading import Lock
from typing import IO

from fedcircuits.engines.driving import Data
from fedcircuits.errors import FederationError, ProtocolError, SiteError
from fedcircuits.federation.described import checked_name
from fedcircuits.federation.recipes import UsedOnce, pack, unpack, with_span

AUDIT = "audit.jsonl"
QUESTIONS = "questions.json"  # of today
ENTRY = struct.Struct("<IIQ")  # size of sender and tag, number, size of the data
Mail = tuple[str, int, str, bytes]  # sender, number, tag, data


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with _write_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = Lock()
        self._used: dict[tuple[str, str], UsedOnce] = {}  # whose rows are used once
        self._held: IO[bytes] | None = None

    def hold(self, who: str) -> None:
        """One program at a time: two would answer for one member, each with half of its mail."""
        with _write_errors(self.folder):
            file = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise FederationError(
                f"{who} is already connected from another program that uses {self.folder}: stop "
                "it, or close its federation, first"
            ) from None
        self._held = file

    def release(self) -> None:
        if self._held is not None:
            self._held.close()

    def audit(self, event: str, **facts: object) -> None:
        """One line; facts are public words and sizes, never values."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"time": moment, "event": event, **facts}, ensure_ascii=False)
        path = self.folder / AUDIT
        with self._lock, _disk_errors(path), path.open("ab+") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                line = "\n" + line  # the last one was torn: the disk was full
            file.write((line + "\n").encode())

    def audited(self) -> list[dict[str, object]]:
        """What was written down; damaged lines are left out."""
        return [entry for entry in audit_entries(self.folder / AUDIT) if entry is not None]

    def run(self, run: str, party: str) -> RunFolder:
        return RunFolder(self._run(run) / checked_name(party))

    # ------------------------------------------------------------------ trainings, at the caller's

    def remember(self, run: str, training: bytes) -> None:
        write(self._run(run) / "training", training)

    def recall(self, run: str) -> bytes | None:
        path = self._run(run) / "training"
        return path.read_bytes() if path.exists() else None

    def trainings(self) -> list[str]:
        """Runs that have not ended."""
        return sorted(path.parent.name for path in self.folder.glob("runs/*/training"))

    def give_up(self, run: str) -> None:
        """Whatever is kept of a run goes."""
        shutil.rmtree(self._run(run), ignore_errors=True)

    def _run(self, run: str) -> Path:
        return self.folder / "runs" / checked_name(run)

    # ------------------------------------------------------------------ questions

    def questions(self) -> int:
        """Asked today, from midnight UTC."""
        try:
            kept = json.loads((self.folder / QUESTIONS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0
        return int(kept.get(_today(), 0))

    def count_question(self, check: Callable[[int], None]) -> None:
        """One more today, unless ``check`` of those before it raises; one question at a time."""
        with self._lock:
            check(asked := self.questions())
            write(self.folder / QUESTIONS, json.dumps({_today(): asked + 1}).encode())

    def spend(self, model: str, party: str, rows: int, most: int) -> int:
        """Rows of questions about a model that were asked before; these are counted if that is not
        too many, before any of them is answered."""
        path = self._model(model) / f"{checked_name(party)}.answered"
        with self._lock:
            before = int(path.read_text()) if path.is_file() else 0
            if before + rows <= most:
                write(path, str(before + rows).encode())
        return before

    # ------------------------------------------------------------------ models

    def keep_model(self, model: str, party: str, value: object) -> None:
        write(self._model(model) / checked_name(party), pack(value))

    def model(self, model: str, party: str) -> object:
        path = self._model(model) / checked_name(party)
        try:
            return unpack(path.read_bytes())
        except FileNotFoundError:
            raise SiteError(
                f"{party} has no model {model!r}: it was forgotten, used up, or learned elsewhere"
            ) from None

    def has_model(self, model: str, party: str) -> bool:
        return (self._model(model) / checked_name(party)).exists()

    def hand_out(self, model: str, party: str, start: int, stop: int) -> object:
        """Rows of something of which each is used once: written down before a run has them, so
        that no other run gets them, whatever becomes of this one."""
        with self._lock:
            kept, path = self._used_once(model, party), self._marks(model, party)
            try:
                rows = kept.hand_out(start, stop)
            except ProtocolError as error:  # its words are numbers of rows alone
                raise SiteError(str(error)) from error
            write(path, json.dumps(with_span(_spans(path), start, stop)).encode())
            if not len(kept):
                del self._used[model, party]
                (self._model(model) / checked_name(party)).unlink()
        return rows

    def _used_once(self, model: str, party: str) -> UsedOnce:
        if (model, party) not in self._used:
            model_kept = self.model(model, party)
            if not isinstance(model_kept, UsedOnce):
                raise SiteError(f"what {party} keeps of {model!r} has no rows to be used once")
            for start, stop in _spans(self._marks(model, party)):
                model_kept.hand_out(start, stop)
            self._used[model, party] = model_kept
        return self._used[model, party]

    def _marks(self, model: str, party: str) -> Path:
        return self._model(model) / f".taken.{checked_name(party)}"

    def models(self) -> list[str]:
        folder = self.folder / "models"
        return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []

    def forget(self, model: str) -> bool:
        """Whether there was such a model, or a run of that name that was broken off."""
        there = [path for path in (self._model(model), self._run(model)) if path.is_dir()]
        for path in there:
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():
                raise SiteError("its store cannot be written; the details are in its log")
        return bool(there)

    def _model(self, model: str) -> Path:
        return self.folder / "models" / checked_name(model)


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

    def own_key(self, what: str) -> bytes:
        """Bytes that only this site knows, the same when the run is taken up again."""
        path = self.path / f"own.{checked_name(what)}"
        if not path.exists():
            write(path, token_bytes(32))
        return path.read_bytes()

    def once(self, store: Store, model: str, party: str, start: int, stop: int) -> object:
        """Rows that only this run has, the same when it is taken up again."""
        path = self.path / f"once.{checked_name(model)}.{start}.{stop}"
        if not path.exists():
            write(path, pack(store.hand_out(model, party, start, stop)))
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
        with self._lock, _disk_errors(self.path):
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
    with _disk_errors(path):
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


def _spans(path: Path) -> list[tuple[int, int]]:
    """Rows that runs have had."""
    return [(a, b) for a, b in json.loads(path.read_bytes())] if path.exists() else []


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """The error shown to the owner if the store cannot be used."""
    try:
        yield
    except OSError as error:
        raise FederationError(f"{folder} cannot be written: {error.strerror}") from error


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """A full or closed disk is an error of this site, with a text that others may see."""
    try:
        yield
    except OSError as error:
        what = "its disk is full" if error.errno == errno.ENOSPC else "its store cannot be written"
        raise SiteError(f"{what}; the details are in its log") from error


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def audit_entries(path: Path) -> list[dict[str, object] | None]:
    """The lines of an audit log, None for each that is damaged; none if there is no log."""
    entries: list[dict[str, object] | None] = []
    for line in path.read_bytes().removesuffix(b"\n").split(b"\n") if path.is_file() else ():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        entries.append(entry if isinstance(entry, dict) else None)
    return entries
