"""Python objects for another process of the same machine: arrays cross through shared memory.

Between parties only messages cross. This is the other way, between a party's process and
the one that started it: its program goes there, results and kept work come back. Buffers of arrays
are copied once into a block of shared memory, and the process that opens the parcel sees them
there. Nothing read here comes from outside: both ends are processes that one run has started.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from typing import Any, ClassVar

import torch

ALIGNED = 64  # buffers start where vector instructions like them
MAPPED: list[SharedMemory] = []  # of this process: closing one would pull it away under its arrays


def _plain_tensor(tensor: torch.Tensor) -> tuple[object, tuple[object]]:
    return torch.from_numpy, (tensor.detach().numpy(),)


class _Pickler(ForkingPickler):
    """torch would send file handles that die with their sender; a tensor goes as its array."""

    _extra_reducers: ClassVar[dict[type, Any]] = {torch.Tensor: _plain_tensor}


def pack(value: object) -> bytes:
    """Everything in one string of bytes."""
    return bytes(_Pickler.dumps(value, 5))


def unpack(data: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> Any:
    return _Pickler.loads(data, buffers=buffers)


@dataclass(slots=True)
class Parcel:
    """Bytes, and a block of shared memory if there are arrays."""

    data: bytes
    sizes: tuple[int, ...]
    block: SharedMemory | None

    @classmethod
    def of(cls, value: object) -> Parcel:
        file = io.BytesIO()
        buffers: list[memoryview] = []
        _Pickler(file, 5, True, lambda found: buffers.append(found.raw())).dump(value)
        sizes = tuple(b.nbytes for b in buffers)
        if not sum(sizes):
            return cls(file.getvalue(), sizes, None)
        name = f"fedcircuits-{os.getpid()}-{secrets.token_hex(4)}"  # says whose it is
        block = SharedMemory(name, create=True, size=sum(map(_room, sizes)))
        for place, buffer in zip(_places(block, sizes), buffers, strict=True):
            place[:] = buffer
            place.release()
        return cls(file.getvalue(), sizes, block)

    @property
    def block_name(self) -> str:
        return self.block.name if self.block else ""

    def free(self) -> None:
        """Takes the name away; whoever has mapped the block keeps it."""
        if self.block is not None:
            self.block.close()
            with suppress(FileNotFoundError):
                self.block.unlink()
        self.block = None


def opened(data: bytes | memoryview, sizes: Sequence[int], block_name: str) -> Any:
    """What a parcel holds; its block stays mapped until the process ends."""
    if not block_name:
        return unpack(data, [memoryview(bytearray())] * len(sizes))
    block = SharedMemory(block_name)
    MAPPED.append(block)
    return unpack(data, _places(block, sizes))


def _room(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _places(block: SharedMemory, sizes: Sequence[int]) -> list[memoryview]:
    assert block.buf is not None, "a block that is open"
    ends = accumulate(map(_room, sizes), initial=0)
    return [block.buf[start : start + size] for start, size in zip(ends, sizes, strict=False)]
