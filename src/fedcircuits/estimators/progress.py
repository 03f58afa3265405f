"""A progress bar for learning that takes more than two seconds, if there is a terminal.

A federated training shows its phase, round, party, likelihood, bytes and time left, as reported by
engines/watching.py. Learners that count epochs report their progress; for others the bar is
indeterminate. There is only one bar, the outermost: learning inside it reports to it.
"""

from __future__ import annotations

import sys
import time
from contextvars import ContextVar, Token
from multiprocessing import parent_process
from threading import Lock, Timer
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from fedcircuits.engines.watching import Progress

QUIET = 2.0  # seconds before anything is shown


class Bar:
    """``with Bar("LearnSPN"): …``; within it, ``current()`` is this bar. It is shown after so many
    seconds."""

    def __init__(self, title: str, quiet: float = QUIET) -> None:
        self.title = title
        self.text, self.done, self.total = "learning", 0, 0
        self.left: float | None = None  # seconds
        self._local, self._begun = "", (0.0, 0)
        self._shown: RichProgress | None = None
        self._lock, self._over = Lock(), False
        around = current()
        self._outer: Bar = self if around is None else around._outer
        here = around is None and parent_process() is None
        self._timer = Timer(quiet, self._show) if here and sys.stderr.isatty() else None
        self._token: Token[Bar | None] | None = None

    @property
    def shows(self) -> bool:
        """Whether the bar will be visible."""
        return self._outer._timer is not None

    def tell(self, done: int, total: int, text: str) -> None:
        """Progress of a learner that counts epochs."""
        bar, now = self._outer, time.monotonic()
        with bar._lock:
            if done <= bar._begun[1] or not bar._local:
                bar._begun = now, done
            since, already = bar._begun
            bar.left = (now - since) * (total - done) / (done - already) if done > already else None
            bar.done, bar.total, bar._local = done, total, text
            bar._update()

    def see(self, progress: Progress) -> None:
        """Progress of a federated training."""
        bar = self._outer
        with bar._lock:
            bar.text, bar._local = progress.words(), ""
            bar.done, bar.total, bar.left = progress.round, progress.rounds, progress.left
            bar._update()

    def _show(self) -> None:
        with self._lock:
            if self._over:
                return
            self._shown = RichProgress(
                *_columns(), console=Console(file=sys.stderr), transient=True, expand=True
            )
            self._shown.add_task(self.title, total=None, text=self.text, left="")
            self._update()
            self._shown.start()

    def _update(self) -> None:
        if self._shown is None:
            return
        [task] = self._shown.task_ids
        text = self._local if self.text == "learning" and self._local else self.text
        text = f"{text} · {self._local}" if self._local and text != self._local else text
        left = "" if self.left is None else f"{clock_words(self.left)} left"
        total = self.total or None
        self._shown.update(task, completed=self.done, total=total, text=text, left=left)

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._over = True
            if self._shown is not None:
                self._shown.stop()


def _columns() -> list[ProgressColumn]:
    """A narrow terminal cuts what happens, but not how far it is and how long it takes."""
    happens = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return [
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(12, table_column=Column(min_width=8)),
        TextColumn("{task.fields[text]}", table_column=happens),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True, min_width=9)),
    ]


_CURRENT: ContextVar[Bar | None] = ContextVar("bar", default=None)


def current() -> Bar | None:
    return _CURRENT.get()


def tell(done: int, total: int, text: str) -> None:
    """Report progress to the bar of the current fit, if there is one."""
    if (bar := current()) is not None:
        bar.tell(done, total, text)


def clock_words(seconds: float) -> str:
    """Such as 0:05 or 1:02:07."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
