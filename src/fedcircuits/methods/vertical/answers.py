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
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, gather, receive, send
from fedcircuits.federation.messages import Message, RealMatrix, blaming, require, require_shape
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import RowRule
from fedcircuits.methods.meeting.hello import Method, leader_of, meet
from fedcircuits.methods.meeting.rows import match_rows
from fedcircuits.methods.vertical.kmeans import PartyCentres
from fedcircuits.methods.vertical.rows import (
    FINITE,
    RowDraw,
    RowSums,
    Span,
    check_holders,
    columns_at,
    expected,
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
    rule: RowRule = "tokens",
) -> Flow[Array]:
    """What follows for the member's own rows (…, own rows), in the order of its table: the
    posterior of components with these weights, or without weights the nearest cluster."""
    members = summation.members(parties)
    leader = leader_of(members)
    hellos = yield from meet(me, parties, leader, party, METHOD)
    check_holders({p: hello.schema for p, hello in hellos.items()})
    rows = yield from match_rows(me, parties, leader, party, None, secret, hellos, rule)
    table, joined = yield from columns_at(me, party, rows, hubs)
    terms = np.zeros((components, len(joined.at)))
    if learned is not None and table.names:
        values = Table.of(table, schema=learned.schema, partial=True).values
        model = learned
        terms = yield from compute("evaluating its rows", lambda: model.terms(values))
    draw = RowDraw(me, parties[0], members, rows)
    sums = RowSums(summation.at(me, members), joined, components, draw)
    total, then = rows.total, nearest_cluster
    check = expected((1, total), Span(total, 0, components - 1, whole=True))
    if log_weights is not None:
        then, shares = partial(posterior, log_weights), Span((components - 1) * total, 0, 1)
        check = expected((components, total), shares, Span(total, -np.inf, FINITE))
    value = sums.every(lambda part: terms[:, part])
    result = yield from sums.collective.sum("answer/terms", value, TERMS, then, check)
    answer = np.zeros((len(result), len(rows.order)))
    answer[:, rows.order] = result[:, rows.at]
    return answer


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
