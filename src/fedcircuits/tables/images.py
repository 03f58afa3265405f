"""Images as rows of a table: arrays of bytes are grey or colour levels from 0 to 255.

Every pixel, even one that is black in all images, is a count with the largest value 255. Images
(rows, height, width) or (rows, height, width, channels) are flattened in reading order, with the
channels of a pixel next to each other. An array of bytes that are only 0 and 1 is a table of
booleans.

``ycocg`` converts red, green and blue to YCoCg-R, a lossless integer transform, so that bits per
dimension of both can be compared: with 256 levels of Y and 511 of Co and Cg, shifted to start at 0,
it is one to one from colours into these levels. A model over the levels gives some of its mass to
levels that no colour has, which can only increase its bits.

>>> colours = np.array([[[10, 200, 30], [0, 0, 0]]], dtype=np.uint8)
>>> bool((rgb(ycocg(colours)) == colours).all())
True
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from fedcircuits.errors import TableError
from fedcircuits.tables.schema import Schema, Variable

LEVELS = 256
Bytes = NDArray[np.uint8]
Whole = NDArray[np.int64]


def in_rows(data: Bytes) -> Bytes:
    """Images as (rows, columns); an array of other dimensions unchanged."""
    return data.reshape(len(data), prod(data.shape[1:])) if data.ndim in (3, 4) else data


def is_image(data: Bytes) -> bool:
    """Whether rows hold pixel levels, not just zeros and ones."""
    return data.ndim == 2 and bool(data.size) and int(data.max()) > 1


def pixel_schema(columns: int) -> Schema:
    """Grey levels x0, x1, …"""
    return Schema(tuple(Variable(f"x{i}", "count", most=LEVELS - 1) for i in range(columns)))


def ycocg(colours: Bytes) -> Whole:
    """Red, green and blue (…, 3) as Y, Co + 255 and Cg + 255, which are whole numbers from 0."""
    if colours.shape[-1:] != (3,) or colours.dtype != np.uint8:
        raise TableError(
            "ycocg: expected bytes of the shape (…, 3), red, green and blue, got "
            f"{colours.dtype} of the shape {colours.shape}"
        )
    red, green, blue = np.moveaxis(colours.astype(np.int64), -1, 0)
    orange = red - blue
    middle = blue + (orange >> 1)
    contrast = green - middle
    light = middle + (contrast >> 1)
    return np.stack([light, orange + LEVELS - 1, contrast + LEVELS - 1], axis=-1)


def rgb(levels: Whole) -> Whole:
    """The inverse of ``ycocg``; levels that no colour has give values outside bytes."""
    light, orange, contrast = np.moveaxis(np.asarray(levels, dtype=np.int64), -1, 0)
    orange, contrast = orange - (LEVELS - 1), contrast - (LEVELS - 1)
    middle = light - (contrast >> 1)
    green = contrast + middle
    blue = middle - (orange >> 1)
    return np.stack([blue + orange, green, blue], axis=-1)


def ycocg_schema(pixels: int) -> Schema:
    """The variables of flattened ``ycocg`` images: x0 with 256 levels, x1 and x2 with 511, …"""
    most = (LEVELS - 1, 2 * LEVELS - 2, 2 * LEVELS - 2)
    return Schema(tuple(Variable(f"x{i}", "count", most=most[i % 3]) for i in range(3 * pixels)))
