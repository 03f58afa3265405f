"""Graphs of owners: drawn edges against theorem 1, and mixings against products by hand."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fusion import edges
from fedcircuits.circuits.graph.records import fields_of, record_of
from fedcircuits.errors import ParameterError
from fedcircuits.methods.fusion import heads as graphs
from fedcircuits.methods.fusion.heads import FusionSettings, GraphMixing

REFERENCES: Any = ("logistic", "normal")


def draws(reference: Any, probability: float, temperature: float, count: int) -> Any:
    source = torch.Generator().manual_seed(0)
    noise = graphs.reference_draws((count,), reference, source)
    theta = torch.full((count,), probability)
    return graphs.softened(theta, noise, temperature, reference).numpy()


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(("probability", "temperature"), [(0.1, 0.1), (0.5, 1.0), (0.8, 0.3)])
def test_drawn_edges_follow_theorem_1(
    reference: Any, probability: float, temperature: float
) -> None:
    count = 40_000
    found = np.sort(draws(reference, probability, temperature, count).astype(np.float64))
    inside = (found > 1e-6) & (found < 1 - 1e-6)
    expected = edges.theorem(found[inside], probability, temperature, reference)
    empirical = (np.arange(count) + 0.5)[inside] / count
    assert np.abs(expected - empirical).max() < 1.7 / np.sqrt(count)  # Kolmogorov, p = 0.006


@pytest.mark.parametrize("reference", REFERENCES)
def test_the_bias_falls_with_the_square_of_the_temperature(reference: Any) -> None:
    for probability in (0.1, 0.3, 0.8):
        means = []
        for temperature in (0.05, 0.1, 0.2):
            t = (np.arange(200_000) + 0.5) / 200_000
            below = edges.theorem(t, probability, temperature, reference)
            means.append(float(1 - below.mean()) - probability)  # E[z] = ∫ P(z > t) dt
            close = edges.bias(probability, temperature, reference)
            assert means[-1] == pytest.approx(close, rel=0.15, abs=2e-6)
        assert means[2] / means[0] == pytest.approx(16, rel=0.15)


def test_the_logistic_reference_is_the_gumbel_trick_with_one_draw() -> None:
    source = torch.Generator().manual_seed(1)
    two = -torch.log(-torch.log(torch.rand((2, 50_000), generator=source)))
    theta = torch.tensor(0.3)
    gumbel = torch.sigmoid((torch.log(theta) - torch.log(1 - theta) + two[0] - two[1]) / 0.1)
    ours = np.sort(draws("logistic", 0.3, 0.1, 50_000))
    assert np.abs(np.sort(gumbel.numpy()) - ours).mean() < 0.01
    assert abs(gumbel.mean().item() - ours.mean()) < 0.01


def test_drawn_graphs_are_symmetric_and_have_gradients() -> None:
    pairs = torch.full((6,), 0.4, requires_grad=True)
    settings, source = FusionSettings(temperature=1.0), torch.Generator().manual_seed(0)
    graph = graphs.drawn(pairs, 4, settings, source)
    assert torch.equal(graph, graph.T) and graph.diagonal().abs().max() == 0
    graph.sum().backward()  # type: ignore[no-untyped-call]
    assert pairs.grad is not None and bool((pairs.grad > 0).all())


def by_hand(graph: Any, values: Any, there: Any) -> Any:
    """Mixed twice, and the mean, row by row over the owners that are there."""
    found = []
    for r in range(values.shape[1]):
        own = np.flatnonzero(there[r])
        if not len(own):
            found.append(np.zeros(values.shape[2]))
            continue
        loops = graph[np.ix_(own, own)] + np.eye(len(own))
        scale = 1 / np.sqrt(loops.sum(axis=1))
        mixing = scale[:, None] * loops * scale
        found.append((mixing @ np.tanh(mixing @ values[own, r])).mean(axis=0))
    return np.array(found)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10_000), st.booleans(), st.booleans())
def test_mixing_is_that_of_the_owners_that_are_there(
    owners: int, seed: int, missing: bool, linked: bool
) -> None:
    rng = np.random.default_rng(seed)
    graph = graphs.given_weights(rng.random((owners, owners)), owners) if linked else None
    there = rng.random((6, owners)) < 0.6 if missing else np.ones((6, owners), bool)
    values = rng.normal(size=(owners, 6, 3)) * there.T[..., None]
    plain = np.zeros((owners, owners)) if graph is None else graph
    mixing = GraphMixing(
        None if graph is None else torch.tensor(graph).float(),
        torch.tensor(there).float() if missing else None,
        owners,
    )
    found = mixing.pool(torch.tanh(mixing.mix(torch.tensor(values).float().mT))).T
    assert np.allclose(found.numpy(), by_hand(plain, values, there), atol=1e-5)


def test_nearest_owners() -> None:
    features = torch.tensor([[1.0, 0], [2, 0.1], [0, 1], [0.1, 3]])
    found = graphs.nearest(features, 1)
    assert torch.equal(
        found > 0, torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]) > 0
    )
    assert graphs.nearest(features[:1], 3).tolist() == [[0.0]]


def test_graphs_that_are_given() -> None:
    found = graphs.given_weights([[5, 1], [0, 5]], 2)
    assert found.tolist() == [[0, 1], [1, 0]]
    for wrong in (np.ones((3, 3)), -np.ones((2, 2)), np.full((2, 2), np.nan)):
        with pytest.raises(ParameterError, match="graph: expected"):
            graphs.given_weights(wrong, 2)


@pytest.mark.parametrize("head", get_args(graphs.Head))
@pytest.mark.parametrize("align", ["linear", "sinkhorn", None])
def test_shapes_are_those_that_training_starts_from(head: Any, align: Any) -> None:
    settings = FusionSettings(align, head=head, hidden=5)
    start = graphs.start(settings, 3, 4, 2, np.random.default_rng(0))
    shapes = graphs.shapes(settings, owners=3, width=4, outputs=2)
    assert shapes == {name: value.shape for name, value in start.items()}
    assert record_of(FusionSettings, fields_of(settings), "it") == settings
