"""Fusions: heads against formulas, alignment, missing owners, what is kept, votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedcircuits.errors import ParameterError
from fedcircuits.methods.fusion import heads
from fedcircuits.methods.fusion.fitting import (
    Fusion,
    OwnerRows,
    Standardisation,
    Votes,
    elect,
    fuse,
)
from fedcircuits.methods.fusion.heads import FusionSettings

OWNERS, ROWS, WIDTH = 4, 240, 3


def gathered(seed: int = 0, permuted: bool = True) -> tuple[OwnerRows, Any, Any]:
    """Owners who see a noisy copy of the same three numbers, in orders of their own."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(ROWS, WIDTH))
    y = (hidden @ np.array([2.0, -1.0, 0.0]) > 0).astype(np.float32)
    h = hidden + rng.normal(0, 0.7, (OWNERS, ROWS, WIDTH))
    if permuted:
        h = np.stack([own[:, rng.permutation(WIDTH)] for own in h])
    held = np.arange(ROWS) % 6 == 0
    return OwnerRows(h.astype(np.float32), np.ones((ROWS, OWNERS), bool)), y, held


def learned(rows: OwnerRows, y: Any, held: Any, **options: Any) -> Fusion:
    settings = FusionSettings(**{"epochs": 25, "patience": 25, "batch": 50, **options})
    return fuse(rows, y, held, "classes", 2, settings, 0)


def accuracy(fusion: Fusion, rows: OwnerRows, y: Any) -> float:
    return float((fusion.predict(rows).argmax(axis=1) == y).mean())


VARIANTS: list[dict[str, Any]] = [
    *({"graph": g} for g in ("learned", "expected", "complete", "knn", None)),
    {"reference": "normal"}, {"align": "sinkhorn"}, {"align": None},
    {"head": "mean"}, {"head": "concat"}, {"head": "transformer", "align": None, "epochs": 5},
]  # fmt: skip


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_every_variant_learns(options: dict[str, Any]) -> None:
    rows, y, held = gathered(permuted=options.get("align", "") is not None)
    if options.get("head") == "transformer":
        rows = OwnerRows(np.pad(rows.h, ((0, 0), (0, 0), (0, 1))), rows.there)  # four heads
    fusion = learned(rows, y, held, **options)
    found = fusion.predict(rows)
    assert found.shape == (ROWS, 2) and np.allclose(found.sum(axis=1), 1)
    assert accuracy(fusion, rows, y) > 0.8
    assert np.array_equal(found, fusion.predict(rows)), "the graphs are the same in every question"
    assert len(fusion.history["held back"]) == len(fusion.history["training"])
    assert 1 <= fusion.best <= len(fusion.history["held back"])


def test_the_head_is_the_formula() -> None:
    rng = np.random.default_rng(1)
    rows, *_ = gathered()
    values = heads.start(FusionSettings(hidden=5), OWNERS, WIDTH, 2, rng)
    graph = np.triu(rng.random((OWNERS, OWNERS)), 1)
    graph += graph.T
    tensors = {n: torch.tensor(v).float() for n, v in values.items()}
    h = torch.from_numpy(rows.h)
    found = heads.output(tensors, FusionSettings(), h, torch.tensor(graph).float(), None)
    loops = graph + np.eye(OWNERS)
    scale = 1 / np.sqrt(loops.sum(axis=1))
    mixing = scale[:, None] * loops * scale
    aligned = np.einsum("orw,owv->orv", rows.h, values["align"])  # P_i h_i
    layer = np.einsum("po,orv,vk->prk", mixing, aligned, values["first"]) + values["first bias"]
    pooled = np.einsum("po,ork->rk", mixing, np.maximum(layer, 0)) / OWNERS
    assert np.allclose(found.numpy(), pooled @ values["last"] + values["last bias"], atol=1e-5)


def test_absent_owners_do_not_count_whatever_they_hold() -> None:
    rows, y, held = gathered()
    fusion = learned(rows, y, held, owner_dropout=0.2, epochs=10)
    there = rows.there.copy()
    there[:, 2] = False
    zeros = rows.h.copy()
    zeros[2] = 0.0
    found = fusion.predict(OwnerRows(zeros, there))
    assert np.isfinite(found).all() and not np.allclose(found, fusion.predict(rows))
    nobody = OwnerRows(np.zeros_like(rows.h), np.zeros_like(there))
    assert np.isfinite(fusion.predict(nobody)).all()


