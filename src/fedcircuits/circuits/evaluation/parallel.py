"""Batches on all cores: one thread a core, each operation inside it on one thread.

Splitting rows scales better than splitting every small operation; torch and numba kernels let go
of the interpreter lock while they compute. ``torch.set_num_threads`` says how many threads to use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Kept for good: new threads would have to set up their memory and libraries every time."""
    return ThreadPoolExecutor(threads, "rows", torch.set_num_threads, (1,))


def in_threads(function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """function of every item, in order."""
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        yield from map(function, items)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # also for libraries whose number of threads is one for all
    try:
        yield from _pool(threads).map(function, items)
    finally:
        torch.set_num_threads(before)
