"""A part learned in the context of the whole: what it never saw is rare and not impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits import Circuit, CircuitModel, Parameters, Schema, Table, Variable
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.spn.fits import HEAVY, Grid
from fedcircuits.learning.spn.marginals import Marginals
from fedcircuits.learning.spn.shrinking import PULLS, drawn

REAL = Schema.real(["x"])
LETTERS = np.array([["a"], ["b"], ["c"]])
ABC = Schema((Variable("c", "category", ("a", "b", "c")),))


def leaf(values: Array, schema: Schema, context: Array | None) -> CircuitModel:
    weight = np.ones(len(values))
    made = Marginals(values, schema, weight, np.random.default_rng(0), context)
    nodes, arrays = made.nodes("m", np.arange(len(values)), np.arange(len(schema)))
    return CircuitModel(Circuit(tuple(nodes), schema), Parameters(arrays))


def test_categories_are_drawn_towards_the_whole() -> None:
    whole = np.repeat([0.0, 1.0, 2.0], [50, 30, 20])[:, None]
    part = whole[:50]
    found = np.exp(leaf(part, ABC, whole).score_samples(LETTERS))
    share = (np.array([50, 30, 20]) + 0.5) / 101.5
    least = PULLS[0]  # of rows all alike
    np.testing.assert_allclose(found, (np.array([50, 0, 0]) + least * share) / (50 + least))
    alone = np.exp(leaf(part, ABC, None).score_samples(LETTERS[1:]))
    assert alone[0] == alone[1]  # without context unseen ones are alike


def test_counts_are_drawn_as_far_as_suits_them() -> None:
    """Many categories of few rows come near the whole table's; clear ones keep their own."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(500))
    few = rng.multinomial(300, share).astype(float)
    found = drawn(few, share)
    off = np.abs(found / found.sum() - share).sum()
    assert off < 0.3 * np.abs(few / few.sum() - share).sum()
    clear = np.array([900.0, 100.0])
    found = drawn(clear, np.array([0.1, 0.9]))
    np.testing.assert_allclose(found / found.sum(), clear / 1000, atol=2e-3)
    both = drawn(np.stack([clear, clear[::-1]]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(both[0], drawn(clear, np.array([0.5, 0.5])))


def test_bins_and_their_ends_come_from_the_whole() -> None:
    rng = np.random.default_rng(1)
    whole = np.concatenate([rng.random(400), 50 + rng.random(400)])[:, None]
    part = whole[:400]
    inside = leaf(part, REAL, whole)
    families = {n.family for n in inside.circuit_.leaves()}
    far, between = inside.score_samples(np.array([[50.5], [25.0]]))
    assert far > leaf(part, REAL, None).score_samples(np.array([[50.5]]))[0]
    if "histogram" in families:
        assert far > between


def test_a_constant_part_is_no_spike() -> None:
    rng = np.random.default_rng(2)
    whole = rng.normal(size=(500, 1))
    part = np.full((40, 1), 0.25)
    top = leaf(part, REAL, whole).score_samples(np.array([[0.25]]))[0]
    alone = leaf(part, REAL, None).score_samples(np.array([[0.25]]))[0]
    assert top < np.log(1000) and top <= alone
    assert np.isfinite(leaf(part, REAL, whole).score_samples(np.array([[3.0]]))[0])


def test_missing_values_of_the_whole() -> None:
    whole = np.repeat([0.0, 1.0, np.nan], [30, 30, 40])[:, None]
    found = np.exp(leaf(whole[:30], ABC, whole).score_samples(LETTERS))
    assert found.sum() == pytest.approx(1) and found[1] > 3 * found[2] > 0


# ---------------------------------------------------------------------- heavy values


def grid(x: Array) -> Grid:
    return Grid.of(x, np.ones(len(x)), False)


@given(st.integers(0, 1000), st.floats(0.25, 0.8), st.floats(-100, 100))
def test_heavy_values_have_bins_of_their_own(seed: int, share: float, value: float) -> None:
    rng = np.random.default_rng(seed)
    x = np.where(np.arange(400) < share * 400, value, value + rng.normal(size=400) * 10)
    found = grid(x)
    assert found.lumpy
    at = np.searchsorted(found.edges, value, side="right") - 1
    inside = x[(x >= found.edges[at]) & (x < found.edges[at + 1])]
    assert (inside == value).mean() > 0.97
    assert found.edges[at + 1] - found.edges[at] < 0.1 * x.std()
    assert (np.diff(found.edges) > 0).all()
    assert found.edges[0] < x.min() and x.max() < found.edges[-1]
    assert found.share.sum() == pytest.approx(1)


@given(st.integers(0, 1000), st.floats(0.25, 0.9), st.sampled_from([-1.0, 1.0]))
def test_a_heavy_end_has_a_narrow_bin_with_a_least_count(
    seed: int, share: float, sign: float
) -> None:
    """Zeros below incomes, say: the edges of a smallest or largest value that many rows have go by
    no single row, and densities there are as high as without a least count."""
    rng = np.random.default_rng(seed)
    x = sign * np.where(np.arange(400) < share * 400, 0.0, 1000 * rng.exponential(size=400))
    fine, coarse = grid(x), Grid.of(x, np.ones(len(x)), False, least=5)
    widths = [g.edges[at + 1] - g.edges[at] for g in (fine, coarse)
              for at in [np.searchsorted(g.edges, 0.0, side="right") - 1]]  # fmt: skip
    assert 0.4 < widths[1] / widths[0] <= 1.1
    assert coarse.share.max() == pytest.approx((x == 0).mean(), abs=0.02)
    assert (np.diff(coarse.edges) > 0).all()
    assert coarse.edges[0] < x.min() and x.max() < coarse.edges[-1]


def test_common_values_and_dense_ends_of_skewed_columns_keep_their_density() -> None:
    """A tenth of zeros, most values below 1 and a few in thousands, as ratios of debts are: under a
    least count the column is about as likely as without one."""
    rng = np.random.default_rng(0)

    def column(rows: int) -> Array:
        x = np.where(rng.random(rows) < 0.02, 3000 * rng.random(rows), rng.beta(0.8, 1, rows))
        return np.where(rng.random(rows) < 0.1, 0.0, x)[:, None]

    train, test = column(600), column(600)
    scores = [
        fc.LearnSPN(random_state=0, least_count=least)
        .fit(Table(REAL, train))
        .score(Table(REAL, test))
        for least in (1, 5)
    ]
    assert scores[1] > scores[0] - 0.2


def test_edges_hardly_follow_a_single_row() -> None:
    """Moving the smallest value within its bin moves no edge but those made of several values."""
    x = np.sort(np.random.default_rng(0).normal(size=400))
    moved = np.concatenate([[x[0] - 0.01], x[1:]])
    edges, others = (Grid.of(v, np.ones(400), False, least=5).edges for v in (x, moved))
    assert len(edges) == len(others)
    assert edges[1:] == pytest.approx(others[1:], abs=0.01)
    assert edges[1] - edges[0] == 2.0 ** np.round(np.log2(edges[1] - edges[0]))


def test_smooth_columns_are_not_lumpy() -> None:
    rng = np.random.default_rng(0)
    assert not grid(rng.normal(size=500)).lumpy and not grid(rng.random(500)).lumpy
    assert not grid(np.round(rng.normal(size=500), 1)).lumpy
    x = np.where(rng.random(500) < HEAVY - 0.1, 0.0, rng.normal(size=500))
    assert not grid(x).lumpy


def test_lumpy_columns_take_histograms() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(600) < 0.5, 0.0, rng.normal(5, 1, size=600))[:, None]
    for rows in (600, 60, 8):
        model = leaf(x[:rows], REAL, x)
        assert "histogram" in {n.family for n in model.circuit_.leaves()}
    zeros = leaf(x, REAL, x).probability({"x": (-0.05, 0.05)})
    assert zeros == pytest.approx((x == 0).mean(), abs=0.02)


def test_codes_of_a_part() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 10.0])
    whole = grid(x)
    part = whole.of_part(np.array([2.0, np.nan, 99.0, -99.0]))
    assert part.edges is whole.edges and part.share is whole.share
    assert part.codes.tolist() == [whole.codes[2], -1, -1, -1]  # beyond the ends is in no bin


