"""The one primitive of vertical mixtures: terms of rows under K components, added over parties.

Every party has one number per row and component: its part of a log-density, or of a negative
squared distance. What a mixture needs is how components compare, so K − 1 differences to the last
component travel per row instead of K numbers, and one number for all rows:

    value   (K − 1) × rows differences, component by component; then Σ weight × last term
    result  what a ``Reduction`` makes of the sum over parties

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
from typing import ClassVar, NamedTuple, Protocol

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
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.meeting.rows import MatchedRows
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

LARGE = 1 << 20  # the place of a row travels as two numbers, each exact in single precision
FINITE = float(np.finfo(np.float64).max)
TWO_PARTIES = (
    "there are two parties with columns: each can work out the other's terms of every row from the "
    "result, and nearly its values where these are few columns"
)
Terms = Callable[[slice], Array]  # (components, rows) of a range of the member's own rows


# ---------------------------------------------------------------------- sums


class Reduction(Protocol):
    """What is made of a sum over parties, by whoever adds up."""

    def __call__(self, total: Array) -> Array: ...
    def problem(self, result: Array) -> str:
        """What is wrong with a result that arrived, or nothing."""
        ...


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
        self, tag: str, terms: Terms, part: slice, reveals: str, reduction: Reduction
    ) -> Flow[Array]:
        """What the reduction makes of the differences, and of the number for all rows."""
        size = part.stop - part.start
        value = np.zeros((self.components - 1) * size + 1)
        own, weight = terms(self.held_range(part)), self.held(self.rows.weight[part], part)
        differences = value[:-1].reshape(-1, size)
        if self.rows.complete:
            np.subtract(own[:-1], own[-1], out=differences)
        else:
            at = self.rows.at[self.held_range(part)] - part.start
            differences[:, at] = own[:-1] - own[-1]
        value[-1] = weight @ own[-1]
        return (yield from self.collective.sum(tag, value, reveals, reduction, reduction.problem))

    def full(self, tag: str, terms: Terms, reveals: str, reduction: Reduction) -> Flow[Array]:
        """What the reduction makes of all terms (components, rows)."""
        value = np.zeros((self.components, self.rows.total))
        value[:, self.rows.at] = terms(slice(0, len(self.rows.at)))
        return (yield from self.collective.sum(tag, value, reveals, reduction, reduction.problem))

    def agree(
        self, tag: str, value: Sequence[float], reveals: str, problem: Callable[[Array], str]
    ) -> Flow[list[float]]:
        """The leader's numbers, at every member."""
        agreed = yield from self.collective.agree(tag, np.array(value), reveals, problem)
        return [float(x) for x in agreed]

    def chosen(self, tag: str, code: Array, reduction: Reduction) -> Flow[int]:
        """The row that the leader has found in a sum; ``code``: the one found here."""
        reveals = "a row to begin at"
        high, low = yield from self.agree(tag, code.tolist(), reveals, reduction.problem)
        return int(high) * LARGE + int(low)

    def worst(self, tag: str, terms: Terms, log_weights: Array, reveals: str) -> Flow[int]:
        """The row that all components together explain worst."""
        lowest = LowestRow(log_weights, self.rows.weight)
        code = yield from self.full(f"{tag}/sum", terms, reveals, lowest)
        return (yield from self.chosen(f"{tag}/row", code, lowest))


@dataclass(frozen=True, slots=True, eq=False)
class Normalised:
    """The E-step: responsibilities from summed differences.

    From K − 1 differences per row and the sum of last terms it makes K − 1 responsibilities per row
    and the log-likelihood of all rows.
    """

    log_weights: Array  # (components,)
    weight: Array  # (rows,)

    def __call__(self, total: Array) -> Array:
        last = self.log_weights[-1]
        out = np.empty(len(total))
        logits = out[:-1].reshape(-1, len(self.weight))
        np.add(
            total[:-1].reshape(logits.shape), (self.log_weights[:-1] - last)[:, None], out=logits
        )
        top = logits.max(axis=0, initial=0.0)
        logits -= top
        np.exp(logits, out=logits)
        size = logits.sum(axis=0) + np.exp(-top)
        logits /= size
        top += np.log(size)
        out[-1] = total[-1] + self.weight @ top + last * self.weight.sum()
        return out

    def problem(self, result: Array) -> str:
        size = (len(self.log_weights) - 1) * len(self.weight)
        return numbers_problem(result, (size + 1,), Span(size, 0, 1), Span(1, -np.inf, FINITE))


def responsibilities(result: Array, components: int, rows: int) -> Array:
    """(components, rows) of a ``Normalised`` result."""
    first = result[:-1].reshape(components - 1, rows)
    return np.vstack([first, np.maximum(1.0 - first.sum(axis=0), 0.0)])


@dataclass(frozen=True, slots=True, eq=False)
class LowestRow:
    """The row of lowest density under all components together, as a code."""

    log_weights: Array  # (components,)
    weight: Array  # (rows,): one without weight does not count

    def __call__(self, total: Array) -> Array:
        logs = np.logaddexp.reduce(total + self.log_weights[:, None], axis=0)
        return row_code(int(np.where(self.weight > 0, logs, np.inf).argmin()))

    def problem(self, result: Array) -> str:
        return code_problem(result, len(self.weight))


def row_code(row: int) -> Array:
    return np.array(divmod(row, LARGE), dtype=np.float64)


def code_problem(code: Array, rows: int) -> str:
    """What is wrong with the code of one of so many rows, or nothing."""
    if problem := numbers_problem(code, (2,), Span(2, 0, LARGE - 1, whole=True)):
        return problem
    row = int(code[0]) * LARGE + int(code[1])
    return "" if row < rows else f"expected one of {rows} rows, got {row}"


class Span(NamedTuple):
    """So many numbers in a row, and their range."""

    size: int
    least: float
    most: float
    whole: bool = False


def numbers_problem(values: Array, shape: tuple[int, ...], *spans: Span) -> str:
    """What is wrong with numbers of this shape, which fall into spans, or nothing."""
    if values.shape != shape:
        return f"expected numbers of the shape {shape}, got {values.shape}"
    first, flat = 0, values.reshape(-1).astype(np.float64)
    for size, least, most, whole in spans:
        x = flat[first : first + size]
        if not ((x >= least) & (x <= most)).all() or (whole and (x % 1).any()):
            return f"expected {'whole ' if whole else ''}numbers from {least:g} to {most:g}"
        first += size
    return ""


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
