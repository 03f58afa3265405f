"""What whoever holds the tables of all parties should look at before they are learned from: things
that parties may have written differently and meant alike.

Row ids, names of columns and categories that differ in their spelling, categories of which two
parties have none in common, and a unit that one of them writes and another does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from fedcircuits.federation.described import DescribedTable
from fedcircuits.federation.id_forms import nearly_met, same_names
from fedcircuits.tables.inference import spelling_key
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

FEW = range(2, 13)  # categories: of fewer and more, others may well be at another party


def doubts(tables: Mapping[str, Table], matched: bool) -> Iterator[str]:
    """In words; ``matched``: whether rows of different parties are joined by their ids."""
    held = {n: t.row_ids for n, t in tables.items() if not isinstance(t, DescribedTable)}
    ids = {n: [*map(str, own.tolist())] for n, own in held.items() if own is not None}
    for words in nearly_met(ids) if matched else ():
        yield f"{words}: write them alike, or declare ids = 'loose' (--ids loose)"
    for first, a, second, b in same_names({n: t.names for n, t in tables.items()}):
        yield (
            f"{first} has a column {a!r} and {second} {b!r}, which are taken for different "
            "ones: rename one of them if they are the same"
        )
    columns: dict[str, dict[str, Variable]] = {}
    for party, table in tables.items():
        for variable in table.schema:
            columns.setdefault(variable.name, {})[party] = variable
    for column in columns.values():
        yield from _different_words(column)
        yield from _absent_unit(column)


def _different_words(column: Mapping[str, Variable]) -> Iterator[str]:
    """Once per column: of two parties whose categories have no word in common."""
    few = {p: v for p, v in column.items() if v.kind == "category" and v.size in FEW}
    sets = {p: {spelling_key(str(c)) for c in v.categories} for p, v in few.items()}
    for (first, a), (second, b) in combinations(sets.items(), 2):
        if not a & b:
            one, other = (
                ", ".join(map(repr, few[p].categories[:4])) + " …" * (few[p].size > 4)
                for p in (first, second)
            )
            name = few[first].name
            yield (
                f"{name!r} is {one} at {first} and {other} at {second}, none in common: write "
                "them alike if they mean the same"
            )
            return


def _absent_unit(column: Mapping[str, Variable]) -> Iterator[str]:
    """Once per column: of numbers whose unit one party writes, and another does not."""
    numbers = {p: v for p, v in column.items() if v.kind in ("real", "count") and not v.dated}
    known = next(((p, v) for p, v in numbers.items() if v.unit), None)
    plain = next((p for p, v in numbers.items() if not v.unit), None)
    if known is None or plain is None:
        return
    party, variable = known
    if variable.unit == "%" or str(variable.unit).casefold() not in variable.name.casefold():
        yield (
            f"{variable.name!r} is in {variable.unit!r} at {party} and has no unit at {plain}: "
            "both are taken to be in it; convert one of them if they differ"
        )
