"""The handshake: other versions are refused with both named, and malformed words blame who said
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, MessageError, VersionError
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Flow, Program, send
from fedcircuits.methods.meeting.hello import (
    Assignment,
    Hello,
    Method,
    agreed_table,
    hellos_of,
    introduce,
    leader_of,
    meet,
    same_structures,
)
from fedcircuits.tables.table import Table
from fedcircuits.testing import check_messages, check_protocol
from tests.methods.watched import saying

METHOD = Method("trial", 1)
TABLES: Mapping[str, Mapping[str, object]] = {
    "north": {"id": [1, 2, 3], "colour": ["red", "blue", "red"], "age": [31.5, 47.0, 52.0]},
    "south": {"id": [2, 3], "colour": ["green", "red"], "ill": [True, False]},
}


class TrialAssignment(Assignment, frozen=True):
    """An assignment with a field of the method's own."""

    reveals: ClassVar[str] = "who takes part, and a seed"

    seed: int


def parties(tables: Mapping[str, object] = TABLES) -> Federation:
    return Federation(tables, row_id="id")


def client(party: Party, members: tuple[str, ...]) -> Flow[tuple[TrialAssignment, Table]]:
    return (yield from introduce(party, METHOD, TrialAssignment, "ill", members))


def coordinator(members: tuple[str, ...], share: str = "ill") -> Flow[dict[str, Hello]]:
    hellos = yield from hellos_of(members, METHOD)
    schemas = {p: h.schema for p, h in hellos.items()}
    holders = tuple(p for p, s in schemas.items() if share in s) or None
    for party, schema in schemas.items():
        variables = agree(schemas).select(schema.names).variables
        yield from send(party, TrialAssignment(members, variables, True, holders, 7))
    return hellos


def programs(federation: Federation | None = None) -> dict[str, Program[Any]]:
    federation = federation or parties()
    found: dict[str, Program[Any]] = {
        COORDINATOR: Program(coordinator, {"members": federation.names})
    }
    return found | {
        p.name: Program(client, {"party": p, "members": federation.names}) for p in federation
    }


def says(who: str, tag: str, change: Callable[[Any], Any]) -> dict[str, Program[Any]]:
    """The programs, one of which says something else under a tag."""
    flows = programs()
    told = {"program": flows[who], "tag": tag, "change": change}
    return {**flows, who: Program(saying, told)}


def blamed(flows: Mapping[str, Program[Any]], at: str) -> MessageError:
    lost = memory.run(flows).lost[at]
    assert isinstance(lost.__cause__, MessageError)
    assert lost.party == lost.__cause__.sender
    return lost.__cause__


# ---------------------------------------------------------------------- under a coordinator


def test_everybody_hears_what_it_needs() -> None:
    outcome = memory.run(programs())
    hellos = outcome.results[COORDINATOR]
    assert {p: (h.rows, h.ids, h.schema.names) for p, h in hellos.items()} == {
        "north": (3, True, ("colour", "age")),
        "south": (2, True, ("colour", "ill")),
    }
    for name, (assignment, table) in (
        (p, r) for p, r in outcome.results.items() if p != COORDINATOR
    ):
        assert assignment.members == ("north", "south") and assignment.seed == 7
        assert table.schema["colour"].categories == ("blue", "red", "green")
        assert table.row_ids.tolist() == TABLES[name]["id"]
        assert table.column("colour").tolist() == TABLES[name]["colour"]
    assert outcome.results["south"][0].routes("south") == (("north",), ())
    assert outcome.results["north"][0].routes("north") == ((), ("south",))


def test_laws_and_malformed_messages() -> None:
    check_protocol(programs(), without=["processes"])
    assert check_messages(programs()) > 60


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"library": "0.0.9", "version": 2}, "0.0.9 with trial 2, expected {} with trial 1"),
        ({"version": 0}, "{} with trial 0, expected {} with trial 1"),
        ({"method": "fedpc"}, "{} with fedpc 1, expected {} with trial 1"),
        ({"library": "9.0", "a new field": 3, "rows": "3"}, "9.0 with trial 1, expected {} with"),
    ],
)
def test_other_versions_are_refused_with_both_named(change: dict[str, Any], text: str) -> None:
    """Also if the other version says other things in its hello."""
    error = blamed(says("south", "agree/hello", lambda h: {**h, **change}), COORDINATOR)
    text = text.format(fc.__version__, fc.__version__)
    assert isinstance(error, VersionError) and error.sender == "south"
    assert str(error).startswith(f"south runs fedcircuits {text}")
    assert str(error).endswith("install the same fedcircuits at all parties")


