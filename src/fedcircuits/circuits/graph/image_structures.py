"""Structures of images: rectangles of pixels, and how they are put together.

poon_domingos   all rectangles between the multiples of a step, each cut in two in every way
quad_tree       an image is its four quarters, each is its four quarters, down to the pixel
quad_graph      the same quarters, put together in two ways: first to the upper and lower half, or
                first to the left and right half

Variables are pixels in reading order, the channels of a pixel next to each other: the leaves of a
pixel are distributions of all its channels. ``product`` is "cp", elementwise (unit k of all parts
of a rectangle go together, and a sum mixes the units; cirkit calls this order cp-t), or "tucker",
all pairs of units of two parts. Names and structures are those of cirkit, which cuts sides that are
not powers of two at other places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from fedcircuits.arguments import Choice
from fedcircuits.circuits.graph.circuit import Circuit, Node, Product, Sum
from fedcircuits.circuits.graph.leaf_regions import LeafFamily, by_kind, positive
from fedcircuits.circuits.graph.leaf_regions import region as leaf_region
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema

Box = tuple[int, int, int, int]  # top, bottom, left, right
ProductKind = Literal["cp", "tucker"]


def poon_domingos(
    schema: Schema,
    *,
    height: int,
    width: int,
    step: int | None = None,
    pieces: int | None = None,
    units: int,
    channels: int = 1,
    leaf_family: LeafFamily = by_kind,
) -> Circuit:
    """Variables are pixels in reading order, the channels of a pixel next to each other.

    Rectangles are cut at multiples of ``step`` pixels, or where both sides fall into ``pieces``
    equal parts, up to whole pixels.
    """
    positive(height=height, width=width, units=units, channels=channels)
    rows, columns = _marks(height, step, pieces), _marks(width, step, pieces)
    _check_pixels(schema, height, width, channels)
    nodes: list[Node] = []
    done: dict[Box, str] = {}
    whole = (0, height, 0, width)

    def region(box: Box) -> str:
        if box in done:
            return done[box]
        name = "root" if box == whole else "{}:{},{}:{}".format(*box)
        splits = [(region(a), region(b)) for a, b in _cuts(box, rows, columns)]
        if splits:
            parts = tuple(f"{name}/{i}" for i in range(len(splits)))
            nodes.extend(Product(p, s, outer=True) for p, s in zip(parts, splits, strict=True))
            nodes.append(Sum(name, parts, 1 if box == whole else units))
        else:
            pixels = _pixels(schema, box, width, channels)
            leaf_region(nodes, name, schema, pixels, 1 if box == whole else units, leaf_family)
        done[box] = name
        return name

    region(whole)
    return Circuit(tuple(nodes), schema)


def _marks(side: int, step: int | None, pieces: int | None) -> list[int]:
    """Where a side of an image can be cut."""
    if step is not None and pieces is None:
        positive(step=step)
        return list(range(step, side, step))
    if pieces is not None and step is None:
        positive(pieces=pieces)
        return sorted({i * side // pieces for i in range(1, pieces)} - {0})
    raise StructureError(f"give either step or pieces, got step={step} and pieces={pieces}")


def _cuts(box: Box, rows: Sequence[int], columns: Sequence[int]) -> Iterable[tuple[Box, Box]]:
    """The ways to cut a rectangle in two at these rows and columns."""
    top, bottom, left, right = box
    for y in (y for y in rows if top < y < bottom):
        yield (top, y, left, right), (y, bottom, left, right)
    for x in (x for x in columns if left < x < right):
        yield (top, bottom, left, x), (top, bottom, x, right)


# ---------------------------------------------------------------------- quarters


def quad_tree(
    schema: Schema,
    *,
    height: int,
    width: int,
    units: int,
    channels: int = 1,
    product: ProductKind = "cp",
    leaf_family: LeafFamily = by_kind,
) -> Circuit:
    """Quarters of quarters, down to the pixel; with "tucker" a quarter is half of a half."""

    def ways(box: Box) -> list[list[Box]]:
        rows, columns = _halves(box, 0), _halves(box, 2)
        if product == "tucker" or len(rows) == 1 or len(columns) == 1:
            return [columns if box[1] - box[0] < box[3] - box[2] else rows]
        return [[q for half in rows for q in _halves(half, 2)]]

    return _quarters(schema, (height, width, channels), units, product, leaf_family, ways)


def quad_graph(
    schema: Schema,
    *,
    height: int,
    width: int,
    units: int,
    channels: int = 1,
    product: ProductKind = "cp",
    leaf_family: LeafFamily = by_kind,
) -> Circuit:
    """Quarters put together by rows and by columns: two ways to divide a square, sharing parts."""
    squares = _squares((0, height, 0, width))

    across = {half: 2 - axis for box in squares for axis in (0, 2) for half in _halves(box, axis)}

    def ways(box: Box) -> list[list[Box]]:
        axes = (0, 2) if box in squares else (across[box],)
        return [way for way in (_halves(box, axis) for axis in axes) if len(way) > 1]

    return _quarters(schema, (height, width, channels), units, product, leaf_family, ways)


def _halves(box: Box, axis: int) -> list[Box]:
    """Both halves of a rectangle along its rows (0) or columns (2); itself if it has one."""
    low, high = box[axis], box[axis + 1]
    if high - low < 2:
        return [box]
    middle = (low + high) // 2
    return [(*box[:axis], *part, *box[axis + 2 :]) for part in ((low, middle), (middle, high))]  # type: ignore[misc]


def _squares(whole: Box) -> set[Box]:
    """The whole and all quarters of quarters."""
    squares, waiting = set(), [whole]
    while waiting:
        box = waiting.pop()
        if box not in squares:
            squares.add(box)
            waiting += [q for half in _halves(box, 0) for q in _halves(half, 2)]
    return squares


def _quarters(
    schema: Schema,
    shape: tuple[int, int, int],
    units: int,
    product: ProductKind,
    leaf_family: LeafFamily,
    ways: Callable[[Box], list[list[Box]]],
) -> Circuit:
    """Every rectangle a sum over the ways to divide it; pixels are leaves."""
    height, width, channels = shape
    positive(height=height, width=width, units=units, channels=channels)
    Choice("cp", "tucker").check("product", product, StructureError)
    _check_pixels(schema, height, width, channels)
    nodes: list[Node] = []
    done: set[Box] = set()
    whole = (0, height, 0, width)

    def name_of(box: Box) -> str:
        return "root" if box == whole else "{}:{},{}:{}".format(*box)

    def add(box: Box) -> str:
        name = name_of(box)
        if box in done:
            return name
        done.add(box)
        divided = ways(box)
        size = 1 if box == whole else units
        if not divided or len(divided[0]) == 1:
            pixels = _pixels(schema, box, width, channels)
            return leaf_region(nodes, name, schema, pixels, size, leaf_family)
        parts = []
        for i, way in enumerate(divided):
            parts.append(f"{name}/{i}")
            nodes.append(Product(parts[-1], tuple(add(b) for b in way), outer=product == "tucker"))
        nodes.append(Sum(name, tuple(parts), size))
        return name

    add(whole)
    return Circuit(tuple(nodes), schema)


def _check_pixels(schema: Schema, height: int, width: int, channels: int) -> None:
    if len(schema) != height * width * channels:
        raise StructureError(
            f"a {height} × {width} image of {channels} channels has {height * width * channels} "
            f"variables, the schema has {len(schema)}"
        )


def _pixels(schema: Schema, box: Box, width: int, channels: int) -> list[str]:
    top, bottom, left, right = box
    at = ((y * width + x) * channels for y in range(top, bottom) for x in range(left, right))
    return [schema.names[i + c] for i in at for c in range(channels)]
