"""The encoder that an owner chooses on its rows held back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import ParameterError
from fedcircuits.learning.encoders.choosing import BestEncoder, EncoderJob, _best, fit_all
from fedcircuits.learning.encoders.foreign import LabelsOnly

ROWS = 400
QUICK = fc.SequenceEncoder(width=4, epochs=12, learning_rate=0.03)


def table(kind: str, labels: bool = True) -> fc.Table:
    """Whose class is in the deviation of a series, or in whether saws in it rise or fall."""
    rng = np.random.default_rng(1)
    yes = rng.random(ROWS) < 0.5
    x = rng.normal(size=(ROWS, 24, 1))
    if kind == "spread":
        x *= 1 + 0.5 * yes[:, None, None]
    else:
        wave = np.array([-1.0, -0.5, 0.0, 0.5] * 2)
        for i, at in enumerate(rng.integers(0, 16, ROWS)):
            x[i, at : at + 8, 0] += 2 * (wave if yes[i] else wave[::-1])
    return fc.Table.from_series({"s": x}, {"yes": yes} if labels else None)


def job(encoder: Any, own: fc.Table) -> EncoderJob:
    held = np.random.default_rng(3).random(len(own)) < 0.3
    return EncoderJob(encoder, own, "yes", held, (0,))


def test_the_simplest_is_taken_where_it_suffices() -> None:
    best = BestEncoder(["summary", "rocket", QUICK]).fit(table("spread"), "yes")
    assert isinstance(best.encoder_, fc.SummaryEncoder)
    assert set(best.losses_) == {"SummaryEncoder", "RocketEncoder", "SequenceEncoder"}
    own = table("spread")
    assert np.array_equal(best.encode(own), best.encoder_.encode(own))
    assert best.predict_vector(own).shape == (ROWS, 2)


def test_convolutions_are_taken_for_shapes() -> None:
    own = table("shape")
    (found,) = fit_all([job(BestEncoder(["summary", "rocket", QUICK]), own)])
    assert isinstance(found, fc.RocketEncoder)


def test_without_labels_there_is_nothing_to_choose_by() -> None:
    best = BestEncoder(["summary", "rocket", QUICK]).fit(table("spread", labels=False))
    assert isinstance(best.encoder_, fc.SummaryEncoder) and not best.losses_
    (found,) = fit_all([job("auto", table("spread").rows(slice(0, 5)))])
    assert isinstance(found, fc.SummaryEncoder)


def test_a_later_one_must_be_better_by_more_than_chance() -> None:
    rng = np.random.default_rng(0)
    loss = rng.random(50)
    noisy = loss - 0.01 + rng.normal(0, 1, 50)
    assert _best([loss, noisy - noisy.mean() + loss.mean() - 0.01]) == 0
    assert _best([loss, loss - 0.01]) == 1
    assert _best([loss, loss + 0.01]) == 0
    assert _best([np.full(50, np.inf), loss]) == 1


def test_many_owners_choose_as_each_would_alone() -> None:
    both = [job(BestEncoder(["summary", QUICK]), table(kind)) for kind in ("spread", "shape")]
    for own, found in zip(both, fit_all(both), strict=True):
        (alone,) = fit_all([own])
        assert type(alone) is type(found)
        np.testing.assert_allclose(alone.encode(own.table), found.encode(own.table), atol=1e-4)


def test_a_party_of_labels_has_none() -> None:
    (found,) = fit_all([job("auto", fc.Table.of({"yes": np.arange(9) % 2 == 0}))])
    assert isinstance(found, LabelsOnly)


def test_candidates_that_are_none() -> None:
    own = table("spread")
    for wrong in ("summary", [], [BestEncoder()], ["lstm"], 3):
        with pytest.raises(ParameterError, match=r"candidate|encoder"):
            BestEncoder(wrong).fit(own, "yes")  # type: ignore[arg-type]
