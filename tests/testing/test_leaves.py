"""check_leaf must call every planted error by the name of the law it breaks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from fedcircuits.circuits.graph.family import Array, Arrays, LinearFamily, Region, Tensors, require
from fedcircuits.circuits.leaves import (
    Categorical,
    Exponential,
    Gaussian,
    MultivariateGaussian,
    Poisson,
)
from fedcircuits.tables.schema import Variable
from fedcircuits.testing import check_leaf

P = {"mean": np.array([1.5]), "variance": np.array([4.0])}


def fails(law: str, family: Gaussian, parameters: Arrays = P) -> str:
    with pytest.raises(AssertionError, match=f"law '{law}' fails") as caught:
        check_leaf(family, parameters)
    return str(caught.value)


class WrongNormaliser(Gaussian):
    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        return super().log_density(x, p) + 0.01

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        coefficients, constant = super().natural(p)
        return coefficients, constant + 0.01


class VarianceAsDeviation(Gaussian):
    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        return super().log_density(x, {"mean": p["mean"], "variance": p["variance"] ** 2})

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        return super().natural({"mean": p["mean"], "variance": p["variance"] ** 2})


class StatisticsOfTheBatch(Gaussian):
    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return super().statistics(x - x.mean(), p)


class CdfOff(Gaussian):
    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        return super().moments(dict(p) | {"mean": p["mean"] + 0.01}, lower, upper)


class CdfFalls(Gaussian):
    def cdf(self, x: float, p: Arrays) -> Array:
        return 1 - super().cdf(x, p)


class QuantileOff(Gaussian):
    def quantile(self, u: Array, p: Arrays) -> Array:
        return super().quantile(u, p) + 1e-4


class SecondMomentOff(Gaussian):
    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        return super().moments(p, lower, upper) * np.array([1.0, 1.0, 1.001])


class SamplerTooWide(Gaussian):
    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        return super().sample(rng, dict(p) | {"variance": 1.3 * p["variance"]}, lower, upper)


class SamplerIgnoresInterval(Gaussian):
    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        return super().sample(rng, p)


class ModeOff(Gaussian):
    def mode(self, p: Arrays) -> Array:
        return p["mean"] + np.sqrt(p["variance"])


class NoFloor(Gaussian):
    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        mean = sums[0] / np.where(count > 0, count, 1.0)
        variance = np.maximum(sums[1] / np.where(count > 0, count, 1.0) - mean**2, 0.0)
        return {
            "mean": np.where(count > 0, mean, p["mean"]),
            "variance": np.where(count > 0, variance, p["variance"]),
        }


class ForgetsWhatItHad(Gaussian):
    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        return super().maximise(np.maximum(count, 1e-9), sums, p)


class FitsTheDeviation(Gaussian):
    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        fitted = super().maximise(count, sums, p)
        kept = np.where(count > 0, np.sqrt(fitted["variance"]), p["variance"])
        return fitted | {"variance": kept}


class StartsWithoutSpread(Gaussian):
    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        return {"mean": np.asarray(np.mean(x)), "variance": np.asarray(np.var(x))}


class LinearFormOff(Gaussian):
    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        coefficients, constant = super().natural(p)
        return coefficients, constant - 1e-3


class AffineForgetsSquare(Gaussian):
    def affine(self, p: Arrays, shift: Array, scale: Array) -> dict[str, Array]:
        return super().affine(p, shift, scale) | {"variance": p["variance"] / scale}


class ChecksNothing(Gaussian):
    def check(self, p: Arrays) -> str | None:
        return None


class LosesAnAxis(Gaussian):
    def mode(self, p: Arrays) -> Array:
        return np.asarray(p["mean"].reshape(-1)[0])


class GradientCut(Gaussian):
    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        return super().log_density(x, {"mean": p["mean"], "variance": p["variance"].detach()})


class SinglePrecisionCancels(Gaussian):
    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        square = (x + 1e4) ** 2 - 2 * (x + 1e4) * (p["mean"] + 1e4) + (p["mean"] + 1e4) ** 2
        return -0.5 * (square / p["variance"] + torch.log(2 * math.pi * p["variance"]))


def test_the_right_one_passes() -> None:
    check_leaf(Gaussian(), P)


@pytest.mark.parametrize(
    ("law", "family"),
    [
        ("normalisation", WrongNormaliser()),
        ("density", VarianceAsDeviation()),
        ("statistics", StatisticsOfTheBatch()),
        ("density", CdfOff()),
        ("quantile", CdfOff()),
        ("cdf", CdfFalls()),
        ("quantile", QuantileOff()),
        ("moments", SecondMomentOff()),
        ("samples", SamplerTooWide()),
        ("truncated samples", SamplerIgnoresInterval()),
        ("mode", ModeOff()),
        ("degenerate data", NoFloor()),
        ("degenerate data", ForgetsWhatItHad()),
        ("maximum", FitsTheDeviation()),
        ("start", StartsWithoutSpread()),
        ("linear form", LinearFormOff()),
        ("affine", AffineForgetsSquare()),
        ("refused values", ChecksNothing()),
        ("axes", LosesAnAxis()),
        ("gradients", GradientCut()),
        ("single precision", SinglePrecisionCancels()),
    ],
)
def test_planted_error_is_named(law: str, family: Gaussian) -> None:
    fails(law, family)


def test_message_tells_the_parameters_and_by_how_much() -> None:
    message = fails("normalisation", WrongNormaliser())
    assert "mean = 1.5" in message and "expected 1, got 1.01" in message


def test_a_law_can_be_left_out() -> None:
    check_leaf(ModeOff(), P, without={"mode"})
    with pytest.raises(ValueError, match="unknown laws"):
        check_leaf(Gaussian(), P, without={"modes"})


class Laplace(LinearFamily):
    """A family from outside, around 0, that draws by the default of the contract."""

    name: ClassVar[str] = "laplace"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})

    def shapes(self, variable: Variable) -> dict[str, tuple[int | None, ...]]:
        return {"scale": ()}

    def width(self, variable: Variable) -> int:
        return 1

    def check(self, p: Arrays) -> str | None:
        return require(np.isfinite(p["scale"]) & (p["scale"] > 0), "scale must be positive")

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        return -x.abs() / p["scale"] - torch.log(2 * p["scale"])

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return x.abs()[None]

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        return -1 / p["scale"][None], -torch.log(2 * p["scale"])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        scale = np.maximum(sums[0] / np.where(count > 0, count, 1.0), 1e-6)
        return {"scale": np.where(count > 0, scale, p["scale"])}

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        half = {"rate": 1 / p["scale"]}
        right = Exponential().moments(half, max(lower, 0.0), max(upper, 0.0))
        left = Exponential().moments(half, max(-upper, 0.0), max(-lower, 0.0))
        return np.stack([right[0] + left[0], right[1] - left[1], right[2] + left[2]]) / 2

    def quantile(self, u: Array, p: Arrays) -> Array:
        return -p["scale"] * np.sign(u - 0.5) * np.log(2 * np.minimum(u, 1 - u))

    def mode(self, p: Arrays) -> Array:
        return np.zeros_like(p["scale"])


def test_a_family_from_outside_passes() -> None:
    check_leaf(Laplace(), {"scale": [1.0, 20.0]})
    check_leaf(Laplace())


@dataclass(frozen=True)
class AllowsHalves(Poisson):
    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        return x * torch.log(p["rate"]) - p["rate"] - torch.lgamma(x + 1)


def test_discrete_families_are_held_to_their_support() -> None:
    with pytest.raises(AssertionError, match="law 'support' fails"):
        check_leaf(AllowsHalves(), {"rate": 2.0})


@dataclass(frozen=True)
class TieBroken(Categorical):
    def quantile(self, u: Array, p: Arrays) -> Array:
        return np.minimum(super().quantile(u, p) + 1, p["probability"].shape[-1] - 1)


def test_discrete_quantiles_are_checked() -> None:
    with pytest.raises(AssertionError, match="law 'quantile' fails"):
        check_leaf(TieBroken(), {"probability": [0.2, 0.3, 0.5]})


def test_parameters_must_have_the_names_of_the_family() -> None:
    with pytest.raises(AssertionError, match="shapes says"):
        check_leaf(Gaussian(), {"mean": 0.0}, variable=Variable("x"))


JOINT = {"mean": np.array([[0.5, -1.0]]), "covariance": np.array([[[1.0, 0.6], [0.6, 2.0]]])}


class JointNormaliser(MultivariateGaussian):
    def log_density(self, x: Tensor, p: Tensors, regions: Mapping[int, Region]) -> Tensor:
        return super().log_density(x, p, regions) + 0.02


class JointIgnoresRegions(MultivariateGaussian):
    def log_density(self, x: Tensor, p: Tensors, regions: Mapping[int, Region]) -> Tensor:
        return super().log_density(x, p, {})


class JointSamplesIndependently(MultivariateGaussian):
    def complete(
        self,
        x: Array,
        unit: npt.NDArray[np.int64],
        p: Arrays,
        regions: Mapping[int, Region],
        rng: np.random.Generator | None,
    ) -> Array:
        loose = dict(p) | {"covariance": p["covariance"] * np.eye(2)}
        return super().complete(x, unit, loose, regions, rng)


class JointImputesMeans(MultivariateGaussian):
    def statistics(self, x: Tensor, weight: Tensor, p: Tensors) -> dict[str, Tensor]:
        return super().statistics(torch.where(torch.isnan(x), p["mean"][:1], x), weight, p)


class JointAverages(MultivariateGaussian):
    def statistics(self, x: Tensor, weight: Tensor, p: Tensors) -> dict[str, Tensor]:
        sums = super().statistics(x, weight, p)
        return sums | {"first": sums["first"] / sums["count"][:, None]}


class JointNoFloor(MultivariateGaussian):
    def _bounded(self, covariance: Array) -> Array:
        return covariance


class JointStartsWithoutSpread(MultivariateGaussian):
    def start(self, x: Array) -> dict[str, Array]:
        return super().start(x) | {"covariance": np.zeros((2, 2))}


class JointMaximumOff(MultivariateGaussian):
    def log_maximum(self, x: Tensor, p: Tensors) -> Tensor:
        return super().log_maximum(x, p) - 0.1


class JointSecondMoment(MultivariateGaussian):
    def moments(self, x: Array, p: Arrays, regions: Mapping[int, Region]) -> tuple[Array, Array]:
        first, second = super().moments(x, p, regions)
        return first, np.where(np.isnan(x), second + 0.05 * len(regions), second)


@pytest.mark.parametrize(
    ("law", "family"),
    [
        ("normalisation", JointNormaliser()),
        ("regions", JointIgnoresRegions()),
        ("samples", JointSamplesIndependently()),
        ("maximum", JointImputesMeans()),
        ("statistics", JointAverages()),
        ("degenerate data", JointNoFloor()),
        ("start", JointStartsWithoutSpread()),
        ("mode", JointMaximumOff()),
        ("moments", JointSecondMoment()),
    ],
)
def test_planted_error_of_a_joint_family_is_named(law: str, family: MultivariateGaussian) -> None:
    with pytest.raises(AssertionError, match=f"law '{law}' fails"):
        check_leaf(family, JOINT)
