"""Which columns are in which view of cells (cells.py), by the coordinator.

A view has few columns of every party, so that about ``ROWS_ALIKE`` rows of the party have the same
cells, of at least ``FEW_CELLS`` each. Parties of one or two columns need no more than one view.

Where a party has more columns, it sends them in blocks, and the coordinator must not find out which
rows of two views are the same: it would see the blocks together, by which rows stand alone. A token
does not tell, but cells may: a row whose cells in all columns that two views share are unique is
the same row. So views are the lines of a finite plane:

    parties   the columns x of the plane
    blocks    its points (x, y), where a party has so many
    views     the lines y = a + x·b: any two blocks of different parties are together in one view,
              and any two views share one block, of one party, or none

The cells of a block are those of ``least_count`` rows of its party or more, in all views alike, so
they link none. The classes of a target are in every view, since little is learned without them.
Cells are coarser by their number, so that about ``ROWS_ALIKE`` rows of a class have the same ones:
most rows cannot be linked, some can.

A column that several parties hold is in a block of one of them, and the others send it in the same
views.

All rows are in every view, or, if there are many, one in so many, drawn by a hash of ids and of the
seed, which are no secret: so a seed gives the same model again. Rows are alike among those in the
views, so it does not matter who knows which rows these are. They are the same rows in all views,
since the difference of two sets would tell more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.fedpc.cells import MOST_CELLS, MOST_VIEWS, CellTask, number_of_cells
from fedcircuits.methods.meeting.hello import Hello
from fedcircuits.tables.schema import Schema

ROWS_ALIKE = 8  # by their cells in a view
FEW_CELLS = 5  # of numbers, rather than cells of more columns in a view
MOST_ROWS = 50_000  # of all views
FIELDS = 2, 3, 4, 5, 7, 8, 11, 13  # sizes of finite fields
POLYNOMIALS = {4: 0b111, 8: 0b1011}  # by which products are reduced in them


@dataclass(frozen=True, slots=True)
class _ViewShape:
    """How many columns of a party are in a view, in how many blocks all of them are, and how many
    cells numbers have. The classes of a target are in every view."""

    columns: int
    blocks: int
    most: int
    fits: bool  # whether numbers have two cells or more

    @classmethod
    def of(cls, number: int, rows: int, classes: int, together: bool) -> _ViewShape:
        """``number``: columns but for the target; ``together``: all of them in one view."""
        bits = max(float(np.log2(max(rows, 1) / max(classes, 1) / ROWS_ALIKE)), 1.0)
        columns = min(max(int(bits / np.log2(FEW_CELLS)), 1), max(number, 1))
        columns = max(number, 1) if together else columns
        most = int(np.clip(2 ** (bits / columns), 2, MOST_CELLS))
        return cls(columns, -(-number // columns), most, columns <= bits)


def views_of(schema: Schema, hellos: Mapping[str, Hello], target: str | None) -> int:
    """One if parties have few columns, or else the square of the size of a finite field. If there
    are too many parties, one of coarser cells; ``MOST_VIEWS`` is exceeded if that has too many
    columns as well."""
    if max(own.blocks for own in _shapes(schema, hellos, target, 1, False).values()) < 2:
        return 1
    blocks = max(own.blocks for own in _shapes(schema, hellos, target, 2, False).values())
    sizes = [size for size in FIELDS if blocks <= size and len(hellos) <= size + 1]
    coarse = all(own.fits for own in _shapes(schema, hellos, target, 1, True).values())
    return sizes[0] ** 2 if sizes else 1 if coarse else MOST_VIEWS + 1


def thinned(views: int, where: Labels) -> int:
    """One row of so many is in the views: rows take memory."""
    return max(1, views * len(where) // MOST_ROWS) if views > 1 else 1


def _shapes(
    schema: Schema, hellos: Mapping[str, Hello], target: str | None, views: int, together: bool
) -> dict[str, _ViewShape]:
    """By party. Where there are several views, classes beside the columns of a party are in two of
    them: they count for everybody."""
    target, homes = _classes_of(schema, target), _homes(schema, hellos, target)
    shapes = {}
    for party, hello in hellos.items():
        known = target is not None and (views > 1 or target in hello.schema.names)
        names = hello.schema.names if views == 1 else homes[party]
        number = len([name for name in names if name != target])
        classes = schema[target].size if known and target is not None else 1
        shapes[party] = _ViewShape.of(number, hello.rows, classes, together)
    return shapes


def _classes_of(schema: Schema, target: str | None) -> str | None:
    """The target if it has classes: a number is a column like others."""
    return target if target is not None and schema[target].size else None


def _homes(
    schema: Schema, hellos: Mapping[str, Hello], target: str | None
) -> dict[str, tuple[str, ...]]:
    """Every column but the target at one of its holders, as equally many each as can be."""
    homes: dict[str, tuple[str, ...]] = dict.fromkeys(hellos, ())
    for name in schema.names:
        if name != target:
            holders = [p for p, hello in hellos.items() if name in hello.schema.names]
            home = min(holders, key=lambda p: len(homes[p]))
            homes[home] += (name,)
    return homes


def cell_tasks(
    schema: Schema, hellos: Mapping[str, Hello], target: str | None, views: int
) -> dict[str, tuple[CellTask, ...]]:
    """What every party cuts into cells, and in which of so many views it sends which; 0: all cells
    of all columns in one."""
    rows = {p: hello.rows for p, hello in hellos.items()}
    shapes = _shapes(schema, hellos, target, views, views < 2)
    target = _classes_of(schema, target)
    seen: dict[str, tuple[int, ...]] = dict.fromkeys(schema.names, tuple(range(max(views, 1))))
    if views > 1:
        homes = _homes(schema, hellos, target)
        seen |= _designed([_blocks(homes[p], shapes[p].columns) for p in hellos], math.isqrt(views))
    tasks: dict[str, list[CellTask]] = {p: [] for p in hellos}
    for name in schema.names:
        holders = [p for p, hello in hellos.items() if name in hello.schema.names]
        most = number_of_cells(min(rows[p] for p in holders))
        most = min(most, *(shapes[p].most for p in holders)) if views else most
        model = max(holders, key=lambda p: rows[p])
        for party in holders:
            tasks[party].append(CellTask(name, most, party == model, seen[name]))
    return {p: tuple(listed) for p, listed in tasks.items()}


def _blocks(names: Sequence[str], together: int) -> list[tuple[str, ...]]:
    """Columns that are always in the same views."""
    return [tuple(names[i : i + together]) for i in range(0, len(names), together)]


def _designed(blocks: Sequence[Sequence[Sequence[str]]], size: int) -> dict[str, tuple[int, ...]]:
    """By column its views, numbers of lines y = a + x·b over a finite field: party x sends block y
    of its ``blocks``, if it has so many. Two lines meet in one point or in none."""
    seen: dict[str, list[int]] = {name: [] for own in blocks for block in own for name in block}
    for x, own in enumerate(blocks):
        for a, b in itertools.product(range(size), repeat=2):
            y = b if x == size else _sum_in_field(a, _product_in_field(x, b, size), size)
            for name in own[y] if y < len(own) else ():
                seen[name].append(a * size + b)
    return {name: tuple(views) for name, views in seen.items()}


def _sum_in_field(a: int, b: int, size: int) -> int:
    return a ^ b if size in POLYNOMIALS else (a + b) % size


def _product_in_field(a: int, b: int, size: int) -> int:
    """Of polynomials over two elements, where the size is no prime number."""
    if size not in POLYNOMIALS:
        return a * b % size
    product = 0
    for bit in range(b.bit_length()):
        product ^= a if b >> bit & 1 else 0
        a <<= 1
        a ^= POLYNOMIALS[size] if a & size else 0
    return product