def test_a_transformer_where_nobody_is_there() -> None:
    rows, y, held = gathered()
    wide = np.pad(rows.h, ((0, 0), (0, 0), (0, 1)))  # four heads
    there = rows.there.copy()
    there[7] = False
    some = OwnerRows(wide * there.T[..., None], there)
    options: dict[str, Any] = {"head": "transformer", "align": None, "owner_dropout": 0.5}
    fusion = learned(some, y, held, epochs=3, **options)
    assert np.isfinite(fusion.history["training"]).all() and np.isfinite(fusion.predict(some)).all()


def test_representations_are_standardised_where_owners_have_matrices() -> None:
    rows, y, held = gathered()
    there = rows.there.copy()
    there[::3, 1] = False
    h = (rows.h * np.float32([1e-2, 1, 1e2]) + 5) * there.T[..., None]
    scale = Standardisation.of(OwnerRows(h.astype(np.float32), there))
    found = scale.apply(torch.from_numpy(h.astype(np.float32)), torch.from_numpy(there).float())
    own = found.numpy()[1, there[:, 1]]
    assert np.allclose(own.mean(axis=0), 0, atol=1e-3)
    assert np.allclose(own.std(axis=0), 1, atol=1e-3)
    assert (found.numpy()[1, ~there[:, 1]] == 0).all()
    still = Standardisation.of(OwnerRows(np.ones((2, 5, 3), np.float32), np.ones((5, 2), bool)))
    assert (still.rate == 1).all() and (still.mean == 1).all()
    assert learned(rows, y, held, epochs=1).scale is not None
    assert learned(rows, y, held, epochs=1, head="concat", align=None).scale is not None
    assert learned(rows, y, held, epochs=1, align=None).scale is None


def test_dropout_helps_where_owners_are_missing() -> None:
    scores = {}
    for dropout in (0.0, 0.5):
        total = 0.0
        for seed in range(2):
            rows, y, held = gathered(seed)
            fusion = learned(rows, y, held, owner_dropout=dropout, graph="complete", epochs=40)
            for gone in range(OWNERS):
                there = np.zeros_like(rows.there)
                there[:, gone] = True
                total += accuracy(fusion, OwnerRows(rows.h * there.T[..., None], there), y)
        scores[dropout] = total
    assert scores[0.5] > scores[0.0]


def test_alignment_undoes_permutations() -> None:
    """Numbers of a representation in any order: no matter with alignment, a loss without."""
    found: dict[Any, list[float]] = {}
    for align in ("linear", None):
        for permuted in (False, True):
            rows, y, held = gathered(3, permuted)
            options: dict[str, Any] = {"align": align, "graph": "complete", "epochs": 40}
            fusion = learned(rows, y, held, **options)
            found.setdefault(align, []).append(accuracy(fusion, rows, y))
    assert abs(found["linear"][0] - found["linear"][1]) < 0.05
    assert found[None][1] < found[None][0] - 0.05


def test_sinkhorn_gives_doubly_stochastic_matrices() -> None:
    logits = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0))
    found = heads.sinkhorn(logits, 50)
    assert torch.allclose(found.sum(dim=1), torch.ones(3, 5), atol=1e-4)
    assert torch.allclose(found.sum(dim=2), torch.ones(3, 5), atol=1e-4)
    assert heads.sinkhorn(1000 * logits).isfinite().all()  # in the log domain nothing overflows


def test_numbers() -> None:
    rows, _, held = gathered(permuted=False)
    y = rows.h.mean(axis=0)[:, :1]
    settings = FusionSettings(epochs=40, batch=50, graph="complete", owner_dropout=0.0)
    found = fuse(rows, y, held, "numbers", 1, settings, 0).predict(rows)
    assert np.corrcoef(found[:, 0], y[:, 0])[0, 1] > 0.95


