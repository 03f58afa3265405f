"""All pairs at once equal one pair at a time: scipy's G-test, canonical correlation by QR."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from fedcircuits import Variable
from fedcircuits.learning.independence import (
    TOLERANCE,
    BinaryPairs,
    OneHot,
    PairTables,
    canonical,
    g_statistics,
    groups,
    mutual_information,
    pair_tables,
    random_sines,
    rdc,
)

SIZES = (2, 3, 4, 2)
VARIABLES = tuple(Variable(f"v{i}", "category", tuple(range(s))) for i, s in enumerate(SIZES))


def codes(rng: np.random.Generator, rows: int) -> np.ndarray:
    found = np.stack([rng.integers(0, s, rows) for s in SIZES], axis=1).astype(float)
    found[:, 3] = np.where(rng.random(rows) < 0.7, found[:, 0], found[:, 3])
    return found


def crossed(x: np.ndarray, i: int, j: int, weight: np.ndarray) -> np.ndarray:
    table = np.zeros((SIZES[i], SIZES[j]))
    for row, w in zip(x, weight, strict=True):
        if not np.isnan(row[[i, j]]).any():
            table[int(row[i]), int(row[j])] += w
    return table


@given(st.integers(0, 10_000), st.booleans())
def test_g_is_that_of_every_pairs_own_table(seed: int, missing: bool) -> None:
    rng = np.random.default_rng(seed)
    x, weight = codes(rng, 60), rng.integers(1, 4, 60).astype(float)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    hot = OneHot.of(x, VARIABLES)
    g, degrees = g_statistics(pair_tables(hot.matrix, weight.astype(np.float32)), hot.starts)
    for i in range(4):
        for j in range(i + 1, 4):
            table = crossed(x, i, j, weight)
            table = table[table.sum(1) > 0][:, table.sum(0) > 0]
            expected = chi2_contingency(table, correction=False, lambda_="log-likelihood")
            assert g[i, j] == pytest.approx(expected.statistic, abs=1e-6)
            assert degrees[i, j] == expected.dof
    assert np.allclose(g, g.T)


@given(st.integers(0, 10_000))
def test_binary_columns_have_a_shorter_way_to_the_same_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.random((50, 5)) < rng.random(5)).astype(np.float32)
    x[:, 1] = x[:, 0] ** (rng.random(50) < 0.8)
    weight = rng.integers(1, 3, 50).astype(np.float32)
    short = BinaryPairs.of(x, weight)
    hot = OneHot.of(x.astype(float), tuple(Variable(f"b{i}", "boolean") for i in range(5)))
    long = PairTables(pair_tables(hot.matrix, weight), hot.starts)
    assert np.allclose(short.tables()[0], long.counts)
    assert (short.tables()[1] == long.starts).all()
    assert np.allclose(short.information(), long.information(), atol=1e-9)
    assert np.allclose(short.gain(), long.gain(), atol=1e-6)
    assert (short.dependent(2.0) == long.dependent(2.0))[np.triu_indices(5, 1)].all()


def test_information_of_a_copy_is_its_entropy() -> None:
    x = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    hot = OneHot.of(x, (Variable("a", "boolean"), Variable("b", "boolean")))
    found = mutual_information(pair_tables(hot.matrix), hot.starts)
    assert found[0, 1] == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))


def test_a_part_of_the_indicators_is_that_of_the_part() -> None:
    x = codes(np.random.default_rng(0), 30)
    rows, columns = np.array([3, 5, 7]), np.array([1, 3])
    part = OneHot.of(x, VARIABLES).part(rows, columns)
    direct = OneHot.of(x[np.ix_(rows, columns)], tuple(VARIABLES[c] for c in columns))
    assert (part.matrix == direct.matrix).all() and (part.starts == direct.starts).all()


def test_groups_are_connected_components() -> None:
    linked = np.zeros((6, 6), dtype=bool)
    linked[0, 3] = linked[5, 3] = linked[4, 1] = True
    assert [g.tolist() for g in groups(linked)] == [[0, 3, 5], [1, 4], [2]]


# ---------------------------------------------------------------------- mixed columns


MIXED = (
    Variable("x"),
    Variable("wave"),
    Variable("n", "count"),
    Variable("c", "category", ("a", "b", "d")),
    Variable("noise"),
)


def mixed(rng: np.random.Generator, rows: int) -> np.ndarray:
    x = rng.normal(size=rows)
    wave = np.cos(3 * x) + 0.1 * rng.normal(size=rows)
    return np.stack(
        [x, wave, rng.poisson(np.exp(x)), np.digitize(x, [-0.5, 0.5]), rng.normal(size=rows)], 1
    )


def largest_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Of two centred blocks, by their own singular vectors."""
    bases = []
    for block in (a, b):
        u, s, _ = np.linalg.svd(block, full_matrices=False)
        bases.append(u[:, s > TOLERANCE * s[0]])
    return float(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_canonical_correlations_are_those_of_every_pair_alone(weighted: bool) -> None:
    rng = np.random.default_rng(1)
    x = mixed(rng, 300)
    weight = rng.integers(1, 4, 300).astype(float) if weighted else np.ones(300)
    sines = random_sines(x, MIXED, rng, 12, weight)
    found = canonical(sines, np.ones(x.shape, dtype=bool), weight)
    root = np.sqrt(weight)[:, None]
    for i in range(5):
        for j in range(i + 1, 5):
            expected = largest_correlation(root * sines[:, i], root * sines[:, j])
            assert found[i, j] == found[j, i] == pytest.approx(expected, abs=1e-6)


def test_dependence_shows_whatever_its_form() -> None:
    found = rdc(mixed(np.random.default_rng(2), 2000), MIXED, np.random.default_rng(3))
    assert found[0, 1:4].min() > 0.7
    assert found[4, :4].max() < 0.15


def test_chance_is_taken_off_in_small_parts() -> None:
    rng = np.random.default_rng(4)
    schema = tuple(Variable(f"x{i}") for i in range(12))
    found = rdc(rng.normal(size=(60, 12)), schema, rng)[np.triu_indices(12, 1)]
    assert np.mean(found > 0.3) < 0.2


def test_weights_count_as_repetitions() -> None:
    rng = np.random.default_rng(5)
    x, weight = mixed(rng, 200), rng.integers(1, 4, 200)
    once = rdc(x, MIXED, np.random.default_rng(0), weight.astype(float))
    again = rdc(np.repeat(x, weight, axis=0), MIXED, np.random.default_rng(0))
    assert np.allclose(once, again, atol=1e-9)


def test_constant_and_missing_columns_depend_on_nothing() -> None:
    x = mixed(np.random.default_rng(6), 100)
    x[:, 1], x[:, 2], x[:, 3] = np.nan, 4.0, 1.0
    found = rdc(x, MIXED, np.random.default_rng(0))
    assert np.isfinite(found).all()
    assert (found[1:4] == 0).all()


def test_missing_values_take_part_in_no_pair() -> None:
    rng = np.random.default_rng(7)
    x = mixed(rng, 3000)
    holes = x.copy()
    holes[rng.random(x.shape) < 0.3] = np.nan
    whole, some = (rdc(t, MIXED, np.random.default_rng(0)) for t in (x, holes))
    assert np.abs(whole - some).max() < 0.12


def test_indicators_lie_in_memory_row_by_row() -> None:
    """Else numpy copies the whole matrix whenever some rows are gathered."""
    variables = tuple(Variable(n, "category", ("a", "b", "c")) for n in "xy")
    codes = np.random.default_rng(0).integers(0, 3, (20, 2)).astype(float)
    for values in (codes, np.asfortranarray(codes)):
        assert OneHot.of(values, variables).matrix.flags.c_contiguous
