"""EM that stops by rows held back: never worse on them than what it began with, one seed one model
whatever the key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.methods.refinement.stopping import FEW, PATIENCE, Judge, drawn, holding, mean
from fedcircuits.privacy.secure_sum import Secret
from tests.federation.cases import QUICK, federation, gaps, mixed_table

ROWS = fc.Table(mixed_table().schema, gaps())

# ---------------------------------------------------------------------- drawing


@given(st.integers(0, 300), st.floats(0, 0.999), st.integers(0, 2**32))
def test_a_share_is_drawn_and_never_all(rows: int, share: float, seed: int) -> None:
    lots = np.random.default_rng(seed).random(rows)
    held = drawn(lots, share)
    assert held.shape == (rows,)
    if rows < FEW:
        assert not held.any()
    else:
        assert held.sum() == min(round(share * rows), rows - 1)
    assert held.any() == bool(holding(rows, share))
    if held.any():
        assert lots[held].max() < lots[~held].min()


def test_few_rows_are_all_learned_from() -> None:
    assert not holding(FEW - 1, 0.5) and holding(FEW, 0.5) == 0.5
    assert not holding(10 * FEW, 0.0) and not holding(FEW, 0.001)


# ---------------------------------------------------------------------- judging


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_the_best_is_known_when_it_ends(found: list[float]) -> None:
    judge, best = Judge(), 0
    for t, likelihood in enumerate(found):
        better, ends = judge.verdict(likelihood)
        best = t if better else best
        assert ends == (t - best >= PATIENCE)
        if ends:
            break
    assert judge.history == found[: t + 1]
    assert found[best] == max(judge.history) and t - best <= PATIENCE


def test_impossible_rows_count() -> None:
    """One more of them is worse than anything else."""
    assert mean(np.array([-1.0, -3.0])) == -2.0
    assert mean(np.array([-np.inf, 5.0])) < mean(np.array([-900.0, -900.0]))
    assert mean(np.array([-np.inf, -3.0])) < mean(np.array([-np.inf, -2.0]))


# ---------------------------------------------------------------------- few rows, many clusters


def blobs(rows: int, seed: int) -> fc.Table:
    """Four columns of two groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=(rows, 1))
    values = 3 * group + rng.normal(size=(rows, 4))
    return fc.Table.of(values, names=["a", "b", "c", "d"])


def parties(kind: str, rows: int = 120) -> fc.Federation:
    table = blobs(rows, 0)
    table = fc.Table(table.schema, table.values, np.arange(rows))
    if kind == "rows":
        return fc.split(table, 3, by="rows", allow_collect=True)
    tables = {"x": table.select(["a"]), "y": table.select(["b", "c"]), "z": table.select(["d"])}
    return fc.Federation(tables, allow_collect=True)


WAYS: list[tuple[str, Any]] = [("columns", fc.Hub()), ("columns", Secret()), ("rows", fc.Hub())]


@pytest.mark.parametrize(("kind", "summation"), WAYS)
def test_it_overfits_less(kind: str, summation: Any) -> None:
    """Rounds over all rows make new ones less likely. Here none is of use: one pass stays."""
    learner = fc.MixtureOfProducts(8, max_iter=2)
    usual: dict[str, Any] = {
        "clusters": 6,
        "ensemble": 1,
        "random_state": 0,
        "summation": summation,
    }
    new = blobs(2000, 1)
    plain, every, held = (
        fc.FedPC(learner, **usual | how).fit(parties(kind, 80))
        for how in ({"refine": 0}, {"refine": 20, "validation": 0.0}, {"refine": 20})
    )
    scores = [m.collect().score(new) for m in (plain, every, held)]
    assert scores[1] < scores[0] - 1 and scores[2] == pytest.approx(scores[0], abs=1e-12)
    for party, view in plain.views_.items():
        assert held.views_[party].parameters == view.parameters
    assert len(held.validation_history_) == 1 + PATIENCE
    assert len(held.history_) == PATIENCE and len(every.history_) >= 20


@pytest.mark.parametrize(("kind", "summation"), WAYS)
def test_it_goes_on_while_it_gains(kind: str, summation: Any) -> None:
    """Where there is much to gain, rows that nobody has seen gain with those held back."""
    usual: dict[str, Any] = {"clusters": 2, "ensemble": 1, "random_state": 0}
    plain, held = (
        fc.FedPC(fc.MixtureOfProducts(1), **usual, summation=summation, refine=rounds).fit(
            parties(kind, 600)
        )
        for rounds in (0, 6)
    )
    new, judged = blobs(2000, 1), held.validation_history_
    assert len(judged) > 1 + PATIENCE and max(judged) > judged[0] + 0.01
    assert held.collect().score(new) > plain.collect().score(new) + 0.01


# ---------------------------------------------------------------------- within training


@pytest.mark.parametrize("name", ["columns", "rows", "uneven"])
def test_one_seed_one_model(name: str) -> None:
    """Whatever the key of row tokens is: it differs between runs."""
    how: dict[str, Any] = {"clusters": 3, "ensemble": 1, "refine": 3, "validation": 0.2}
    one, again, other = (
        fc.FedPC(QUICK, random_state=seed, **how).fit(federation(name)) for seed in (0, 0, 1)
    )
    judged = [np.array(m.validation_history_) for m in (one, again, other)]
    np.testing.assert_allclose(judged[0], judged[1], atol=1e-9)
    assert len(judged[0]) > 1 and not np.allclose(judged[0][:1], judged[2][:1], atol=1e-3)
    np.testing.assert_allclose(one.score_samples(ROWS), again.score_samples(ROWS), atol=1e-9)


@pytest.mark.parametrize("name", ["columns", "rows"])
def test_few_rows_are_em_as_without_validation(name: str) -> None:
    whole = mixed_table(40)
    by = {"by": name, "overlap": 0.0, "allow_collect": True, "seed": 1}
    found, plain = (
        fc.FedPC(QUICK, clusters=2, refine=3, validation=share, random_state=0).fit(
            fc.split(whole, 2, **by)  # type: ignore[arg-type]
        )
        for share in (0.5, 0.0)
    )
    assert not found.validation_history_
    np.testing.assert_allclose(found.history_, plain.history_, atol=1e-9)


def test_weights_alone_take_all_rows() -> None:
    model = fc.FedPC(QUICK, clusters=3, weights="em", validation=0.5, random_state=0)
    model.fit(federation("columns"))
    assert not model.validation_history_ and len(model.history_) > 1
    assert not [e for e in model.ledger_ if e.tag == "em/held"]
