"""Rows held back: which they are, and when learning stops by them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.learning.stopping import (
    FEW,
    EarlyStopping,
    held_back,
    held_share,
    mean_of_rows,
)

# ---------------------------------------------------------------------- drawing


@given(st.integers(0, 300), st.floats(0, 0.999), st.integers(0, 2**32))
def test_a_share_is_drawn_and_never_all(rows: int, share: float, seed: int) -> None:
    lots = np.random.default_rng(seed).random(rows)
    held = held_back(lots, share)
    assert held.shape == (rows,)
    if rows < FEW:
        assert not held.any()
    else:
        assert held.sum() == min(round(share * rows), rows - 1)
    assert held.any() == bool(held_share(rows, share))
    if held.any():
        assert lots[held].max() < lots[~held].min()


def test_few_rows_are_all_learned_from() -> None:
    assert not held_share(FEW - 1, 0.5) and held_share(FEW, 0.5) == 0.5
    assert not held_share(10 * FEW, 0.0) and not held_share(FEW, 0.001)


# ---------------------------------------------------------------------- judging


SCORES = st.lists(st.floats(-5, 5), min_size=1, max_size=20)


@given(SCORES, st.integers(1, 4))
def test_the_best_is_known_when_it_ends(scores: list[float], patience: int) -> None:
    rule, best = EarlyStopping(patience), 0
    for t in range(len(scores)):
        best = t if t == 0 or scores[t] > max(scores[:t]) else best
        assert rule.best(scores[: t + 1]) == best
        assert rule.ends(scores[: t + 1]) == (t - best >= patience)


@given(SCORES, st.integers(1, 4), st.floats(0, 1))
def test_small_gains_are_none(scores: list[float], patience: int, tolerance: float) -> None:
    ends = EarlyStopping(patience, tolerance).ends(scores)
    before = scores[:-patience]
    recent = max(scores[-patience:])
    gains = before and recent > max(before) and recent >= max(before) + tolerance
    assert ends == (bool(before) and not gains)


def test_impossible_rows_count() -> None:
    """One more of them is worse than anything else."""
    assert mean_of_rows(np.array([-1.0, -3.0])) == -2.0
    assert mean_of_rows(np.array([-np.inf, 5.0])) < mean_of_rows(np.array([-900.0, -900.0]))
    assert mean_of_rows(np.array([-np.inf, -3.0])) < mean_of_rows(np.array([-np.inf, -2.0]))
