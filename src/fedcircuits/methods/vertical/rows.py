"""Rows of parties that hold other columns, brought into one order; columns moved into hubs.

The leader is the coordinator, or the first party where peers are among themselves.

    agree/hello   party → leader: names, kinds and categories of its columns, its number of rows,
                  whether rows have ids. leader → party: whether rows are matched by ids.
    key/tokens    first party → other parties: a key for row tokens. With ids only.
    rows/tokens   party → leader: keyed hashes of its row ids, in the order of the hashes; weights
                  of rows if there are any.
    rows/places   leader → party: how many rows all parties hold together, where its own are among
                  them, and all rows' weights if there are any.
    hub/columns   member of a hub → its root, only with ``hops`` above 0: its columns, whole.

A coordinator learns which parties hold the same rows, and not which rows they are. Among peers the
first party has the key too: it learns which of its own rows each other party holds, and could try
out ids. The others learn how many rows there are that they do not hold. The common order is that of
the hashes: nobody's. Without ids parties must hold equally many rows, and are taken to hold them in
the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import gather_payloads
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import Labels, matched, tokens
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.methods.meeting.hello import VERSION, key_of
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

BY_POSITION = (
    "parties have no row ids: their rows are taken to be in the same order; give row ids, "
    "Federation(…, row_id='…'), if they are not"
)
TWO_PARTIES = (
    "there are two parties with columns: each can work out the other's terms of every row from the "
    "result, and nearly its values where these are few columns"
)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One member's rows among all rows."""

    total: int  # rows that all parties hold together
    weight: Array  # (total,)
    order: Labels  # (own rows,): the member's rows in the common order
    at: Labels  # (own rows,): where they are in it, rising
    schemas: Mapping[str, Schema] = field(default_factory=dict)  # by party; at the leader only
    notes: tuple[str, ...] = ()  # at the leader only

    @property
    def whole(self) -> bool:
        return len(self.at) == self.total

    def shuffled(self, rng: np.random.Generator) -> Rows:
        """The same in another common order."""
        place = np.argsort(rng.permutation(self.total))  # of every row in the new order
        new = np.argsort(place[self.at])
        weight = np.empty(self.total)
        weight[place] = self.weight
        at = place[self.at][new]
        return Rows(self.total, weight, self.order[new], at, self.schemas, self.notes)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a party says of its table."""

    schema: Schema
    rows: int
    ids: bool

    @classmethod
    def of(cls, table: Table) -> Hello:
        return cls(table.schema, len(table), table.row_ids is not None)


def leader_of(members: Sequence[str]) -> str:
    return COORDINATOR if COORDINATOR in members else members[0]


def rows_of(
    me: str, parties: Sequence[str], leader: str, party: Party | None, weight: Array | None,
    secret: bytes,
) -> Flow[Rows]:  # fmt: skip
    """``weight``: of the party's own rows; None at all parties or at none."""
    hellos = yield from _introduced(me, parties, leader, party)
    ids = yield from _agreed(me, parties, leader, hellos)
    if party is not None and ids:
        key = yield from key_of(me, parties, secret)
        return (yield from _by_tokens(me, parties, leader, party, weight, key, hellos))
    if ids:
        return (yield from _matching(me, parties, None, hellos))
    return (yield from _by_position(me, parties, leader, party, weight, hellos))


# ---------------------------------------------------------------------- who holds what


def _introduced(
    me: str, parties: Sequence[str], leader: str, party: Party | None
) -> Flow[dict[str, Hello]]:
    """What every party holds; at others than the leader what it holds itself."""
    own: dict[str, Hello] = {}
    if party is not None:
        table = party.table
        own[me] = Hello.of(table)
        if me != leader:
            hello: Json = {
                "version": VERSION,
                "schema": cast(Json, table.schema.to_json()),
                "rows": len(table),
                "ids": table.row_ids is not None,
            }
            told = "names, kinds and categories of its columns; number of rows"
            yield from send_payload(leader, "agree/hello", hello, told)
    if me != leader:
        return own
    found = yield from gather_payloads([p for p in parties if p != me], "agree/hello")
    for name, payload in found.items():
        heard = expect(payload, dict, name, "agree/hello")
        if heard.get("version") != VERSION:
            raise FederationError(
                f"{name} speaks version {heard.get('version')} of this protocol, expected "
                f"{VERSION}: install the same fedcircuits at all parties"
            )
        own[name] = Hello(Schema.from_json(heard["schema"]), heard["rows"], heard["ids"])
    return {p: own[p] for p in parties}


