"""Parties with rows of any ids, and flows that match them in every way there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party, row_ids
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.hello import Method, leader_of, meet
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.meeting.rows import MatchedRows, SampleWeights, match_rows
from fedcircuits.methods.meeting.tokens import (
    RowRule,
    TokenKey,
    hidden_rows,
    match_tokens,
    send_tokens,
    target_of,
)
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

METHOD = Method("trial", 1)
SECRETS = {f"p{i}": bytes([65 + i]) * 32 for i in range(9)}  # each has drawn one
KEY = derived(SECRETS["p0"], TokenKey.tag)  # that the first party tells the others


def parties(held: Sequence[Sequence[int]], ids: bool = True) -> list[Party]:
    """``held``: ids of the rows of every party. The party's column says which row it is."""
    found = []
    for i, rows in enumerate(held):
        values = np.array(rows, np.float64).reshape(-1, 1)
        row_ids = np.array(rows, np.int64) if ids else None
        found.append(Party(f"p{i}", Table(Schema.real([f"x{i}"]), values, row_ids)))
    return found


# ---------------------------------------------------------------------- one order for all


def member(
    me: str,
    names: Sequence[str],
    leader: str,
    party: Party | None,
    weight: Array | None,
    secret: bytes,
    rule: RowRule,
) -> Flow[MatchedRows]:
    hellos = yield from meet(me, names, leader, party, METHOD)
    given = None if weight is None else SampleWeights(weight)
    return (yield from match_rows(me, names, leader, party, given, secret, hellos, rule))


def matching(
    every: Sequence[Party],
    coordinated: bool,
    weights: Mapping[str, Array] | None = None,
    rule: RowRule = "tokens",
) -> dict[str, Program[Any]]:
    names = tuple(p.name for p in every)
    members = (*names, COORDINATOR) if coordinated else names
    found: dict[str, Program[Any]] = {}
    for party in every:
        found[party.name] = Program(
            member,
            {
                "me": party.name, "names": names, "leader": leader_of(members), "party": party,
                "weight": None if weights is None else weights[party.name],
                "secret": SECRETS[party.name], "rule": rule,
            },
        )  # fmt: skip
    if coordinated:
        own = {"me": COORDINATOR, "party": None, "weight": None, "secret": b"", "rule": rule}
        found[COORDINATOR] = Program(member, {**own, "names": names, "leader": COORDINATOR})
    return found


# ---------------------------------------------------------------------- lists at a coordinator


def lister(
    party: Party,
    names: Sequence[str],
    receivers: Sequence[str],
    senders: Sequence[str],
    rule: RowRule,
) -> Flow[tuple[Labels, Array]]:
    """The order in which its rows are listed, and the target of its rows."""
    hidden = yield from hidden_rows(party.name, row_ids(party), names, SECRETS[party.name], rule)
    order = yield from send_tokens(hidden)
    y = yield from target_of(party.table, "y", order, receivers, senders, 2)
    return order, y


def listing(
    every: Sequence[Party], labels: Mapping[int, int] | None, rule: RowRule = "tokens"
) -> dict[str, Program[Any]]:
    """``labels``: of row ids, which the last party tells the others; −1 for a missing one."""
    names = tuple(p.name for p in every)
    asked = {"rows": {p.name: len(p.table) for p in every}}
    matching = asked if labels is None else {**asked, "holders": names[-1:]}
    found: dict[str, Program[Any]] = {COORDINATOR: Program(match_tokens, matching)}
    for party in every:
        own: dict[str, Any] = {"party": party, "names": names, "receivers": (), "senders": ()}
        own["rule"] = rule
        if labels is not None and party.name == names[-1]:
            own |= {"party": with_target(party, labels), "receivers": names[:-1]}
        elif labels is not None:
            own["senders"] = names[-1:]
        found[party.name] = Program(lister, own)
    return found


def with_target(party: Party, labels: Mapping[int, int]) -> Party:
    table = party.table
    assert table.row_ids is not None
    y = np.array([labels[i] for i in table.row_ids.tolist()], np.float64)
    columns = np.column_stack([table.values, np.where(y < 0, np.nan, y)])
    return Party(party.name, Table(Schema.real([*table.names, "y"]), columns, table.row_ids))
