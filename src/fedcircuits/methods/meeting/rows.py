"""The rows of parties that hold different columns, brought into one order.

After ``hello.meet``, with a leader: the coordinator or, without one, the first party.

    agree/plan      leader → party: whether rows are matched by ids
    key/tokens      first party → other parties: a key for row tokens (tokens.py). With ids only
    rows/tokens     party → leader: tokens of its rows; weights of rows if there are any, none of
                    them where it knows none
    rows/places     leader → party: how many rows all parties hold together, where its own are among
                    them, all rows' weights if there are any
    rows/weights    first party → coordinator, where rows have no ids: weights of rows, if any

The common order is that of tokens, which is no party's order. A coordinator learns which parties
hold the same rows, but cannot identify them. Among peers the first party leads and also has the
key: it learns which of its own rows each other party holds, and can test guessed ids against the
others' tokens, so it can identify every row of theirs whose id it can guess. With
``rule="private"`` (tokens.py) there is nothing to test, and it identifies only rows that all
parties hold. The others learn how many rows there are that they do not hold. Without ids, parties
must hold equally many rows, which are assumed to be in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.federation import Party, row_ids
from fedcircuits.federation.flow import Flow, broadcast, gather, receive, send
from fedcircuits.federation.messages import (
    FiniteVector,
    IntegerVector,
    Message,
    require,
    require_places,
    require_shape,
)
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.hello import Hello, RowCount
from fedcircuits.methods.meeting.tokens import (
    RowRule,
    RowTokens,
    agreed_values,
    hidden_rows,
    listed_rows,
    match_messages,
    send_tokens,
)
from fedcircuits.tables.schema import Schema

BY_POSITION = (
    "parties have no row ids, so their rows are assumed to be in the same order; otherwise give "
    "row ids, Federation(…, row_id='…')"
)
NOTHING: Labels = np.zeros(0, np.int64)


class RowPlaces(Message, frozen=True):
    """Where a party's rows are among all."""

    tag: ClassVar[str] = "rows/places"
    reveals: ClassVar[str] = (
        "the positions of the reader's rows among the rows of all parties; the weights of all "
        "rows, if they have any"
    )

    total: RowCount
    at: IntegerVector  # (rows of the party,), rising
    weights: FiniteVector | None  # (total,)


class RowWeights(Message, frozen=True):
    """Weights of rows that are matched by their position."""

    tag: ClassVar[str] = "rows/weights"
    reveals: ClassVar[str] = "the weights of its rows"

    weights: FiniteVector | None  # (rows,)


@dataclass(frozen=True, slots=True, eq=False)
class SampleWeights:
    """Weights of rows as the user gives them: by row id, or in the order of a party's rows."""

    values: Array = field(repr=False)  # (weights,); empty if others know them
    ids: tuple[str, ...] | None = field(default=None, repr=False)

    def of(self, party: Party) -> Array:
        """The weights of a party's rows (rows,), in the order of its table."""
        if self.ids is None:
            return self.values
        known = dict(zip(self.ids, self.values, strict=True))
        ids = row_texts(party)
        if absent := sum(i not in known for i in ids):
            raise SiteError(
                f"sample_weight lacks {absent:,} of the rows of {party.name}: give a Series or "
                "mapping from every row id to its weight"
            )
        return np.array([known[i] for i in ids])


def row_texts(party: Party) -> list[str]:
    """Row ids of a party, or the numbers of its rows, as texts."""
    ids = party.table.row_ids
    return [str(i) for i in (np.arange(len(party.table)) if ids is None else ids).tolist()]


class MatchByIds(Message, frozen=True):
    """The leader's decision."""

    tag: ClassVar[str] = "agree/plan"
    reveals: ClassVar[str] = "whether every party has row ids"

    ids: bool


# ---------------------------------------------------------------------- one order for all


