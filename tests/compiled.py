"""Compiled kernels that the workers of a test run share: one compiles, the others read from disk.

Numba writes the index of a cache and its entries one after the other, so processes that compile at
once can mix them up. Workers therefore take turns: whoever holds numba's own lock of the compiler
holds a lock of the folder as well.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import RLock

from numba.core import event


class Turns(event.Listener):  # type: ignore[misc]
    """A thread may take its turn several times; the others wait until it has ended all of them."""

    def __init__(self, path: Path) -> None:
        self.threads, self.depth = RLock(), 0
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)

    def on_start(self, event: object) -> None:
        self.threads.acquire()
        if not self.depth:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1

    def on_end(self, event: object) -> None:
        self.depth -= 1
        if not self.depth:
            fcntl.flock(self.file, fcntl.LOCK_UN)
        self.threads.release()


def take_turns(folder: Path) -> None:
    event.register("numba:compiler_lock", Turns(folder / "turn"))
