"""Messages: what crosses between parties is a frozen record with named, typed fields.

A message is declared once, beside its method. Its class says under which tag it travels, what its
reader learns from it, and what its fields are:

    class ClusterSizes(Message, frozen=True):
        tag: ClassVar[str] = "count/sizes"
        reveals: ClassVar[str] = "the number of rows in every cluster"

        sizes: dict[int, list[Count]]
        collect: bool = False

    yield from send(COORDINATOR, ClusterSizes(sizes, party.allow_collect))
    sizes = yield from receive("north", ClusterSizes)

On the wire a record is MessagePack; an array inside it is an extension: dtype, shape, data. A
record is checked when it arrives, before anything is computed from it: a missing, unknown or wrong
field raises ``MessageError``, which blames the sender and names the message and the field. What a
field must mean beyond its type is checked in ``__post_init__`` (a ValueError), or, where it depends
on the plan, by the receiver with ``require`` and ``blaming``.

A ``Ledger`` lists what crossed: every message with its size, and what its reader learned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.errors import FedcircuitsError, MessageError, ProtocolError
from fedcircuits.tables.notebook import listed, shown

AnyArray: TypeAlias = npt.NDArray[np.generic]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
DTYPE = re.compile("[<|](b1|[iu][1248]|f[248]|U[0-9]{1,9})")  # little endian
LONGEST_EMPTY = 1 << 24  # rows that an array without elements may claim to have
ARRAY = 1  # the code of the extension
UNREADABLE = (  # before msgspec 0.21 huge integers are a SystemError
    msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError, SystemError,
)  # fmt: skip


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of message between parties."""

    tag: ClassVar[str] = ""
    reveals: ClassVar[str] = ""
    needs: ClassVar[str] = ""  # what an owner must allow before it leaves a site, if anything

    def __repr__(self) -> str:
        """Without the values of its fields, which only its reader may see."""
        return f"<{type(self).__name__}({', '.join(self.__struct_fields__)})>"


M = TypeVar("M", bound=Message)


# ---------------------------------------------------------------------- arrays as fields


class _ArrayType(type):
    """The metaclass of array types, which define what a field may hold."""

    what: str
    kinds: str
    dimensions: int | None
    finite: bool

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, np.ndarray)

    def problem(cls, value: object) -> str:
        """What is wrong with a received value, or ""."""
        dimensions = "" if cls.dimensions is None else f" with {cls.dimensions} dimensions"
        wanted = f"expected an array of {cls.what}{dimensions}"
        if not isinstance(value, np.ndarray):
            return f"{wanted}, got {type(value).__name__}"
        if cls.kinds == "u1" and value.dtype != np.uint8:
            return f"{wanted}, got {value.dtype}"
        if value.dtype.kind not in cls.kinds or cls.dimensions not in (None, value.ndim):
            return f"{wanted}, got {value.dtype} with {value.ndim}"
        if cls.finite and not np.isfinite(value).all():
            return f"{wanted}, got values that are not finite"
        return ""


def _array_type(
    name: str, what: str, kinds: str, dimensions: int | None = None, finite: bool = False
) -> type:
    facts = {"what": what, "kinds": kinds, "dimensions": dimensions, "finite": finite}
    return _ArrayType(name, (), facts)


if TYPE_CHECKING:
    Reals: TypeAlias = npt.NDArray[np.float64]
    RealVector: TypeAlias = npt.NDArray[np.float64]
    RealMatrix: TypeAlias = npt.NDArray[np.float64]
    Finite: TypeAlias = npt.NDArray[np.float64]
    FiniteVector: TypeAlias = npt.NDArray[np.float64]
    FiniteMatrix: TypeAlias = npt.NDArray[np.float64]
    Integers: TypeAlias = npt.NDArray[np.int64]
    IntegerVector: TypeAlias = npt.NDArray[np.int64]
    IntegerMatrix: TypeAlias = npt.NDArray[np.int64]
    AnyNumbers: TypeAlias = npt.NDArray[np.float64]
    Booleans: TypeAlias = npt.NDArray[np.bool_]
    Octets: TypeAlias = npt.NDArray[np.uint8]
    Texts: TypeAlias = npt.NDArray[np.str_]
else:  # Reals may hold NaN and infinity, Finite may not; floats have 32 or 64 bits
    Reals = _array_type("Reals", "real numbers", "f")
    RealVector = _array_type("RealVector", "real numbers", "f", 1)
    RealMatrix = _array_type("RealMatrix", "real numbers", "f", 2)
    Finite = _array_type("Finite", "finite numbers", "f", finite=True)
    FiniteVector = _array_type("FiniteVector", "finite numbers", "f", 1, finite=True)
    FiniteMatrix = _array_type("FiniteMatrix", "finite numbers", "f", 2, finite=True)
    Integers = _array_type("Integers", "whole numbers", "iu")
    IntegerVector = _array_type("IntegerVector", "whole numbers", "iu", 1)
    IntegerMatrix = _array_type("IntegerMatrix", "whole numbers", "iu", 2)
    AnyNumbers = _array_type("AnyNumbers", "numbers", "biuf")
    Booleans = _array_type("Booleans", "booleans", "b")
    Octets = _array_type("Octets", "bytes", "u1")
    Texts = _array_type("Texts", "texts", "U")


