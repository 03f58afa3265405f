"""The components or clusters of rows, after training: every role.

For rows that parties hold (a federation), one sum of K terms per row, as in an E-step:

    answer/terms     party → sum: log-densities, or negative squared distances (K × rows).
                     result: K − 1 responsibilities and the log-density of each row, or its cluster.
    answer/order     party → coordinator: the position of each row of its table in the common order.
    answer/rows      first party → coordinator, without a server: the result for all rows.

For rows of a table that somebody asks about, the asker sends each party its columns of them:

    query/evidence   coordinator → party: rows of its columns, NaN where nothing is known.
    query/terms      party → coordinator: their terms (K × rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import QueryError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, gather, receive, send
from fedcircuits.federation.messages import (
    Count,
    IntegerVector,
    Message,
    RealMatrix,
    blaming,
    require,
    require_shape,
)
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import FINITE, Check, Span, Summation, Then, expected
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.methods.meeting.hello import Method, leader_of
from fedcircuits.methods.meeting.rows import MatchedRows
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.vertical.points import PartyCentres
from fedcircuits.methods.vertical.rows import Setting
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

METHOD = Method("vertical answers", 2)
TERMS = "per row, the log-density or squared distance of its columns under each component"


@dataclass(frozen=True, slots=True, eq=False)
class PartyDensities:
    """Log-densities under a party's leaves, one per component."""

    view: View

    @property
    def schema(self) -> Schema:
        return self.view.schema

    def terms(self, values: Array) -> Array:
        leaves = [self.view.leaf(leaf.name) for leaf in self.view.leaves]
        return np.stack([leaf.log_values_within(values, {}) for leaf in leaves])


Learned: TypeAlias = View | PartyCentres  # what a party has for terms of rows in its columns


def _terms_of(learned: Learned) -> PartyDensities | PartyCentres:
    """QueryError for leaves of another method that nobody is told about one by one."""
    if not isinstance(learned, View):
        return learned
    if learned.answers == "root":
        raise QueryError(f"{learned.me} does not answer for single leaves of this model")
    return PartyDensities(learned)


def posterior(log_weights: Array, terms: Array) -> Array:
    """Responsibilities of all components but the last, and log-densities: (components, rows)."""
    joint = terms + log_weights[:, None]
    top = joint.max(axis=0)
    share = np.exp(joint - top)
    size = share.sum(axis=0)
    return np.vstack([share[:-1] / size, top + np.log(size)])


def nearest_cluster(terms: Array) -> Array:
    """(1, rows)."""
    return np.asarray(terms.argmax(axis=0)[None], np.float64)


# ---------------------------------------------------------------------- rows that parties hold


@dataclass(frozen=True, slots=True, eq=False)
class AnswersPlan:
    """A question about rows that parties hold."""

    components: int
    schema: Schema  # that the model knows, of all parties
    log_weights: Array | None = None  # of components; without them the nearest cluster is asked for
    hubs: tuple[Neighbourhood, ...] = ()
    rows: RowRule = "tokens"

    def answer(self) -> Then:
        """From summed terms (components, rows)."""
        weights = self.log_weights
        return nearest_cluster if weights is None else partial(posterior, weights)

    def check(self, total: int) -> Check:
        """A check of answers for this many rows."""
        number = self.components
        if self.log_weights is None:
            return expected((1, total), Span(total, 0, number - 1, whole=True))
        shares = Span((number - 1) * total, 0, 1)
        return expected((number, total), shares, Span(total, -np.inf, FINITE))


class RowOrder(Message, frozen=True):
    """Where a party's rows are in the common order."""

    tag: ClassVar[str] = "answer/order"
    reveals: ClassVar[str] = "the order in which it stores its rows (known only by token)"

    at: IntegerVector  # (rows of the party,), in the order of its table


class RowAnswers(Message, frozen=True):
    """The answers for all rows, in the common order."""

    tag: ClassVar[str] = "answer/rows"
    reveals: ClassVar[str] = "the component or cluster of each row; the number of rows"

    values: RealMatrix  # (…, rows)
    rows: dict[str, Count]  # by party


