"""How every run begins: parties say what their columns mean, and share what matches their rows.

agree    client → coordinator: names, kinds, categories and units of its columns, its number of
         rows, whether rows have ids. coordinator → client: what the protocol asks of it.
key      first client → other clients, not the coordinator: a key for row tokens.
labels   holders of the target → clients without it: row tokens and the target's values, in the
         order of tokens. Whoever has the key can try out ids of rows that it does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import broadcast_payload, gather_payloads
from fedcircuits.federation.tokens import matched, tokens
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

Told: TypeAlias = dict[str, Any]  # JSON that the coordinator has made
VERSION = 1  # of the protocols: parties with another one are refused


def introduced(party: Party) -> Flow[Told]:
    """A client says what it holds, and hears what is asked of it."""
    hello: Json = {
        "version": VERSION,
        "schema": cast(Json, party.table.schema.to_json()),
        "rows": len(party.table),
        "ids": party.table.row_ids is not None,
    }
    told = "names, kinds and categories of its columns; number of rows"
    yield from send_payload(COORDINATOR, "agree/schema", hello, told)
    return expect(
        (yield from recv_payload(COORDINATOR, "agree/plan")), dict, COORDINATOR, "agree/plan"
    )


def schemas_of(members: Sequence[str]) -> Flow[tuple[dict[str, Schema], bool]]:
    """The coordinator hears what everybody holds, and whether all rows have ids."""
    found = yield from gather_payloads(members, "agree/schema")
    told = {p: expect(found[p], dict, p, "agree/schema") for p in members}
    for party, hello in told.items():
        if hello.get("version") != VERSION:
            raise FederationError(
                f"{party} speaks version {hello.get('version')} of this protocol, expected "
                f"{VERSION}: install the same fedcircuits at all parties"
            )
        if not hello["rows"]:
            raise FederationError(f"{party} has no rows to learn from")
    schemas = {p: Schema.from_json(hello["schema"]) for p, hello in told.items()}
    return schemas, all(hello["ids"] for hello in told.values())


def asked(
    party: str, members: Sequence[str], schemas: Mapping[str, Schema], agreed: Schema
) -> dict[str, Json]:
    """What every plan says: who takes part, and what the party's columns mean."""
    own = agreed.select(schemas[party].names)
    return {"members": list(members), "schema": cast(Json, own.to_json())}


def key_of(me: str, members: Sequence[str], secret: bytes) -> Flow[bytes]:
    """The key that the first client has drawn."""
    first, others = members[0], members[1:]
    if me != first:
        found = expect((yield from recv_payload(first, "key/tokens")), str, first, "key/tokens")
        return bytes.fromhex(found)
    yield from broadcast_payload(others, "key/tokens", secret.hex(), "a key that hides row ids")
    return secret


def target_of(
    table: Table, target: str, key: bytes | None, receivers: Sequence[str], senders: Sequence[str]
) -> Flow[Array]:
    """The target of every row (rows,): held here, or told by those who hold it; else NaN."""
    own = np.zeros(0, np.uint64)
    if key is not None and table.row_ids is not None and (receivers or senders):
        own = tokens(table.row_ids, key)
    if target in table.schema:
        y = table.values[:, table.schema.index(target)]
        if receivers:
            order = np.argsort(own)
            told: dict[str, AnyArray] = {"tokens": own[order], "values": y[order]}
            yield from broadcast_payload(receivers, "labels/target", told, f"{target} of its rows")
        return y
    y = np.full(len(table), np.nan)
    for sender in senders:
        heard = expect(
            (yield from recv_payload(sender, "labels/target")), dict, sender, "labels/target"
        )
        where = matched([own, np.asarray(heard["tokens"], np.uint64)])
        both = where[(where >= 0).all(axis=1)]
        y[both[:, 0]] = heard["values"][both[:, 1]]
    return y
