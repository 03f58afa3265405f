"""The primitive of vertical mixtures: terms of rows under K components, added over parties.

Every party has one number per row and component: its part of a log-density, or of a negative
squared distance. A mixture only needs to compare components, so instead of K numbers per row, K − 1
differences from the last component are sent, and one number for all rows:

    value   (K − 1) × rows differences, component by component; then Σ weight × last term
    result  computed from the sum over parties by the member that adds up

Starting rows are drawn in two steps, so that one seed gives one model although the common order,
that of tokens, changes with every run. The member that adds up draws from the sums how far the row
should be. From the rows at that distance (or from all rows, where nothing is added up) the first
party draws one in the order of its own table. Anybody who knows the seed and sees the draw learns
which row of that table it is.

    …/row         first party → all other members: the rows that it has drawn

A party adds 0 for rows that it does not hold: they count by what others know of them, which is
their exact marginal. A member without columns, such as a server, adds nothing.

With ``hops`` above 0 columns move first: every member of a hub sends its columns to the hub's root.

    hub/schema    member of a hub → its root: names, kinds and categories of its columns
    hub/columns   the same: positions of its rows in the common order (rows,), and their values
                  (rows, columns)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, broadcast, receive, send
from fedcircuits.federation.messages import (
    IntegerVector,
    Message,
    RealMatrix,
    blaming,
    require,
    require_places,
    require_shape,
)
from fedcircuits.federation.sums.collectives import Check, Collective, Summation, Then
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.learning.spn.clustering import draw_row
from fedcircuits.methods.meeting.hello import Method, leader_of, meet
from fedcircuits.methods.meeting.rows import MatchedRows, SampleWeights, match_rows
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

Columns = dict[str, tuple[Variable, ...]]  # by party
TWO_PARTIES = (
    "only two parties have columns: each can compute the other's terms for every row from the "
    "result, and with few columns nearly its values"
)

LARGE = 1 << 20
ALIKE = 1e-9  # of the largest: numbers that differ by less are taken to be equal
LARGEST_VALUE = 1e150
Terms = Callable[[slice], Array]  # (components, rows) of a range of the member's own rows


# ---------------------------------------------------------------------- sums


@dataclass(frozen=True, slots=True, eq=False)
class RowSums:
    """One member's end of the sums over rows in the common order."""

    collective: Collective
    rows: MatchedRows
    components: int
    draw: RowDraw

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
        """The entries of the member's own rows, from values (…, rows of the range)."""
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

    def drawn(
        self, tag: str, among: Labels | None, number: int, rng: np.random.Generator
    ) -> Flow[list[int]]:
        """Draw ``number`` of these rows, or of all rows: the first party draws and tells all
        others."""
        every = np.flatnonzero(self.rows.weight > 0) if among is None else among
        return (yield from self.draw.rows(f"{tag}/row", every, self.rows.weight, number, rng))

    def chosen(
        self,
        tag: str,
        value: Array,
        reveals: str,
        choice: Callable[[Array], Labels],
        rng: np.random.Generator,
    ) -> Flow[int]:
        """One of the rows that a choice finds in a sum over members."""
        total = self.rows.total

        def code(values: Array) -> Array:  # in numbers that float32 can hold
            return np.array(divmod(choice(values), LARGE), dtype=np.float64)

        def problem(values: Array) -> str:
            whole = values.ndim == 2 and len(values) == 2 and 0 < values.shape[1] <= total
            whole = whole and bool((values == np.floor(values)).all() and (values >= 0).all())
            fits = whole and bool((values[0] * LARGE + values[1] < total).all())
            return "" if fits else f"expected different rows below {total}"

        chosen = yield from self.collective.sum(f"{tag}/sum", value, reveals, code, problem)
        among = np.unique(chosen[0].astype(np.int64) * LARGE + chosen[1].astype(np.int64))
        return (yield from self.drawn(tag, among, 1, rng))[0]

    def worst(self, tag: str, terms: Terms, log_weights: Array, reveals: str) -> Flow[int]:
        """The row that all components together explain worst; one without weight does not count."""

        def lowest(total: Array) -> Labels:
            logs = np.logaddexp.reduce(total + log_weights[:, None], axis=0)
            logs = np.where(self.rows.weight > 0, logs, np.inf)
            least = float(logs.min())
            return np.flatnonzero(logs <= least + (ALIKE * abs(least) if least > -np.inf else 0.0))

        first = np.random.default_rng(0)
        return (yield from self.chosen(tag, self.every(terms), reveals, lowest, first))


class DrawnRows(Message, frozen=True):
    """Rows of the common order that the first party has drawn; the tag is the protocol's."""

    reveals: ClassVar[str] = "the rows at which the centres start"

    rows: IntegerVector


