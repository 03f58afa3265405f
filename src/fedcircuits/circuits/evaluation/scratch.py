"""Memory of passes over a circuit: large matrices, and those kept from one batch to the next.

numpy asks the operating system for large pages, torch does not: the first use of a new matrix of
25 MB takes 1 ms instead of 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.devices import CPU

NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A new matrix of the type of another, on its device, that may hold anything."""
    if like.device != CPU or like.dtype not in NUMPY:
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape, NUMPY[like.dtype]))


def zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """The same, of zeros."""
    if like.device != CPU or like.dtype not in NUMPY:
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, NUMPY[like.dtype]))


class Scratch:
    """Matrices that do not outlive a pass. They are kept, one of each for every pass that runs at
    the same time: fresh memory of this size would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self.free: list[dict[str, Tensor]] = []

    @contextmanager
    def room(self) -> Iterator[Callable[[str, tuple[int, int], torch.dtype], Tensor]]:
        kept = self.free.pop() if self.free else {}

        def matrix(name: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
            size = shape[0] * shape[1]
            if name not in kept or kept[name].numel() < size:
                kept[name] = empty((size,), torch.empty(0, dtype=dtype))
            return kept[name][:size].view(shape)

        yield matrix
        self.free.append(kept)
