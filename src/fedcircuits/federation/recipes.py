"""Recipes: programs and results as bytes, without code, for parties that others own.

A recipe names a role of a method and gives its arguments: plain values, arrays, and instances of
this library's classes by their fields. Nothing else is packed, and opening a recipe creates nothing
else: only classes of this library and functions of its methods are accepted, and only the classes
are called. What only a site has is left open and filled in there:

    Here("party")          its party, with the table or with rows selected in earlier runs
    Here("collect")        whether its owner allows what it has learned to leave it
    Held(model, party)     what it has learned and stored under the model's name, or a part of it
    Own("secret")          bytes that it draws itself, the same when the run is resumed
    Once(held, 0, 8)       stored rows that no other run ever gets, such as masks

Arrays keep their memory order, because sums depend on it to the last bit.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec
import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.deferred import torch
from fedcircuits.errors import ProtocolError, SiteError
from fedcircuits.federation.messages import decode_plain, encode_plain
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table
from fedcircuits.version import __version__

T = TypeVar("T")
KEY = 32  # bytes
LIBRARY = "fedcircuits."
CLOSED = ("app", "datasets", "engines", "testing")  # rooms of which a recipe names nothing
ROLES = ("methods", "privacy", "federation", "learning")  # rooms whose functions it may name
DEEPEST = 200  # parts within parts


@dataclass(frozen=True, slots=True)
class Here:
    """What a site has from the beginning: its ``party``, or whether it allows others to
    ``collect``. ``rows``: names of the runs that selected rows of its table, applied one after the
    other."""

    what: str
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What a party has learned and keeps, by the name of the model, or a field of it."""

    model: str
    party: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class Own:
    """Bytes that a site draws itself."""

    what: str


@runtime_checkable
class UsedOnce(Protocol):
    """Something of which every row is given to one run."""

    def __len__(self) -> int:
        """How many rows are left."""
        ...

    def hand_out(self, start: int, stop: int) -> object:
        """These rows, which are used up then; ProtocolError if some were used before."""
        ...


