"""Which component or cluster rows belong to, after training; every role.

Of rows that parties hold (a federation): as an E-step, with one sum of K terms a row.

    answer/terms     party → sum: log-densities, or negative squared distances (K × rows).
                     result: K − 1 responsibilities and the log-density of a row, or its cluster.

Of rows that somebody asks about (a table): the asker sends each party its own columns of them.

    query/evidence   coordinator → party: rows of its columns, NaN where nothing is known.
    query/terms      party → coordinator: their terms (K × rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.methods.vertical.centres import Space
from fedcircuits.methods.vertical.rows import gathered, leader_of, rows_of
from fedcircuits.methods.vertical.sums import Sums
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

TERMS = "how likely or near each component finds rows, in its columns"


class Terms(Protocol):
    """What a party has learned, asked about rows."""

    @property
    def schema(self) -> Schema: ...
    def of(self, values: Array) -> Array:
        """(components, rows) of values (rows, columns)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Densities:
    """Log-densities under a party's leaves, one a component."""

    view: View

    @property
    def schema(self) -> Schema:
        return self.view.schema

    def of(self, values: Array) -> Array:
        leaves = [self.view.leaf(leaf.name) for leaf in self.view.leaves]
        return np.stack([leaf.log_values_within(values, {}) for leaf in leaves])


@dataclass(frozen=True, slots=True, eq=False)
class Nearness:
    """Negative squared distances from a party's part of the centres."""

    space: Space
    centres: Array

    @property
    def schema(self) -> Schema:
        return self.space.schema

    def of(self, values: Array) -> Array:
        return -self.space.points(values).distances(self.centres, slice(0, len(values)))


@dataclass(frozen=True, slots=True, eq=False)
class Mixing:
    """``then`` of a mixture: responsibilities of all components but the last, and log-densities."""

    log_weights: Array  # (components,)

    def __call__(self, total: Array) -> Array:
        joint = total + self.log_weights[:, None]
        top = joint.max(axis=0)
        share = np.exp(joint - top)
        size = share.sum(axis=0)
        return np.vstack([share[:-1] / size, top + np.log(size)])


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """``then`` of k-means: the nearest centre."""

    def __call__(self, total: Array) -> Array:
        return np.asarray(total.argmax(axis=0)[None], np.float64)


def member(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    learned: Terms | None,
    components: int,
    then: Mixing | Best,
    summation: Summation,
    secret: bytes,
    hubs: Sequence[Neighbourhood] = (),
) -> Flow[Array]:
    """What ``then`` says of the member's own rows (…, own rows), in the order of its table."""
    members = summation.members(parties)
    rows = yield from rows_of(me, parties, leader_of(members), party, None, secret)
    table = None if party is None else party.table.rows(rows.order)
    table, joined = yield from gathered(me, table, rows, hubs)
    sums = Sums(summation.at(me, members), joined, components)
    terms = None
    if learned is not None and table is not None and table.names:
        values, model = _arranged(table, learned.schema), learned
        found = yield from compute("evaluating its rows", lambda: model.of(values))
        terms = partial(_part, found)
    result = yield from sums.full("answer/terms", terms, TERMS, then)
    own = np.zeros((len(result), len(rows.order)))
    own[:, rows.order] = result[:, rows.at]
    return own


def _part(found: Array, rows: slice) -> Array:
    return found[:, rows]


def _arranged(table: Table, schema: Schema) -> Array:
    """(rows, columns of the schema), NaN where the table has none."""
    values = np.full((len(table), len(schema)), np.nan)
    for i, name in enumerate(schema.names):
        if name in table.schema:
            values[:, i] = table.values[:, table.schema.index(name)]
    return values


def asker(evidence: Mapping[str, Array]) -> Flow[Array]:
    """Terms (components, rows) of rows by party, added up."""
    for party, values in evidence.items():
        yield from send_payload(
            party, "query/evidence", values, "values of its columns in rows asked about"
        )
    total: Array | None = None
    for party in evidence:
        tag = "query/terms"
        found = np.asarray(expect((yield from recv_payload(party, tag)), np.ndarray, party, tag))
        total = found if total is None else total + found
    assert total is not None
    return total


def answerer(learned: Terms) -> Flow[None]:
    tag = "query/evidence"
    heard = expect((yield from recv_payload(COORDINATOR, tag)), np.ndarray, COORDINATOR, tag)
    values = np.array(heard, np.float64)
    found = yield from compute("evaluating rows", lambda: learned.of(values))
    yield from send_payload(COORDINATOR, "query/terms", found, TERMS)
