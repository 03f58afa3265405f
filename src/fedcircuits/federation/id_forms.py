"""Row ids that would meet if parties wrote them alike.

"0017" and 17, "AB-3" and "ab-3 ": ids are compared as texts, and such rows do not meet. Whoever
holds the tables of all parties can count how many would, and is told so; between sites nobody can,
and nothing more is revealed to find out. ``loosened`` is the form that all these spellings share.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from fedcircuits.errors import TableError
from fedcircuits.tables.declared import DeclaredReading
from fedcircuits.tables.table import Table

FORMS: Mapping[str, Callable[[str], str]] = {
    "spaces": lambda text: "".join(text.split()),
    "case": str.casefold,
    "Unicode forms": lambda text: unicodedata.normalize("NFKC", text),
    "zeros": lambda text: text.lstrip("0") or "0",
    "decimals": lambda text: text.removesuffix(".0"),
    "signs": lambda text: "".join(c for c in text if c.isalnum()),
}


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
        raise TableError("ids='loose': two rows would have one id; write their ids out")
    return replace(table, row_ids=np.array(loose))


def nearly_met(ids: Mapping[str, list[str]]) -> list[str]:
    """Of every two parties whose ids would meet more often in other spellings, a word about it.

    >>> nearly_met({"bank": ["001", "002"], "telco": ["1", "2", "3"]})
    ['bank and telco: 0 of 2 ids meet; 2 more would after stripping zeros']
    """
    return [
        words
        for (first, own_ids), (second, others) in combinations(ids.items(), 2)
        if (words := _compared(first, own_ids, second, others))
    ]


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
        f"{first} and {second}: {meet:,} of {few:,} ids meet; {best - meet:,} more would after "
        f"stripping {' and '.join(needed)}"
    )


def _meeting(own_ids: list[str], others: list[str], forms: Iterable[str]) -> int:
    """How many rows meet, where every one still has an id of its own."""
    chosen = tuple(forms)
    mine, theirs = ([loosened(text, chosen) for text in ids] for ids in (own_ids, others))
    if len(set(mine)) < len(mine) or len(set(theirs)) < len(theirs):
        return 0
    return len(set(mine) & set(theirs))