def test_one_owner_and_no_rows_held_back() -> None:
    rows, y, _ = gathered()
    one = OwnerRows(rows.h[:1], rows.there[:, :1])
    fusion = learned(one, y, np.zeros(ROWS, bool))
    assert accuracy(fusion, one, y) > 0.7 and fusion.graph is not None
    assert fusion.graph.tolist() == [[0.0]]


# ---------------------------------------------------------------------- votes


def test_votes() -> None:
    h = np.zeros((3, 4, 2), np.float32)
    says = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0]])
    h[np.arange(3)[:, None], np.arange(4), says] = 1.0
    there = np.ones((4, 3), bool)
    there[3] = False
    rows = OwnerRows(h, there)
    share = Votes("vote", 2).predict(rows)
    assert np.allclose(share[:, 1], [2 / 3, 2 / 3, 1 / 3, 1 / 2])
    y = np.array([1.0, 1.0, 1.0, 0.0])
    none = np.zeros(4, bool)
    full = OwnerRows(h, np.ones((4, 3), bool))
    tuned = elect("threshold", full, y, none, 2)
    assert tuned.threshold == pytest.approx(1 / 3)
    assert tuned.predict(full).argmax(axis=1).tolist() == [1, 1, 1, 0]
    assert elect("best", full, y, none, 2).best == 0
    assert elect("best", full, np.array([0.0, 1, 1, 0]), none, 2).best == 2
    with pytest.raises(ParameterError, match="two classes"):
        elect("threshold", full, y, none, 3)


def test_votes_on_numbers() -> None:
    h = np.array([[[1.0], [2.0]], [[3.0], [4.0]]], np.float32)
    rows = OwnerRows(h, np.array([[True, True], [False, True]]))
    assert Votes("vote", 0).predict(rows)[:, 0].tolist() == [2.0, 4.0]
    y = np.array([3.0, 4.1])
    assert elect("best", rows, y, np.zeros(2, bool), 0).best == 1


def test_where_the_best_owner_is_absent_the_others_are_asked() -> None:
    h = np.array([[[0.9, 0.1], [0.0, 0.0]], [[0.2, 0.8], [0.4, 0.6]], [[0.3, 0.7], [0.8, 0.2]]])
    rows = OwnerRows(h.astype(np.float32), np.array([[True, True, True], [False, True, True]]))
    found = Votes("best", 2, best=0).predict(rows)
    assert np.allclose(found, [[0.9, 0.1], [0.6, 0.4]])
    numbers = OwnerRows(rows.h[..., :1], rows.there)
    assert np.allclose(Votes("best", 0, best=0).predict(numbers)[:, 0], [0.9, 0.6])


@pytest.mark.parametrize("width", [1, 2, 6])
def test_a_transformer_has_fewer_heads_where_the_width_asks_for_it(width: int) -> None:
    settings = FusionSettings(align=None, head="transformer")
    values = heads.start(settings, 3, width, 2, np.random.default_rng(0))
    tensors = {name: torch.tensor(value).float() for name, value in values.items()}
    found = heads.output(tensors, settings, torch.randn(3, 5, width), None, None)
    assert found.shape == (5, 2)


@pytest.mark.parametrize(
    ("head", "graph"), [("gcn", "complete"), ("gcn", "learned"), ("mean", None)]
)
def test_parts_of_a_number_add_up_also_where_some_are_missing(head: Any, graph: Any) -> None:
    """Each owner holds a summand: the mean of those that are there is too much without the rest."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(4, 600, 1)).astype(np.float32) + 1
    y = parts.sum(axis=0) - 4
    there = np.ones((600, 4), bool)
    settings = FusionSettings(head=head, graph=graph, owner_dropout=0.3, epochs=60)
    held = np.arange(600) % 6 == 0
    fusion = fuse(OwnerRows(parts, there), y, held, "numbers", 1, settings, 0)
    assert fusion.values["presence"][0] > 0.3
    error = np.square(fusion.predict(OwnerRows(parts, there)) - y).mean()
    assert error < 0.1 * y.var()
    fewer = there & (np.arange(4) > 0)
    gone = parts * fewer.T[..., None]
    error = np.square(fusion.predict(OwnerRows(gone, fewer)) - y).mean()
    assert error < 0.4 * y.var()  # a quarter is not known
