"""The events of a training in a file, one JSON object per line, which a dashboard reads as it
grows.

``fedcircuits train … --watch run.jsonl`` writes it, ``fedcircuits dashboard run.jsonl`` shows
it: on this machine, for any engine, during a training or afterwards. Messages and waits of one
party in quick succession share a line; numbers of messages and bytes are totals, so none is
lost.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from fedcircuits.app.report import check_output
from fedcircuits.engines.watching import Callback, Progress
from fedcircuits.errors import FileError

MOMENT = 0.05  # seconds
ENDING = ".jsonl"
MOST = 1 << 20  # bytes that are read at once


class EventWriter:
    """A callback that writes events to a file."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.file, self.clock = file, clock
        self._last: dict[tuple[str, str], float] = {}
        self._left_out: Progress | None = None
        self._waits: dict[str, tuple[float, Progress]] = {}  # left out, by party

    def __call__(self, progress: Progress) -> None:
        now = self.clock()
        left_out, self._left_out = self._left_out, None
        if left_out is not None and left_out.phase != progress.phase:
            self._write(left_out)  # the totals of a phase are whole when another begins
        self._waits.pop(progress.party, None)
        for party, (since, wait) in list(self._waits.items()):
            if now - since >= MOMENT:  # it still waits
                del self._waits[party]
                self._write(_since(wait, progress))
        if progress.kind in ("message", "wait"):
            key = (progress.kind, progress.party)
            if now - self._last.get(key, -math.inf) < MOMENT:
                self._left_out = progress
                if progress.kind == "wait":
                    self._waits[progress.party] = now, progress
                return
            self._last[key] = now
        self._write(progress)

    def _write(self, progress: Progress) -> None:
        self.file.write(json.dumps(plain(progress), ensure_ascii=False) + "\n")
        self.file.flush()


def _since(wait: Progress, progress: Progress) -> Progress:
    """The wait, told at the time and with the totals of a later event."""
    return replace(progress, kind="wait", party=wait.party, other=wait.other, text=wait.text)


def plain(progress: Progress) -> dict[str, object]:
    """The event without numbers that JSON does not support."""
    values = asdict(progress)
    bad = (n for n, v in values.items() if isinstance(v, float) and not math.isfinite(v))
    return {**values, **dict.fromkeys(bad)}


@contextmanager
def written(path: Path | None) -> Iterator[Callback | None]:
    """A callback that writes events to a file, replacing that of an earlier run."""
    if path is None:
        yield None
        return
    check_output(path, "a file of events", ENDING)
    with path.open("w", encoding="utf-8") as file:
        yield EventWriter(file)


def quiet_for(path: Path) -> float:
    """Seconds since the last event; 0 before the first."""
    return max(0.0, time.time() - path.stat().st_mtime) if path.is_file() else 0.0


def read_from(path: Path, offset: int) -> tuple[list[dict[str, object]], int]:
    """Complete lines from ``offset`` on, and the next offset. A file that became shorter belongs
    to another run and is read from its beginning."""
    if not path.is_file():
        return [], 0
    size = path.stat().st_size
    start = offset if 0 <= offset <= size else 0
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(MOST)
    end = data.rfind(b"\n") + 1
    events = []
    for line in data[:end].splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or "kind" not in event:
            raise FileError(f"{path}: it has a line that is not an event of a training run")
        events.append(event)
    return events, start + end
