"""The threshold of the best macro-F1, against scikit-learn on the rows themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.federation.sums.summations import Hub, Tree
from fedcircuits.methods.trees import threshold
from fedcircuits.methods.trees.threshold import TRIED, RatedRows, best_threshold


def rated(seed: int, rows: int = 60) -> RatedRows:
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(rows), 2)
    y = (rng.random(rows) < p**2).astype(np.int64)
    y[:2] = 0, 1
    return RatedRows(np.column_stack([1 - p, p]), y, np.ones(rows))


@given(st.integers(0, 10_000))
@settings(max_examples=5, deadline=None)
def test_the_best_of_all_tried(seed: int) -> None:
    own = rated(seed)
    found = best_threshold(own.counts())
    scores = [f1_score(own.y, own.answers[:, 1] >= t, average="macro") for t in TRIED]
    assert found in TRIED
    best = f1_score(own.y, own.answers[:, 1] >= found, average="macro")
    assert best == pytest.approx(max(scores))


def test_rows_that_no_tree_can_judge_do_not_count() -> None:
    own = rated(0)
    holes = own.answers.copy()
    holes[::3] = np.nan
    rest = np.ones(60, bool)
    rest[::3] = False
    some = RatedRows(own.answers[rest], own.y[rest], own.weight[rest])
    found = RatedRows(holes, own.y, own.weight)
    assert np.array_equal(found.counts(), some.counts())


def test_weights_are_rows_counted_more_than_once() -> None:
    own = rated(1)
    times = np.random.default_rng(0).integers(0, 3, size=60)
    twice = np.repeat(np.arange(60), times)
    weighted = RatedRows(own.answers, own.y, times.astype(float))
    repeated = RatedRows(own.answers[twice], own.y[twice], np.ones(len(twice)))
    assert np.array_equal(weighted.counts(), repeated.counts())


@pytest.mark.parametrize("summation", [Hub(), Tree("path")])
def test_all_learn_one_threshold_of_all_rows(summation: Any) -> None:
    parties = ("p", "q", "r")
    own: dict[str, RatedRows | None] = {n: rated(i, 30 + i) for i, n in enumerate(parties)}
    flows = {
        n: Program(
            threshold.by_counts,
            {"me": n, "rows": own.get(n), "parties": parties, "summation": summation},
        )
        for n in (*parties, COORDINATOR)
    }
    outcome = memory.run(flows)
    assert not outcome.lost
    every = [o for o in own.values() if o is not None]
    whole = RatedRows(
        np.vstack([o.answers for o in every]), np.hstack([o.y for o in every]), np.ones(93)
    )
    expected = best_threshold(whole.counts())
    assert set(outcome.results.values()) == {expected}
    assert ("coordinator" in {e.receiver for e in outcome.ledger}) is True