@dataclass(frozen=True, slots=True, eq=False)
class MatchedRows:
    """One member's rows among all rows, in the common order."""

    total: int  # rows that all parties hold together
    weight: Array  # (total,)
    order: Labels  # (own rows,): the member's rows in the common order
    at: Labels  # (own rows,): where they are in it, rising
    schemas: Mapping[str, Schema] = field(default_factory=dict)  # by party; at the leader only
    notes: tuple[str, ...] = ()  # at the leader only

    @property
    def complete(self) -> bool:
        """Whether this member holds all rows."""
        return len(self.at) == self.total

    def shuffled(self, rng: np.random.Generator) -> MatchedRows:
        """The same in another common order."""
        place = np.argsort(rng.permutation(self.total))  # of every row in the new order
        new = np.argsort(place[self.at])
        weight = np.empty(self.total)
        weight[place] = self.weight
        return replace(self, weight=weight, order=self.order[new], at=place[self.at][new])


def match_rows(
    me: str,
    parties: Sequence[str],
    leader: str,
    party: Party | None,
    given: SampleWeights | None,
    secret: bytes,
    hellos: Mapping[str, Hello],
    rule: RowRule = "tokens",
) -> Flow[MatchedRows]:
    """All parties' rows in one order, after ``hello.meet``; the leader may be a party.

    ``given``: weights of rows; None at all parties or at none. ``rule`` is for ids.
    """
    weight = None if given is None or party is None else given.of(party)
    ids = yield from _matched_by_ids(me, parties, leader, hellos)
    if not ids:
        rows = yield from _by_position(me, parties, leader, party, weight, hellos)
    else:
        tokens, order = None, NOTHING
        if party is not None:
            hidden = yield from hidden_rows(me, row_ids(party), parties, secret, rule)
            if me != leader:
                order = yield from send_tokens(hidden, weight, leader)
                return (yield from _placed(leader, order, weight))
            tokens, order = listed_rows(hidden, weight)
        rows = replace((yield from _matching(me, hellos, tokens)), order=order)
    if me != leader:
        return rows
    return replace(rows, schemas={p: h.schema for p, h in hellos.items()})


def check_matchable(hellos: Mapping[str, Hello]) -> None:
    """FederationError unless all parties have row ids, or none and equally many rows."""
    without = [p for p, h in hellos.items() if not h.ids]
    sizes = {h.rows for h in hellos.values()}
    if without and (len(without) < len(hellos) or len(sizes) > 1):
        rows = ", ".join(f"{p} {h.rows:,}" for p, h in list(hellos.items())[:4])
        raise FederationError(
            f"rows cannot be matched: {without[0]} has no row ids (rows: {rows}); give row ids at "
            "all parties, Federation(…, row_id='…')"
        )


def _matched_by_ids(
    me: str, parties: Sequence[str], leader: str, hellos: Mapping[str, Hello]
) -> Flow[bool]:
    if me != leader:
        ids = (yield from receive(leader, MatchByIds)).ids
        problem = "rows are matched by ids at all parties or at none"
        require(ids == hellos[me].ids, leader, MatchByIds, "ids", problem)
        return ids
    check_matchable(hellos)
    ids = all(h.ids for h in hellos.values())
    yield from broadcast([p for p in parties if p != me], MatchByIds(ids))
    return ids


def _by_position(
    me: str,
    parties: Sequence[str],
    leader: str,
    party: Party | None,
    weight: Array | None,
    hellos: Mapping[str, Hello],
) -> Flow[MatchedRows]:
    """All parties hold all rows in one order; a coordinator receives the weights."""
    first = parties[0]
    if leader not in parties and me == first:
        reveals = "that its rows have no weights" if weight is None else None
        yield from send(leader, RowWeights(weight), reveals=reveals)
    if party is not None:
        total = len(party.table)
        rows = np.arange(total)
    else:
        total, rows = hellos[first].rows, NOTHING
        heard = yield from receive(first, RowWeights)
        weight = _checked_weights(heard.weights, total, first, RowWeights)
    notes = (BY_POSITION,) if me == leader and len(parties) > 1 else ()
    return MatchedRows(total, _weights(weight, total), rows, rows, notes=notes)