TWICE = [{"name": "a", "kind": "real"}, {"name": "a", "kind": "real"}]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", -1), ("rows", 2**40), ("rows", "3"), ("ids", 1), ("library", 3), ("version", -1),
        ("variables", TWICE), ("variables", [{"name": "a", "kind": "colour"}]),
        ("variables", [{"kind": "real"}]), ("variables", [{"name": "a", "kind": "category"}]),
        ("settings", {}),
    ],
)  # fmt: skip
def test_malformed_hellos_blame_the_sender(field: str, value: object) -> None:
    error = blamed(says("south", "agree/hello", lambda h: {**h, field: value}), COORDINATOR)
    assert (error.sender, error.tag) == ("south", "agree/hello")
    assert error.field.partition("[")[0] == field


@pytest.mark.parametrize("field", ["library", "method", "version", "variables", "rows", "ids"])
def test_hellos_lack_nothing(field: str) -> None:
    def without(hello: dict[str, Any]) -> dict[str, Any]:
        return {n: v for n, v in hello.items() if n != field}

    error = blamed(says("south", "agree/hello", without), COORDINATOR)
    assert (error.sender, error.field) == ("south", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("members", ["south"]), ("members", ["north", "north"]), ("members", ["north"]),
        ("members", ["south", "north"]), ("variables", []),
        ("variables", TWICE), ("holders", ["west"]), ("holders", ["north"]), ("holders", []),
        ("holders", ["south", "south"]), ("holders", ["south", "north"]), ("tokens", False),
        ("tokens", None), ("seed", "7"),
    ],
)  # fmt: skip
def test_malformed_assignments_blame_the_coordinator(field: str, value: object) -> None:
    flows = says(COORDINATOR, "agree/plan", lambda plan: {**plan, field: value})
    error = blamed(flows, "north")
    assert (error.sender, error.tag, error.field) == (COORDINATOR, "agree/plan", field)


def test_parties_without_rows_or_ids() -> None:
    flows = says("south", "agree/hello", lambda hello: {**hello, "rows": 0})
    assert "south has no rows to learn from" in str(memory.run(flows).lost[COORDINATOR])
    plain = Federation({"north": parties()["north"].table, "south": {"ill": [True, False]}})
    lost = memory.run(programs(plain)).lost["south"]
    assert "coordinator sent 'agree/plan' that does not fit, field 'tokens'" in str(lost)


def test_who_tells_whom_the_target() -> None:
    def routes(holders: tuple[str, ...] | None) -> list[tuple[tuple[str, ...], ...]]:
        assignment = Assignment(("a", "b", "c"), (), True, holders)
        return [assignment.routes(me) for me in "abc"]

    assert routes(None) == [((), ())] * 3
    assert routes(("a", "c")) == [(("b",), ()), ((), ("a", "c")), (("b",), ())]
    assert routes(("a", "b", "c")) == [((), ())] * 3


# ---------------------------------------------------------------------- a party that leads


def meeting(federation: Federation, coordinated: bool) -> dict[str, Program[Any]]:
    members = (*federation.names, *([COORDINATOR] if coordinated else []))
    every = {"parties": federation.names, "leader": leader_of(members), "method": METHOD}
    found = {}
    for me in members:
        party = None if me == COORDINATOR else federation[me]
        found[me] = Program(meet, {"me": me, "party": party, **every})
    return found


@pytest.mark.parametrize("coordinated", [False, True])
def test_the_leader_hears_all(coordinated: bool) -> None:
    flows = meeting(parties(), coordinated)
    leader = COORDINATOR if coordinated else "north"
    results = memory.run(flows).results
    assert list(results[leader]) == ["north", "south"]
    assert list(results["south"]) == ["south"]
    assert results[leader]["south"] == results["south"]["south"]
    check_protocol(flows, without=["processes"])
    assert check_messages(flows) > 20


