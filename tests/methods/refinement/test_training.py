"""EM of federated circuits: never worse on rows held back than what it began with, one seed one
model whatever the key, and few rows far out do not cost new ones next to them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedcircuits as fc
from fedcircuits.methods.refinement.roles import STOPPING
from fedcircuits.privacy.hidden_sums import Secret
from tests.federation.cases import QUICK, federation, gaps, mixed_table

ROWS = fc.Table(mixed_table().schema, gaps())

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


WAYS: list[tuple[str, Any]] = [("columns", Secret()), ("rows", fc.Hub())]


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
    assert len(held.validation_history_) == 1 + STOPPING.patience
    assert len(held.history_) == STOPPING.patience and len(every.history_) >= 20


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
    assert len(judged) > 1 + STOPPING.patience and max(judged) > judged[0] + 0.01
    assert held.collect().score(new) > plain.collect().score(new) + 0.01


# ---------------------------------------------------------------------- within training


@pytest.mark.parametrize("name", ["rows", "columns"])
def test_one_seed_one_model(name: str) -> None:
    """Whatever the key of row tokens is: it differs between runs. Of rows and columns at once:
    tests/estimators/test_fedpc.py."""
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


# ---------------------------------------------------------------------- rows far out


def debts(rows: int, seed: int) -> tuple[fc.Table, npt.NDArray[np.bool_]]:
    """Three groups in three columns; and which rows have a debt a thousand times that of others."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=rows)
    far = rng.random(rows) < 0.006
    debt = np.where(far, 10 ** rng.uniform(3, 4, rows), group + rng.random(rows))
    others = group + rng.normal(0, 0.5, rows), 2 * group + rng.normal(0, 0.7, rows)
    table = fc.Table.of(np.stack([debt, *others], axis=1), names=["debt", "a", "b"])
    return fc.Table(table.schema, table.values, np.arange(rows)), far


@functools.cache
def indebted(kind: str, seed: int) -> fc.Federation:
    table, _ = debts(500, seed)
    if kind == "rows":
        return fc.split(table, 2, by="rows", allow_collect=True)
    tables = {"bank": table.select(["debt", "a"]), "shop": table.select(["b"])}
    return fc.Federation(tables, allow_collect=True)


@pytest.mark.parametrize(("kind", "seed", "share"), [("columns", 8, 0.0), ("rows", 0, 0.1)])
def test_new_rows_far_out_stay_as_likely(kind: str, seed: int, share: float) -> None:
    """Of few rows far out some become a Gaussian each, and broad ones that covered them all are
    hardly reached any more, which new rows between them need. Whole steps of EM would take these
    from tens of nats to a hundred thousand and more."""
    leaf = fc.EinsumNetwork(
        4, depth=1, repetitions=2, epochs=10, batch_size=64, step=0.5, validation=0.0
    )
    new, far = debts(4000, seed + 1)
    found = []
    for rounds in (0, 10):
        how: dict[str, Any] = {"clusters": 3, "ensemble": 1, "share_clusters": True}
        model = fc.FedPC(leaf, **how, refine=rounds, validation=share, random_state=0)
        found.append(model.fit(indebted(kind, seed)).collect().score_samples(new))
    before, after = found
    assert np.median(after) > np.median(before)
    assert after[~far].mean() > before[~far].mean()
    assert after[far].mean() > 4 * before[far].mean()
