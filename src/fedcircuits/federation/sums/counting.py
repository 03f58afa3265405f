"""Counts of rows in which labels of different parties co-occur, for the coordinator.

Every party has a label for each of its rows, such as its cluster, and has listed the rows in its
own order; the coordinator knows which positions in the lists are the same row. A method asks
``summation.counts`` for its end and does not know how the counts are made. The summation decides
that, and therefore who learns what:

    PlainCounts    the coordinator reads the labels of rows that it cannot identify, and counts
    SecretCounts   labels stay on shares, the coordinator learns the counts (privacy/secret_counts)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, gather, send
from fedcircuits.federation.messages import IntegerVector, Message, require, require_shape

Labels = npt.NDArray[np.int64]
# combinations (combinations, parties), −1 where a party lacks the rows; how many rows have each
CombinationCounts: TypeAlias = tuple[Labels, Array]


@dataclass(frozen=True, slots=True)
class Contingency:
    """A table to count: the number of rows for each combination of labels of these parties."""

    parties: tuple[str, ...]
    labels: tuple[int, ...]  # how many labels each party has
    groups: tuple[tuple[str, ...], ...]  # a row is complete if a party of every group holds it

    def completed_by(self, holders: tuple[str, ...]) -> bool:
        return all(set(holders).intersection(group) for group in self.groups)


class Counting(Protocol):
    """One end of counting."""

    def contribute(self, labels: Mapping[int, Labels]) -> Flow[None]:
        """At a party: by table the label of each of its rows, in the order of its list."""
        ...

    def collect(
        self, tables: Mapping[int, Contingency], where: Labels
    ) -> Flow[dict[int, CombinationCounts]]:
        """At the coordinator: by table the combinations of labels, sorted, and their rows.

        ``where`` (rows, all parties): the place of a row in each party's list, −1 where the party
        does not hold it. Combinations of rows that are not complete may be left out.
        """
        ...


class RowLabels(Message, frozen=True):
    """The labels of a party's rows in the order of its list, by table."""

    tag: ClassVar[str] = "count/clusters"
    reveals: ClassVar[str] = "the cluster of each row (rows are known only by sealed tokens)"

    labels: dict[int, IntegerVector]


@dataclass(frozen=True, slots=True)
class PlainCounts:
    """The coordinator reads the labels of all rows."""

    me: str
    parties: tuple[str, ...]

    def contribute(self, labels: Mapping[int, Labels]) -> Flow[None]:
        short = {table: compact(of_rows) for table, of_rows in labels.items()}
        yield from send(COORDINATOR, RowLabels(short))

    def collect(
        self, tables: Mapping[int, Contingency], where: Labels
    ) -> Flow[dict[int, CombinationCounts]]:
        sent = yield from gather(self.parties, RowLabels)
        for party, message in sent.items():
            listed = int((where[:, self.parties.index(party)] >= 0).sum())
            _check_labels(party, message, tables, listed)
        counts = {}
        for number, table in tables.items():
            at = where[:, [self.parties.index(p) for p in table.parties]]
            labels = np.full(at.shape, -1, dtype=np.int64)
            for i, party in enumerate(table.parties):
                held = at[:, i] >= 0
                labels[held, i] = sent[party].labels[number][at[held, i]]
            counts[number] = patterns(labels)
        return counts


def _check_labels(
    party: str, message: RowLabels, tables: Mapping[int, Contingency], listed: int
) -> None:
    wanted = {n: t.labels[t.parties.index(party)] for n, t in tables.items() if party in t.parties}
    fits = set(message.labels) == set(wanted)
    problem = f"expected labels for tables {sorted(wanted)}, got {sorted(message.labels)}"
    require(fits, party, RowLabels, "labels", problem)
    for number, size in wanted.items():
        labels = message.labels[number]
        require_shape(labels, (listed,), party, RowLabels, "labels")
        fits = not listed or (labels.min() >= 0 and labels.max() < size)
        require(fits, party, RowLabels, "labels", f"expected labels from 0 to {size - 1}")


def compact(labels: Labels) -> Labels:
    """The same numbers in the fewest bytes."""
    least = np.min_scalar_type(-1 - int(labels.max(initial=0)))
    return labels.astype(least)


def patterns(labels: Labels) -> tuple[Labels, Array]:
    """The different rows of labels (rows, parties), and how many rows have each."""
    different, counts = np.unique(labels, axis=0, return_counts=True)
    return different, counts.astype(np.float64)
