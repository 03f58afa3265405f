"""How many threads a party's libraries get.

Sums of floating-point numbers depend on how they are cut for threads. So all engines give a party
as many as it has where all parties compute at once, and results are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


def threads_each(parties: int) -> int:
    """Threads of a party where all compute at once."""
    return max(1, torch.get_num_threads() // max(1, parties))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def as_one_of(parties: int) -> AbstractContextManager[None]:
    """Computes as one of so many parties."""
    return with_threads(threads_each(parties))


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries().limit(limits=count):
            yield
    finally:
        torch.set_num_threads(before)
