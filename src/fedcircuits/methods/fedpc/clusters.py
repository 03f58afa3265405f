"""A party's rows in clusters, for the products of a federated circuit.

Given the combination of clusters that a row is in, its parts at different parties are independent.
Clusters should therefore say as much as possible about the columns of other parties. A party that
knows the clusters of others for shared rows grows a decision tree on its own columns that predicts
them, by mutual information; the leaves of the tree are its clusters. Otherwise the clusters are
those of a mixture over its own columns (learning/spn/clustering.py). With a target, rows of
different classes are clustered separately by every party that knows the class.

Only with share_clusters do parties learn into which groups others have put the shared rows:

    clusters/own      client → coordinator: for every division, the group of each of its rows in
                      the order of its tokens, and the least number of rows in a group.
    clusters/others   coordinator → client: the groups of at most ``MOST_TOLD`` other parties for
                      the rows that all parties of the division hold (rows, parties), −1 for other
                      rows. These are the parties whose groups have the most mutual information
                      with its own.

A client learns which of its rows are similar in the numbers of another party, and which rows all
parties hold. A client can identify its own rows. If a number of the other party has two or more
modes, groups follow them, so the client learns that number coarsely for identified rows. Groups are
therefore at most ``MOST_GROUPS``, have at least as many rows as the party's least count, and are
formed only by numeric columns with more than ``FEW_VALUES`` distinct values, never by categories,
booleans, codes or the target. A party without such a column sends a single group. Groups may still
reveal how a category depends on the numbers. The coordinator learns the same, but cannot identify
the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, digest, gather, receive, send
from fedcircuits.federation.messages import (
    Count,
    IntegerMatrix,
    IntegerVector,
    Message,
    require,
    require_shape,
)
from fedcircuits.federation.sums.counting import Labels, compact
from fedcircuits.learning.independence import Floats
from fedcircuits.learning.spn.clustering import Features, split_rows
from fedcircuits.methods.fedpc.planning import Auto, ClusterTask, Division, usual_clusters
from fedcircuits.tables.table import Table

FEWEST_ROWS = 8  # of a cluster: a circuit is learned from them
MOST_GROUPS = 4  # of rows that others hear of
FEW_VALUES = 16  # of a column of numbers, which may be codes of categories
MOST_ROWS = 20_000  # that a tree is grown from
SMALLEST = 8  # parts of an average cluster that a leaf of a tree may be small to
MOST_TOLD = 4
MOST_CIRCUITS = 16  # over the same columns, each of which tells another cluster of every row


class OwnClusters(Message, frozen=True):
    """By division: the group of each of a client's rows."""

    tag: ClassVar[str] = "clusters/own"
    reveals: ClassVar[str] = (
        f"for each sealed row token, which of at most {MOST_GROUPS} groups of similar rows the "
        "row is in"
    )
    needs: ClassVar[str] = "share_clusters"

    labels: dict[int, IntegerVector]
    least: Count  # rows of a group that others hear of


class OthersClusters(Message, frozen=True):
    """By division: the groups of a client's rows at other parties."""

    tag: ClassVar[str] = "clusters/others"
    reveals: ClassVar[str] = (
        "which of the reader's rows are similar in the columns of other parties: a coarse view of "
        "these columns"
    )

    labels: dict[int, IntegerMatrix]  # (rows, other parties), −1 for rows that are not shared


# ---------------------------------------------------------------------- clients


def check_tasks(tasks: Sequence[ClusterTask], members: int, tag: str) -> None:
    """MessageError where a client is asked to cluster its rows by more sets of columns than there
    are parties, each of which chooses its columns once, or more often than circuits need: the
    clusters of a row by one column after the other would tell all of its values."""
    sets = {frozenset(task.columns) for task in tasks}
    fits = len(sets) <= members and len(tasks) <= members * MOST_CIRCUITS
    problem = f"expected at most {members} sets of columns, {MOST_CIRCUITS} times each"
    require(fits, COORDINATOR, tag, "tasks", problem)