def _agreed(
    me: str, parties: Sequence[str], leader: str, hellos: Mapping[str, Hello]
) -> Flow[bool]:
    """Whether rows are matched by ids."""
    tag = "agree/plan"
    if me != leader:
        return bool(expect((yield from recv_payload(leader, tag)), bool, leader, tag))
    check_holdings(hellos)
    ids = all(h.ids for h in hellos.values())
    for party in parties:
        if party != me:
            yield from send_payload(party, tag, ids)
    return ids


def check_holdings(hellos: Mapping[str, Hello]) -> None:
    """FederationError unless columns have one holder, parties rows, and rows can be matched."""
    holder: dict[str, str] = {}
    for party, hello in hellos.items():
        if not hello.rows:
            raise FederationError(f"{party} has no rows to learn from")
        for name in hello.schema.names:
            if name in holder:
                raise FederationError(
                    f"{holder[name]} and {party} both have a column {name!r}: columns of a "
                    "vertical mixture have one holder; rename one, leave it out, or use FedPC"
                )
            holder[name] = party
    without = [p for p, h in hellos.items() if not h.ids]
    sizes = {h.rows for h in hellos.values()}
    if without and (len(without) < len(hellos) or len(sizes) > 1):
        rows = ", ".join(f"{p} {h.rows:,}" for p, h in list(hellos.items())[:4])
        raise FederationError(
            f"rows cannot be matched: {without[0]} has no row ids (rows: {rows}); give row ids at "
            "all parties, Federation(…, row_id='…')"
        )


# ---------------------------------------------------------------------- one order


def _by_position(
    me: str, parties: Sequence[str], leader: str, party: Party | None, weight: Array | None,
    hellos: Mapping[str, Hello],
) -> Flow[Rows]:  # fmt: skip
    """All parties hold all rows, in one order; a coordinator hears the weights."""
    tag = "rows/weights"
    if leader not in parties and me == parties[0]:
        own: AnyArray = np.zeros(0) if weight is None else weight
        yield from send_payload(leader, tag, own, "weights of rows" if weight is not None else "")
    if party is None:
        found = yield from recv_payload(parties[0], tag)
        heard = np.asarray(expect(found, np.ndarray, parties[0], tag), np.float64)
        weight = heard if len(heard) else None
        nothing = np.zeros(0, np.int64)
        total = next(iter(hellos.values())).rows
        order = at = nothing
    else:
        total = len(party.table)
        order = at = np.arange(total)
    rows = Rows(total, _weights(weight, total), order, at)
    if me != leader:
        return rows
    notes = (BY_POSITION,) if len(parties) > 1 else ()
    return replace(rows, schemas={p: h.schema for p, h in hellos.items()}, notes=notes)


def _by_tokens(
    me: str, parties: Sequence[str], leader: str, party: Party, weight: Array | None, key: bytes,
    hellos: Mapping[str, Hello],
) -> Flow[Rows]:  # fmt: skip
    assert party.table.row_ids is not None
    sealed = tokens(party.table.row_ids, key)
    order = np.argsort(sealed)
    told: dict[str, AnyArray] = {"tokens": sealed[order]}
    if weight is not None:
        told["weights"] = weight[order]
    if me == leader:
        found = yield from _matching(me, parties, told, hellos)
    else:
        words = "sealed tokens of its rows" + (" and their weights" if weight is not None else "")
        yield from send_payload(leader, "rows/tokens", told, words)
        tag = "rows/places"
        heard = expect((yield from recv_payload(leader, tag)), dict, leader, tag)
        total = int(heard["total"])
        given = np.asarray(heard["weights"], np.float64) if "weights" in heard else None
        at = np.asarray(heard["at"], np.int64)
        found = Rows(total, _weights(given, total), np.zeros(0, np.int64), at)
    return Rows(found.total, found.weight, order, found.at, found.schemas, found.notes)


def _matching(
    me: str, parties: Sequence[str], own: Mapping[str, AnyArray] | None,
    hellos: Mapping[str, Hello],
) -> Flow[Rows]:  # fmt: skip
    """At the leader: everybody's tokens, and where everybody's rows are."""
    others = [p for p in parties if p != me]
    found = yield from gather_payloads(others, "rows/tokens")
    heard = {p: expect(found[p], dict, p, "rows/tokens") for p in others}
    if own is not None:
        heard[me] = dict(own)
    where = matched([np.asarray(heard[p]["tokens"], np.uint64) for p in parties])
    weight = _merged(parties, heard, where)
    places = {p: np.flatnonzero(where[:, i] >= 0) for i, p in enumerate(parties)}
    for party in others:
        told: dict[str, AnyArray] = {"total": np.asarray(len(where)), "at": places[party]}
        if weight is not None:
            told["weights"] = weight
        reveals = "where its rows are among all rows, which it cannot name"
        yield from send_payload(party, "rows/places", told, reveals)
    schemas = {p: h.schema for p, h in hellos.items()}
    at = places.get(me, np.zeros(0, np.int64))
    total = len(where)
    notes = _alone(parties, where)
    return Rows(total, _weights(weight, total), np.zeros(0, np.int64), at, schemas, notes)