# ---------------------------------------------------------------------- to bytes and back


def encode_message(message: Message) -> bytes:
    try:
        return msgspec.msgpack.encode(message, enc_hook=_extended)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"{type(message).__name__} cannot be sent: {error}") from None


def decode_message(kind: type[M], data: bytes | memoryview, sender: str, tag: str) -> M:
    """The record, or a MessageError that blames its sender. Arrays are read-only views."""
    try:
        return msgspec.msgpack.decode(data, type=kind, ext_hook=_array, dec_hook=_checked)
    except UNREADABLE as error:
        text = str(error)
        field = re.search(r"`\$\.?([^`]*)`", text)
        what = re.sub(r" - at `.*", "", text)
        where = field[1] if field else _named(what)
        raise MessageError(sender, tag, where, what) from None


def encode_plain(value: object) -> bytes:
    """Nested lists and dicts of plain values and arrays."""
    try:
        return msgspec.msgpack.encode(value, enc_hook=_extended)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"it cannot be sent: {error}") from None


def decode_plain(data: bytes | memoryview) -> object:
    try:
        return msgspec.msgpack.decode(data, ext_hook=_array)
    except UNREADABLE as error:
        raise ProtocolError(f"bytes that cannot be read: {error}") from None


def fields_of(data: bytes | memoryview) -> dict[str, object]:
    """The fields of a record as they travelled, unchecked: for audits and tests."""
    fields: dict[str, object] = msgspec.msgpack.decode(data, ext_hook=_array)
    return fields


def encode_fields(fields: Mapping[str, object]) -> bytes:
    """A record of unchecked fields, for tests of readers."""
    return msgspec.msgpack.encode(dict(fields), enc_hook=_extended)


def _named(text: str) -> str:
    match = re.search("field `([^`]*)`", text)
    return match[1] if match else ""


def _extended(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} cannot be sent between parties")
    if value.dtype.kind not in "biufU":
        raise TypeError(f"an array of {value.dtype} cannot be sent between parties")
    little = value.astype(value.dtype.newbyteorder("<"), order="C", copy=False)
    head = msgspec.msgpack.encode((little.dtype.str, value.shape))
    data = little.reshape(-1).view(np.uint8).data if value.size else b""
    return msgspec.msgpack.Ext(ARRAY, b"".join([len(head).to_bytes(2, "little"), head, data]))


def _array(code: int, data: memoryview) -> AnyArray:
    if code != ARRAY:
        raise ValueError(f"unknown extension {code}")
    start = 2 + int.from_bytes(data[:2], "little")
    name, shape = msgspec.msgpack.decode(data[2:start], type=tuple[str, tuple[Count, ...]])
    if not DTYPE.fullmatch(name):
        raise ValueError(f"an array of {name} cannot be sent between parties")
    dtype, count = np.dtype(name), math.prod(shape)
    if count * dtype.itemsize != len(data) - start:
        raise ValueError(f"an array of shape {shape} does not fill its {len(data) - start} bytes")
    if not count:
        if math.prod(n for n in shape if n) > LONGEST_EMPTY:
            raise ValueError(f"an array of shape {shape} has no elements")
        return np.empty(shape, dtype.kind + ("1" if dtype.kind == "U" else str(dtype.itemsize)))
    array = np.frombuffer(data, dtype, count, start)
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise ValueError("booleans must be 0 or 1")
    if dtype.kind == "U" and _is_no_text(array.view("<u4")):
        raise ValueError("texts contain invalid characters")
    return array.reshape(shape)


def _is_no_text(points: npt.NDArray[np.uint32]) -> bool:
    """Beyond Unicode, or half of a pair of UTF-16, which no file and no message can hold."""
    return bool(((points > 0x10FFFF) | (points - np.uint32(0xD800) < 0x800)).any())


def _checked(kind: type, value: object) -> object:
    if isinstance(kind, _ArrayType) and (problem := kind.problem(value)):
        raise ValueError(problem)
    return value


# ---------------------------------------------------------------------- what fields must mean


def require(
    holds: bool, sender: str, message: type[Message] | str, field: str, problem: str
) -> None:
    """MessageError that blames the sender unless the field is what the plan says."""
    if not holds:
        tag = message if isinstance(message, str) else message.tag
        raise MessageError(sender, tag, field, problem)