@dataclass(frozen=True, slots=True)
class RowClustering:
    """How a client clusters its rows."""

    table: Table
    clusters: int | Auto
    classes: Array | None  # of rows; NaN where unknown
    target: str | None
    seed: tuple[int, ...]
    stamp: str = field(repr=False)  # of what its work depends on
    least: int  # rows of a cluster

    @property
    def fewest(self) -> int:
        return max(FEWEST_ROWS, self.least)

    def labels(
        self,
        tasks: Sequence[ClusterTask],
        order: Labels | None,
        given: Labels | None = None,
    ) -> Flow[dict[int, Labels]]:
        """The clusters of all rows by division. ``order``: of rows by tokens; ``given``: clusters
        that the parties have found together before, in place of own ones."""
        others: dict[int, Labels] = {}
        if order is not None and any(task.exchange for task in tasks):
            others = yield from self._exchanged(tasks, order)
        labels = {}
        for number, task in enumerate(tasks):
            if given is not None and not task.alone:
                labels[task.division] = self._joined(task, given)
                continue
            theirs = others.get(task.division)
            source = "own" if theirs is None else theirs
            labels[task.division] = yield from compute(
                f"clustering its rows, circuit {number}",
                partial(self._final, number, task, theirs),
                key=digest(self.stamp, f"{list(task.columns)} {task.most}", source),
            )
        return labels

    def _exchanged(self, tasks: Sequence[ClusterTask], order: Labels) -> Flow[dict[int, Labels]]:
        """Own groups go out, those of others come in: (rows, other parties) by division."""
        first = {}
        for number, task in enumerate(tasks):
            if task.exchange:
                labels = yield from compute(
                    f"groups sent to others, circuit {number}",
                    partial(self._groups, number, task),
                    key=digest(self.stamp, str(list(task.columns))),
                )
                first[task.division] = compact(labels[order])
        yield from send(COORDINATOR, OwnClusters(first, self.least))
        others = (yield from receive(COORDINATOR, OthersClusters)).labels
        _require_divisions(others, first, COORDINATOR, OthersClusters)
        placed = {}
        for division, theirs in others.items():
            require_shape(theirs, (len(order), None), COORDINATOR, OthersClusters, "labels")
            fits = 0 < theirs.shape[1] <= MOST_TOLD
            fits = fits and bool(((theirs >= -1) & (theirs < MOST_GROUPS)).all())
            problem = f"expected {MOST_GROUPS} groups of 1 to {MOST_TOLD} parties, −1 for no group"
            require(fits, COORDINATOR, OthersClusters, "labels", problem)
            placed[division] = np.empty(theirs.shape, np.int64)
            placed[division][order] = theirs
        return placed

    def _groups(self, number: int, task: ClusterTask) -> Labels:
        part = self.table.select([n for n in task.columns if n != self.target])
        categorical = [n for n, column in zip(part.names, part.values.T, strict=True)
                if not part.schema[n].size and len(np.unique(column)) > FEW_VALUES]  # fmt: skip
        if not categorical:
            return np.zeros(len(self.table), np.int64)
        rng = np.random.default_rng([*self.seed, number, 0])
        wanted = usual_clusters(len(part)) if self.clusters == "auto" else self.clusters
        return clusters_of(part, categorical, min(wanted, MOST_GROUPS), None, rng, self.fewest)

    def _joined(self, task: ClusterTask, given: Labels) -> Labels:
        """Given clusters, where they have enough rows here."""
        part = self.table.select(task.columns)
        label = np.unique(given, return_inverse=True)[1].reshape(-1)
        features = Features.of(part.values, part.schema).matrix
        return _large_enough(features, label, np.zeros(len(part)), self.fewest)

    def _final(self, number: int, task: ClusterTask, others: Labels | None) -> Labels:
        rng = np.random.default_rng([*self.seed, number, 1])
        usual = min(task.most, usual_clusters(len(self.table)))
        clusters = 1 if task.alone else usual if self.clusters == "auto" else self.clusters
        if others is None:
            return clusters_of(self.table, task.columns, clusters, self.classes, rng, self.fewest)
        free = [n for n in task.columns if n != self.target or self.classes is None]
        columns = free or task.columns
        given = others, clusters, self.classes, rng, self.fewest
        return clusters_by_others(self.table, columns, *given)


def _require_divisions(
    labels: Mapping[int, object], expected: Mapping[int, object], sender: str, kind: type[Message]
) -> None:
    problem = f"expected clusters of divisions {sorted(expected)}, got {sorted(labels)}"
    require(labels.keys() == expected.keys(), sender, kind, "labels", problem)


# ---------------------------------------------------------------------- the coordinator


def exchange_clusters(
    divisions: Mapping[int, Division], members: Sequence[str], where: Labels
) -> Flow[None]:
    """``where`` (rows, parties): where each party lists a row, −1 where it does not hold it."""
    taking = [p for p in members if any(p in d.parties for d in divisions.values())]
    rows = dict(zip(members, (where >= 0).sum(axis=0).tolist(), strict=True))
    sent = yield from gather(taking, OwnClusters)
    for party, message in sent.items():
        _check_own(message, party, {i: d for i, d in divisions.items() if party in d.parties}, rows)
    answers: dict[str, dict[int, Labels]] = {p: {} for p in taking}
    for number, division in divisions.items():
        at = where[:, [members.index(p) for p in division.parties]]
        at = at[(at >= 0).all(axis=1)]
        labels = [
            _told(sent[p].labels[number].astype(np.int64)[at[:, i]], sent[p].least)
            for i, p in enumerate(division.parties)
        ]
        for i, party in enumerate(division.parties):
            others = _most_informative(labels, i)
            answer = np.full((rows[party], len(others)), -1, dtype=np.int64)
            answer[at[:, i]] = np.stack([labels[j] for j in others], axis=1)
            answers[party][number] = compact(answer)
    for party in taking:
        yield from send(party, OthersClusters(answers[party]))


def _check_own(
    message: OwnClusters, party: str, divisions: Mapping[int, Division], rows: Mapping[str, int]
) -> None:
    _require_divisions(message.labels, divisions, party, OwnClusters)
    for labels in message.labels.values():
        require_shape(labels, (rows[party],), party, OwnClusters, "labels")
        fits = bool(((labels >= 0) & (labels < MOST_GROUPS)).all())
        require(fits, party, OwnClusters, "labels", f"expected groups from 0 to {MOST_GROUPS - 1}")


