"""Blocks of vertical mixtures: densities, sums that add up, starts, and points of k-means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, poisson

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.methods.vertical.block import BlockState, MixtureBlock, added
from fedcircuits.methods.vertical.points import PointSpace
from fedcircuits.tables.table import Table
from tests.federation.cases import mixed_table

TABLE = mixed_table(120, seed=1)
EVERY = slice(0, 120)


def block(table: Table = TABLE, **settings: float) -> MixtureBlock:
    return MixtureBlock.of(table, np.ones(len(table)), 3, {}, settings.get("reg_covar", 1e-6))


def resp(rows: int, components: int = 3, seed: int = 0) -> Array:
    return np.random.default_rng(seed).dirichlet(np.ones(components), rows).T


def learned(own: MixtureBlock, weight: Array) -> BlockState:
    start = own.of_all_rows()
    rows = slice(0, weight.shape[1])
    return own.maximise(own.statistics(weight, start, start, rows), start, start)


def same(left: BlockState, right: BlockState, atol: float) -> None:
    for own, other in zip(left, right, strict=True):
        assert own.keys() == other.keys()
        for name, array in own.items():
            np.testing.assert_allclose(array, other[name], atol=atol, err_msg=name)


def test_terms_are_those_of_the_circuit() -> None:
    own = block()
    state = learned(own, resp(120))
    terms = own.terms(state, EVERY)
    for k in range(3):
        found = Distribution(*own.circuit(state, k)).log_likelihood(TABLE.values)
        np.testing.assert_allclose(terms[k], found, atol=1e-9)


def test_a_gaussian_block_by_hand() -> None:
    x = np.random.default_rng(0).normal(size=(80, 3)) @ np.diag([1.0, 50.0, 1e-3]) + [5, -7, 1e3]
    own, weight = block(Table.of(x), reg_covar=0.0), resp(80)
    state = learned(own, weight)
    terms = own.terms(state, slice(0, 80))
    for k in range(3):
        mean = weight[k] @ x / weight[k].sum()
        covariance = (weight[k][:, None] * (x - mean)).T @ (x - mean) / weight[k].sum()
        expected = multivariate_normal(mean, covariance).logpdf(x)
        np.testing.assert_allclose(terms[k], expected, atol=1e-8)
    (names, values), *_ = own.in_user_units(state)
    assert names == ("x0", "x1", "x2")
    same(own.from_user_units(own.in_user_units(state)), state, 1e-9)
    assert set(values) == {"mean", "covariance"}


def test_a_count_by_hand() -> None:
    table = Table.of({"n": [0, 3, 5, 2, 9, 4, 1]})
    own, weight = block(table), resp(7)
    terms = own.terms(learned(own, weight), slice(0, 7))
    x = table.values[:, 0]
    rates = weight @ x / weight.sum(axis=1)
    np.testing.assert_allclose(terms, poisson.logpmf(x, rates[:, None]), atol=1e-12)


@given(st.integers(0, 120), st.integers(0, 1000))
def test_sums_of_lots_add_up(cut: int, seed: int) -> None:
    own, weight = block(), resp(120, seed=seed)
    state = learned(own, resp(120, seed=seed + 1))
    parts = [slice(0, cut), slice(cut, 120)]
    lots = [own.statistics(np.ascontiguousarray(weight[:, p]), state, state, p) for p in parts]
    whole = own.statistics(weight, state, state, EVERY)
    same(added(lots), whole, 1e-8)


@pytest.mark.parametrize("gaps", [False, True])
def test_the_origin_of_sums_does_not_matter(gaps: bool) -> None:
    x = np.random.default_rng(0).normal(size=(90, 4))
    x[::7, 1] = np.nan if gaps else 0.5
    own, weight = block(Table.of(x)), resp(90)
    state = learned(own, resp(90, seed=3))
    found = [
        own.maximise(own.statistics(weight, state, origin, slice(0, 90)), state, origin)
        for origin in (state, own.of_all_rows())
    ]
    same(found[0], found[1], 1e-10)


def test_a_component_at_a_row() -> None:
    own = block()
    state = learned(own, resp(120))
    row = int(np.flatnonzero(~np.isnan(TABLE.values).any(axis=1))[0])
    moved = own.restarted(state, 1, row)
    before, after = own.terms(state, EVERY), own.terms(moved, EVERY)
    np.testing.assert_allclose(after[[0, 2]], before[[0, 2]])
    assert after[1, row] > before[1, row]
    (names, values), *_ = own.in_user_units(moved)
    at = [TABLE.schema.index(n) for n in names]
    np.testing.assert_allclose(values["mean"][1], TABLE.values[row, at], atol=1e-9)


def test_fewer_columns_are_the_marginal() -> None:
    table = Table.of(np.random.default_rng(0).normal(size=(50, 4)) @ np.ones((4, 4)) + 1)
    own = block(table)
    values = own.in_user_units(learned(own, resp(50)))
    part = block(table.select(["x3", "x1"]))
    ((_, found),) = part.in_user_units(part.from_user_units(values))
    np.testing.assert_allclose(found["mean"], values[0][1]["mean"][:, [3, 1]])
    expected = values[0][1]["covariance"][:, [3, 1]][:, :, [3, 1]]
    np.testing.assert_allclose(found["covariance"], expected)


# ---------------------------------------------------------------------- points


def test_points_are_as_far_apart_as_their_columns_say() -> None:
    space = PointSpace.of(TABLE, np.ones(120), standardise=False)
    points = space.points(TABLE.values)
    other = TABLE.values[7]
    found = points.distances(points.at(7)[None], EVERY)[0]
    expected = np.zeros(120)
    for i, variable in enumerate(TABLE.schema):
        x, y = TABLE.values[:, i], other[i]
        if np.isnan(y):
            y = np.nanmean(x)
        apart = (x != y).astype(float) if variable.size > 2 else np.square(x - y)
        if not np.isnan(other[i]) or variable.size <= 2:
            expected += np.where(np.isnan(x), 0.0, apart)
    known = ~np.isnan(other[[TABLE.schema.index("colour")]]).any()
    assert known
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_centres_are_means_of_what_is_seen() -> None:
    space = PointSpace.of(TABLE, np.ones(120), standardise=True)
    points, weight = space.points(TABLE.values), resp(120)
    centres = space.in_user_units(points.centres(weight, np.zeros((3, len(space.names)))))
    for feature, name in enumerate(space.names):
        column, _, category = name.partition("=")
        x = TABLE.values[:, TABLE.schema.index(column)]
        if category:
            code = TABLE.schema[column].encode(category)
            x = np.where(np.isnan(x), np.nan, x == code)
        seen = ~np.isnan(x)
        expected = weight[:, seen] @ x[seen] / weight[:, seen].sum(axis=1)
        np.testing.assert_allclose(centres[:, feature], expected, atol=1e-9)