def test_a_leader_without_rows() -> None:
    flows, table = meeting(parties(), coordinated=False), parties()["north"].table
    flows["north"].arguments["party"] = Party("north", table.rows(np.zeros(0, np.int64)))
    lost = memory.run(flows).lost
    assert "north has no rows to learn from" in str(lost["north"])


# ---------------------------------------------------------------------- peers


VOTES = {
    "a": {"x": ["u", "v"], "y": [True, False]},
    "b": {"y": [True, True], "x": ["w", "v"]},
    "c": {"x": ["v", "u"], "y": [False, True]},
}


def peer(
    party: Party, members: tuple[str, ...], settings: dict[str, object], least: int = 2
) -> Flow[Table]:
    table = yield from agreed_table(party, members, METHOD, settings, "trial tree", least)
    yield from same_structures(party.name, members, str(settings.get("digest", "")))
    return table


def peers(
    tables: Mapping[str, object] = VOTES, b: Mapping[str, object] = {}
) -> dict[str, Program[Any]]:
    """``b``: settings of the second that others do not have."""
    found = {}
    for party in Federation(tables):
        given: dict[str, object] = {"seed": 3, "shape": {"units": 2, "depth": 1}}
        settings = {**given, **b} if party.name == "b" else given
        own = {"party": party, "members": tuple(tables), "settings": settings}
        found[party.name] = Program(peer, own)
    return found


def refused(flows: Mapping[str, Program[Any]], text: str) -> None:
    outcome = memory.run(flows)
    assert outcome.lost and "a" in outcome.lost
    assert any(text in str(e) for e in outcome.lost.values()), list(outcome.lost.values())


def test_peers_end_up_with_the_same_columns_and_codes() -> None:
    results = memory.run(peers()).results
    for name, table in results.items():
        assert table.names == ("x", "y") and table.schema == results["a"].schema
        assert table.column("x").tolist() == VOTES[name]["x"]
    check_protocol(peers(), without=["processes"])
    assert check_messages(peers()) > 60


def test_peers_do_not_say_how_many_rows_they_hold() -> None:
    def known(more: int) -> list[int]:
        tables = {p: {c: v * more for c, v in t.items()} for p, t in VOTES.items()}
        return [e.bytes for e in memory.run(peers(tables)).ledger]

    assert known(1) == known(50)


def test_peers_with_other_versions_settings_or_structures() -> None:
    told: dict[str, Any] = {"program": peers()["b"], "tag": "agree/plan"}
    old = Program(saying, {**told, "change": lambda hello: {**hello, "version": 0}})
    refused({**peers(), "b": old}, f"b runs fedcircuits {fc.__version__} with trial 0, expected ")
    refused(peers(b={"seed": 4}), "b has seed = 4, a has 3: all parties must have the same")
    refused(peers(b={"shape": {"units": 3}}), 'b has shape = {"units": 3}, a has {"depth": 1, ')
    refused(peers(b={"marginals": True}), "b has different settings from a")
    other = Program(saying, {**told, "tag": "agree/structure", "change": lambda d: {"digest": "1"}})
    refused({**peers(), "b": other}, "b drew different structures")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"x": ["u", "v"]}, "b has no column 'y', which a has: a trial tree needs parties with"),
        ({"x": ["u"], "y": [True]}, "b has 1 rows, expected 2 or more"),
        (
            {"x": ["u", "v"], "y": [0.5, 1.5]},
            "'y' is a boolean of False, True at a and a real at b",
        ),
    ],
)
def test_peers_with_other_tables(table: dict[str, Any], text: str) -> None:
    flows = peers()
    flows["b"].arguments["party"] = Party("b", Table.of(table))
    refused(flows, text)


def test_numbers_are_no_categories() -> None:
    with pytest.raises(FederationError, match="'x0' is a real: a trial tree supports categories"):
        list(peer(Party("a", Table.of(np.eye(3) / 2)), ("a",), {}))
