"""Row numbers of the value matrix. Consecutive rows are read as a view, others are gathered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CACHE = 1 << 18  # numbers in a temporary: about a megabyte, so that it stays in the cache


class ValueRows:
    __slots__ = ("first", "index")

    def __init__(self, index: Tensor, first: int | None) -> None:
        self.index = index
        self.first = first  # of consecutive rows, else None

    @classmethod
    def of(cls, numbers: Sequence[int]) -> ValueRows:
        index = torch.tensor(numbers, dtype=torch.long)
        step = index[1:] - index[:-1]
        consecutive = len(index) > 0 and bool((step == 1).all())
        return cls(index, int(index[0]) if consecutive else None)

    def part(self, start: int, stop: int) -> ValueRows:
        first = None if self.first is None else self.first + start
        return ValueRows(self.index[start:stop], first)

    def read(self, values: Tensor, *shape: int) -> Tensor:
        """(shape…, batch) of the value matrix (rows, batch)."""
        if self.first is None:
            found = values.index_select(0, self.index)
        else:
            found = values.narrow(0, self.first, len(self.index))
        return found.view(*shape, values.shape[1])

    def add(self, gradient: Tensor, change: Tensor) -> None:
        """gradient[rows] += change, where a row may occur several times."""
        change = change.reshape(-1, gradient.shape[1])
        if self.first is None:
            gradient.index_add_(0, self.index, change)
        else:
            gradient.narrow(0, self.first, len(self.index)).add_(change)


def chunks(folds: int, size: int) -> Iterator[tuple[int, int]]:
    """Spans of folds whose temporaries, ``size`` numbers a fold, stay in the cache."""
    step = max(1, CACHE // max(1, size))
    return ((a, min(folds, a + step)) for a in range(0, folds, step))
