"""Payloads as bytes: JSON values, arrays, and named arrays. The same bytes in every engine.

    J + JSON                                       a value of JSON
    A + length + JSON header + data                one array
    M + length + JSON header + data of each array  named arrays, in their order

Lengths are four bytes, little endian; data is C-contiguous and little endian. Object arrays do not
cross, and bytes from outside are checked before anything is made of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import ProtocolError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
AnyArray: TypeAlias = npt.NDArray[np.generic]
DTYPE = re.compile("[<|][biufU][0-9]{1,9}")  # numbers, booleans and texts, little endian
Payload: TypeAlias = "Json | AnyArray | Mapping[str, AnyArray]"


def encode(payload: Payload) -> bytes:
    try:
        if isinstance(payload, np.ndarray):
            return _framed(b"A", {"": payload})
        if isinstance(payload, Mapping) and payload and _all_arrays(payload):
            return _framed(b"M", payload)  # type: ignore[arg-type]
        return b"J" + _json(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(
            f"a message must be a value of JSON, an array, or arrays by name: {error}"
        ) from None


def decode(data: bytes | memoryview) -> Payload:
    """What the bytes say; arrays are read-only views on them."""
    view = memoryview(data)
    kind = bytes(view[:1])
    try:
        if kind == b"J":
            found: Json = json.loads(bytes(view[1:]), parse_constant=_no_number)
            return found
        if kind in (b"A", b"M"):
            arrays = _unframed(view[1:])
            return arrays[""] if kind == b"A" else arrays
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be read: {error}") from None
    raise ProtocolError(f"a message of unknown kind {kind!r}: expected J, A or M")


def _json(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _all_arrays(payload: Mapping[str, object]) -> bool:
    return all(isinstance(v, np.ndarray) for v in payload.values())


def _framed(kind: bytes, arrays: Mapping[str, AnyArray]) -> bytes:
    header: list[Json] = []
    parts: list[memoryview] = []  # copied once, when they are joined
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array).reshape(array.shape)
        if plain.dtype.kind not in "biufU":
            raise ProtocolError(
                f"an array of {plain.dtype} does not cross between parties: expected numbers, "
                "booleans or texts"
            )
        little = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
        header.append([name, little.dtype.str, list(array.shape)])
        parts.append(little.reshape(-1).view(np.uint8).data)
    head = _json(header)
    return b"".join([kind, len(head).to_bytes(4, "little"), head, *parts])


def _unframed(view: memoryview) -> dict[str, AnyArray]:
    size = int.from_bytes(view[:4], "little")
    at = 4 + size
    arrays: dict[str, AnyArray] = {}
    for name, code, shape in json.loads(bytes(view[4:at])):
        if not DTYPE.fullmatch(code) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"no array of numbers or texts: {code} {shape}")
        dtype, count = np.dtype(code), math.prod(shape)
        if name in arrays:
            raise ValueError(f"two arrays have the name {name!r}")
        arrays[str(name)] = _checked(np.frombuffer(view, dtype, count, at)).reshape(shape)
        at += count * dtype.itemsize
    if at != len(view):
        raise ValueError(f"expected {at} bytes, got {len(view)}")
    return arrays


def _checked(array: AnyArray) -> AnyArray:
    """Bytes that stand for no truth value or no letter would break whoever reads them later."""
    if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise ValueError("truth values other than 0 and 1")
    if array.dtype.kind == "U" and array.view("<u4").max(initial=0) > 0x10FFFF:
        raise ValueError("texts with letters that do not exist")
    return array


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no value of JSON")