# ---------------------------------------------------------------------- learners


TABLE = Table.of(
    {
        "x": np.concatenate([np.random.default_rng(0).normal(size=150), np.full(50, np.nan)]),
        "c": np.repeat(["a", "b", "c", "a"], 50),
    }
)
LEARNERS = (fc.LearnSPN(random_state=0), fc.MixtureOfProducts(2, random_state=0))


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda m: type(m).__name__)
def test_learners_know_of_the_whole(learner: fc.LearnSPN) -> None:
    part = TABLE.rows(slice(0, 50))  # only a
    model = learner.fit_part(part, TABLE)
    for category in ("b", "c"):
        chance = float(model.probability({"c": category}))
        assert 0 < chance < 0.05
    assert np.isfinite(model.score_samples(TABLE)).all()
    assert "_context" not in model.__dict__
    alone = type(learner)(random_state=0).fit(part)
    x = np.random.default_rng(1).normal(size=1000)
    assert model.score({"x": x}) == pytest.approx(alone.score({"x": x}), abs=0.15)


def test_one_row_stands_for_the_whole() -> None:
    """The share of what the part lacks is that of one row more."""
    part = TABLE.rows(slice(0, 50))
    model = fc.MixtureOfProducts(1, random_state=0).fit_part(part, TABLE)
    assert 51 * float(model.probability({"c": "b"})) == pytest.approx(0.25, abs=0.12)
