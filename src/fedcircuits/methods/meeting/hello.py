"""The start of every run: each party announces what it runs and holds, and receives a plan.

With a leader, which is the coordinator or, without one, the first party:

    agree/hello       party → leader: the versions of fedcircuits and of the method; names, kinds,
                      categories and units of its columns, its number of rows, whether rows have ids
    agree/plan        leader → party: what the method asks of it. Plans of methods with a
                      coordinator begin with the fields of ``Assignment``

Among peers, each of which hears from all others and decides for itself:

    agree/plan        party → party: versions, settings and columns
    agree/structure   party → party: a digest of what all have drawn from the same seed

A leader learns who holds which columns and how many rows; peers learn each other's columns and
settings. Nothing about rows or parameters crosses here. Nobody continues after different versions,
different settings, or columns of one name with two meanings. rows.py matches rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec

from fedcircuits.errors import FederationError, VersionError
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import (
    Flow,
    broadcast,
    gather,
    receive,
    receive_record,
    send,
)
from fedcircuits.federation.messages import Count, Message, blaming, decode_message, require
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table
from fedcircuits.version import __version__

RowCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


@dataclass(frozen=True, slots=True)
class Method:
    """The method of a run: ``METHOD = Method("fedpc", 1)``.

    The version is raised whenever messages of the method change their meaning.
    """

    name: str
    version: int


class Versions(Message, frozen=True, forbid_unknown_fields=False):
    """What a party runs: decoded first, because other versions may have other fields."""

    library: str
    method: str
    version: Count

    def __str__(self) -> str:
        return f"{self.library} with {self.method} {self.version}"


class Introduction(Versions, frozen=True, forbid_unknown_fields=True):
    """What a party runs, and the variables it holds."""

    variables: tuple[Variable, ...]

    @property
    def schema(self) -> Schema:
        return Schema(self.variables)


class Hello(Introduction, frozen=True):
    """What a party sends to the leader of a run."""

    tag: ClassVar[str] = "agree/hello"
    reveals: ClassVar[str] = "names, kinds and categories of its columns; its number of rows"

    rows: RowCount
    ids: bool  # whether its rows have ids

    @classmethod
    def of(cls, table: Table, method: Method) -> Hello:
        facts = (table.schema.variables, len(table), table.row_ids is not None)
        return cls(__version__, method.name, method.version, *facts)


class PeerHello(Introduction, frozen=True):
    """What peers send each other; it does not include the number of rows."""

    tag: ClassVar[str] = "agree/plan"
    reveals: ClassVar[str] = "its settings; names, kinds and categories of its columns"

    settings: dict[str, str]  # each as JSON


class Assignment(Message, frozen=True):
    """What the coordinator asks a client to do. Methods add their own fields."""

    tag: ClassVar[str] = "agree/plan"
    reveals: ClassVar[str] = "who takes part"

    members: tuple[str, ...]
    variables: tuple[Variable, ...]  # of this client, in the kinds and categories of all
    tokens: bool  # whether rows are matched by tokens
    holders: tuple[str, ...] | None  # who sends the others its values of the target; None: nobody

    def routes(self, me: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """To whom a client sends its values of the target, and from whom it receives theirs."""
        if self.holders is None or me not in self.holders:
            return (), self.holders or ()
        return tuple(m for m in self.members if m not in self.holders), ()


A = TypeVar("A", bound=Assignment)
H = TypeVar("H", bound=Introduction)


# ---------------------------------------------------------------------- under a leader


def introduce(
    party: Party,
    method: Method,
    kind: type[A],
    target: str | None = None,
    members: Sequence[str] | None = None,
) -> Flow[tuple[A, Table]]:
    """A client says hello; its assignment, and its table in the kinds and codes of all.

    ``target``: the column whose values holders may send to others, None for nothing; ``members``:
    who takes part, if known.
    """
    yield from send(COORDINATOR, Hello.of(party.table, method))
    assignment = yield from receive(COORDINATOR, kind)
    known = assignment.members if members is None else tuple(members)
    _check_assignment(party, assignment, target, known)
    with blaming(COORDINATOR, kind, "variables"):
        return assignment, in_agreed(party.table, Schema(assignment.variables))


def _check_assignment(
    party: Party, assignment: Assignment, target: str | None, members: tuple[str, ...]
) -> None:
    me, table, holders = party.name, party.table, assignment.holders
    names = {v.name for v in assignment.variables}
    asked = any(assignment.routes(me))
    ordered = holders is None or (
        bool(holders) and holders == tuple(m for m in members if m in holders)
    )
    same = holders is None or (me in holders) == (target in table.schema)
    for field, holds, problem in (
        ("members", assignment.members == members, f"expected {', '.join(members)}"),
        ("members", me in members, f"{me} is not among them"),
        ("members", len(set(members)) == len(members), "a party is named twice"),
        ("variables", names == set(table.names), f"expected those of {me}"),
        ("holders", holders is None or target is not None, "the target is not shared"),
        ("holders", ordered, "expected members in their order"),
        ("holders", same, f"expected {me} if it holds {target!r}"),
        ("tokens", assignment.tokens or not asked, "values of the target are sent by row token"),
        ("tokens", not assignment.tokens or table.row_ids is not None, "rows have no ids"),
    ):
        require(holds, COORDINATOR, assignment.tag, field, problem)


def hellos_of(members: Sequence[str], method: Method) -> Flow[dict[str, Hello]]:
    """At the leader: what every other member holds, in the order of members."""
    hellos = yield from _introductions(members, Hello, method)
    for party, hello in hellos.items():
        check_rows(party, hello.rows)
    return hellos


def _introductions(members: Sequence[str], kind: type[H], method: Method) -> Flow[dict[str, H]]:
    """The introductions of parties with the same versions; others are refused, naming both."""
    versions = Versions(__version__, method.name, method.version)
    introductions: dict[str, H] = {}
    for party in members:
        data = yield from receive_record(party, kind)
        theirs = decode_message(Versions, data, party, kind.tag)
        if theirs != versions:
            problem = f"fedcircuits {theirs}, expected {versions}"
            raise VersionError(party, kind.tag, "version", problem)
        introductions[party] = decode_message(kind, data, party, kind.tag)
        with blaming(party, kind, "variables"):
            Schema(introductions[party].variables)
    return introductions


def meet(
    me: str, parties: Sequence[str], leader: str, party: Party | None, method: Method
) -> Flow[dict[str, Hello]]:
    """Where the leader may be a party: at the leader every party's hello, elsewhere one's own."""
    mine = {} if party is None else {me: Hello.of(party.table, method)}
    if me != leader:
        yield from send(leader, mine[me])
        return mine
    for hello in mine.values():
        check_rows(me, hello.rows)
    hellos = mine | (yield from hellos_of([p for p in parties if p != me], method))
    return {p: hellos[p] for p in parties}


def leader_of(members: Sequence[str]) -> str:
    return COORDINATOR if COORDINATOR in members else members[0]


def check_rows(party: str, rows: int, least: int = 1) -> None:
    if rows < least:
        problem = f"{rows} rows, expected {least} or more" if least > 1 else "no rows to learn from"
        raise FederationError(f"{party} has {problem}")


# ---------------------------------------------------------------------- among peers


def agreed_table(
    party: Party,
    members: Sequence[str],
    method: Method,
    settings: Mapping[str, object],
    model: str,
    least: int = 1,
) -> Flow[Table]:
    """Everybody sends everybody its settings, and continues only if all are the same.

    The result is the party's table in the codes that all mean, with columns in one order for all.
    ``model``: what they learn, for error messages; ``least``: the rows that a party needs.
    """
    check_rows(party.name, len(party.table), least)
    written = {name: json.dumps(value, sort_keys=True) for name, value in settings.items()}
    variables = party.table.schema.variables
    others = [m for m in members if m != party.name]
    hello = PeerHello(__version__, method.name, method.version, variables, written)
    yield from broadcast(others, hello)
    hellos = yield from _introductions(others, PeerHello, method)
    for other, theirs in hellos.items():
        _check_settings(party.name, written, other, theirs.settings)
    schemas = {m: party.table.schema if m == party.name else hellos[m].schema for m in members}
    return in_agreed(party.table, same_variables(schemas, model)).select(schemas[members[0]].names)


def _check_settings(
    me: str, ours: Mapping[str, str], other: str, theirs: Mapping[str, str]
) -> None:
    if ours.keys() != theirs.keys():
        raise FederationError(
            f"{other} has different settings from {me}: give all parties the same plan"
        )
    for name, value in ours.items():
        if theirs[name] != value:
            raise FederationError(
                f"{other} has {name} = {theirs[name]}, {me} has {value}: all parties must have "
                "the same settings"
            )


def same_variables(schemas: Mapping[str, Schema], model: str) -> Schema:
    """What all mean by their columns, or FederationError: categories that every party holds."""
    agreed = agree(schemas)
    for party, schema in schemas.items():
        if absent := [n for n in agreed.names if n not in schema]:
            holder = next(p for p, s in schemas.items() if absent[0] in s)
            raise FederationError(
                f"{party} has no column {absent[0]!r}, which {holder} has: a {model} needs "
                "parties with different rows of the same columns"
            )
    for variable in agreed:
        if not variable.size:
            raise FederationError(
                f"{variable.name!r} is a {variable.kind}: a {model} supports categories and "
                "booleans only; bin numbers into categories"
            )
    return agreed


class StructureDigest(Message, frozen=True):
    """A digest of what all must have drawn identically."""

    tag: ClassVar[str] = "agree/structure"
    reveals: ClassVar[str] = "a digest of the public structures"

    digest: str


def same_structures(me: str, members: Sequence[str], digest: str) -> Flow[None]:
    """FederationError unless all have drawn the same."""
    others = [m for m in members if m != me]
    yield from broadcast(others, StructureDigest(digest))
    for other, theirs in (yield from gather(others, StructureDigest)).items():
        if theirs.digest != digest:
            raise FederationError(
                f"{other} drew different structures from the same seed than {me}: install the "
                "same versions of fedcircuits and numpy at all parties"
            )
