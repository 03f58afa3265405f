"""Rows that all parties hold, by their ids, in one order for all.

Ids are compared as texts, so that 17 and "17" are the same row. The common order is that of the
ids, short ones before long ones (so numbers are in their order); it says nothing about the order in
which a party keeps its rows. ``align`` sees all ids in the clear: it is for trying out, and for
parties with one owner. methods/meeting/intersection.py finds the same rows without showing others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import Federation, Party, row_ids
from fedcircuits.federation.tokens import Labels
from fedcircuits.tables.table import Table


def align(federation: Federation) -> dict[str, Labels]:
    """By party: where the rows are that all parties hold, in the common order."""
    held = {party.name: id_texts(party) for party in federation}
    shared = common(held.values())
    return {name: positions(ids, shared) for name, ids in held.items()}


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


def restricted(federation: Federation, rows: Mapping[str, Labels]) -> Federation:
    """The federation with these rows of every party."""
    empty = [name for name, where in rows.items() if not len(where)]
    if empty:
        sizes = ", ".join(f"{p.name} {len(p.table):,}" for p in federation)
        raise FederationError(
            f"no row id is held by all parties (rows: {sizes}): do they write ids in the same way?"
        )
    tables: dict[str, Table] = {n: federation[n].table.rows(where) for n, where in rows.items()}
    return federation.with_tables(tables)
