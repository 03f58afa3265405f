"""Which component or cluster rows belong to, after training: every role.

For rows that parties hold (a federation): as an E-step, with one sum of K terms per row.

    answer/terms     party → sum: log-densities, or negative squared distances (K × rows).
                     result: K − 1 responsibilities and the log-density of each row, or its cluster.

For rows that somebody asks about (a table): the asker sends each party its own columns of them.

    query/evidence   coordinator → party: rows of its columns, NaN where nothing is known.
    query/terms      party → coordinator: their terms (K × rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, gather, receive, send
from fedcircuits.federation.messages import Message, RealMatrix, blaming, require, require_shape
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.methods.meeting.hello import Method, leader_of, meet
from fedcircuits.methods.meeting.rows import match_rows
from fedcircuits.methods.vertical.kmeans import PartyCentres
from fedcircuits.methods.vertical.rows import (
    FINITE,
    RowSums,
    Span,
    check_holders,
    columns_at,
    numbers_problem,
)
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

METHOD = Method("vertical answers", 1)
TERMS = "how likely or near each component finds rows, in its columns"


@dataclass(frozen=True, slots=True, eq=False)
class PartyDensities:
    """Log-densities under a party's leaves, one per component."""

    view: View

    @property
    def schema(self) -> Schema:
        return self.view.schema

    @property
    def components(self) -> int:
        return len(self.view.leaves)

    def terms(self, values: Array) -> Array:
        leaves = [self.view.leaf(leaf.name) for leaf in self.view.leaves]
        return np.stack([leaf.log_values_within(values, {}) for leaf in leaves])


LearnedTerms: TypeAlias = PartyDensities | PartyCentres  # terms of rows in a party's columns


# ---------------------------------------------------------------------- what follows from terms


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Responsibilities of all components but the last, and log-densities: (components, rows)."""

    log_weights: Array  # (components,)
    rows: int

    def __call__(self, total: Array) -> Array:
        joint = total + self.log_weights[:, None]
        top = joint.max(axis=0)
        share = np.exp(joint - top)
        size = share.sum(axis=0)
        return np.vstack([share[:-1] / size, top + np.log(size)])

    def problem(self, result: Array) -> str:
        shape, others = (len(self.log_weights), self.rows), len(self.log_weights) - 1
        spans = Span(others * self.rows, 0, 1), Span(self.rows, -np.inf, FINITE)
        return numbers_problem(result, shape, *spans)


@dataclass(frozen=True, slots=True, eq=False)
class NearestCluster:
    """The cluster of every row: (1, rows)."""

    clusters: int
    rows: int

    def __call__(self, total: Array) -> Array:
        return np.asarray(total.argmax(axis=0)[None], np.float64)

    def problem(self, result: Array) -> str:
        labels = Span(self.rows, 0, self.clusters - 1, whole=True)
        return numbers_problem(result, (1, self.rows), labels)


# ---------------------------------------------------------------------- rows that parties hold


def member(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    learned: LearnedTerms | None,
    components: int,
    log_weights: Array | None,
    summation: Summation,
    secret: bytes,
    hubs: Sequence[Neighbourhood] = (),
) -> Flow[Array]:
    """What follows for the member's own rows (…, own rows), in the order of its table: the
    posterior of components with these weights, or without weights the nearest cluster."""
    members = summation.members(parties)
    leader = leader_of(members)
    hellos = yield from meet(me, parties, leader, party, METHOD)
    check_holders({p: hello.schema for p, hello in hellos.items()})
    rows = yield from match_rows(me, parties, leader, party, None, secret, hellos)
    table, joined = yield from columns_at(me, party, rows, hubs)
    terms = np.zeros((components, len(joined.at)))
    if learned is not None and table.names:
        values, model = _arranged(table, learned.schema), learned
        terms = yield from compute("evaluating its rows", lambda: model.terms(values))
    sums = RowSums(summation.at(me, members), joined, components)
    reduction = (
        NearestCluster(components, rows.total)
        if log_weights is None
        else Posterior(log_weights, rows.total)
    )
    result = yield from sums.full("answer/terms", lambda part: terms[:, part], TERMS, reduction)
    own = np.zeros((len(result), len(rows.order)))
    own[:, rows.order] = result[:, rows.at]
    return own


def _arranged(table: Table, schema: Schema) -> Array:
    """(rows, columns of the schema), NaN where the table has none."""
    values = np.full((len(table), len(schema)), np.nan)
    for i, name in enumerate(schema.names):
        if name in table.schema:
            values[:, i] = table.values[:, table.schema.index(name)]
    return values


# ---------------------------------------------------------------------- rows of a table


class RowEvidence(Message, frozen=True):
    """Rows that somebody asks about, in the columns of one party."""

    tag: ClassVar[str] = "query/evidence"
    reveals: ClassVar[str] = "values of its columns in rows asked about"

    values: RealMatrix  # (rows, columns), NaN where nothing is known


class RowTerms(Message, frozen=True):
    """Terms of these rows under all components, in the columns of one party."""

    tag: ClassVar[str] = "query/terms"
    reveals: ClassVar[str] = TERMS

    terms: RealMatrix  # (components, rows)


def asker(evidence: Mapping[str, Array], components: int) -> Flow[Array]:
    """Terms (components, rows) of rows by party, added up."""
    for party, values in evidence.items():
        yield from send(party, RowEvidence(values))
    total: Array | None = None
    for party, reply in (yield from gather(tuple(evidence), RowTerms)).items():
        require_shape(reply.terms, (components, len(evidence[party])), party, RowTerms, "terms")
        problem = "expected numbers, or minus infinity"
        require(bool((reply.terms < np.inf).all()), party, RowTerms, "terms", problem)
        total = reply.terms if total is None else total + reply.terms
    assert total is not None
    return total


def answerer(learned: LearnedTerms) -> Flow[None]:
    evidence = yield from receive(COORDINATOR, RowEvidence)
    columns = len(learned.schema)
    require_shape(evidence.values, (None, columns), COORDINATOR, RowEvidence, "values")
    values = np.array(evidence.values, np.float64)
    with blaming(COORDINATOR, RowEvidence, "values"):
        Table(learned.schema, values)
    terms = yield from compute("evaluating rows", lambda: learned.terms(values))
    yield from send(COORDINATOR, RowTerms(terms))