def _placed(leader: str, order: Labels, weight: Array | None) -> Flow[MatchedRows]:
    """The positions of this party's rows, as the leader sends them."""
    places = yield from receive(leader, RowPlaces)
    require_shape(places.at, order.shape, leader, RowPlaces, "at")
    at = require_places(places.at, places.total, leader, RowPlaces, "at")
    same = (places.weights is None) == (weight is None)
    require(same, leader, RowPlaces, "weights", "rows have weights at all parties or at none")
    weights = _checked_weights(places.weights, places.total, leader, RowPlaces)
    return MatchedRows(places.total, _weights(weights, places.total), order, at)


def _matching(me: str, hellos: Mapping[str, Hello], tokens: RowTokens | None) -> Flow[MatchedRows]:
    """At the leader: everybody's tokens, and where everybody's rows are."""
    others = [p for p in hellos if p != me]
    heard = yield from gather(others, RowTokens)
    listed = {p: tokens if tokens is not None and p == me else heard[p] for p in hellos}
    where = match_messages(listed, {p: h.rows for p, h in hellos.items()})
    weight = _merged_weights(listed, where)
    places = {p: np.flatnonzero(where[:, i] >= 0) for i, p in enumerate(hellos)}
    for party in others:
        yield from send(party, RowPlaces(len(where), places[party], weight))
    at = places.get(me, NOTHING)
    notes = _alone(tuple(hellos), where)
    return MatchedRows(len(where), _weights(weight, len(where)), NOTHING, at, notes=notes)


def _alone(parties: Sequence[str], where: Labels) -> tuple[str, ...]:
    """Notes on parties that share no rows: nothing shows how their columns depend on others'."""
    shared = (where >= 0).sum(axis=1) > 1
    return tuple(
        f"{party} has no row in common with another party: nothing can be learned about how its "
        "columns depend on others; check that row ids are written in the same way"
        for i, party in enumerate(parties)
        if len(parties) > 1 and not (shared & (where[:, i] >= 0)).any()
    )


# ---------------------------------------------------------------------- weights


def _merged_weights(listed: Mapping[str, RowTokens], where: Labels) -> Array | None:
    """(rows,) weights that the parties agree on."""
    having = [party for party, message in listed.items() if message.weights is not None]
    lacking = [party for party in listed if party not in having]
    few = min(having, lacking, key=len)  # of two, nobody can tell which is wrong
    problem = "rows have weights at all parties or at none"
    problem += f": {', '.join(having)} sent some and {', '.join(lacking)} none"
    require(not few, few[0] if few else "", RowTokens, "weights", problem)
    given, weights = bool(having), list[Array]()
    for party, message in listed.items():
        if message.weights is not None:
            rows = len(message.tokens) if len(message.weights) else 0  # or it knows none of them
            sent = _checked_weights(message.weights, rows, party, RowTokens)
            weights += [] if sent is None else [sent]
    if not given:
        return None
    merged = agreed_values(where, weights, tuple(listed), "weight")
    for i, party in enumerate(listed):  # who knows none of its weights may have further rows
        absent = int(np.isnan(merged[where[:, i] >= 0]).sum())
        problem = f"no party knows the weights of {absent:,} rows: give sample_weight by row id"
        require(not absent, party, RowTokens, "weights", problem)
    return merged


def _checked_weights(
    weights: Array | None, rows: int, sender: str, kind: type[Message]
) -> Array | None:
    if weights is None:
        return None
    require_shape(weights, (rows,), sender, kind, "weights")
    require(bool((weights >= 0).all()), sender, kind, "weights", "expected numbers from 0")
    return np.asarray(weights, np.float64)


def _weights(given: Array | None, total: int) -> Array:
    return np.ones(total) if given is None else given