def member(
    party: Party,
    parties: Sequence[str],
    learned: Learned | None,
    plan: AnswersPlan,
    summation: Summation,
    secret: bytes,
) -> Flow[None]:
    """A party's side; ``learned``: its part of the model, if it has columns of it."""
    me, members = party.name, summation.members(parties)
    party = replace(party, table=_readable(party.table, plan.schema))
    about = (learned, plan, summation, secret)
    rows, answers = yield from _answered(me, parties, party, *about)
    if me == leader_of(members):
        yield from send(COORDINATOR, answers)
    place = np.empty(len(rows.at), np.int64)
    place[rows.order] = rows.at
    yield from send(COORDINATOR, RowOrder(place))


def coordinator(parties: Sequence[str], plan: AnswersPlan, summation: Summation) -> Flow[Array]:
    """Answers (…, rows): in the order of the first party's rows, then rows that it lacks."""
    leader = leader_of(summation.members(parties))
    if leader == COORDINATOR:
        about = (None, None, plan, summation, b"")
        _, answers = yield from _answered(COORDINATOR, parties, *about)
    else:
        answers = yield from receive(leader, RowAnswers)
        problem = plan.check(answers.values.shape[1])(answers.values)
        require(not problem, leader, RowAnswers, "values", problem)
        known = answers.rows.keys() == set(parties)
        require(known, leader, RowAnswers, "rows", f"expected those of {', '.join(parties)}")
    total = answers.values.shape[1]
    every = []
    for party, order in (yield from gather(parties, RowOrder)).items():
        require_shape(order.at, (answers.rows[party],), party, RowOrder, "at")
        at = np.asarray(order.at, np.int64)
        fits = bool((at >= 0).all() and (at < total).all()) and len(np.unique(at)) == len(at)
        require(fits, party, RowOrder, "at", f"expected different places below {total}")
        every.append(at)
    _, first = np.unique(np.concatenate(every), return_index=True)
    return np.ascontiguousarray(answers.values[:, np.concatenate(every)[np.sort(first)]])


def _readable(table: Table, schema: Schema) -> Table:
    """The columns that the model knows, in its codes."""
    names = [n for n in table.names if n in schema]
    read = Table.of(table.select(names), schema=schema.select(names))
    return Table(read.schema, read.values, table.row_ids)


def _answered(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    learned: Learned | None,
    plan: AnswersPlan,
    summation: Summation,
    secret: bytes,
) -> Flow[tuple[MatchedRows, RowAnswers]]:
    """One member's side: its rows, and what follows for all rows in the common order."""
    setting = Setting(METHOD, me, parties, summation, plan.rows, plan.hubs)
    rows, sizes = yield from setting.matched(party, secret)
    table, sums = yield from setting.columns(party, rows, plan.components)
    terms = np.zeros((plan.components, len(sums.rows.at)))
    if learned is not None and table.names:
        model = _terms_of(learned)
        values = Table.of(table, schema=model.schema, partial=True).values
        terms = yield from compute("evaluating its rows", lambda: model.terms(values))
    value = sums.every(lambda part: terms[:, part])
    check = plan.check(rows.total)
    result = yield from sums.collective.sum("answer/terms", value, TERMS, plan.answer(), check)
    return rows, RowAnswers(result, sizes)


# ---------------------------------------------------------------------- rows of a table


class RowEvidence(Message, frozen=True):
    """Rows that somebody asks about, in the columns of one party."""

    tag: ClassVar[str] = "query/evidence"
    reveals: ClassVar[str] = "the values of the reader's columns in the query rows"

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


def answerer(learned: Learned) -> Flow[None]:
    model = _terms_of(learned)
    evidence = yield from receive(COORDINATOR, RowEvidence)
    columns = len(model.schema)
    require_shape(evidence.values, (None, columns), COORDINATOR, RowEvidence, "values")
    values = np.array(evidence.values, np.float64)
    with blaming(COORDINATOR, RowEvidence, "values"):
        Table(model.schema, values)
    terms = yield from compute("evaluating rows", lambda: model.terms(values))
    yield from send(COORDINATOR, RowTerms(terms))