def _alone(parties: Sequence[str], where: Labels) -> tuple[str, ...]:
    """Parties that share rows with nobody: then nothing says how their columns hang together."""
    shared = (where >= 0).sum(axis=1) > 1
    return tuple(
        f"{party} has no row in common with another party: its columns say nothing about the "
        "others'; are row ids written alike?"
        for i, party in enumerate(parties)
        if len(parties) > 1 and not (shared & (where[:, i] >= 0)).any()
    )


def _merged(
    parties: Sequence[str], heard: Mapping[str, Mapping[str, AnyArray]], where: Labels
) -> Array | None:
    """(rows,) weights that the parties agree on."""
    if not all("weights" in heard[p] for p in parties):
        return None
    weight = np.full(len(where), np.nan)
    for i, party in enumerate(parties):
        held = where[:, i] >= 0
        own = np.asarray(heard[party]["weights"], np.float64)[where[held, i]]
        known = ~np.isnan(weight[held])
        if (weight[held][known] != own[known]).any():
            raise FederationError(f"{party} weighs rows otherwise than other parties do")
        weight[held] = own
    return weight


def _weights(given: Array | None, total: int) -> Array:
    return np.ones(total) if given is None else given


# ---------------------------------------------------------------------- hubs


def gathered(
    me: str, table: Table | None, rows: Rows, hubs: Sequence[Neighbourhood]
) -> Flow[tuple[Table | None, Rows]]:
    """The columns that a member works on: of a root those of its hub, of others in it none.

    Rows that some member of the hub lacks are missing in its columns.
    """
    hub = next((h for h in hubs if me in h.members), None)
    if hub is None or len(hub.members) == 1 or table is None:
        return table, rows
    if me != hub.root:
        told: dict[str, AnyArray] = {"at": rows.at, "values": table.values}
        yield from send_payload(hub.root, "hub/schema", cast(Json, table.schema.to_json()))
        words = f"all values of {', '.join(map(repr, table.names))}"
        yield from send_payload(hub.root, "hub/columns", told, words)
        return None, rows
    tables, places = {me: table}, {me: rows.at}
    for other in (m for m in hub.members if m != me):
        schema = Schema.from_json((yield from recv_payload(other, "hub/schema")))
        tag = "hub/columns"
        heard = expect((yield from recv_payload(other, tag)), dict, other, tag)
        tables[other] = Table(schema, np.asarray(heard["values"], np.float64))
        places[other] = np.asarray(heard["at"], np.int64)
    return _joined([tables[m] for m in hub.members], [places[m] for m in hub.members], rows)


def _joined(tables: Sequence[Table], places: Sequence[Labels], rows: Rows) -> tuple[Table, Rows]:
    at = np.unique(np.concatenate(places))
    schema = Schema(tuple(v for t in tables for v in t.schema))
    values = np.full((len(at), len(schema)), np.nan)
    column = 0
    for table, place in zip(tables, places, strict=True):
        width = len(table.schema)
        values[np.searchsorted(at, place), column : column + width] = table.values
        column += width
    joined = Rows(rows.total, rows.weight, rows.order, at, rows.schemas, rows.notes)
    return Table(schema, values), joined


def holders(schemas: Mapping[str, Schema], hubs: Sequence[Neighbourhood]) -> dict[str, Schema]:
    """Who works on which columns, after they have moved into hubs; without who has none."""
    root = {m: hub.root for hub in hubs for m in hub.members}
    found: dict[str, list[str]] = {}
    for party in schemas:
        found.setdefault(root.get(party, party), []).append(party)
    joined = {p: [v for m in members for v in schemas[m]] for p, members in found.items()}
    return {p: Schema(tuple(joined[p])) for p in schemas if joined.get(p)}


def told_of(rows: Rows, hubs: Sequence[Neighbourhood]) -> tuple[str, ...]:
    """At the leader: what users should know about these parties and rows."""
    two = len(holders(rows.schemas, hubs)) == 2
    return (*rows.notes, TWO_PARTIES) if two else rows.notes
