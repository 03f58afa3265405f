"""What a site keeps on its disk: runs that can be taken up again, models, an audit.

    audit.jsonl                   a line for everything that was asked, refused or left this site
    questions.json                how many questions were asked today; {} at first
    runs/<run>/training           at the caller's: what is trained, to go on by the run's name
    runs/<run>/<party>/recipe     what it was asked to do
                       rows       a mark of the rows that it began with
                       own.*      bytes that it has drawn for the run
                       inbox      messages in the order in which they arrived
                       kept.*     results of long computations
                       once.*     rows that only this run has, such as masks
                       counted    whether it was counted as a question
    models/<model>/<party>        what it has learned and keeps; at the caller's the coordinator's
                   <party>.answered   rows of questions that it has answered about it
                   .taken.<party>     which rows of it runs have had, if each is used once

Files of a run go when it has ended well. Nothing here is ever sent. A torn end of an inbox, after
a crash, is forgotten: senders send again what this site lacks. What limits questions and masks is
there from the beginning: if such a file is damaged or gone, nothing is answered that it limits.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO

from fedcircuits.engines.sites.run_folder import RunFolder, disk_errors, write
from fedcircuits.errors import FederationError, ProtocolError, SiteError
from fedcircuits.federation.described import checked_name
from fedcircuits.federation.recipes import UsedOnce, pack, unpack, with_span

AUDIT = "audit.jsonl"
QUESTIONS = "questions.json"  # of today


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
        with self._lock, disk_errors(path), path.open("ab+") as file:
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

    def begin_counting(self) -> None:
        """A new store has answered nothing; one that has lost its count does not begin anew."""
        path = self.folder / QUESTIONS
        if not path.exists() and not (self.folder / AUDIT).exists():
            write(path, b"{}")

    def questions(self) -> int:
        """Asked today, from midnight UTC; SiteError if that is not known."""
        path = self.folder / QUESTIONS
        try:
            kept = json.loads(path.read_bytes())
            return _count(kept.get(_today(), 0))
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise _lost(path, "queries of today", "{}") from error

    def count_question(self, check: Callable[[int], None], limited: bool = True) -> None:
        """One more today, unless ``check`` of those before it raises; one question at a time.
        Without a limit it need not be known how many there were."""
        with self._lock:
            try:
                asked = self.questions()
            except SiteError:
                if limited:
                    raise
                return check(0)
            check(asked)
            write(self.folder / QUESTIONS, json.dumps({_today(): asked + 1}).encode())

    def spend(self, model: str, party: str, rows: int, most: int) -> int:
        """Rows of questions about a model that were asked before; these are counted if that is not
        too many, before any of them is answered."""
        path = self._answered(model, party)
        with self._lock:
            try:
                before = _count(json.loads(path.read_bytes()))
            except (OSError, ValueError, RecursionError) as error:
                raise _lost(path, "query rows about this model", "0") from error
            if before + rows <= most:
                write(path, str(before + rows).encode())
        return before

    def _answered(self, model: str, party: str) -> Path:
        return self._model(model) / f"{checked_name(party)}.answered"

    # ------------------------------------------------------------------ models

    def keep_model(self, model: str, party: str, value: object) -> None:
        """What limits its use is there before it is; a run that is resumed resets nothing."""
        limits = {self._answered(model, party): b"0"}
        if isinstance(value, UsedOnce):
            limits[self._marks(model, party)] = b"[]"
        for path, nothing in limits.items():
            if not path.exists() and not self.has_model(model, party):
                write(path, nothing)
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


def _spans(path: Path) -> list[tuple[int, int]]:
    """Rows that runs have had; SiteError if that is not known, since masks could be used twice."""
    try:
        return [(_count(a), _count(b)) for a, b in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise SiteError(
            f"it is not known which rows of this model were used before, {path.name} is damaged or "
            "missing: prepare anew"
        ) from error


def _count(value: object) -> int:
    """ValueError unless it is a count."""
    if type(value) is not int or value < 0:
        raise ValueError("no count")
    return value


def _lost(path: Path, what: str, nothing: str) -> SiteError:
    return SiteError(
        f"it is not known how many {what} this site has answered, {path.name} is damaged or "
        f"missing: its operator must write {nothing} into that file to begin at 0"
    )


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """The error shown to the owner if the store cannot be used."""
    try:
        yield
    except OSError as error:
        raise FederationError(f"{folder} cannot be written: {error.strerror}") from error


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