def require_shape(
    array: AnyArray,
    shape: tuple[int | None, ...],
    sender: str,
    message: type[Message] | str,
    field: str,
) -> None:
    """MessageError unless the array has this shape; None means any length."""
    fits = array.ndim == len(shape) and all(
        n in (None, m) for n, m in zip(shape, array.shape, strict=True)
    )
    wanted = " × ".join("any" if n is None else str(n) for n in shape)
    arrived = " × ".join(map(str, array.shape))
    problem = f"expected shape {wanted or 'of a single number'}, got {arrived or 'a single number'}"
    require(fits, sender, message, field, problem)


def require_places(
    places: npt.NDArray[np.integer], end: int, sender: str, message: type[Message] | str, field: str
) -> npt.NDArray[np.int64]:
    """The places as int64; MessageError unless they are below ``end`` and rise."""
    at = np.asarray(places, np.int64)
    rising = bool((at[1:] > at[:-1]).all() and (at >= 0).all() and (at < end).all())
    problem = f"expected different places below {end} in rising order"
    require(rising, sender, message, field, problem)
    return at


@contextmanager
def blaming(sender: str, message: type[Message] | str, field: str = "") -> Iterator[None]:
    """Whatever goes wrong inside is wrong with a message: its sender is blamed."""
    try:
        yield
    except MessageError:
        raise
    except FedcircuitsError as error:
        problem = str(error)
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        problem = f"it is unusable ({type(error).__name__})"
    else:
        return
    raise MessageError(sender, message if isinstance(message, str) else message.tag, field, problem)


# ---------------------------------------------------------------------- what crossed


@dataclass(frozen=True, slots=True)
class Entry:
    sender: str
    receiver: str
    tag: str
    bytes: int
    reveals: str = ""

    @property
    def phase(self) -> str:
        return self.tag.split("/", 1)[0]


@dataclass(frozen=True, slots=True)
class PrivacySpent:
    """The guarantee of the noise: (ε, δ) for neighbouring tables."""

    epsilon: float
    delta: float
    neighbours: str  # in which they differ


@dataclass(slots=True, repr=False)
class Ledger:
    """Messages and bytes by phase, and what was revealed to whom: ``model.ledger_.summary()``.

    >>> ledger = Ledger([Entry("north", "coordinator", "count/sizes", 12, "rows of clusters")])
    >>> ledger.bytes, ledger.revealed("coordinator")["what"].tolist()
    (12, ['rows of clusters'])
    """

    entries: list[Entry] = field(default_factory=list)
    privacy: PrivacySpent | None = None  # of all that crossed, if noise was added to it

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entries: Iterable[Entry]) -> None:
        self.entries.extend(entries)

    @property
    def bytes(self) -> int:
        return sum(e.bytes for e in self.entries)

    def summary(self) -> pd.DataFrame:
        """Messages and bytes of every phase, sender and receiver."""
        rows = [(e.phase, e.sender, e.receiver, 1, e.bytes) for e in self.entries]
        frame = pd.DataFrame(rows, columns=["phase", "sender", "receiver", "messages", "bytes"])
        return frame.groupby(["phase", "sender", "receiver"], sort=False).sum()

    def revealed(self, to: str | None = None) -> pd.DataFrame:
        """What every party learned, from whom and in which phase; of one party with ``to``."""
        rows: dict[tuple[str, str, str, str], None] = {}
        for e in self.entries:
            if e.reveals and to in (None, e.receiver):
                rows[e.receiver, e.sender, e.phase, e.reveals] = None
        return pd.DataFrame(list(rows), columns=["to", "from", "phase", "what"])

    def _repr_html_(self) -> str:
        """What crossed in each phase, and what was revealed to whom."""
        phases: dict[str, list[int]] = {}
        for e in self.entries:
            sums = phases.setdefault(e.phase, [0, 0])
            sums[0] += 1
            sums[1] += e.bytes
        crossed = shown(repr(self)[1:-1], ["phase", "messages", "bytes"],
                        [(phase, *sums) for phase, sums in phases.items()])  # fmt: skip
        lines: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
        for to, sender, phase, what in self.revealed().itertuples(index=False, name=None):
            readers, writers = lines.setdefault((phase, what), ({}, {}))
            readers[to], writers[sender] = None, None
        rows = [(phase, listed(list(r)), listed(list(w)), what)
                for (phase, what), (r, w) in lines.items()]  # fmt: skip
        return crossed + (shown("Revealed", ["phase", "to", "from", "what"], rows) if rows else "")

    def __repr__(self) -> str:
        spent = f", ε = {self.privacy.epsilon:.3g}" if self.privacy else ""
        return f"<Ledger of {len(self):,} messages, {self.bytes:,} bytes{spent}>"
