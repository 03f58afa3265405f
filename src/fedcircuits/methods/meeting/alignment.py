"""The rows that all parties hold, in one order: every role of ``aligned``.

By tokens (tokens.py): keyed hashes of row ids, which the coordinator matches without the key.

    key/tokens      first party → other parties: a key for tokens
    rows/tokens     party → coordinator: tokens of its rows
    rows/shared     coordinator → party: which rows of its list all parties hold

Privately (intersection.py), where nobody learns of any further row:

    psi/…           first party ↔ other parties: private set intersection
    rows/count      party → coordinator: how many rows all parties hold

Each party brings the shared rows into the order of their ids, short ones before long ones (so
numbers are in their order), which is the same for all. It keeps where they are in its table. The
coordinator learns how many there are, and by tokens also which parties hold the same rows, none of
which it can name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcircuits.errors import SiteError
from fedcircuits.federation.alignment import common, id_texts, positions
from fedcircuits.federation.federation import COORDINATOR, Party, row_ids
from fedcircuits.federation.flow import Flow, gather, receive, send
from fedcircuits.federation.messages import Count, IntegerVector, Message, require
from fedcircuits.federation.tokens import Labels, RowRule
from fedcircuits.methods.meeting.intersection import key_from, shared_rows
from fedcircuits.methods.meeting.tokens import (
    RowTokens,
    hidden_rows,
    match_messages,
    send_tokens,
)


@dataclass(frozen=True, slots=True)
class AlignmentPlan:
    """What all parties do alike."""

    members: tuple[str, ...]
    rows: RowRule  # how they are matched


class RowsOfAll(Message, frozen=True):
    """Which rows of the reader's list all parties hold."""

    tag: ClassVar[str] = "rows/shared"
    reveals: ClassVar[str] = "which of its rows all parties hold"

    places: IntegerVector  # rising


class SharedCount(Message, frozen=True):
    tag: ClassVar[str] = "rows/count"
    reveals: ClassVar[str] = "how many rows all parties hold"

    rows: Count


def member(party: Party, plan: AlignmentPlan, secret: bytes) -> Flow[Labels]:
    """Where its rows are that all parties hold, in the common order."""
    ids = id_texts(party)
    if plan.rows == "private":
        rows = yield from shared_rows(party.name, ids, plan.members, key_from(secret))
        yield from send(COORDINATOR, SharedCount(len(rows)))
        return rows
    hidden = yield from hidden_rows(party.name, row_ids(party), plan.members, secret)
    order = yield from send_tokens(hidden)
    places = (yield from receive(COORDINATOR, RowsOfAll)).places
    rising = bool((places[1:] > places[:-1]).all())
    inside = not len(places) or (places[0] >= 0 and places[-1] < len(order))
    problem = f"expected different places below {len(order)} in rising order"
    require(rising and bool(inside), COORDINATOR, RowsOfAll, "places", problem)
    shared = common([[ids[i] for i in order[np.asarray(places, np.int64)]]])
    return positions(ids, shared)


def coordinator(plan: AlignmentPlan) -> Flow[int]:
    """How many rows all parties hold."""
    if plan.rows == "private":
        rows_at = {p: m.rows for p, m in (yield from gather(plan.members, SharedCount)).items()}
        if len(set(rows_at.values())) > 1:
            counts = ", ".join(f"{p} {rows:,}" for p, rows in rows_at.items())
            raise SiteError(f"parties find different numbers of shared rows: {counts}")
        return rows_at[plan.members[0]]
    where = match_messages((yield from gather(plan.members, RowTokens)))
    shared = where[(where >= 0).all(axis=1)]
    for party, places in zip(plan.members, shared.T, strict=True):
        yield from send(party, RowsOfAll(places))
    return len(shared)
