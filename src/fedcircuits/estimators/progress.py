"""A progress bar for learning that takes more than two seconds, if there is a terminal.

Learners that count epochs report how far they are; the bar of others moves without an end.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar, Token
from multiprocessing import parent_process
from threading import Lock, Timer
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

QUIET = 2.0  # seconds before anything is shown


class Bar:
    """``with Bar("LearnSPN"): …``; within it, ``current()`` is this bar."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.text, self.done, self.total = "learning", 0, 0
        self._shown: Progress | None = None
        self._lock, self._over = Lock(), False
        outermost = current() is None and parent_process() is None  # one bar for all parties
        self._timer = Timer(QUIET, self._show) if outermost and sys.stderr.isatty() else None
        self._token: Token[Bar | None] | None = None

    def tell(self, done: int, total: int, text: str) -> None:
        with self._lock:
            self.done, self.total, self.text = done, total, text
            if self._shown is not None:
                self._update(self._shown)

    def _show(self) -> None:
        with self._lock:
            if self._over:
                return
            self._shown = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(), console=Console(file=sys.stderr), transient=True,
            )  # fmt: skip
            self._shown.add_task(self.title, total=None, text=self.text)
            self._update(self._shown)
            self._shown.start()

    def _update(self, shown: Progress) -> None:
        [task] = shown.task_ids
        shown.update(task, completed=self.done, total=self.total or None, text=self.text)

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


_CURRENT: ContextVar[Bar | None] = ContextVar("bar", default=None)


def current() -> Bar | None:
    return _CURRENT.get()


def tell(done: int, total: int, text: str) -> None:
    """How far it is, to the bar of the fit that runs, if there is one."""
    if (bar := current()) is not None:
        bar.tell(done, total, text)
