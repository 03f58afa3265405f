"""The threshold on the probability of the second class that gives the best macro-F1 on training
rows: rare classes are seldom the more probable ones.

Predictions are those of trees that were not grown from the row (out of bag) where there are any.
Rows are weighted by class as if classes had their overall shares everywhere.

    decide/counts      where all trees read the same columns. Every party adds up how many of its
                       rows of each class its own trees rate at or above each of 199 thresholds; all
                       learn the threshold. The member that adds up learns these counts (200, 2).
    decide/threshold   first client → coordinator: the threshold, where it does not add up itself
    decide/rows        where parties read different columns and rows have tokens. client →
                       coordinator: tokens of its rows in their order, their classes, their weights
                       and its trees' answers (rows, 2). The coordinator, which has no key to
                       tokens, combines the answers as it will for queries, and learns classes and
                       answers of rows that it cannot identify.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, gather, receive, send
from fedcircuits.federation.messages import (
    FiniteVector,
    IntegerVector,
    Message,
    RealMatrix,
    require,
    require_shape,
)
from fedcircuits.federation.sums.checked import MOST_ROWS, CheckedSums
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.tokens import TokenMessage, Tokens, match_messages, rising_order
from fedcircuits.methods.trees.ensemble import (
    TreeEnsemble,
    average_predictions,
    base_of,
    check_votes,
    fused,
    multiply_trees,
)
from fedcircuits.methods.trees.growing import GrownTrees, LabelledRows

TRIED = np.arange(1, 200) / 200


class BestThreshold(Message, frozen=True):
    """What the parties have found together."""

    tag: ClassVar[str] = "decide/threshold"
    reveals: ClassVar[str] = "the decision threshold"

    threshold: float


class RowRatings(TokenMessage, frozen=True):
    """The outputs of a party's trees for its rows, in the order of tokens."""

    tag: ClassVar[str] = "decide/rows"
    reveals: ClassVar[str] = "per row token, the class and the output of its trees"
    needs: ClassVar[str] = "share_representations"

    classes: IntegerVector  # (rows,)
    answers: RealMatrix  # (rows, 2); NaN where no tree can say
    weights: FiniteVector  # (rows,)


@dataclass(frozen=True, slots=True)
class RatedRows:
    """Rows of one party whose class is known, and the outputs of its trees for them."""

    answers: Array  # (rows, 2); NaN where no tree can say
    y: Labels  # (rows,)
    weight: Array  # (rows,)

    @classmethod
    def of(cls, rows: LabelledRows, grown: GrownTrees) -> RatedRows:
        """Each row rated by trees that were not grown from it; by all if they are boosted."""
        vectors = []
        for name, tree in grown.trees.items():
            vector = tree.predict_vector(rows.x)
            if name in grown.unseen and len(grown.trees) > 1:
                vector = np.where(grown.unseen[name][:, None], vector, np.nan)
            vectors.append(vector)
        if not vectors or not len(rows.y):
            answers = np.full((len(rows.y), len(rows.overall)), np.nan)
        elif grown.boosted:
            answers = multiply_trees(vectors, base_of(rows.overall, grown.seen))
        else:
            answers = average_predictions(vectors)
        return cls(answers, rows.y.astype(np.int64), rows.weights(grown.tally))

    def counts(self) -> Array:
        """(thresholds + 1, 2): weight of rows of each class at or above; in the end of all."""
        counts = np.zeros((len(TRIED) + 1, 2))
        known = ~np.isnan(self.answers).any(axis=1)
        for code in (0, 1):
            some = known & (self.y == code)
            order = np.argsort(self.answers[some, 1], kind="stable")
            above = np.append(np.cumsum(self.weight[some][order][::-1])[::-1], 0.0)
            counts[:-1, code] = above[np.searchsorted(self.answers[some, 1][order], TRIED)]
            counts[-1, code] = self.weight[some].sum()
        return counts


def best_threshold(counts: Array) -> float:
    """From counts above thresholds (thresholds + 1, 2), whose last row is of all rows."""
    above, every = counts[:-1], counts[-1]
    right, wrong = above[:, 1], above[:, 0] + every[1] - above[:, 1]
    other = every[0] - above[:, 0]
    score = right / np.maximum(2 * right + wrong, 1e-300)
    score = score + other / np.maximum(2 * other + wrong, 1e-300)
    good = np.flatnonzero(score >= score.max() * (1 - 1e-12))
    return float(TRIED[good[np.abs(TRIED[good] - 0.5).argmin()]])


