"""Rows on the way to the coordinator: packed and unpacked, held back, ordered, masked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from msgspec import structs

import fedcircuits as fc
from fedcircuits.errors import FederationError, MessageError
from fedcircuits.estimators.federated import TrainingState
from fedcircuits.federation.recipes import filled
from fedcircuits.methods.fusion import gathering
from fedcircuits.methods.fusion.fitting import OwnerRows
from fedcircuits.methods.fusion.gathering import Representations
from fedcircuits.privacy.differential import epsilon_of


def packed(values: Any, traffic: Any) -> Representations:
    tokens = np.arange(len(values), dtype=np.uint64)
    return gathering.packed(Representations, tokens, values, traffic)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, (7, 3), elements=st.floats(-50, 50, width=32)), st.booleans())
def test_representations_travel(values: Any, gap: bool) -> None:
    values = values.astype(np.float64)
    if gap:
        values[2] = np.nan
    span = np.ptp(np.append(np.nan_to_num(values), np.zeros((1, 3)), axis=0), axis=0)
    for traffic, error in (("float32", 0.0), ("float16", 0.05), ("int8", span / 508 + 1e-5)):
        sent = packed(values, traffic)
        found, there = gathering.unpacked(sent, "north", traffic, 3)  # type: ignore[arg-type]
        assert there.tolist() == [not (gap and i == 2) for i in range(7)]
        assert (np.abs(found - np.nan_to_num(values)) <= error).all()
        assert found[~there].sum() == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"there": np.ones(3, bool)}, "there"),
        ({"values": np.ones(4, np.float32)}, "values"),
        ({"values": np.ones((4, 3), np.float32)}, "values"),
        ({"values": np.ones((4, 2), np.float16)}, "values"),
        ({"values": np.full((4, 2), np.inf, np.float32)}, "values"),
        ({"step": np.ones(2, np.float32)}, "step"),
    ],
)
def test_representations_that_do_not_fit(change: dict[str, Any], field: str) -> None:
    good = packed(np.ones((4, 2)), "float32")
    with pytest.raises(MessageError, match=f"north sent 'query/rows' .*field '{field}'"):
        gathering.unpacked(structs.replace(good, **change), "north", "float32", 2)


@pytest.mark.parametrize("change", [{"middle": None}, {"step": np.full(2, 1e38, np.float32)}])
def test_scales_that_do_not_fit(change: dict[str, Any]) -> None:
    (field,) = change
    good = packed(np.ones((4, 2)), "int8")
    with pytest.raises(MessageError, match=f"north sent 'query/rows' .*field '{field}'"):
        gathering.unpacked(structs.replace(good, **change), "north", "int8", 2)


def test_numbers_too_large_for_the_traffic() -> None:
    with pytest.raises(FederationError, match="float16"):
        packed(np.full((2, 2), 1e6), "float16")


def test_rows_held_back_are_drawn_by_id() -> None:
    held = gathering.held_back(np.arange(4000), 0.25, 1)
    assert 0.22 < held.mean() < 0.28
    order = np.random.default_rng(0).permutation(4000)
    assert np.array_equal(gathering.held_back(order.astype(str), 0.25, 1), held[order])
    assert not np.array_equal(gathering.held_back(np.arange(4000), 0.25, 2), held)


def test_the_order_of_rows_is_that_of_their_content() -> None:
    rng = np.random.default_rng(0)
    rows = OwnerRows(rng.normal(size=(2, 9, 3)).astype(np.float32), np.ones((9, 2), bool))
    y = rng.random(9)
    order = gathering.content_order(rows, y)
    mixed = rng.permutation(9)
    again = gathering.content_order(rows.rows(mixed), y[mixed])
    assert np.array_equal(mixed[again], order)


def masked(values: Any, noise: float, key: bytes = bytes(32)) -> Any:
    return gathering.masked(values, gathering.Showing(clip=1.0, noise=noise, key=key))


def test_clipping_and_noise() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3)) * 10
    clipped = masked(values, 0.0)
    assert np.allclose(np.linalg.norm(clipped, axis=1), 1.0)
    noisy = masked(values, 0.1)
    assert 0 < np.abs(noisy - clipped).max() < 1
    assert np.array_equal(noisy, masked(values, 0.1))
    assert not np.array_equal(noisy, masked(values, 0.1, bytes([1] * 32)))


def test_noise_has_the_deviation_that_its_guarantee_needs() -> None:
    values = np.random.default_rng(0).normal(size=(1500, 2)) * 10
    noise = fc.DifferentialPrivacy(4.0, 1e-6).clip_noise()
    added = masked(values, noise) - masked(values, 0.0)
    assert abs(added.std() / noise - 1) < 5 / (2 * added.size) ** 0.5
    assert 3.9 < epsilon_of([noise / 2], 1e-6) <= 4.0


def test_representations_cannot_be_told_apart_better_than_the_guarantee_says() -> None:
    """Two rows at opposite ends: the best guess between them gains at most what ε allows."""
    pair = np.array([[1.0, 0.0], [-1.0, 0.0]])
    noise, runs = fc.DifferentialPrivacy(0.5, 1e-6).clip_noise(), 1500
    found = masked(np.repeat(pair, runs, axis=0), noise)[:, 0] > 0
    gain = found[:runs].mean() - found[runs:].mean()
    assert gain < (np.exp(0.5) - 1) / (np.exp(0.5) + 1) + 5 * (0.5 / runs) ** 0.5
    plain = masked(np.repeat(pair, 2, axis=0), 0.0)[:, 0] > 0
    assert plain.tolist() == [True, True, False, False]


def test_owners_have_keys_of_their_own() -> None:
    showing = gathering.Showing(clip=1.0, noise=0.1).for_owner()
    one, two = (filled(showing, TrainingState().fill(name)) for name in ("north", "south"))
    assert len(one.key) == len(two.key) == 32 and one.key != two.key and "key" not in repr(one)
