"""Mixtures over columns with missing values: of few rows, on both engines."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine

import fedcircuits as fc
from fedcircuits.methods.vertical.gaussian import GaussianFactor
from tests.methods.vertical.mixtures import quiet

WINE = load_wine().data
ROWS = np.random.default_rng(0).permutation(len(WINE))
X = (WINE - WINE.mean(axis=0)) / WINE.std(axis=0)
TRAIN, TEST = X[ROWS[:89]], X[ROWS[89:]]


def test_gaps_cost_little_likelihood() -> None:
    """Six components of 89 rows: with every covariance from its own rows alone, three nats."""
    gaps = np.random.default_rng(1).random(TRAIN.shape) < 0.1
    scores = []
    for x in (TRAIN, np.where(gaps, np.nan, TRAIN)):
        model = fc.VerticalGaussianMixture(6, random_state=0)
        parties = fc.split(fc.Table.of(x), 3, by="columns")
        scores.append(quiet(model, parties).score(fc.Table.of(TEST)))
    assert scores[1] > scores[0] - 0.5


def test_only_rows_seen_in_part_borrow() -> None:
    rng = np.random.default_rng(2)
    x, weight = rng.normal(size=(40, 3)), rng.random((2, 40))
    absent = np.vstack([x, np.full((5, 3), np.nan)])
    partial = np.vstack([x, [[0.3, np.nan, 0.1]]])
    found = []
    for rows in (x, absent, partial):
        factor = GaussianFactor.of(("a", "b", "c"), rows, np.ones(len(rows)), 0.0)
        start = factor.of_all_rows(2)
        whole = np.zeros((2, len(rows)))
        whole[:, :40] = weight
        if rows is partial:
            whole[:, 40] = 0.5
        sums = factor.statistics(whole, start, start, slice(0, len(rows)))
        found.append(factor.maximise(sums, start, start)["covariance"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
    assert np.abs(found[2] - found[0]).max() > 1e-3


def test_much_is_missing_and_nothing_collapses() -> None:
    gaps = np.random.default_rng(3).random(TRAIN.shape) < 0.3
    parties = fc.split(fc.Table.of(np.where(gaps, np.nan, TRAIN)), 3, by="columns")
    model = quiet(fc.VerticalGaussianMixture(8, random_state=0), parties)
    alone = quiet(fc.VerticalGaussianMixture(1, random_state=0), parties)
    assert not any("collapsed" in note for note in model.notes_)
    assert model.score(fc.Table.of(TEST)) > alone.score(fc.Table.of(TEST)) - 3.0
