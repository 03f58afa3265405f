"""The threshold on the probability of the second class that gives the best macro-F1 on training
rows: rare classes are seldom the more probable ones.

Answers are of trees that have not seen the row (out of the bag) where there are such. Rows count by
class as if classes had their overall shares everywhere.

    decide/counts    where all trees read the same columns. Every party adds up how many
                     of its rows of each class its own trees rate at or above each of 199
                     thresholds; all learn the threshold. Whoever adds up learns these counts.
    decide/rows      where parties read other columns and rows have tokens. client → coordinator:
                     tokens of its rows in their order, their classes and its trees' answers. The
                     coordinator, which has no key to tokens, joins the answers as it will those to
                     questions, and learns classes and answers of rows that it cannot name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import Summation, gather_payloads
from fedcircuits.federation.tokens import Labels, Tokens, matched
from fedcircuits.federation.wire import AnyArray
from fedcircuits.methods.trees.bag import Bag, fused

TRIED = np.arange(1, 200) / 200


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows of one party whose class is known, and what its trees say of them."""

    answers: Array  # (rows, 2); NaN where no tree can say
    y: Labels  # (rows,)
    weight: Array  # (rows,)

    def counts(self) -> Array:
        """(thresholds, 2): weight of rows of each class at or above."""
        found = np.zeros((len(TRIED), 2))
        known = ~np.isnan(self.answers).any(axis=1)
        for code in (0, 1):
            mine = known & (self.y == code)
            order = np.argsort(self.answers[mine, 1], kind="stable")
            above = np.append(np.cumsum(self.weight[mine][order][::-1])[::-1], 0.0)
            found[:, code] = above[np.searchsorted(self.answers[mine, 1][order], TRIED)]
        return found

    def totals(self) -> Array:
        """(1, 2): weight of the rows of each class."""
        known = ~np.isnan(self.answers).any(axis=1)
        found = [self.weight[known & (self.y == code)].sum() for code in (0, 1)]
        return np.array([found], np.float64)


def best_threshold(counts: Array) -> Array:
    """(1,) from counts above thresholds (thresholds + 1, 2), whose last row is of all rows."""
    above, whole = counts[:-1], counts[-1]
    right, wrong = above[:, 1], above[:, 0] + whole[1] - above[:, 1]
    other = whole[0] - above[:, 0]
    score = right / np.maximum(2 * right + wrong, 1e-300)
    score = score + other / np.maximum(2 * other + wrong, 1e-300)
    good = np.flatnonzero(score >= score.max() * (1 - 1e-12))
    return TRIED[good[np.abs(TRIED[good] - 0.5).argmin()], None]


# ---------------------------------------------------------------------- counts


def by_counts(
    me: str, own: Judged | None, parties: Sequence[str], summation: Summation
) -> Flow[float]:
    """One flow for parties and for a server, which has no rows."""
    members = summation.members(parties)
    counts = np.zeros((len(TRIED) + 1, 2))
    if own is not None:
        counts = np.vstack([own.counts(), own.totals()])
    teller, tag = parties[0], "decide/threshold"
    if me not in members:
        told = expect((yield from recv_payload(teller, tag)), np.ndarray, teller, tag)
        return float(told[0])
    said = "rows of each class that its trees rate above thresholds"
    found = yield from summation.at(me, members).sum("decide/counts", counts, said, best_threshold)
    if me == teller and COORDINATOR not in members:
        yield from send_payload(COORDINATOR, tag, np.array(found), "the threshold")
    return float(found[0])


# ---------------------------------------------------------------------- rows


def tell_rows(own: Judged, tokens: Tokens) -> Flow[None]:
    order = np.argsort(tokens)
    told: dict[str, AnyArray] = {
        "tokens": tokens[order],
        "classes": own.y[order],
        "answers": own.answers[order],
        "weights": own.weight[order],
    }
    said = "classes of rows that it cannot name, and what its trees say of them"
    yield from send_payload(COORDINATOR, "decide/rows", told, said)


def by_rows(view: Bag, parties: Sequence[str]) -> Flow[float]:
    """At the coordinator, from rows that all its parties with trees have answered, or any."""
    found = yield from gather_payloads(parties, "decide/rows")
    told = {p: expect(found[p], dict, p, "decide/rows") for p in parties}
    where = matched([np.asarray(told[p]["tokens"], np.uint64) for p in parties])
    whole = where[(where >= 0).all(axis=1)]
    joined = _joined(view, told, whole if len(whole) else where)
    counts = np.vstack([joined.counts(), joined.totals()])
    return float(best_threshold(counts)[0])


def _joined(view: Bag, told: Mapping[str, Mapping[str, AnyArray]], where: Labels) -> Judged:
    """``where`` (rows, parties): the place of a row in what each party has told, −1 for nowhere."""
    vectors, y, weight = {}, np.zeros(len(where), np.int64), np.ones(len(where))
    for i, (party, own) in enumerate(told.items()):
        has, at = where[:, i] >= 0, where[where[:, i] >= 0, i]
        vectors[party] = np.full((len(where), 2), np.nan)
        vectors[party][has] = own["answers"][at]
        y[has], weight[has] = own["classes"][at], own["weights"][at]
    answers = {p: v for p, v in vectors.items() if p in view.clients}
    return Judged(fused(view, answers), y, weight)
