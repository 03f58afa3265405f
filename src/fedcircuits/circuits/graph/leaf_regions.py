"""Leaves over a region of variables, by their families: where every structure ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedcircuits.arguments import Whole
from fedcircuits.circuits.graph.circuit import Leaf, Node, Product
from fedcircuits.circuits.graph.family import TabledFamily, family
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema, Variable

LeafFamily = str | Callable[[Variable], str]
BY_KIND = {
    "real": "gaussian",
    "count": "poisson",
    "category": "categorical",
    "boolean": "bernoulli",
}


def by_kind(variable: Variable) -> str:
    """The family that fits a variable's kind; a count of known range has a probability for each."""
    return "categorical" if variable.most is not None else BY_KIND[variable.kind]


def family_of(variable: Variable, leaf_family: LeafFamily) -> str:
    """The family of a variable's leaves; a name that does not suit its kind gives way to one that
    does, so that a table of mixed kinds can have it where it suits."""
    if callable(leaf_family):
        return leaf_family(variable)
    if leaf_family == by_kind.__name__:  # as it is sent to other parties
        return by_kind(variable)
    if not isinstance(leaf_family, str):
        raise StructureError(
            "leaf_family must be the name of a family, or a function from a variable to one, got "
            f"{type(leaf_family).__name__}"
        )
    rule = family(leaf_family)
    suits = variable.kind in rule.kinds and (variable.levels or not isinstance(rule, TabledFamily))
    return leaf_family if suits else by_kind(variable)


def region(
    nodes: list[Node],
    name: str,
    schema: Schema,
    scope: Sequence[str],
    units: int,
    leaf_family: LeafFamily,
) -> str:
    """Leaves over a scope of mixed kinds: one leaf a family, joined by a product if several."""
    kinds: dict[tuple[str, int], list[str]] = {}
    for v in scope:
        kinds.setdefault((family_of(schema[v], leaf_family), schema[v].levels), []).append(v)
    leaves = [
        Leaf(name if len(kinds) == 1 else f"{name}:{rule}{size or ''}", rule, tuple(members), units)
        for (rule, size), members in kinds.items()
    ]
    nodes.extend(leaves)
    if len(leaves) > 1:
        nodes.append(Product(name, tuple(leaf.name for leaf in leaves)))
    return name


def positive(**numbers: int) -> None:
    for name, value in numbers.items():
        Whole(1).check(name, value, StructureError)
