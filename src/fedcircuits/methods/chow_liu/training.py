"""Chow–Liu trees of parties that hold different rows of the same columns: pairwise counts add up,
and everybody builds the same tree from the sum.

**Who takes part.** N parties, and a coordinator for whom the tree is learned.

**What crosses**, for V values of all columns together:

    agree/plan     party → party: versions, settings, names, kinds and categories of its columns
    count/columns  first party → coordinator: the columns that all have agreed on
    count/pairs    party → sum: for every pair of values of two columns the number of its rows that
                   have both, and for every value its number of rows: V (V + 1) / 2 numbers
    count/total    first party → coordinator, where it does not add up: the sum of all counts

**What each party learns.** All parties and the coordinator learn the sum of counts, and therefore
the number of rows of every pair of values, and the tree, which follows from it. The summation
decides who learns the counts of a single party: a hub learns those of every party, in a tree
parents learn sums of branches, on secret shares nobody learns any. N − 1 parties together can
always subtract their own counts from the sum, and so can either of two.

With differential privacy every party adds noise to its counts before they leave it
(privacy/differential.py). A row has at most one value in each of d columns, so it changes d counts
of values and d(d − 1)/2 counts of pairs by one each: their sensitivity is √(d(d + 1)/2). Counts
below 0 become 0.

Without it, counts are whole numbers and the sum is rounded to them, so the tree and its parameters
equal those of all rows in one place to the last bit. A missing value belongs to no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ProtocolError, TableError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, receive, send
from fedcircuits.federation.messages import (
    FiniteVector,
    Message,
    blaming,
    require,
    require_shape,
)
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.chow_liu.trees import chow_liu_circuit
from fedcircuits.learning.independence import Flags, Index, OneHot, pair_tables
from fedcircuits.methods.meeting.hello import Method, agreed_table, same_variables
from fedcircuits.privacy.differential import Noise
from fedcircuits.tables.schema import Schema, Variable

METHOD = Method("chow_liu", 2)
COUNTS = "counts of its rows for each pair of values of two columns"
NOISY = f"noisy {COUNTS}"
MOST = 2.0**53  # whole numbers are exact below
MOST_COUNTS = 2**32
TREE = "Chow–Liu tree"  # in the words of errors
LearnedTree = tuple[Circuit, Parameters]


class TreeColumns(Message, frozen=True):
    """For the coordinator, which takes no part in the agreement."""

    tag: ClassVar[str] = "count/columns"
    reveals: ClassVar[str] = "names, kinds and categories of the columns"

    variables: tuple[Variable, ...]


class TotalCounts(Message, frozen=True):
    """For a coordinator that does not add up."""

    tag: ClassVar[str] = "count/total"
    reveals: ClassVar[str] = f"the sum of {COUNTS}"

    counts: FiniteVector


def member(
    party: Party,
    members: tuple[str, ...],
    summation: Summation,
    smoothing: float,
    noise: Noise | None = None,
) -> Flow[LearnedTree]:
    """One party: the tree of all rows, and its parameters."""
    taking = summation.members(members)
    settings: dict[str, object] = {"smoothing": smoothing}
    if noise is not None:
        settings["noise"] = [noise.multiplier, noise.honest]
    table = yield from agreed_table(party, members, METHOD, settings, TREE)
    work = partial(pair_counts, table.values, table.schema)
    counts = yield from compute("counting pairs of values", work)
    first = party.name == members[0]
    if first:
        yield from send(COORDINATOR, TreeColumns(table.schema.variables))
    collective = summation.at(party.name, taking)
    about = COUNTS
    if noise is not None:
        counts, about = noise.added("pairs", counts, sensitivity(len(table.schema))), NOISY
    total = yield from collective.sum("count/pairs", counts, about)
    if first and COORDINATOR not in taking:
        yield from send(COORDINATOR, TotalCounts(total), reveals=f"the sum of {about}")
    return tree_of(total, table.schema, smoothing, noise is not None, taking)


def coordinator(
    members: tuple[str, ...], summation: Summation, smoothing: float, noisy: bool = False
) -> Flow[LearnedTree]:
    """The coordinator's side: it adds up, or receives the sum from the first party."""
    first, taking = members[0], summation.members(members)
    columns = (yield from receive(first, TreeColumns)).variables
    with blaming(first, TreeColumns, "variables"):
        schema = same_variables({first: Schema(columns)}, TREE)
    values = sum(v.size for v in schema)
    size = values * (values + 1) // 2
    require(0 < size <= MOST_COUNTS, first, TreeColumns, "variables", "there are too many values")
    if COORDINATOR in taking:
        collective = summation.at(COORDINATOR, taking)
        about = NOISY if noisy else COUNTS
        total = yield from collective.sum("count/pairs", np.zeros(size), about)
    else:
        total = (yield from receive(first, TotalCounts)).counts
        require_shape(total, (size,), first, TotalCounts, "counts")
    return tree_of(total, schema, smoothing, noisy, taking)


def tree_of(
    sums: Array, schema: Schema, smoothing: float, noisy: bool, taking: Sequence[str]
) -> LearnedTree:
    """The tree that follows from the sum of all counts, the same for everybody."""
    return chow_liu_circuit(schema, *tables_of(sums, schema, noisy, taking), smoothing)


def tables_of(
    sums: Array, schema: Schema, noisy: bool, taking: Sequence[str]
) -> tuple[Array, Index]:
    """Counts of all pairs of values as a matrix, and where columns begin in it."""
    starts, total = OneHot.of(np.zeros((0, len(schema))), schema.variables).starts, np.rint(sums)
    if noisy:
        total = np.where(_possible(starts), np.maximum(total, 0.0), 0.0)
    if not ((total >= 0) & (total < MOST)).all():
        raise ProtocolError(
            f"sums under 'count/pairs' are not counts: one of {', '.join(taking)} sent wrong "
            "numbers; start again without that party"
        )
    if not total.any():
        raise TableError("all values of all parties are missing: there is nothing to learn from")
    return _both(total, starts), starts


def pair_counts(values: Array, schema: Schema) -> Array:
    """What one party counts: half of a symmetric matrix, end to end."""
    return _above(pair_tables(OneHot.of(values, schema.variables).matrix))


def sensitivity(columns: int) -> float:
    """How far one row moves all counts at most, as a Euclidean distance."""
    return sqrt(columns * (columns + 1) / 2)


def _possible(starts: Index) -> Flags:
    """The counts that a single row can have: it has one value per column."""
    column = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    apart = (column[:, None] != column) | np.eye(len(column), dtype=np.bool_)
    return np.asarray(apart[np.triu_indices(len(column))])


def _above(tables: Array) -> Array:
    """A table of pairs is symmetric: half of it, with the diagonal."""
    return np.asarray(tables[np.triu_indices(len(tables))])


def _both(counts: Array, starts: Index) -> Array:
    tables = np.zeros((int(starts[-1]),) * 2)
    tables[np.triu_indices(len(tables))] = counts
    return np.asarray(np.maximum(tables, tables.T))
