"""Rows that all parties hold, by their ids, in one order for all.

Ids are compared as texts, so that 17 and "17" are the same row. The common order is that of the
ids, short ones before long ones (so numbers are in their order); it says nothing about the order in
which a party keeps its rows. methods/meeting/alignment.py has how parties find them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedcircuits.errors import FederationError
from fedcircuits.federation.described import chosen_rows
from fedcircuits.federation.federation import Federation, Party, row_ids
from fedcircuits.federation.tokens import Labels


def id_texts(party: Party) -> list[str]:
    """The row ids of a party as texts, all of them different."""
    ids = [str(i) for i in row_ids(party).tolist()]
    if len(set(ids)) < len(ids):
        raise FederationError(f"{party.name} has two rows with one id: ids must tell rows apart")
    return ids


def common(sets: Iterable[Iterable[str]]) -> list[str]:
    """The ids that are in all sets, in the common order."""
    shared = set.intersection(*map(set, sets))
    return sorted(shared, key=lambda text: (len(text), text))


def positions(ids: Sequence[str], wanted: Sequence[str]) -> Labels:
    """Where the wanted ids are among a party's."""
    at = {text: i for i, text in enumerate(ids)}
    return np.array([at[text] for text in wanted], dtype=np.int64)


def restricted(federation: Federation, rows: Mapping[str, object], count: int) -> Federation:
    """The federation with so many rows of every party: these, or those that the party keeps."""
    if not count:
        sizes = ", ".join(f"{p.name} {len(p.table):,}" for p in federation)
        raise FederationError(
            f"no row id is held by all parties (rows: {sizes}): do they write ids in the same way?"
        )
    return federation.with_tables(
        {p.name: chosen_rows(p.table, rows[p.name], count) for p in federation}
    )
