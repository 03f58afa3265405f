from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import MultivariateGaussian
from fedcircuits.circuits.leaves.conditional_normal import condition, patterns
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.testing import check_leaf

MEAN = np.array([[1.0, -2.0, 0.5]])
COVARIANCE = np.array([[[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]]])
P = {"mean": MEAN, "covariance": COVARIANCE}
T = {name: torch.as_tensor(value) for name, value in P.items()}
RULE = MultivariateGaussian()
BLANK = np.full((1, 3), np.nan)


def test_keeps_the_contract() -> None:
    covariance = [[[1.0, 0.5], [0.5, 2.0]], [[4.0, -1.0], [-1.0, 1.0]]]
    check_leaf(RULE, {"mean": [[0.0, 0.0], [5.0, -3.0]], "covariance": covariance})


def test_keeps_it_on_badly_scaled_columns() -> None:
    check_leaf(RULE, {"mean": [[1e3, 0.0]], "covariance": [[[1e4, 0.99], [0.99, 1e-3]]]})


def test_every_pattern_of_missing_values_in_one_batch() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    x[rng.random(x.shape) < 0.4] = np.nan
    found = RULE.log_density(torch.as_tensor(x), T, {})[0].numpy()
    for row, value in zip(x, found, strict=True):
        seen = ~np.isnan(row)
        part = COVARIANCE[0][np.ix_(seen, seen)]
        right = (
            stats.multivariate_normal(MEAN[0, seen], part).logpdf(row[seen]) if seen.any() else 0
        )
        assert value == pytest.approx(right, abs=1e-10)


def test_regions_on_three_columns_against_draws() -> None:
    regions = {0: ((0.0, 2.0),), 1: ((-9.0, -2.5), (-1.5, 9.0)), 2: ((0.0, np.inf),)}
    x = np.random.default_rng(1).multivariate_normal(MEAN[0], COVARIANCE[0], 200_000)
    inside = np.ones(len(x), dtype=bool)
    for column, region in regions.items():
        inside &= np.any([(x[:, column] > a) & (x[:, column] < b) for a, b in region], 0)
    mass = float(RULE.log_density(torch.as_tensor(BLANK), T, regions).exp())
    assert mass == pytest.approx(inside.mean(), abs=4e-3)
    first, second = RULE.moments(BLANK, P, regions)
    assert first[0, 0] == pytest.approx(x[inside].mean(0), abs=0.02)
    assert second[0, 0] == pytest.approx(np.square(x[inside]).mean(0), abs=0.08)
    drawn = RULE.complete(
        np.repeat(BLANK, 3000, 0), np.zeros(3000, dtype=int), P, regions, np.random.default_rng(2)
    )
    assert drawn.mean(0) == pytest.approx(x[inside].mean(0), abs=0.1)
    assert np.corrcoef(drawn.T) == pytest.approx(np.corrcoef(x[inside].T), abs=0.08)


def test_a_rare_region_of_two_columns_is_drawn_from() -> None:
    covariance = np.array([[[1.0, -0.95], [-0.95, 1.0]]])
    p = {"mean": np.zeros((1, 2)), "covariance": covariance}
    regions = {0: ((1.5, 9.0),), 1: ((-0.3, 0.9),)}
    blank = np.full((100, 2), np.nan)
    x = RULE.complete(blank, np.zeros(100, dtype=int), p, regions, np.random.default_rng(0))
    assert np.all((x[:, 0] >= 1.5) & (x[:, 1] >= -0.3) & (x[:, 1] <= 0.9))
    right = RULE.moments(blank[:1], p, regions)[0][0, 0]
    assert x.mean(0) == pytest.approx(right, abs=0.05)


def test_regions_without_probability_are_refused() -> None:
    p = {"mean": np.zeros((1, 2)), "covariance": np.eye(2)[None]}
    regions = {0: ((0.0, 1.0),), 1: ((60.0, 61.0),)}
    with pytest.raises(QueryError, match="probability zero"):
        RULE.complete(
            np.full((1, 2), np.nan), np.zeros(1, dtype=int), p, regions, np.random.default_rng(0)
        )