def _told(labels: Labels, least: int) -> Labels:
    """Groups of shared rows: those with too few of them join the largest."""
    sizes = np.bincount(labels, minlength=MOST_GROUPS)
    return np.where(sizes[labels] >= least, labels, sizes.argmax())


def _most_informative(labels: Sequence[Labels], party: int) -> list[int]:
    others = [j for j in range(len(labels)) if j != party]
    if len(others) <= MOST_TOLD:
        return others
    return sorted(others, key=lambda j: -_information(labels[party], labels[j]))[:MOST_TOLD]


def _information(a: Labels, b: Labels) -> float:
    """The mutual information of two labellings, in nats."""
    if not len(a):
        return 0.0
    table = np.bincount(
        a * (int(b.max()) + 1) + b, minlength=(int(a.max()) + 1) * (int(b.max()) + 1)
    )
    p = table.reshape(int(a.max()) + 1, -1) / len(a)
    apart = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / apart[seen])).sum())


# ---------------------------------------------------------------------- clustering


def clusters_of(
    table: Table,
    columns: Sequence[str],
    clusters: int | Auto,
    classes: Array | None,
    rng: np.random.Generator,
    fewest: int = FEWEST_ROWS,
) -> Labels:
    """A cluster for every row (rows,), from 0; ``classes`` has codes, NaN where unknown.
    ``fewest``: rows of a cluster."""
    if len(table) < 2 * fewest or (clusters == 1 and classes is None):
        return np.zeros(len(table), np.int64)
    part = table.select(columns)
    features = Features.of(part.values, part.schema)

    def split(rows: Labels, number: int) -> Labels:
        return split_rows(features.part(rows, np.arange(len(columns))), number, rng)

    return _by_class(features.matrix, clusters, classes, split, fewest)


def clusters_by_others(
    table: Table,
    columns: Sequence[str],
    others: Labels,
    clusters: int | Auto,
    classes: Array | None,
    rng: np.random.Generator,
    fewest: int = FEWEST_ROWS,
) -> Labels:
    """The same by the clusters of other parties: ``others`` (rows, parties), −1 for rows that are
    not shared."""
    shared = np.asarray((others >= 0).all(axis=1) & (others.shape[1] > 0))
    if len(table) < 2 * fewest or shared.sum() < 2 * fewest:
        return clusters_of(table, columns, clusters, classes, rng, fewest)
    part = table.select(columns)
    x = Features.of(part.values, part.schema).matrix

    def split(rows: Labels, number: int) -> Labels:
        known = rows[shared[rows]]
        if number < 2 or len(known) < 2 * fewest:
            return np.zeros(len(rows), np.int64)
        known = known if len(known) <= MOST_ROWS else rng.choice(known, MOST_ROWS, replace=False)
        tree = DecisionTreeClassifier(
            criterion="entropy",
            max_leaf_nodes=number,
            min_samples_leaf=max(fewest, len(known) // (SMALLEST * number)),
            random_state=int(rng.integers(2**31)),
        )
        leaf = tree.fit(x[known], others[known]).apply(x[rows])
        return np.unique(leaf, return_inverse=True)[1].reshape(-1)

    return _by_class(x, clusters, classes, split, fewest)


def _by_class(
    x: Floats,
    clusters: int | Auto,
    classes: Array | None,
    split: Callable[[Labels, int], Labels],
    fewest: int,
) -> Labels:
    """Every class in clusters of its own, more of them for more rows."""
    wanted = usual_clusters(len(x)) if clusters == "auto" else clusters
    codes = np.zeros(len(x)) if classes is None else classes
    known, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    shares = np.sqrt(counts) / np.sqrt(counts).sum()
    label = np.full(len(x), -1, dtype=np.int64)
    for code, share in zip(known, shares, strict=True):
        rows = np.flatnonzero(codes == code)
        label[rows] = split(rows, max(1, round(wanted * float(share)))) + label.max() + 1
    return _large_enough(x, label, codes, fewest)


def _large_enough(x: Floats, label: Labels, codes: Array, fewest: int) -> Labels:
    """Rows of tiny clusters, and rows without one, go to the nearest centre of the others: of
    their own class, if it has any left."""
    sizes = np.bincount(label[label >= 0])
    kept = (
        np.flatnonzero(sizes >= fewest)
        if (sizes >= fewest).any()
        else sizes.argmax(0, keepdims=True)
    )
    if len(kept) < len(sizes) or (label < 0).any():
        centres = np.stack([x[label == k].mean(axis=0) for k in kept])
        homeless = np.flatnonzero(~np.isin(label, kept))
        distance = np.square(centres).sum(axis=1) - 2 * (x[homeless] @ centres.T)
        code, classes = codes[homeless], np.array([codes[label == k][0] for k in kept])
        distance[np.isin(code, classes)[:, None] & (code[:, None] != classes)] = np.inf
        label[homeless] = kept[distance.argmin(axis=1)]
    return np.searchsorted(kept, label)
