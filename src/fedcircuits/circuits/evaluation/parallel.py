"""Batches on all cores: one thread a core, each operation inside it on one thread.

Splitting rows scales better than splitting every small operation; torch and numba kernels let go
of the interpreter lock while they compute. ``torch.set_num_threads`` says how many threads to use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


def in_threads(function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """function of every item, in order."""
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        yield from map(function, items)
        return
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(before)