@dataclass(frozen=True, slots=True, eq=False)
class RowDraw:
    """One member's end of drawing rows."""

    me: str
    first: str  # the party that draws
    members: tuple[str, ...]
    matched: MatchedRows  # of the member's own table

    def rows(
        self, tag: str, among: Labels, weight: Array, number: int, rng: np.random.Generator
    ) -> Flow[list[int]]:
        """So many of these rows of the common order, as the first party has drawn them."""
        if self.me == self.first:
            drawn = self._drawn(among, weight, number, rng)
            others = [m for m in self.members if m != self.me]
            yield from broadcast(others, DrawnRows(np.array(drawn)), tag)
            return drawn
        rows = (yield from receive(self.first, DrawnRows, tag)).rows
        require_shape(rows, (number,), self.first, tag, "rows")
        fits = bool(((rows >= 0) & (rows < self.matched.total)).all())
        require(fits, self.first, tag, "rows", f"expected rows below {self.matched.total}")
        return [int(row) for row in rows]

    def _drawn(
        self, among: Labels, weight: Array, number: int, rng: np.random.Generator
    ) -> list[int]:
        """By weight, without replacement if possible: of its own rows in the order of its table, or
        of the others if it holds none of them."""
        place = np.empty(len(self.matched.at), np.int64)
        place[self.matched.order] = self.matched.at
        places_among = place[np.isin(place, among)]
        rows = places_among if len(places_among) else among
        left, picked = weight[rows].copy(), list[int]()
        for _ in range(number):
            at = draw_row(left if left.sum() > 0 else np.ones(len(rows)), rng)
            picked.append(int(rows[at]))
            left[at] = 0.0
        return picked


# ---------------------------------------------------------------------- who holds which columns


class HubSchema(Message, frozen=True):
    """Which columns move into a hub."""

    tag: ClassVar[str] = "hub/schema"
    reveals: ClassVar[str] = "names, kinds and categories of its columns"

    variables: tuple[Variable, ...]


class HubColumns(Message, frozen=True):
    """Columns that move into a hub, whole."""

    tag: ClassVar[str] = "hub/columns"
    needs: ClassVar[str] = "share_columns"

    at: IntegerVector  # (rows,): places in the common order, rising
    values: RealMatrix  # (rows, columns), NaN missing


@dataclass(frozen=True, slots=True)
class Setting:
    """Who runs which method, how they add up, and how rows and columns are brought together."""

    method: Method
    me: str
    parties: Sequence[str]
    summation: Summation
    rule: RowRule  # how rows are matched
    hubs: Sequence[Neighbourhood]

    @property
    def members(self) -> tuple[str, ...]:
        return self.summation.members(self.parties)

    def matched(
        self, party: Party | None, secret: bytes, weight: SampleWeights | None = None
    ) -> Flow[tuple[MatchedRows, dict[str, int]]]:
        """After hello: the member's rows in the common order; at the leader, rows of each party."""
        me, parties, leader = self.me, self.parties, leader_of(self.members)
        hellos = yield from meet(me, parties, leader, party, self.method)
        check_holders({p: hello.schema for p, hello in hellos.items()})
        rows = yield from match_rows(me, parties, leader, party, weight, secret, hellos, self.rule)
        return rows, {p: hello.rows for p, hello in hellos.items()}

    def columns(
        self, party: Party | None, rows: MatchedRows, components: int
    ) -> Flow[tuple[Table, RowSums]]:
        """The columns that the member works on, and its end of the sums over rows."""
        table, joined = yield from columns_at(self.me, party, rows, self.hubs)
        draw = RowDraw(self.me, self.parties[0], self.members, rows)
        return table, RowSums(self.summation.at(self.me, self.members), joined, components, draw)


def columns_at(
    me: str, party: Party | None, rows: MatchedRows, hubs: Sequence[Neighbourhood]
) -> Flow[tuple[Table, MatchedRows]]:
    """The columns that a member works on, in the common order: those of its table; at the root of a
    hub, those of the whole hub; none at other members of a hub or at a server.

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
        reveals = f"every value of {', '.join(map(repr, table.names))}"
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
    at = require_places(columns.at, total, sender, HubColumns, "at")
    fits = columns.values.shape == (len(at), len(schema))
    problem = f"expected {len(at)} rows of the {len(schema)} columns that {HubSchema.tag!r} names"
    require(fits, sender, HubColumns, "values", problem)
    small = not (np.abs(columns.values) > LARGEST_VALUE).any()  # NaN is missing
    problem = f"expected values up to {LARGEST_VALUE:g}, whose squares are numbers"
    require(small, sender, HubColumns, "values", problem)
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
    """The columns that each party works on, after moving into hubs; parties without any left
    out."""
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
                    f"{holder[name]} and {party} both have a column {name!r}: each column of a "
                    "vertical mixture has one holder; rename one, drop it, or use FedPC"
                )
            holder[name] = party


def check_enough(rows: MatchedRows, number: int, groups: str) -> None:
    """SiteError if there are fewer rows than components or clusters, or none that counts."""
    if not rows.weight.any():
        raise SiteError("sample_weight must be positive for some row, but all are 0")
    if number > rows.total:
        raise SiteError(
            f"{number:,} {groups} and {rows.total:,} rows: use at most as many as there are rows"
        )


def schemas_of(
    columns: Columns, parties: Sequence[str], leader: str, tag: str
) -> dict[str, Schema]:
    """The columns of each party, each with one holder, as a leader reports them under a tag."""
    known = columns.keys() == set(parties)
    require(known, leader, tag, "columns", f"expected those of {', '.join(parties)}")
    with blaming(leader, tag, "columns"):
        schemas = {p: Schema(columns[p]) for p in parties}
        check_holders(schemas)
    return schemas


def two_parties(held: Mapping[str, Schema]) -> list[str]:
    return [TWO_PARTIES] if len(held) == 2 else []
