"""Things that parties may have written differently although they mean the same.

Whoever holds the tables of all parties is warned before training about row ids, column names and
categories that differ only in spelling, about parties of whose row ids none is at another, about
categories of which two parties have none in common, and about a unit that one party writes and
another leaves out. Between sites nobody can compare this, and nothing is revealed to find out.

Row ids are compared as texts, so "0017" and 17, or "AB-3" and "ab-3 ", do not match. ``loosened``
is the form that all these spellings share.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from fedcircuits.errors import TableError
from fedcircuits.federation.described import DescribedTable
from fedcircuits.tables.declared import DeclaredReading
from fedcircuits.tables.inference import spelling_key
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

FEW = range(2, 13)  # categories: of fewer and more, others may well be at another party
FORMS: Mapping[str, Callable[[str], str]] = {
    "spaces": lambda text: "".join(text.split()),
    "case": str.casefold,
    "Unicode forms": lambda text: unicodedata.normalize("NFKC", text),
    "zeros": lambda text: text.lstrip("0") or "0",
    "decimals": lambda text: text.removesuffix(".0"),
    "signs": lambda text: "".join(c for c in text if c.isalnum()),
}


def doubts(tables: Mapping[str, Table], matched: bool) -> Iterator[str]:
    """Warnings as texts; ``matched``: whether rows of different parties are joined by their ids."""
    held = {n: t.row_ids for n, t in tables.items() if not isinstance(t, DescribedTable)}
    ids = {n: [*map(str, own.tolist())] for n, own in held.items() if own is not None}
    for words in nearly_met(ids) if matched else ():
        yield f"{words}: write them alike, or declare ids = 'loose' (--ids loose)"
    for parties in apart(ids, {n: t.names for n, t in tables.items()}) if matched else ():
        yield (
            f"no row id of {' and '.join(parties)} is at any other party: columns there are "
            "learned as if independent of those of others"
        )
    for first, a, second, b in same_names({n: t.names for n, t in tables.items()}):
        yield (
            f"{first} has a column {a!r} and {second} {b!r}, which are treated as different "
            "columns: rename one of them if they mean the same"
        )
    columns: dict[str, dict[str, Variable]] = {}
    for party, table in tables.items():
        for variable in table.schema:
            columns.setdefault(variable.name, {})[party] = variable
    for column in columns.values():
        yield from _different_words(column)
        yield from _absent_unit(column)


def _different_words(column: Mapping[str, Variable]) -> Iterator[str]:
    """Once per column: two parties whose categories have no word in common."""
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
                f"{name!r} is {one} at {first} and {other} at {second}, with no category in "
                "common: use the same spelling if they mean the same"
            )
            return


def _absent_unit(column: Mapping[str, Variable]) -> Iterator[str]:
    """Once per column: numbers whose unit one party writes and another does not."""
    numbers = {p: v for p, v in column.items() if v.kind in ("real", "count") and not v.dated}
    known = next(((p, v) for p, v in numbers.items() if v.unit), None)
    plain = next((p for p, v in numbers.items() if not v.unit), None)
    if known is None or plain is None:
        return
    party, variable = known
    if variable.unit == "%" or str(variable.unit).casefold() not in variable.name.casefold():
        yield (
            f"{variable.name!r} is in {variable.unit!r} at {party} and has no unit at {plain}: "
            "both are assumed to be in this unit; convert one of them if they differ"
        )


# ---------------------------------------------------------------------- spellings of ids and names


def loosened(text: str, forms: Iterable[str] = tuple(FORMS)) -> str:
    """The id without what these forms leave out.

    >>> loosened(" 0017 "), loosened("AB-3"), loosened("17.0")
    ('17', 'ab3', '17')
    """
    for form in FORMS:
        if form in forms:
            text = FORMS[form](text)
    return text


def with_ids(table: Table, reading: DeclaredReading) -> Table:
    """The table with its ids in the form that all spellings share, if that is declared."""
    if reading.ids == "plain" or table.row_ids is None:
        return table
    loose = [loosened(str(i)) for i in table.row_ids.tolist()]
    if len(set(loose)) < len(loose):
        raise TableError("ids='loose': two rows would have the same id; make their ids distinct")
    return replace(table, row_ids=np.array(loose))


def nearly_met(ids: Mapping[str, list[str]]) -> list[str]:
    """A warning for every two parties of whose ids more would match in other spellings.

    >>> nearly_met({"bank": ["001", "002"], "telco": ["1", "2", "3"]})
    ['bank and telco: 0 of 2 ids match; 2 more would after stripping zeros']
    """
    return [
        words
        for (first, own_ids), (second, others) in combinations(ids.items(), 2)
        if (words := _compared(first, own_ids, second, others))
    ]


def apart(ids: Mapping[str, list[str]], columns: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Parties that have neither rows nor columns in common with the largest group of those that
    have some; none if nobody has.

    >>> held = {"bank": ["1", "2"], "shop": ["2", "3"], "telco": ["T1", "T2"]}
    >>> apart(held, {"bank": ["age"], "shop": ["spent"], "telco": ["calls"]})
    [['telco']]
    """
    groups: list[tuple[list[str], set[object]]] = []
    for party, own in ids.items():
        parties = [party]
        held: set[object] = {*own, *(("column", name) for name in columns[party])}
        for group in [g for g in groups if not g[1].isdisjoint(held)]:
            groups.remove(group)
            parties, held = group[0] + parties, held | group[1]
        groups.append((parties, held))
    found = [parties for parties, _ in groups]
    largest = max(found, key=len, default=[])
    return [g for g in found if g is not largest] if len(largest) > 1 else []


def same_names(held: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str, str]]:
    """Party, column, party, column: where two have names that differ in their spelling alone.

    >>> same_names({"north": ["Age", "sex"], "south": ["age ", "sex"]})
    [('north', 'Age', 'south', 'age ')]
    """
    known: dict[str, tuple[str, str]] = {}
    pairs: dict[str, tuple[str, str, str, str]] = {}
    for party, names in held.items():
        for name in names:
            key = loosened(name.replace("_", " "), ("spaces", "case", "Unicode forms"))
            first, other = known.setdefault(key, (party, name))
            if name != other and first != party and other not in names and name not in held[first]:
                pairs.setdefault(key, (first, other, party, name))
    return list(pairs.values())


def _compared(first: str, own_ids: list[str], second: str, others: list[str]) -> str:
    few = min(len(own_ids), len(others))
    meet = len(set(own_ids) & set(others))
    best = _meeting(own_ids, others, FORMS)
    if best <= meet or meet == few:
        return ""
    needed = list(FORMS)
    for form in reversed(needed):  # as few as will do
        fewer = [other for other in needed if other != form]
        if _meeting(own_ids, others, fewer) == best:
            needed = fewer
    return (
        f"{first} and {second}: {meet:,} of {few:,} ids match; {best - meet:,} more would after "
        f"stripping {' and '.join(needed)}"
    )


def _meeting(own_ids: list[str], others: list[str], forms: Iterable[str]) -> int:
    """How many rows match, provided that all ids of a party remain different."""
    chosen = tuple(forms)
    mine, theirs = ([loosened(text, chosen) for text in ids] for ids in (own_ids, others))
    if len(set(mine)) < len(mine) or len(set(theirs)) < len(theirs):
        return 0
    return len(set(mine) & set(theirs))
