"""What all parties mean by the same names: kinds, categories and units of their variables.

Parties send schemas, never values. A name must mean one thing: categories are united in the order
in which parties bring them, those that differ in case, padding and Unicode form alone being one;
counts and reals together are read as reals, numbers of two values beside counts or reals as those,
words for yes and no beside truth values as those, days beside moments as moments. Anything else is
an error that names both parties and the column, and all such columns at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedcircuits.errors import FederationError
from fedcircuits.tables.inference import spelling_key, spellings
from fedcircuits.tables.numerals import unit_key
from fedcircuits.tables.schema import DATE, TIME, Kind, Scalar, Schema, Variable
from fedcircuits.tables.stored import StoredTable
from fedcircuits.tables.table import Table
from fedcircuits.tables.truths import truth_of

WIDTH: dict[Kind, int] = {"boolean": 0, "category": 1, "count": 2, "real": 3}


def agree(schemas: Mapping[str, Schema]) -> Schema:
    """The variables of all parties together, in the order they first appear."""
    agreed: dict[str, tuple[str, Variable]] = {}  # by name: the variable, and who says so
    problems: list[FederationError] = []
    for party, schema in schemas.items():
        for variable in schema:
            if variable.name not in agreed:
                agreed[variable.name] = (party, variable)
                continue
            first, known = agreed[variable.name]
            try:
                both = _united(first, known, party, variable)
            except FederationError as error:
                problems.append(error)
                continue
            same = (both.kind, both.unit) == (known.kind, known.unit)
            agreed[variable.name] = (first if same else party, both)
    if len(problems) > 1:
        raise FederationError("; ".join(map(str, problems)))
    if problems:
        raise problems[0]
    return Schema(tuple(variable for _, variable in agreed.values()))


def in_agreed(table: Table, agreed: Schema) -> Table:
    """A party's table in the kinds and codes that all have agreed on.

    FederationError unless they have room for all that the party's own schema allows: whether a
    table can be read must not depend on its values, which somebody who bends the schema could ask
    about one by one.
    """
    schema = agreed.select(table.names)
    if schema == table.schema:
        return table.loaded() if isinstance(table, StoredTable) else table
    for narrow, wide in zip(table.schema, schema, strict=True):
        if _united("all", wide, "one", narrow) != wide:
            raise FederationError(
                f"{wide.name!r} is agreed to be {wide.described()}, which cannot represent "
                f"{narrow.described()}: an agreed kind must cover the kind of every party"
            )
    return Table.of(table, schema=schema)


def _united(first: str, a: Variable, second: str, b: Variable) -> Variable:
    if a.dated != b.dated and "real" in (a.kind, b.kind):
        raise _differ(first, a, second, b)
    if a.dated and b.dated:
        return Variable(a.name, "real", unit=TIME if TIME in (a.unit, b.unit) else DATE)
    if a.unit and b.unit and unit_key(a.unit) != unit_key(b.unit):
        raise FederationError(
            f"{a.name!r} is in {a.unit!r} at {first} and in {b.unit!r} at {second}: "
            "convert one of them, or rename it"
        )
    unit = a.unit or b.unit
    narrow, wide = sorted((a, b), key=lambda v: WIDTH[v.kind])
    if wide.kind in ("count", "real"):
        if not narrow.categories or all(_is_number(c) for c in narrow.categories):
            counts = all(_is_count(c) for c in narrow.categories)
            most = _most(narrow, wide) if counts and wide.kind == "count" else None
            return Variable(a.name, wide.kind if counts else "real", unit=unit, most=most)
        raise _differ(first, a, second, b)
    logical = any(isinstance(c, bool) for c in (*a.categories, *b.categories))
    if logical and _truths(a) and _truths(b):
        return Variable(a.name, "boolean", (False, True), unit)
    if len({_type(c) for c in (*a.categories, *b.categories)}) > 1:
        raise _differ(first, a, second, b)
    known = spellings(a.categories)
    spelled = spellings(b.categories)
    new = (c for c in b.categories if c not in a.categories)
    union = (*a.categories, *(c for c in new if not _same_word(c, known, spelled)))
    if len(union) == 2 and "boolean" in (a.kind, b.kind):
        return Variable(a.name, "boolean", union, unit)
    return Variable(a.name, "category", union, unit)


def _truths(variable: Variable) -> bool:
    """Whether all its categories mean yes or no."""
    return variable.categories in ((False, True), (0, 1)) or (
        variable.size <= 2 and all(truth_of(str(c)) is not None for c in variable.categories)
    )


def _same_word(category: Scalar, known: dict[str, Scalar], spelled: dict[str, Scalar]) -> bool:
    """Whether the other party has the category in another spelling."""
    key = spelling_key(category) if isinstance(category, str) else ""
    return key in known and key in spelled


def _most(narrow: Variable, wide: Variable) -> int | None:
    """The largest count that both can have, if both say so."""
    largest = int(max(map(float, narrow.categories))) if narrow.categories else narrow.most
    return None if largest is None or wide.most is None else max(largest, wide.most)


def _type(category: Scalar) -> type:
    return float if _is_number(category) else type(category)


def _is_number(category: Scalar) -> bool:
    return isinstance(category, int | float) and not isinstance(category, bool)


def _is_count(category: Scalar) -> bool:
    return float(category) >= 0 and float(category).is_integer()


def _differ(first: str, a: Variable, second: str, b: Variable) -> FederationError:
    return FederationError(
        f"{a.name!r} is {a.described()} at {first} and {b.described()} at {second}: a name must "
        "have one meaning; set its kind by Table.of(…, kinds={…}) or --kind, or rename one of them"
    )