def with_span(spans: Sequence[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """The spans of used rows, in order, with this one added; adjacent spans are merged."""
    places: list[tuple[int, int]] = []
    for begin, end in sorted([*spans, (start, stop)]):
        if places and places[-1][1] == begin:
            begin = places.pop()[0]
        places.append((begin, end))
    return places


@dataclass(frozen=True, slots=True)
class Once:
    """Rows ``start`` to ``stop`` of something that is used once, or of where it is kept."""

    what: UsedOnce | Held = field(repr=False)
    start: int
    stop: int


def fresh_key() -> bytes:
    """A key drawn by the operating system, for one party and one run."""
    return os.urandom(KEY)


def own_key(what: str) -> bytes:
    """An open place for bytes, typed as what replaces it before the flow starts."""
    return Own(what)  # type: ignore[return-value]


def part_of(result: object, name: str) -> Any:
    """A field of what a party has learned: itself, or the place where the party keeps it."""
    if isinstance(result, Held):
        return dataclasses.replace(result, part=name)
    return getattr(result, name)


Open: TypeAlias = Here | Held | Own | Once
Fill: TypeAlias = Callable[[Open], object]
CLOSED_KINDS: frozenset[type] = frozenset(  # kinds of values in which no place is open
    (str, bytes, int, float, bool, type(None), np.ndarray, Schema, Circuit, Parameters)
)


def filled(value: T, fill: Fill) -> T:
    """The same with every open place filled in, in containers and fields of dataclasses too."""
    if type(value) in CLOSED_KINDS or isinstance(value, Table):  # tables may lie in a file
        return value
    if isinstance(value, Open):
        return fill(value)  # type: ignore[return-value]
    if isinstance(value, Mapping):
        return type(value)({k: filled(v, fill) for k, v in value.items()})  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        return type(value)(filled(v, fill) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for each in dataclasses.fields(value):
            before = getattr(value, each.name)
            if each.init and not _same(after := filled(before, fill), before):
                changed[each.name] = after
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _same(after: object, before: object) -> bool:
    """Whether nothing in it was filled in; containers are rebuilt in any case."""
    if isinstance(after, Mapping) and isinstance(before, Mapping):
        return all(_same(after[name], value) for name, value in before.items())
    if isinstance(after, list | tuple) and isinstance(before, list | tuple):
        return all(map(_same, after, before))
    return after is before


# ---------------------------------------------------------------------- packing


def pack(value: object) -> bytes:
    """Bytes that ``unpack`` turns into the same value; ProtocolError for foreign objects."""
    return encode_plain(_tree(value, "it", 0))


def _tree(value: Any, path: str, depth: int) -> object:
    if depth > DEEPEST:
        raise ProtocolError(f"{path} is nested without end and cannot be sent")
    more = depth + 1
    match value:
        case None | bool() | float() | str() | bytes() if not isinstance(value, np.generic):
            return value
        case int() if not isinstance(value, np.generic):
            return value if -(2**63) <= value < 2**64 else {"whole": str(value)}
        case np.generic():
            return {"number": np.asarray(value)}
        case np.ndarray():
            turned = value.flags.f_contiguous and not value.flags.c_contiguous
            return {"turned": value.T} if turned else value
        case torch.Tensor():
            return {"tensor": value.detach().numpy()}
        case list():
            return [_tree(v, f"{path}[{i}]", more) for i, v in enumerate(value)]
        case tuple() | set() | frozenset() if type(value) in SEQUENCES.values():
            return {type(value).__name__: [_tree(v, path, more) for v in value]}
        case dict():
            return {"dict": [[_tree(k, path, more), _tree(v, f"{path}[{k!r}]", more)]
                             for k, v in value.items()]}  # fmt: skip
        case partial():
            parts = (value.func, list(value.args), dict(value.keywords))
            return {"partial": [_tree(part, path, more) for part in parts]}
        case FunctionType() | type():
            return {"name": _name(value, path)}
    return _instance(value, path, more)


SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _way(kind: type) -> Literal["new", "made", "state"]:
    """How instances are packed, and the only way in which they are rebuilt."""
    if "__reduce__" in vars(kind):  # the class says how it is rebuilt
        return "new"
    by_fields = dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    return "made" if by_fields else "state"


def _instance(value: Any, path: str, depth: int) -> object:
    kind, way = _name(type(value), path), _way(type(value))
    if way == "new":
        made, arguments = value.__reduce__()[:2]
        if made is not type(value):
            raise ProtocolError(f"{path} is {kind}, which cannot be sent")
        return {"new": kind, "arguments": _tree(list(arguments), path, depth)}
    if way == "state":
        state = value.__getstate__()
        return {"state": kind, "fields": _tree(state or {}, path, depth)}
    if isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    else:
        names = [f.name for f in dataclasses.fields(value) if f.init]
    fields = {name: _tree(getattr(value, name), f"{path}.{name}", depth) for name in names}
    return {"made": kind, "fields": fields}


def _name(value: Any, path: str) -> str:
    name = f"{value.__module__}:{value.__qualname__}"
    if "<" in name or not name.startswith(LIBRARY):
        raise ProtocolError(
            f"{path} is {value.__qualname__} of {value.__module__}: only objects of fedcircuits "
            "are sent between owners"
        )
    return name


# ---------------------------------------------------------------------- opening


def unpack(data: bytes | memoryview, fill: Fill | None = None, rooms: tuple[str, ...] = ()) -> Any:
    """The value; ``fill`` supplies open places. ProtocolError for bytes that are not a recipe.

    ``rooms``: of the library, whose classes and functions may be named beside the usual ones.
    """
    try:
        return _Opening(fill, rooms).value(decode_plain(data))
    except (ProtocolError, SiteError):  # raised by the site for an open place
        raise
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        ImportError,
    ) as error:
        raise ProtocolError(f"bytes that are not a recipe ({type(error).__name__})") from None


@dataclass(slots=True)
class _Opening:
    fill: Fill | None
    rooms: tuple[str, ...]

    def value(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.value(v) for v in tree]
        if isinstance(tree, np.ndarray):
            return tree.copy()  # decoded arrays are read-only views of the bytes
        if not isinstance(tree, dict):
            return tree
        match tree:
            case {"number": np.ndarray() as array}:
                return array[()]
            case {"turned": np.ndarray() as array}:
                return array.copy().T
            case {"tensor": np.ndarray() as array}:
                return torch.from_numpy(array.copy())
            case {"whole": str(text)}:
                return int(text)
            case {"dict": list(pairs)}:
                return {self.value(k): self.value(v) for k, v in pairs}
            case {"partial": [function, list(arguments), words]}:
                return partial(self.value(function), *self.value(arguments), **self.value(words))
            case {"name": str(name)}:
                return _named(name, self.rooms)
            case {"new": str(name), "arguments": list(arguments)}:
                return class_of(name, self.rooms, "new")(*self.value(arguments))
            case {"made": str(name), "fields": dict(fields)}:
                return self._made(class_of(name, self.rooms, "made"), fields)
            case {"state": str(name), "fields": fields}:
                return _with_state(class_of(name, self.rooms, "state"), self.value(fields))
        kind, *more = tree
        if more or kind not in SEQUENCES:
            raise ProtocolError("a recipe contains a part of unknown kind")
        return SEQUENCES[kind](self.value(tree[kind]))

    def _made(self, kind: Any, fields: Mapping[str, Any]) -> Any:
        """An open place is filled in as a whole; nothing inside it is filled in before."""
        if self.fill is None or not issubclass(kind, Open):
            return kind(**{k: self.value(v) for k, v in fields.items()})
        named = _Opening(None, self.rooms)
        return self.fill(kind(**{k: named.value(v) for k, v in fields.items()}))


def _with_state(kind: Any, state: Mapping[str, object]) -> object:
    made = kind.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(dict(state))
    else:
        made.__dict__.update(state)
    return made


def class_of(name: str, rooms: tuple[str, ...] = (), way: str = "") -> Any:
    """A class of this library by module and name, or ProtocolError; ``way``: in which it is to be
    made, so that no class is called whose instances would not have been sent like that."""
    kind = _named(name, rooms)
    if not isinstance(kind, type):
        raise ProtocolError(f"a recipe builds {name!r}, which is not a class")
    if way and way != _way(kind):
        raise ProtocolError(f"a recipe builds {name!r} in a way that is never sent")
    return kind


def _named(name: str, rooms: tuple[str, ...]) -> Any:
    """A class of this library, or a function of its methods."""
    module, _, path = name.partition(":")
    room = module.removeprefix(LIBRARY).partition(".")[0]
    if not module.startswith(LIBRARY) or (room in CLOSED and room not in rooms):
        raise ProtocolError(f"a recipe names {name!r}, which is not accepted here")
    try:
        part: Any = import_module(module)
        for step in path.split("."):
            part = getattr(part, step)
    except (ImportError, AttributeError, ValueError):
        raise ProtocolError(
            f"a recipe names {name!r}, which is not in fedcircuits {__version__}: a different "
            "version has written it"
        ) from None
    sound = getattr(part, "__module__", None) == module and part.__qualname__ == path
    if not sound or not (isinstance(part, type) or room in (*ROLES, *rooms)):
        raise ProtocolError(f"a recipe names {name!r}, which is not accepted here")
    return part
