"""The one primitive of vertical mixtures: terms of rows under K components, added over parties.

Every party has one number per row and component: its part of a log-density, or of a negative
squared distance. What a mixture needs is how components compare, so K − 1 differences to the last
component travel per row instead of K numbers, and one number for all rows:

    value   (K − 1) × rows differences, component by component; then Σ weight × last term
    result  what whoever adds up makes of the sum over parties

A party adds 0 for rows that it does not hold: they count by what others know of them, which is
their exact marginal. A member without columns, such as a server, adds nothing.

With ``hops`` above 0 columns move first: every member of a hub sends them whole to the hub's root.

    hub/schema    member of a hub → its root: names, kinds and categories of its columns
    hub/columns   the same: places of its rows in the common order (rows,), and their values
                  (rows, columns)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import (
    IntegerVector,
    Message,
    RealMatrix,
    blaming,
    require,
)
from fedcircuits.federation.sums.collectives import Check, Collective, Then
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.meeting.rows import MatchedRows
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

LARGE = 1 << 20
FINITE = float(np.finfo(np.float64).max)
TWO_PARTIES = (
    "there are two parties with columns: each can work out the other's terms of every row from the "
    "result, and nearly its values where these are few columns"
)
Terms = Callable[[slice], Array]  # (components, rows) of a range of the member's own rows


# ---------------------------------------------------------------------- sums


@dataclass(frozen=True, slots=True, eq=False)
class RowSums:
    """One member's end of the sums over rows in the common order."""

    collective: Collective
    rows: MatchedRows
    components: int

    @property
    def everything(self) -> slice:
        return slice(0, self.rows.total)

    def held_range(self, part: slice) -> slice:
        """The member's own rows in a range of the common order."""
        if self.rows.complete:
            return part
        first, last = np.searchsorted(self.rows.at, [part.start, part.stop])
        return slice(int(first), int(last))

    def held(self, values: Array, part: slice) -> Array:
        """Of values (…, rows of the range) those of the member's own rows."""
        if self.rows.complete:
            return values
        return values[..., self.rows.at[self.held_range(part)] - part.start]

    def position(self, row: int) -> int | None:
        """Where the member has a row of the common order."""
        at = int(np.searchsorted(self.rows.at, row))
        return at if at < len(self.rows.at) and self.rows.at[at] == row else None

    def compared(
        self, tag: str, terms: Terms, part: slice, reveals: str, then: Then, check: Check
    ) -> Flow[Array]:
        """``then`` of the differences and the number for all rows, added over members."""
        size = part.stop - part.start
        value = np.zeros((self.components - 1) * size + 1)
        term, weight = terms(self.held_range(part)), self.held(self.rows.weight[part], part)
        differences = value[:-1].reshape(-1, size)
        if self.rows.complete:
            np.subtract(term[:-1], term[-1], out=differences)
        else:
            at = self.rows.at[self.held_range(part)] - part.start
            differences[:, at] = term[:-1] - term[-1]
        value[-1] = weight @ term[-1]
        return (yield from self.collective.sum(tag, value, reveals, then, check))

    def every(self, terms: Terms) -> Array:
        """(components, rows): all terms of the member, to be added up as they are."""
        value = np.zeros((self.components, self.rows.total))
        value[:, self.rows.at] = terms(slice(0, len(self.rows.at)))
        return value

    def chosen(
        self, tag: str, value: Array, reveals: str, choice: Callable[[Array], int]
    ) -> Flow[int]:
        """The row that a choice finds in a sum over members, as the leader has found it."""
        high, low = divmod(self.rows.total - 1, LARGE)
        low = LARGE - 1 if high else low
        check = expected((2,), Span(1, 0, high, whole=True), Span(1, 0, low, whole=True))

        def code(total: Array) -> Array:
            return np.array(divmod(choice(total), LARGE), dtype=np.float64)

        row = yield from self.collective.sum(f"{tag}/sum", value, reveals, code, check)
        row = yield from self.collective.agree(f"{tag}/row", row, "a row to begin at", check)
        return int(row[0]) * LARGE + int(row[1])

    def worst(self, tag: str, terms: Terms, log_weights: Array, reveals: str) -> Flow[int]:
        """The row that all components together explain worst; one without weight does not count."""

        def lowest(total: Array) -> int:
            logs = np.logaddexp.reduce(total + log_weights[:, None], axis=0)
            return int(np.where(self.rows.weight > 0, logs, np.inf).argmin())

        return (yield from self.chosen(tag, self.every(terms), reveals, lowest))


class Span(NamedTuple):
    """So many numbers in a row, and their range."""

    size: int
    least: float
    most: float
    whole: bool = False


def expected(shape: tuple[int, ...], *spans: Span) -> Check:
    """A check of numbers that arrive: of this shape, and in these spans one after the other."""

    def problem(values: Array) -> str:
        if values.shape != shape:
            return f"expected numbers of the shape {shape}, got {values.shape}"
        first, flat = 0, values.reshape(-1).astype(np.float64, copy=False)
        for size, least, most, whole in spans:
            x = flat[first : first + size]
            fits = x.min(initial=most) >= least and x.max(initial=least) <= most  # not if NaN
            if not fits or (whole and (x != np.floor(x)).any()):
                return f"expected {'whole ' if whole else ''}numbers from {least:g} to {most:g}"
            first += size
        return ""

    return problem


