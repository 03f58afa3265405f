"""The start of EM from sums alone: columns, pairs of columns and clusters of rows.

    shared/bins/0…3     number of rows in bins of every column; bins become finer, but never hold
                        few rows (learning/summed)
    shared/pairs        number of rows with each pair of coarse levels, for all pairs of columns;
                        sums of features and of their products
    shared/centres/t    number of rows of every cluster and sums of their features, up to 10 rounds
    shared/spread       the same with squares, and how many rows have a value
    shared/…/rows       before each of these two: only the number of rows of every cluster

A category with fewer rows at all parties together than the least count is pooled after the first
bins, and for a smaller cluster only its size is sent. So no sum is about a single row, whose values
could be read from it. All parties compute the same from the totals: bins, levels, mutual
information, centres, and rows drawn from the clusters with a common seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import chdtrc

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import (
    FederationError,
    ParameterError,
    ProtocolError,
    StructureError,
    TableError,
)
from fedcircuits.federation.flow import Flow, compute, digest
from fedcircuits.federation.sums.collectives import Check, Collective
from fedcircuits.learning.chow_liu.coarse import levels_for
from fedcircuits.learning.independence import g_statistics, mutual_information
from fedcircuits.learning.least_counts import RareValues, without_rare
from fedcircuits.learning.summed.clusters import (
    ROUNDS,
    ClusteredRows,
    SummedCentres,
    SummedFeatures,
    drawn_rows,
)
from fedcircuits.learning.summed.sketches import FINER, Sketch
from fedcircuits.methods.refinement.roles import statistics_problem
from fedcircuits.tables.schema import Schema

BINS = "rows in bins of every column"
PAIRS = "rows that have two levels, for all pairs of columns; sums of features and their products"
SIZES = "rows of every cluster"
CENTRES = "rows of every cluster, and sums of their features"
SPREAD = "rows of every cluster, and sums and squares of their features"
MOST = 2.0**40  # rows
INDICATORS = 3_000  # levels of all columns together, of which all pairs are counted
ROWS_A_LEVEL = 25  # squared, of all rows: coarse columns have fewer levels where rows are few


class SummedRows:
    """A member's rows, and sums of counts over the rows of all members."""

    def __init__(
        self,
        values: Array,
        collective: Collective,
        members: Sequence[str],
        about: str,
        least: int,
    ) -> None:
        self.values, self.collective, self.members = values, collective, members
        self.least = least  # rows of all parties that a statistic is about
        self.mark = digest(values, about)  # work is kept for the same rows and plan only

    def sum(self, tag: str, work: Callable[[], Array], reveals: str, check: Check) -> Flow[Array]:
        """The total of what ``work`` finds."""
        return (yield from self.add(tag, (yield from self.counted(tag, work)), reveals, check))

    def counted(self, tag: str, work: Callable[[], Array]) -> Flow[Array]:
        """What ``work`` finds; it is kept for the same sums before."""
        return (yield from compute(f"counting its rows for {tag}", work, key=self.mark))

    def add(self, tag: str, counts: Array, reveals: str, check: Check) -> Flow[Array]:
        """The total of what all have counted."""
        if problem := check(counts):
            raise FederationError(f"the statistics of its rows cannot be added up: {problem}")
        return (yield from self._total(tag, counts, reveals, check))

    def add_groups(self, tag: str, counts: Array, reveals: str, check: Check) -> Flow[Array]:
        """The same of groups of rows (groups, numbers), first of all their sizes: nothing else is
        told of those with fewer rows of all parties than the least count."""
        total = yield from self.add(f"{tag}/rows", counts[:, 0], SIZES, counts_problem)
        sent = np.where(total[:, None] >= self.least - 0.5, counts, 0.0)
        return (yield from self.add(tag, sent.reshape(-1), reveals, check)).reshape(counts.shape)

    def noisy_sum(
        self,
        tag: str,
        work: Callable[[], Array],
        reveals: str,
        check: Check,
        noise: Callable[[Array], Array],
    ) -> Flow[Array]:
        """The same with noise, which is added after what is kept."""
        counts = noise((yield from self.counted(tag, work)))
        return (yield from self._total(tag, counts, reveals, check))

    def _total(self, tag: str, numbers: Array, reveals: str, check: Check) -> Flow[Array]:
        total = yield from self.collective.sum(tag, numbers, reveals, check=check)
        if problem := check(total):
            raise ProtocolError(_wrong(tag, problem, self.members))
        self.mark = digest(self.mark, tag, total)
        return total

    def making(self, tag: str) -> AbstractContextManager[None]:
        return making(tag, self.members)


@contextmanager
def making(tag: str, members: Sequence[str]) -> Iterator[None]:
    """What cannot be made of the totals is due to one of the members."""
    try:
        yield
    except (ParameterError, StructureError, ValueError, np.linalg.LinAlgError) as error:
        raise ProtocolError(_wrong(tag, str(error), members)) from error


