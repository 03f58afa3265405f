"""The four kinds of node. A node is a vector of ``units``; it never carries learned values.

Leaf     units distributions of one family over the same variables. A one-dimensional family over
         several variables is factorised: the unit is the product of its distributions.
Product  elementwise: unit k joins unit k of every child. outer: two children, unit (i, j) joins
         unit i of the first with unit j of the second, j running fastest.
Sum      unit k mixes all units of all children, laid end to end, by row k of its weight matrix.
Fuse     combines what its children say by a named operation that is no density: an average of
         predictors, a network on representations. Only Leaf and Fuse may stand below it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leaf:
    """``Leaf("heights", "gaussian", ("height",), units=3)``: three distributions of the height."""

    name: str
    family: str
    scope: tuple[str, ...]
    units: int = 1

    @property
    def children(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Product:
    """``Product("both", ("heights", "weights"))``: children over other variables, independent."""

    name: str
    children: tuple[str, ...]
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Sum:
    """``Sum("root", ("both",))``: a mixture of its children's units."""

    name: str
    children: tuple[str, ...]
    units: int = 1


@dataclass(frozen=True, slots=True)
class Fuse:
    """``Fuse("vote", ("left", "right"), "mean")``: predictions combined, no density."""

    name: str
    children: tuple[str, ...]
    operation: str
    units: int = 1


Node = Leaf | Product | Sum | Fuse
