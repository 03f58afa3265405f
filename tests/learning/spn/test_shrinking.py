"""Counts of few rows drawn towards the table's, tilted where bins have an order."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedcircuits as fc
from fedcircuits.learning.spn.shrinking import PULLS, TILTED, drawn, drawn_in_order, tilted

BINS = 32
SHARE = np.full(BINS, 1 / BINS)
EDGES = ndtri(np.arange(BINS + 1) / BINS)


def _counts(x: np.ndarray) -> np.ndarray:
    return np.histogram(x, EDGES)[0].astype(float)


def _normal(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum()


def test_a_tilt_has_mean_and_variance_of_the_part() -> None:
    rng = np.random.default_rng(0)
    z = ndtri((np.arange(BINS) + 0.5) / BINS)
    x = rng.normal(0.6, 0.7, 20_000)
    moved = tilted(_counts(x), SHARE)
    mean = moved @ z
    assert moved.sum() == pytest.approx(1)
    assert mean == pytest.approx(x.mean(), abs=0.03)
    assert moved @ (z - mean) ** 2 == pytest.approx(x.var(), abs=0.03)


def test_a_part_like_the_table_is_not_tilted() -> None:
    counts = SHARE * 640
    np.testing.assert_allclose(drawn_in_order(counts, SHARE), drawn(counts, SHARE))


def test_few_rows_of_a_shifted_part_are_described_better() -> None:
    rng = np.random.default_rng(0)
    truth = _normal(_counts(rng.normal(0.7, 1, 1_000_000)))
    gains = []
    for _ in range(30):
        counts = _counts(rng.normal(0.7, 1, 60))
        plain, smooth = (_normal(f(counts, SHARE)) for f in (drawn, drawn_in_order))
        gains.append(truth @ np.log(smooth / plain))
    assert np.mean(gains) > 0.03


def test_where_a_tilt_does_not_fit_the_rows_decide() -> None:
    rng = np.random.default_rng(0)
    sides = np.concatenate([rng.normal(-1, 0.1, 500), rng.normal(1, 0.1, 500)])
    counts = _counts(sides)
    np.testing.assert_array_equal(drawn_in_order(counts, SHARE), drawn(counts, SHARE))


def test_all_parts_at_once_are_each_on_its_own() -> None:
    rng = np.random.default_rng(0)
    parts = ((0, 1, 40), (1, 1, 90), (-2, 0.3, 5), (0, 0.2, 400), (0, 1, 0))
    counts = np.stack([_counts(rng.normal(*part)) for part in parts])
    every = drawn_in_order(counts, SHARE)
    for row, own in zip(counts, every, strict=True):
        np.testing.assert_allclose(drawn_in_order(row, SHARE), own)
    assert np.isfinite(every).all() and (every > 0).all()


def test_two_or_three_bins_are_left_alone() -> None:
    counts = np.arange(TILTED - 1) * 50.0
    share = np.full(TILTED - 1, 1 / (TILTED - 1))
    np.testing.assert_array_equal(drawn_in_order(counts, share), drawn(counts, share))


def test_counts_keep_their_sum_and_gain_that_of_pseudo_rows() -> None:
    rng = np.random.default_rng(0)
    for f in (drawn, drawn_in_order):
        more = f(_counts(rng.normal(0.5, 1, 80)), SHARE).sum() - 80
        assert np.isclose(PULLS, more).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_class_by_age_is_predicted_as_by_logistic_regression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(58, 18, 9200), 18, 98).round()
    stays = rng.poisson(1.2, 9200)
    risk = 1 / (1 + np.exp(2.2 - 0.045 * (age - 58) - 0.35 * stays))
    ill = rng.random(9200) < risk
    frame = pd.DataFrame({"age": age.astype(int), "stays": stays, "ill": ill})
    train, test = frame[:1200], frame[1200:]
    model = fc.LearnSPN(target="ill", random_state=seed).fit(train)
    ours = model.predict_proba(test)[:, list(model.classes("ill")).index(True)]
    numbers = ["age", "stays"]
    linear = LogisticRegression().fit(train[numbers], train["ill"])
    theirs = linear.predict_proba(test[numbers])[:, 1]
    assert roc_auc_score(test["ill"], ours) > roc_auc_score(test["ill"], theirs) - 0.02
