"""Memory of passes over a circuit, kept from one batch to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


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
                kept[name] = torch.empty(size, dtype=dtype)
            return kept[name][:size].view(shape)

        yield matrix
        self.free.append(kept)
