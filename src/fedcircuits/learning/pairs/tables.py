"""Tables of pairs of columns: how many rows have which states of both, by class.

Whatever joins columns here, forests and factors, is learned from such tables alone. Nobody needs a
row for it, and a pair may be counted by whoever can: rows that lack a column are missing from its
pairs only.

States of a column may be counted in groups: neighbours of ordered ones. Tables of groups are
spread over the states, by what is known of these in all rows (finer.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.states import Index, class_shares_of, grouped


@dataclass(frozen=True, slots=True)
class StateColumn:
    """The states of a column."""

    rows: Array  # (states,) of each, none without any
    ordered: bool

    @property
    def shares(self) -> Array:
        return np.asarray(self.rows / self.rows.sum())

    @property
    def ranked(self) -> bool:
        """Whether it may be seen as a normal variable that is cut: two states are in an order."""
        return self.ordered or len(self.rows) == 2


@dataclass(frozen=True, slots=True)
class StateCounts:
    """Rows by class and group of states: (classes + 1, groups of each column). The last are of
    unknown class. ``groups``: for each column the group of every state."""

    rows: Array
    groups: tuple[Index, ...]

    def part(self, rng: np.random.Generator, folds: int) -> list[StateCounts]:
        """At random in so many parts."""
        each = np.repeat(np.arange(self.rows.size), self.rows.reshape(-1).astype(np.int64))
        fold = rng.permutation(len(each)) % folds
        return [
            replace(self, rows=np.bincount(each[fold == f], minlength=self.rows.size)
                    .reshape(self.rows.shape).astype(np.float64))
            for f in range(folds)
        ]  # fmt: skip

    def less(self, part: StateCounts) -> StateCounts:
        return replace(self, rows=self.rows - part.rows)

    def turned(self) -> StateCounts:
        """The other column first."""
        return StateCounts(self.rows.swapaxes(1, 2), self.groups[::-1])


def completed(pair: StateCounts, first: StateCounts, second: StateCounts, rows: int) -> StateCounts:
    """A table with what its columns (``first``, ``second``) have beyond it, as if independent in a
    class: rows that were left out because too few have their states would otherwise seem never to
    have them together. ``rows``: of the party, so that gaps of its own, which are in the columns by
    themselves as well, are not filled in."""
    left = [
        regrouped(own, groups) for own, groups in zip((first, second), pair.groups, strict=True)
    ]
    above = np.maximum(left[0] - pair.rows.sum(axis=2), 0.0)  # (classes + 1, groups)
    below = np.maximum(left[1] - pair.rows.sum(axis=1), 0.0)
    most = np.maximum(above.sum(axis=1), below.sum(axis=1))
    added = above[:, :, None] * below[:, None] / np.maximum(most, 1.0)[:, None, None]
    expected = first.rows.sum() * second.rows.sum() / max(rows, 1)
    left_out = (expected - pair.rows.sum()) / max(float(added.sum()), 1.0)
    added *= np.clip(left_out, 0.0, 1.0)
    whole = np.cumsum((pair.rows + added).reshape(-1))
    counts = np.diff(np.round(whole), prepend=0.0)
    return replace(pair, rows=counts.reshape(pair.rows.shape))


def completed_single(single: StateCounts, states: Array, classes: Array) -> StateCounts:
    """The same of a column by itself, by class; ``states`` and ``classes``: the rows that each
    has."""
    known = single.rows[:-1]
    above = np.maximum(classes - known.sum(axis=1), 0.0)
    below = np.maximum(grouped(states, single.groups[0]) - single.rows.sum(axis=0), 0.0)
    added = np.outer(above, below) / max(float(above.sum()), float(below.sum()), 1.0)
    whole = np.cumsum((known + added).reshape(-1))
    counts = np.diff(np.round(whole), prepend=0.0).reshape(known.shape)
    return replace(single, rows=np.concatenate([counts, single.rows[-1:]]))


def regrouped(single: StateCounts, groups: Index) -> Array:
    """Rows of a column (classes + 1, groups), in groups that are unions of its own."""
    union = np.zeros(single.rows.shape[1], np.int64)
    union[single.groups[0]] = groups
    hot = np.asarray(union[:, None] == np.arange(int(groups.max()) + 1), np.float64)
    return np.asarray(single.rows @ hot)


@dataclass(frozen=True)
class TablesOfPairs:
    """All that is known of how columns hang together."""

    columns: tuple[StateColumn, ...]
    classes: int  # of rows, 1 where none are known
    known: int | None  # the column that is the class, if it is one
    singles: Mapping[int, StateCounts]  # by column, but for the class
    pairs: Mapping[tuple[int, int], StateCounts]  # by columns in rising order, but for the class

    def finer(self, parts: Mapping[int, int]) -> TablesOfPairs:
        """The same with every state of some columns in so many parts of equal probability."""

        def spread(counted: StateCounts, *columns: int) -> StateCounts:
            groups = (np.repeat(g, parts.get(c, 1))
                      for c, g in zip(columns, counted.groups, strict=True))  # fmt: skip
            return replace(counted, groups=tuple(groups))

        columns = tuple(
            replace(own, rows=np.repeat(own.rows / parts.get(c, 1), parts.get(c, 1)))
            for c, own in enumerate(self.columns)
        )
        singles = {c: spread(counted, c) for c, counted in self.singles.items()}
        pairs = {ij: spread(counted, *ij) for ij, counted in self.pairs.items()}
        return replace(self, columns=columns, singles=singles, pairs=pairs)

    def folds(
        self, rng: np.random.Generator, number: int
    ) -> Iterator[tuple[TablesOfPairs, TablesOfPairs]]:
        """What is left, and what is held back, for every fold."""
        singles = {c: counted.part(rng, number) for c, counted in self.singles.items()}
        pairs = {ij: counted.part(rng, number) for ij, counted in self.pairs.items()}
        for f in range(number):
            held = replace(
                self,
                singles={c: parts[f] for c, parts in singles.items()},
                pairs={ij: parts[f] for ij, parts in pairs.items()},
            )
            rest = replace(
                self,
                singles={c: self.singles[c].less(parts[f]) for c, parts in singles.items()},
                pairs={ij: self.pairs[ij].less(parts[f]) for ij, parts in pairs.items()},
            )
            yield rest, held

    @cached_property
    def rows(self) -> float:
        """That pairs of columns are counted in, on average, or columns where there are no pairs."""
        counted = self.pairs.values() or self.singles.values()
        return float(np.mean([c.rows.sum() for c in counted])) if counted else 0.0

    def pair(self, i: int, j: int, by_class: bool) -> StateCounts:
        """Rows (components, groups of i, groups of j), where components are classes or one."""
        if self.known in (i, j) and not by_class:
            single = self.singles[j if i == self.known else i]
            states = np.arange(len(self.columns[self.known].rows))
            table = StateCounts(single.rows[None, :-1], (states, *single.groups))
            return table if i == self.known else table.turned()
        counted = self.pairs[min(i, j), max(i, j)]
        counted = counted if i < j else counted.turned()
        return replace(counted, rows=_components(counted.rows, by_class))

    def single(self, column: int, by_class: bool) -> StateCounts:
        """Rows (components, groups)."""
        if column == self.known:
            rows = self.of_classes[None]
            return StateCounts(rows, (np.arange(rows.shape[1]),))
        counted = self.singles[column]
        return replace(counted, rows=_components(counted.rows, by_class))

    @cached_property
    def of_classes(self) -> Array:
        """The rows of each class (classes,)."""
        if self.known is not None:
            return self.columns[self.known].rows
        known = [counted.rows[:-1].sum(axis=1) for counted in self.singles.values()]
        return np.asarray(max(known, key=lambda rows: float(rows.sum()))) if known else np.ones(1)

    def shares(self, column: int, by_class: bool) -> Array:
        """Shares of states (components, states)."""
        own = self.columns[column]
        if not by_class:
            return own.shares[None]
        counted = self.single(column, by_class)
        return class_shares_of(counted.rows, counted.groups[0], own.shares, own.ordered)


def _components(rows: Array, by_class: bool) -> Array:
    return rows[:-1] if by_class else rows.sum(axis=0, keepdims=True)