def test_a_seen_value_must_lie_in_its_region() -> None:
    x = torch.tensor([[0.5, torch.nan, torch.nan], [1.5, torch.nan, torch.nan]]).double()
    found = RULE.log_density(x, T, {0: ((0.0, 1.0),)})[0]
    assert found[0] == RULE.log_density(x, T, {})[0, 0] and found[1] <= IMPOSSIBLE


def test_statistics_with_missing_values_are_expectations() -> None:
    rng = np.random.default_rng(3)
    x = rng.multivariate_normal(MEAN[0], COVARIANCE[0], 1)
    x[0, 1] = np.nan
    sums = RULE.statistics(torch.as_tensor(x), torch.ones(1, 1).double(), T)
    filled = RULE.complete(np.repeat(x, 100_000, 0), np.zeros(100_000, dtype=int), P, {}, rng)
    deviation = filled - MEAN[0]
    assert sums["first"][0].numpy() == pytest.approx(deviation.mean(0), abs=0.02)
    second = deviation.T @ deviation / len(filled)
    assert sums["second"][0].numpy() == pytest.approx(second, abs=0.05)


def test_collinear_rows_meet_the_floor() -> None:
    x = torch.linspace(-1, 1, 20).double()[:, None].expand(20, 3)
    rule = MultivariateGaussian(minimum_variance=1e-3)
    sums = rule.statistics(x, torch.ones(1, 20).double(), T)
    fitted = rule.maximise({name: value.numpy() for name, value in sums.items()}, P)
    values = np.linalg.eigvalsh(fitted["covariance"][0])
    assert values[:2] == pytest.approx([1e-3, 1e-3])
    assert values[2] == pytest.approx(3 * float(x[:, 0].var(correction=0)))


def test_start_takes_the_seen_values_of_every_column() -> None:
    x = np.array([[1.0, np.nan, 5.0], [3.0, np.nan, np.nan]])
    p = RULE.start(x)
    assert p["mean"].tolist() == [2.0, 0.0, 5.0]
    assert np.diag(p["covariance"]).tolist() == [1.0, 1.0, 1e-6]
    assert RULE.check({name: value[None] for name, value in p.items()}) is None


def test_check_says_what_is_wrong() -> None:
    singular = P | {"covariance": np.ones((1, 3, 3))}
    assert "positive definite" in str(RULE.check(singular))
    skewed = P | {"covariance": COVARIANCE + np.triu(np.ones((3, 3)), 1)}
    assert "symmetric" in str(RULE.check(skewed))
    with pytest.raises(ParameterError, match="minimum_variance"):
        MultivariateGaussian(0.0)


@pytest.mark.parametrize("region", [None, ((-0.5, 1.0),), ((-np.inf, -1.0), (0.5, np.inf))])
def test_rows_with_one_seen_column_are_what_conditioning_gives(region: Any) -> None:
    """All of them at once, whichever column it is."""
    rng = np.random.default_rng(3)
    roots = rng.normal(size=(2, 4, 4))
    covariance = roots @ roots.swapaxes(1, 2) + np.eye(4)
    p = {"mean": torch.tensor(rng.normal(size=(2, 4))), "covariance": torch.tensor(covariance)}
    x = torch.full((9, 4), torch.nan, dtype=torch.float64)
    x[range(8), [0, 1, 2, 3, 0, 1, 2, 3]] = torch.tensor(rng.normal(size=8))
    regions = {} if region is None else {2: region}
    found = RULE.log_density(x, p, regions)
    for row in range(9):
        [pattern] = patterns(torch.isnan(x[row : row + 1]).numpy(), tuple(regions))
        given = condition(x[row : row + 1], pattern, p)
        expected = given.log_density[:, 0].exp()
        if 2 in regions and 2 in pattern.seen:
            expected = expected * any(a < x[row, 2] < b for a, b in regions[2])
        elif 2 in regions:
            deviation = given.covariance[:, 0, 0].sqrt()
            masses = [
                stats.norm.cdf((b - given.mean[:, 0, 0]) / deviation)
                - stats.norm.cdf((a - given.mean[:, 0, 0]) / deviation)
                for a, b in regions[2]
            ]
            expected = expected * torch.tensor(np.sum(masses, axis=0))
        assert found[:, row].exp().tolist() == pytest.approx(
            expected.tolist(), rel=1e-9, abs=1e-300
        )