def drawn(weight: Array, rng: np.random.Generator) -> int:
    """A row with a chance in proportion to its weight."""
    total = np.cumsum(weight)
    return min(int(np.searchsorted(total, rng.random() * total[-1], "right")), len(total) - 1)


# ---------------------------------------------------------------------- who holds which columns


class HubSchema(Message, frozen=True):
    """Which columns move into a hub."""

    tag: ClassVar[str] = "hub/schema"

    variables: tuple[Variable, ...]


class HubColumns(Message, frozen=True):
    """Columns that move into a hub, whole."""

    tag: ClassVar[str] = "hub/columns"

    at: IntegerVector  # (rows,): places in the common order, rising
    values: RealMatrix  # (rows, columns), NaN missing


def columns_at(
    me: str, party: Party | None, rows: MatchedRows, hubs: Sequence[Neighbourhood]
) -> Flow[tuple[Table, MatchedRows]]:
    """The columns that a member works on, in the common order: those of its own table, at the root
    of a hub those of the whole hub, and none at its other members or at a server.

    Rows that some member of the hub lacks are missing in its columns.
    """
    if party is None:
        return Table(Schema(()), np.zeros((0, 0))), rows
    table = party.table.rows(rows.order)
    hub = next((h for h in hubs if me in h.members), None)
    if hub is None or len(hub.members) == 1:
        return table, rows
    if me != hub.root:
        yield from send(hub.root, HubSchema(table.schema.variables))
        reveals = f"all values of {', '.join(map(repr, table.names))}"
        yield from send(hub.root, HubColumns(rows.at, table.values), reveals=reveals)
        return table.select([]), rows
    tables, places = {me: table}, {me: rows.at}
    for other in (m for m in hub.members if m != me):
        known = [n for t in tables.values() for n in t.names]
        tables[other], places[other] = yield from _columns_of(other, rows.total, known)
    return _joined([(tables[m], places[m]) for m in hub.members], rows)


def _columns_of(sender: str, total: int, known: Sequence[str]) -> Flow[tuple[Table, Labels]]:
    """What a member of the hub sends to its root; ``known``: names of columns that are there."""
    variables = (yield from receive(sender, HubSchema)).variables
    with blaming(sender, HubSchema, "variables"):
        schema = Schema(variables)
    twice = next((n for n in schema.names if n in known), "")
    require(not twice, sender, HubSchema, "variables", f"another party has {twice!r}, too")
    columns = yield from receive(sender, HubColumns)
    at = np.asarray(columns.at, np.int64)
    rising = bool((at[1:] > at[:-1]).all() and (at >= 0).all() and (at < total).all())
    problem = f"expected different places below {total} in rising order"
    require(rising, sender, HubColumns, "at", problem)
    fits = columns.values.shape == (len(at), len(schema))
    problem = f"expected {len(at)} rows of the {len(schema)} columns that {HubSchema.tag!r} names"
    require(fits, sender, HubColumns, "values", problem)
    with blaming(sender, HubColumns, "values"):
        return Table(schema, np.asarray(columns.values, np.float64)), at


def _joined(parts: Sequence[tuple[Table, Labels]], rows: MatchedRows) -> tuple[Table, MatchedRows]:
    at = np.unique(np.concatenate([places for _, places in parts]))
    schema = Schema(tuple(v for table, _ in parts for v in table.schema))
    values = np.full((len(at), len(schema)), np.nan)
    column = 0
    for table, places in parts:
        width = len(table.schema)
        values[np.searchsorted(at, places), column : column + width] = table.values
        column += width
    return Table(schema, values), replace(rows, at=at)


def holders(schemas: Mapping[str, Schema], hubs: Sequence[Neighbourhood]) -> dict[str, Schema]:
    """Who works on which columns, after they have moved into hubs; without who has none."""
    root = {m: hub.root for hub in hubs for m in hub.members}
    members: dict[str, list[str]] = {}
    for party in schemas:
        members.setdefault(root.get(party, party), []).append(party)
    joined = {p: [v for m in each for v in schemas[m]] for p, each in members.items()}
    return {p: Schema(tuple(joined[p])) for p in schemas if joined.get(p)}


def check_holders(schemas: Mapping[str, Schema]) -> None:
    """FederationError unless every column has one holder."""
    holder: dict[str, str] = {}
    for party, schema in schemas.items():
        for name in schema.names:
            if name in holder:
                raise FederationError(
                    f"{holder[name]} and {party} both have a column {name!r}: columns of a "
                    "vertical mixture have one holder; rename one, leave it out, or use FedPC"
                )
            holder[name] = party


def notes_on(rows: MatchedRows, hubs: Sequence[Neighbourhood]) -> tuple[str, ...]:
    """At the leader: what users should know about these parties and rows."""
    two = len(holders(rows.schemas, hubs)) == 2
    return (*rows.notes, TWO_PARTIES) if two else rows.notes
