"""What crosses between a party's process and the caller that started it: frames and objects.

Only messages cross between parties. This is for the connection between a party's process and the
caller that started it. A program and kept work go out, pickled: a party trusts its caller. Buffers
of arrays are copied once into a block of shared memory, which the party maps.

Results and kept work come back, and a caller need not trust a party. They are recipes
(federation/recipes.py), which contain no code and create only classes of this library. Only if the
caller itself passed objects of another package, such as a scikit-learn estimator, may results
contain objects of that package; they are pickled then. The reader creates classes of this library
and of such packages, and arrays; it calls and imports nothing else. Further packages must be named:
``run(programs, trusted=("scipy",))``.

A frame has a head and a body:

    to the party     start  sizes, block, members, threads, time-out   body: its program, kept work
                     mail   sender, tag                                body: the message
                     gone   party, reason                              no message of it will follow
    from the party   ready                                             its program is unpacked
                     mail   receiver, tag, reveals                     body: the message
                     at     step                                       what it does now
                     tell   phase, round, rounds, likelihood           how far a loop is
                     kept   name, form                                 body: the result of a step
                     result form                                       body: what its flow returned
                     failed party, text, text for others, places in the code

Heads are JSON, so that the process in between routes messages without decoding them. Memory is
allocated for what has arrived, not for what the other end announces.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import secrets
import struct
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from socket import socket
from threading import Lock
from types import FunctionType
from typing import Any, ClassVar, cast

import torch

from fedcircuits.errors import ProtocolError
from fedcircuits.federation import recipes

Field = str | int | float | list[str] | list[int]
SIZES = struct.Struct("<IQ")  # of head and body
SMALL = 1 << 16  # bytes up to which copying is cheaper than another call
HEAD, BODY = 1 << 24, 1 << 40  # bytes at most
STEP = 1 << 26  # bytes for which there is room before they have come


class Line:
    """One end of a connection that several threads write to and one reads."""

    def __init__(self, connection: socket) -> None:
        self._connection, self._lock = connection, Lock()

    def send(self, kind: str, *fields: Field, body: bytes | memoryview = b"") -> None:
        head = json.dumps([kind, *fields]).encode()
        start = SIZES.pack(len(head), len(body)) + head
        with self._lock:
            if len(body) <= SMALL:
                self._connection.sendall(start + body)
            else:
                self._connection.sendall(start)
                self._connection.sendall(body)

    def receive(self) -> tuple[str, list[Field], memoryview]:
        """The next frame; EOFError or OSError if the other end is gone, ProtocolError for anything
        that is not a frame."""
        head, body = SIZES.unpack(self._exactly(SIZES.size))
        if head > HEAD or body > BODY:
            raise ProtocolError(
                f"a frame of {head:,} + {body:,} bytes, at most {HEAD:,} + {BODY:,}"
            )
        kind, fields = _read(self._exactly(head))
        return kind, fields, self._exactly(body)

    def _exactly(self, size: int) -> memoryview:
        room, at = bytearray(), 0
        while at < size:
            room += bytes(min(size, at + STEP) - at)
            with memoryview(room) as view:
                while at < len(room):
                    got = self._connection.recv_into(view[at:])
                    if not got:
                        raise EOFError("the other process is gone")
                    at += got
        return memoryview(room).toreadonly()

    def close(self) -> None:
        self._connection.close()


def _read(head: memoryview) -> tuple[str, list[Field]]:
    try:
        kind, *fields = json.loads(bytes(head))
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("a frame whose head is no list in JSON") from None
    if not isinstance(kind, str):
        raise ProtocolError("a frame whose head begins with no word")
    return kind, cast(list[Field], fields)


ALIGNED = 64  # buffers start where vector instructions like them
MAPPED: list[SharedMemory] = []  # of this process: closing one would pull it away under its arrays
RECIPE, PICKLED = "recipe", "pickled"
KNOWN = {"fedcircuits", "numpy", "torch", *sys.stdlib_module_names}
MAKERS = {  # of values that are no instances of trusted classes
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"OrderedDict", "defaultdict", "deque"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},  # before numpy 2
    "numpy.core.numeric": {"_frombuffer"},
    "numpy.random.bit_generator": {"SeedSequence", "__pyx_unpickle_SeedSequence"},
    "numpy.random._mt19937": {"MT19937"},
    "numpy.random._pcg64": {"PCG64"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
    "torch": {"float32", "float64", "from_numpy", "int64"},
}


def _plain_tensor(tensor: torch.Tensor) -> tuple[object, tuple[object]]:
    return torch.from_numpy, (tensor.detach().numpy(),)


class _Pickler(ForkingPickler):
    """torch would send file handles that die with their sender; a tensor goes as its array.
    Notes whose classes and functions it has packed."""

    _extra_reducers: ClassVar[dict[type, Any]] = {torch.Tensor: _plain_tensor}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.packages: set[str] = set()

    def reducer_override(self, value: object) -> Any:
        kind = value if isinstance(value, type | FunctionType) else type(value)
        self.packages.add(kind.__module__.partition(".")[0])
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes | memoryview, trusted: Collection[str]) -> None:
        super().__init__(io.BytesIO(data))
        self.trusted = trusted

    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if name in MAKERS.get(module, ()):
            return super().find_class(module, name)
        if package == "fedcircuits":
            return recipes.class_of(f"{module}:{name}")
        if package in self.trusted:
            kind = super().find_class(module, name)
            defined_there = getattr(kind, "__module__", None) == module
            if defined_there and (isinstance(kind, type) or name.startswith("__pyx_unpickle_")):
                return kind
        raise ProtocolError(
            f"it holds {module}.{name}, and nothing passed to this run comes from there: if you "
            f"trust the package, engine=partial(process.run, trusted=({package!r},))"
        )


def pack(value: object) -> tuple[str, bytes]:
    """How it is packed, and everything in one string of bytes."""
    try:
        return RECIPE, recipes.pack(value)
    except ProtocolError:
        return PICKLED, bytes(_Pickler.dumps(value, 5))


def unpack(form: str, data: bytes | memoryview, trusted: Collection[str]) -> Any:
    """What a party has packed; ``trusted``: packages whose classes may be made."""
    if form == RECIPE:
        return recipes.unpack(data)
    try:
        return _Unpickler(data, trusted).load()
    except ProtocolError:
        raise
    except Exception as error:  # bytes may do anything but what is not allowed
        raise ProtocolError(f"it cannot be opened ({type(error).__name__})") from None


@dataclass(slots=True)
class Parcel:
    """Bytes, and a block of shared memory if there are arrays."""

    data: bytes
    sizes: tuple[int, ...]
    block: SharedMemory | None
    packages: frozenset[str]  # foreign ones, of which it holds something

    @classmethod
    def of(cls, value: object) -> Parcel:
        file = io.BytesIO()
        buffers: list[memoryview] = []
        pickler = _Pickler(file, 5, True, lambda outside: buffers.append(outside.raw()))
        pickler.dump(value)
        foreign = frozenset(pickler.packages - KNOWN)
        sizes = tuple(b.nbytes for b in buffers)
        if not sum(sizes):
            return cls(file.getvalue(), sizes, None, foreign)
        name = f"fedcircuits-{os.getpid()}-{secrets.token_hex(4)}"  # says whose it is
        block = SharedMemory(name, create=True, size=sum(map(_room, sizes)))
        for place, buffer in zip(_places(block, sizes), buffers, strict=True):
            place[:] = buffer
            place.release()
        return cls(file.getvalue(), sizes, block, foreign)

    @property
    def block_name(self) -> str:
        return self.block.name if self.block else ""

    def free(self) -> None:
        """Remove the name; processes that have mapped the block keep it."""
        if self.block is not None:
            self.block.close()
            with suppress(FileNotFoundError):
                self.block.unlink()
        self.block = None


def opened(data: bytes | memoryview, sizes: Sequence[int], block_name: str) -> Any:
    """What a parcel from the caller holds; its block stays mapped until the process ends."""
    if not block_name:
        return pickle.loads(data, buffers=[memoryview(bytearray())] * len(sizes))
    block = SharedMemory(block_name)
    MAPPED.append(block)
    return pickle.loads(data, buffers=_places(block, sizes))


def _room(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _places(block: SharedMemory, sizes: Sequence[int]) -> list[memoryview]:
    assert block.buf is not None, "a block that is open"
    ends = accumulate(map(_room, sizes), initial=0)
    return [block.buf[start : start + size] for start, size in zip(ends, sizes, strict=False)]
