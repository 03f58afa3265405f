"""The rows that all parties hold, in one order: every role of ``aligned``.

By tokens (tokens.py): keyed hashes of row ids, which the coordinator matches without the key.

    key/tokens      first party → other parties: a key for tokens
    rows/tokens     party → coordinator: tokens of its rows
    rows/shared     coordinator → party: which rows of its list all parties hold

Privately (intersection.py), where nobody learns anything about other rows:

    psi/…           first party ↔ other parties: private set intersection
    rows/count      party → coordinator: the number of rows that all parties hold

Each party brings the shared rows into the order of their ids, short ones before long ones (so
numbers are in numerical order), which is the same for all, and keeps their positions in its table.
The coordinator learns how many there are. With tokens it also learns which parties hold the same
rows, none of which it can identify.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.described import chosen_rows
from fedcircuits.federation.federation import COORDINATOR, Federation, Party, row_ids
from fedcircuits.federation.flow import Flow, gather, receive, send
from fedcircuits.federation.messages import Count, IntegerVector, Message, require_places
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.intersection import common, key_from, positions, shared_rows
from fedcircuits.methods.meeting.tokens import (
    RowRule,
    RowTokens,
    hidden_rows,
    match_messages,
    send_tokens,
)


@dataclass(frozen=True, slots=True)
class AlignmentPlan:
    """Settings that are the same at all parties."""

    members: tuple[str, ...]
    rows: RowRule  # how they are matched


class RowsOfAll(Message, frozen=True):
    """Which rows of the reader's list all parties hold."""

    tag: ClassVar[str] = "rows/shared"
    reveals: ClassVar[str] = "which of the reader's rows all parties hold"

    places: IntegerVector  # rising


class SharedCount(Message, frozen=True):
    tag: ClassVar[str] = "rows/count"
    reveals: ClassVar[str] = "the number of rows that all parties hold"

    rows: Count


def member(party: Party, plan: AlignmentPlan, secret: bytes) -> Flow[Labels]:
    """Where its rows are that all parties hold, in the common order."""
    ids = id_texts(party)
    if plan.rows != "tokens":  # a site that refuses these is asked for nothing else
        rows = yield from shared_rows(party.name, ids, plan.members, key_from(secret))
        yield from send(COORDINATOR, SharedCount(len(rows)))
        return rows
    hidden = yield from hidden_rows(party.name, row_ids(party), plan.members, secret)
    order = yield from send_tokens(hidden)
    places = (yield from receive(COORDINATOR, RowsOfAll)).places
    at = require_places(places, len(order), COORDINATOR, RowsOfAll, "places")
    shared = common([[ids[i] for i in order[at]]])
    return positions(ids, shared)


def coordinator(plan: AlignmentPlan) -> Flow[int]:
    """How many rows all parties hold."""
    if plan.rows != "tokens":
        rows_at = {p: m.rows for p, m in (yield from gather(plan.members, SharedCount)).items()}
        if len(set(rows_at.values())) > 1:
            counts = ", ".join(f"{p} {rows:,}" for p, rows in rows_at.items())
            raise SiteError(f"parties found different numbers of shared rows: {counts}")
        return rows_at[plan.members[0]]
    where = match_messages((yield from gather(plan.members, RowTokens)))
    shared = where[(where >= 0).all(axis=1)]
    for party, places in zip(plan.members, shared.T, strict=True):
        yield from send(party, RowsOfAll(places))
    return len(shared)


def id_texts(party: Party) -> list[str]:
    """The row ids of a party as texts, all of them different."""
    ids = [str(i) for i in row_ids(party).tolist()]
    if len(set(ids)) < len(ids):
        raise FederationError(f"{party.name} has two rows with the same id: ids must be unique")
    return ids


def restricted(federation: Federation, rows: Mapping[str, object], count: int) -> Federation:
    """The federation with these rows of every party, or with those that its site has stored."""
    if not count:
        sizes = ", ".join(f"{p.name} {len(p.table):,}" for p in federation)
        raise FederationError(
            f"no row id occurs at all parties (rows: {sizes}): check that they write ids in the "
            "same way"
        )
    return federation.with_tables(
        {p.name: chosen_rows(p.table, rows[p.name], count) for p in federation}
    )
