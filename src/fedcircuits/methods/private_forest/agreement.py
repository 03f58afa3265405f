"""How private learning begins: all parties say what they are about to do, and nobody goes on unless
all say the same. There is no coordinator: each hears every other and decides for itself.

    agree/plan        party → party: version, settings, names, kinds and categories of its columns
    agree/structure   party → party: a digest of what all have drawn from the same seed

Nothing of rows or parameters is shared before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, expect
from fedcircuits.federation.sums.collectives import broadcast_payload, gather_payloads
from fedcircuits.federation.wire import Json
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

VERSION = 1  # of private learning: parties with another one are refused
LEAST_ROWS = 2  # of a party
FOREST = "private forest"


def agreed_table(
    party: Party,
    members: tuple[str, ...],
    plan: Mapping[str, Json],
    model: str = FOREST,
    least: int = LEAST_ROWS,
) -> Flow[Table]:
    """All say what they are about to do; the party's table in the codes that all mean. ``model``:
    what they are about to learn, ``least``: from how many rows of a party."""
    _check_rows(party, least)
    hello: dict[str, Json] = {
        "version": VERSION,
        "plan": dict(plan),
        "schema": cast(Json, party.table.schema.to_json()),
    }
    others = [m for m in members if m != party.name]
    told = "settings; names, kinds and categories of its columns"
    yield from broadcast_payload(others, "agree/plan", hello, told)
    found = yield from gather_payloads(others, "agree/plan")
    heard = {m: expect(found[m], dict, m, "agree/plan") for m in others}
    for other, said in heard.items():
        _compare(party.name, hello, other, said, model)
    schemas = {
        m: party.table.schema if m == party.name else Schema.from_json(heard[m]["schema"])
        for m in members
    }
    return in_agreed(party.table, same_variables(schemas, model)).select(schemas[members[0]].names)


def _check_rows(party: Party, least: int) -> None:
    if len(party.table) < least:
        raise FederationError(f"{party.name} has {len(party.table)} rows, expected {least} or more")


def _compare(
    me: str, own: Mapping[str, Json], other: str, said: Mapping[str, Json], model: str
) -> None:
    if said.get("version") != own["version"]:
        raise FederationError(
            f"{other} speaks version {said.get('version')!r} of {model}s, {me} "
            f"{own['version']!r}: install the same fedcircuits at all parties"
        )
    mine, theirs = cast(dict[str, Json], own["plan"]), said.get("plan")
    if not isinstance(theirs, dict) or mine.keys() != theirs.keys():
        raise FederationError(f"{other} has other settings than {me}: give all the same plan")
    for name, value in mine.items():
        if theirs[name] != value:
            raise FederationError(
                f"{other} has {name} = {theirs[name]!r}, {me} has {value!r}: all parties must have "
                "the same settings"
            )


def same_variables(schemas: Mapping[str, Schema], model: str = FOREST) -> Schema:
    """What all mean by their columns, or FederationError: every party must have all of them."""
    agreed = agree(schemas)
    for party, schema in schemas.items():
        if absent := [n for n in agreed.names if n not in schema]:
            raise FederationError(
                f"{party} has no column {absent[0]!r}, which others have: a {model} is for "
                "parties with other rows of the same columns"
            )
    for variable in agreed:
        if not variable.size:
            raise FederationError(
                f"{variable.name!r} is a {variable.kind}: a {model} is of categories and "
                "booleans; cut numbers into categories"
            )
    return agreed


def same_structures(me: str, members: tuple[str, ...], digest: str) -> Flow[None]:
    """FederationError unless all have drawn the same."""
    others = [m for m in members if m != me]
    yield from broadcast_payload(others, "agree/structure", digest, "a digest of public structures")
    found = yield from gather_payloads(others, "agree/structure")
    for other in others:
        if found[other] != digest:
            raise FederationError(
                f"{other} has drawn other structures than {me} from the same seed: install the "
                "same versions of fedcircuits and numpy at all parties"
            )
