"""Numbers of many bits as 64-bit limbs, and the one instruction that numpy lacks.

A number is a row of uint64, least significant first. ``multiply_add`` gives both halves of
a·b + c + d, which never exceeds 128 bits; loops over it are compiled by numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

Elements = npt.NDArray[np.uint64]  # (..., limbs)
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
NONE, ONE = np.uint64(0), np.uint64(1)


def _multiply_add(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    word = types.uint64
    signature = types.UniTuple(word, 2)(word, word, word, word)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, call: Any, words: Any) -> Any:
        wide, narrow = ir.IntType(128), ir.IntType(64)
        w, x, y, z = (builder.zext(value, wide) for value in words)
        total = builder.add(builder.add(builder.mul(w, x), y), z)
        high = builder.lshr(total, ir.Constant(wide, 64))
        both = [builder.trunc(total, narrow), builder.trunc(high, narrow)]
        return context.make_tuple(builder, call.return_type, both)

    return signature, generate


# a·b + c + d of four words, as (low word, high word)
multiply_add: Callable[..., tuple[np.uint64, np.uint64]] = intrinsic(_multiply_add)


def plain(elements: Elements) -> Elements:
    """In the form kernels expect: strided or read-only arrays would trigger a recompilation."""
    if elements.flags.carray and elements.dtype == np.uint64:
        return elements
    return np.require(elements, np.uint64, ["C", "A", "W"])


def from_integers(values: npt.ArrayLike, limbs: int) -> Elements:
    """Whole numbers from 0 to 2^(64·limbs) − 1, of any shape, as (..., limbs)."""
    whole = np.asarray(values, dtype=object)
    data = b"".join(int(v).to_bytes(8 * limbs, "little") for v in whole.ravel())
    return np.frombuffer(data, np.uint64).reshape(*whole.shape, limbs).copy()


def to_integers(elements: Elements) -> npt.NDArray[np.object_]:
    """(..., limbs) as Python's whole numbers."""
    flat = np.ascontiguousarray(elements).reshape(-1, elements.shape[-1])
    integers = np.empty(len(flat), dtype=object)
    for i, row in enumerate(flat):
        integers[i] = int.from_bytes(row.tobytes(), "little")
    return integers.reshape(elements.shape[:-1])