def _wrong(tag: str, problem: str, members: Sequence[str]) -> str:
    named = ", ".join(members)
    return f"the sum {tag!r}: {problem}; one of {named} sent wrong numbers"


def counts_problem(values: Array) -> str:
    """What is wrong with numbers of rows."""
    sound = bool(((values >= -0.5) & (values <= MOST)).all())
    return "" if sound else "expected numbers of rows"


def _pairs_problem(counts: int, values: Array) -> str:
    """The same, of which only the first are numbers of rows, and one behind them."""
    return statistics_problem(values) or counts_problem(values[: counts + 1])


def _clusters_problem(clusters: int, values: Array) -> str:
    """The same of clusters, of which the first number is one of rows."""
    return statistics_problem(values) or counts_problem(values.reshape(clusters, -1)[:, 0])


@dataclass(frozen=True, slots=True, eq=False)
class SummedColumns:
    """What all members know of columns and pairs of columns."""

    sketch: Sketch
    information: Array  # (columns, columns) nats that columns say about each other
    moments: Array  # of features without weights
    evidence: Array  # (columns, columns) p-values that they are independent
    rare: tuple[RareValues, ...]  # values that were replaced in all rows
    mark: str  # of the sums that it follows from

    @property
    def rows(self) -> int:
        return int(np.rint(self.moments[0]))


def summed_columns(rows: SummedRows, schema: Schema, least: int) -> Flow[SummedColumns]:
    """``least``: rows of a bin. Rare values of the rows are replaced."""
    sketch, rare = yield from _sketch(rows, schema, least)
    most = max(float(c.sum()) for c in sketch.counts)
    few = min(int(np.sqrt(most) / ROWS_A_LEVEL**0.5), INDICATORS // len(schema))
    levels, sizes = sketch.coarse(max(3, min(levels_for(len(schema)), few)))
    features = SummedFeatures.of(sketch, None)
    triangle = np.triu_indices(sum(sizes))

    def pairs() -> Array:
        hot = sketch.one_hot(rows.values, levels, sizes)
        return np.concatenate([(hot.T @ hot)[triangle], features.moments(rows.values)])

    number = len(triangle[0])
    total = yield from rows.sum("shared/pairs", pairs, PAIRS, partial(_pairs_problem, number))
    tables = np.zeros((sum(sizes),) * 2)
    tables[triangle] = np.maximum(np.rint(total[:number]), 0.0)
    tables = np.maximum(tables, tables.T)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    information = mutual_information(tables, starts)
    g, degrees = g_statistics(tables, starts)
    evidence = np.asarray(chdtrc(np.maximum(degrees, 1.0), g))
    if total[number] < 0.5:
        raise TableError("all values of all parties are missing: there is nothing to learn from")
    return SummedColumns(sketch, information, total[number:], evidence, rare, rows.mark)


def summed_rows(
    rows: SummedRows, columns: SummedColumns, clusters: int, classes: int | None, seed: int
) -> Flow[ClusteredRows]:
    """Rows drawn from clusters of all parties' rows: so many, or so many of each class."""
    rng = np.random.default_rng([seed, 1])
    features = SummedFeatures.of(columns.sketch, classes)
    with rows.making("shared/pairs"):
        moments = features.weighted(columns.moments)
        centres = SummedCentres.drawn(features, moments, clusters, classes, rng)
    spread = yield from _clusters(rows, centres)
    values, labels = drawn_rows(features, spread, rng)
    return ClusteredRows(
        values, labels, columns.information, columns.sketch, columns.rows, columns.rare,
        columns.evidence,
    )  # fmt: skip


def _sketch(
    rows: SummedRows, schema: Schema, least: int
) -> Flow[tuple[Sketch, tuple[RareValues, ...]]]:
    sketch, rare = Sketch.first(schema), tuple[RareValues, ...]()
    for t in range(FINER + 1):
        sketch = sketch.finer(least) if t else sketch
        count = partial(sketch.counted, rows.values)
        total = yield from rows.sum(f"shared/bins/{t}", count, BINS, counts_problem)
        sketch = sketch.with_counts(total)
        if not t:
            rare = sketch.rare(rows.least)
            rows.values = without_rare(rows.values, rare)
    return sketch, rare


def _clusters(rows: SummedRows, centres: SummedCentres) -> Flow[Array]:
    shape, problem = (len(centres.points), -1), partial(_clusters_problem, len(centres.points))
    for t in range(ROUNDS if len(centres.points) > 1 else 0):
        tag = f"shared/centres/{t}"
        sums = yield from rows.counted(tag, partial(centres.sums, rows.values))
        total = yield from rows.add_groups(tag, sums.reshape(shape), CENTRES, problem)
        centres, moves = centres.moved(total)
        if not moves:
            break
    sums = yield from rows.counted("shared/spread", partial(centres.spread, rows.values))
    return (yield from rows.add_groups("shared/spread", sums.reshape(shape), SPREAD, problem))