# ---------------------------------------------------------------------- counts


def by_counts(
    me: str, rows: RatedRows | None, parties: Sequence[str], summation: Summation
) -> Flow[float]:
    """One flow for parties and for a server, which has no rows."""
    members, teller = summation.members(parties), parties[0]
    if me not in members:
        threshold = (yield from receive(teller, BestThreshold)).threshold
        problem = _choice_problem(np.array([threshold]))
        require(not problem, teller, BestThreshold, "threshold", problem)
        return threshold
    reveals = "how many of its rows of each class its trees rate above each threshold"
    counts = np.zeros((len(TRIED) + 1, 2)) if rows is None else rows.counts()
    sums, then = CheckedSums.of(summation, me, parties), lambda s: np.array([best_threshold(s)])
    checks = _counts_problem, then, _choice_problem
    (threshold,) = yield from sums.add("decide/counts", counts, reveals, *checks)
    if me == teller and COORDINATOR not in members:
        yield from send(COORDINATOR, BestThreshold(float(threshold)))
    return float(threshold)


def _counts_problem(total: Array) -> str:
    bounded = bool((np.abs(total) <= MOST_ROWS).all())
    falls = bounded and (np.diff(total[[-1, *range(len(TRIED))]], axis=0) < 1e-3).all()
    return "" if falls else "expected counts of rows, fewer above higher thresholds"


def _choice_problem(chosen: Array) -> str:
    one = chosen.shape == (1,) and np.isclose(TRIED, chosen).any()
    return "" if one else "expected one of the thresholds that are tried"


# ---------------------------------------------------------------------- rows


def send_rows(rows: RatedRows, unsorted: Tokens) -> Flow[None]:
    """``unsorted``: tokens of the rows, which are those whose class is known."""
    tokens, order = rising_order(unsorted)
    ratings = RowRatings(tokens, rows.y[order], rows.answers[order], rows.weight[order])  # type: ignore[arg-type]
    yield from send(COORDINATOR, ratings)


def by_rows(view: TreeEnsemble, tallies: Mapping[str, Array]) -> Flow[float]:
    """At the coordinator, from rows that all its parties with trees have answered, or any."""
    ratings = yield from gather(tuple(tallies), RowRatings)
    for party, tally in tallies.items():
        _check_ratings(ratings[party], view, tally, sum(t.sum() for t in tallies.values()), party)
    where = match_messages(ratings)  # (rows, parties)
    complete = where[(where >= 0).all(axis=1)]
    return best_threshold(_joined(view, ratings, complete if len(complete) else where).counts())


def _check_ratings(
    ratings: RowRatings, view: TreeEnsemble, tally: Array, most: float, party: str
) -> None:
    """``tally``: how many of the party's rows have which class, as it has said before."""
    rows = int(tally.sum())
    for field, width in {"tokens": (), "classes": (), "answers": (2,), "weights": ()}.items():
        require_shape(getattr(ratings, field), (rows, *width), party, RowRatings, field)
    counts = [int((ratings.classes == code).sum()) for code in (0, 1)]
    problem = f"expected the classes that were counted, {tally.tolist()}"
    require(counts == tally.tolist(), party, RowRatings, "classes", problem)
    sound = bool((ratings.weights >= 0).all() and (ratings.weights <= most).all())
    require(sound, party, RowRatings, "weights", f"expected numbers from 0 to {most:.0f}")
    check_votes(ratings.answers, view.target, party, RowRatings, "answers")


def _joined(view: TreeEnsemble, ratings: Mapping[str, RowRatings], where: Labels) -> RatedRows:
    """``where`` (rows, parties): the place of a row in what each party has sent, −1 for nowhere."""
    vectors, y, weight = {}, np.zeros(len(where), np.int64), np.ones(len(where))
    for i, (party, sent) in enumerate(ratings.items()):
        has, at = where[:, i] >= 0, where[where[:, i] >= 0, i]
        vectors[party] = np.full((len(where), 2), np.nan)
        vectors[party][has] = sent.answers[at]
        y[has], weight[has] = sent.classes[at], sent.weights[at]
    answers = {p: v for p, v in vectors.items() if p in view.clients}
    return RatedRows(fused(view, answers), y, weight)
