"""Grey levels by sums: rounds of ranges, one of all levels; the same for any parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.leaves.ranges import LevelRanges
from fedcircuits.methods.shared.training import in_one_place


def images(rows: int, seed: int = 0) -> fc.Table:
    """3 × 3 pixels of two kinds of pictures, mostly black."""
    rng = np.random.default_rng(seed)
    bright = rng.normal(np.where(rng.random((rows, 1)) < 0.5, 60, 180), 25, (rows, 9))
    grey = np.where(rng.random((rows, 9)) < 0.3, 0, np.clip(bright, 1, 255))
    return fc.Table.of(grey.round().astype(np.uint8).reshape(rows, 3, 3))


def tree(**more: Any) -> fc.HiddenChowLiuTree:
    return fc.HiddenChowLiuTree(8, epochs=6, random_state=0, **more)


def test_shares_of_levels_in_ranges_and_back() -> None:
    pooled = np.random.default_rng(0).dirichlet(np.ones(80))
    into, inside = LevelRanges(frozenset("a"), 50.0, {80: pooled}).member(80)
    np.testing.assert_allclose(into.sum(axis=0), 1)  # every level lies in ranges once
    used = into.sum(axis=1) > 0
    np.testing.assert_allclose(inside.sum(axis=1)[used], 1)
    assert used.sum() < 25
    np.testing.assert_allclose(inside.T @ (into @ pooled), pooled)  # what looks like all stays


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Tree("path"), fc.Secret()])
def test_parties_learn_what_one_place_does(summation: fc.Summation) -> None:
    table = images(240)
    learner = tree(summation=summation, validation=0.0)
    model = learner.fit(fc.split(table, 3, seed=0, least_count=1))
    one = in_one_place(table.values, table.schema, learner.to_send(), 0)
    np.testing.assert_allclose(model.history_, one.fitted.history, rtol=0, atol=1e-9)
    single = fc.CircuitModel(one.beginning.circuit, one.fitted.parameters)
    new = images(60, seed=1)
    new = fc.Table.of(new.values.astype(np.uint8), schema=table.schema)
    np.testing.assert_allclose(model.score_samples(new), single.score_samples(new), atol=1e-9)


def test_a_round_adds_up_ranges_and_one_all_levels() -> None:
    model = tree().fit(fc.split(images(240), 3, seed=0))
    sizes = {e.tag: e.bytes for e in model.ledger_ if e.sender == "party 1"}
    rounds = [size for tag, size in sizes.items() if tag.rsplit("/", 1)[-1].isdigit()
              and tag.startswith("shared/counts/")]  # fmt: skip
    assert len(set(rounds)) == 1 and len(rounds) > 3
    assert sizes["shared/counts/levels"] > 5 * rounds[0]
    assert sizes["shared/smoothing"] < 400


def test_many_levels_and_few_rows_do_not_overfit() -> None:
    table, new = images(300), images(500, seed=1)
    new = fc.Table.of(new.values.astype(np.uint8), schema=table.schema)
    federation = fc.split(table, 3, seed=0)
    one = fc.HiddenChowLiuTree(8, epochs=30, random_state=0).fit(table).score(new)
    together, rough = tree().fit(federation), tree(range_smoothing=0.0).fit(federation)
    assert together.score(new) > one - 0.3 > rough.score(new)


def test_fedpc_with_hidden_trees_takes_sums_and_says_so() -> None:
    table, new = images(240), images(300, seed=1)
    new = fc.Table.of(new.values.astype(np.uint8), schema=table.schema)
    learner = fc.HiddenChowLiuTree(8, epochs=4, random_state=0)
    alone = fc.FedPC(learner, random_state=0).fit(fc.split(table, 1))
    many = fc.FedPC(learner, random_state=0).fit(fc.split(table, 6, seed=0))
    assert "by sums" in many.notes_[0] and "HiddenChowLiuTree(epochs=20" in many.notes_[0]
    assert many.score(new) > alone.score(new) - 0.5  # levels of few rows are told in runs
    once = fc.FedPC(learner, method="one_pass", random_state=0).fit(fc.split(table, 6, seed=0))
    assert not any("by sums" in note for note in once.notes_)
    assert many.score(new) > once.score(new) + 1
