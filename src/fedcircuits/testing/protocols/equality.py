"""Whether two values are equal to the last bit, and where they first differ.

Arrays are compared by type, shape and bytes, numbers likewise (so that NaN equals NaN and −0 is
not 0), everything else by its parts: elements, fields, or the state that a copy would have, so
that anything that can be sent to another process can be compared. Cached values
(``cached_property``, fields excluded from comparison) are ignored, and so is the state of random
generators.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np
import pandas as pd
import torch

SOURCES = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
ARRAYS = (np.ndarray, np.generic, float, complex)
FRAMES = (pd.DataFrame, pd.Series, pd.Index)


def difference(expected: object, result: object) -> str:
    """Where they first differ, such as ``.weights[2]: other bytes``; empty if they are equal."""
    return _difference(expected, result, "", {})


Seen = dict[tuple[int, int], tuple[object, object]]  # pairs by their ids, held so that these stay


def _difference(a: object, b: object, at: str, seen: Seen) -> str:
    if a is b or isinstance(a, SOURCES) or (id(a), id(b)) in seen:
        return ""
    if type(a) is not type(b):
        return f"{at}: {type(b).__name__} instead of {type(a).__name__}"
    seen[id(a), id(b)] = a, b  # parts may lead back to the whole
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        a, b = a.detach().numpy(), b.detach().numpy()
    if isinstance(a, ARRAYS):
        return _of_arrays(np.asarray(a), np.asarray(b), at)
    if isinstance(a, FRAMES):
        return "" if a.equals(b) else f"{at}: other values"
    parts, other = _parts(a), _parts(b)
    if parts is None or other is None:
        return "" if a == b else f"{at}: {_short(b)} instead of {_short(a)}"
    for mine, theirs in zip_longest(parts, other):
        if mine is None or theirs is None or mine[0] != theirs[0]:
            return f"{at}: other or more parts ({_name(mine)}, {_name(theirs)})"
        if inner := _difference(mine[1], theirs[1], at + mine[0], seen):
            return inner
    return ""


def _of_arrays(a: np.ndarray, b: np.ndarray, at: str) -> str:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{at}: {b.dtype} {b.shape} instead of {a.dtype} {a.shape}"
    if a.dtype.names is not None:  # bytes between fields mean nothing
        each = (_of_arrays(a[n], b[n], f"{at}[{n!r}]") for n in a.dtype.names)
        return next(filter(None, each), "")
    if a.dtype.hasobject:
        return _difference(a.tolist(), b.tolist(), at, {})
    return "" if a.tobytes() == b.tobytes() else f"{at}: other bytes"


Part = tuple[str, object]  # as it is written behind the whole


def _parts(value: object) -> Iterator[Part] | None:
    """The parts in a canonical order; None if there are none."""
    if isinstance(value, Mapping):
        return iter([(f"[{k!r}]", value[k]) for k in sorted(value, key=repr)])
    if isinstance(value, list | tuple):
        return iter([(f"[{i}]", v) for i, v in enumerate(value)])
    if isinstance(value, Set | str | bytes | int | type) or value is None:
        return None
    if is_dataclass(value) and type(value).__reduce__ is object.__reduce__:
        return iter([(f".{f.name}", getattr(value, f.name)) for f in fields(value) if f.compare])
    return _state(value)


def _state(value: object) -> Iterator[Part] | None:
    try:
        reduced = value.__reduce_ex__(4)
    except TypeError:  # functions, modules, handles
        return None
    if isinstance(reduced, str):
        return None
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    if isinstance(state, Mapping):
        attributes = [item for kind in type(value).__mro__ for item in vars(kind).items()]
        kept = {name for name, attribute in attributes if isinstance(attribute, cached_property)}
        state = {f".{name}": v for name, v in state.items() if name not in kept}
    parts: list[Part] = [("()", make), ("()", arguments)]
    parts += sorted(state.items()) if isinstance(state, dict) else [("", state)]
    return iter([*parts, ("[]", list(items or ())), ("[]", list(pairs or ()))])


def _name(part: Part | None) -> str:
    return "none" if part is None else part[0]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"
