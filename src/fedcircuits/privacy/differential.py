"""Differential privacy of what is learned from sums: every party adds noise to its own numbers
before they leave it.

Neighbouring tables differ in one row of one party: the row has values in one of them and is empty,
all its values missing, in the other. The number of rows of a party is public, as are the columns,
their kinds and their categories. Whatever is learned, and everything that crosses, then has nearly
the same distribution for both tables:

    P(seen | one) ≤ exp(ε) P(seen | other) + δ

**Noise** is discrete Gaussian on multiples of 2⁻²⁴, P(k) ∝ exp(−k² / 2σ²) for whole numbers k. It
is drawn exactly (Canonne, Kamath and Steinke 2020, algorithms 1 to 3): whole numbers, uniform draws
and rejection. No step rounds, so the last bits of the noise reveal nothing about what it hides
(Mironov 2012). The variance of each party is such that a coalition that pools what it sees still
misses the variance that is needed:

    arrays of parties are seen (a hub, a tree)   each party adds all of it
    a summation hides them                       each of N parties adds 1/(N − t) of it, where t of
                                                 them together see nothing but the sum

**Accounting** is done by dp-accounting (the extra ``dp``). A release of sums has a multiplier: the
deviation of its noise over its sensitivity, the largest change by one row. Discrete Gaussian noise
has at each order α a Rényi divergence of at most α / 2 multiplier² (theorem 4 of the same paper),
like the continuous one; the accountant adds these up over releases, each of which may depend on
those before, and converts them into ε at a given δ. Sums of the discrete Gaussians of N parties
exceed that bound by 10 N exp(−π² variance / step²), which is negligible for a variance of 2³⁰ steps
(Kairouz, Liu and Steinke 2021, theorem 1).

The budget is one multiplier for the whole run; releases have shares of it that add up to 1. A
release of sensitivity Δ and share s has the deviation Δ · multiplier / √s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isqrt, sqrt
from types import ModuleType
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedcircuits.arguments import Declared, Instance, Real, check_arguments
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ExtraMissingError, FederationError
from fedcircuits.federation.messages import PrivacySpent
from fedcircuits.federation.recipes import own_key
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.privacy.sharing.randomness import Stream

PIECE = 1 << 16  # bits that are drawn at once
STEP = 2.0**-24  # noise and what it is added to are multiples of it
DELTA = 1e-6  # by default
REPRESENTATION = (
    "the representation of one row at one owner, given its encoder; not covered: what the encoder "
    "learned from the row, labels, and which rows an owner holds; every query spends the budget "
    "again"
)
RELATION = "one row of one party, present or empty; the number of rows is public"


# ---------------------------------------------------------------------- accounting


def epsilon_of(multipliers: Sequence[float], delta: float) -> float:
    """What releases with these multipliers spend together.

    >>> bool(0.99 < epsilon_of([8.1] * 4, 1e-5) < 1.01)
    True
    """
    library = accountant_library()
    accountant = library.rdp.RdpAccountant()
    for multiplier in multipliers:
        accountant.compose(library.GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(delta))


def multiplier_for(epsilon: float, delta: float) -> float:
    """The least multiplier of a single release that spends no more."""
    library = accountant_library()
    return float(
        library.calibrate_dp_mechanism(
            library.rdp.RdpAccountant, library.GaussianDpEvent, epsilon, delta
        )
    )


def accountant_library() -> ModuleType:
    """dp-accounting, imported only when needed because that is slow."""
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise ExtraMissingError(
            "differential privacy needs dp-accounting: pip install 'fedcircuits[dp]'"
        ) from None
    library: ModuleType = dp_accounting
    return library


# ---------------------------------------------------------------------- exact draws


class UniformDraws:
    """Whole numbers below others, from the bits of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._bits, self._left = stream, 0, 0

    def below(self, end: int) -> int:
        size = (end - 1).bit_length()
        while True:
            if self._left < size:
                drawn = self._stream.bits((PIECE // 64,), 64)
                self._bits, self._left = int.from_bytes(drawn.tobytes(), "little"), PIECE
                continue
            self._left -= size
            number = self._bits >> self._left & ((1 << size) - 1)
            if number < end:
                return number

    def happens(self, part: int, whole: int) -> bool:
        """True with probability part / whole."""
        return self.below(whole) < part

    def decays(self, part: int, whole: int) -> bool:
        """True with probability exp(−part / whole)."""
        while part > whole:
            if not self.decays(1, 1):
                return False
            part -= whole
        k = 1
        while self.happens(part, whole * k):
            k += 1
        return k % 2 == 1


def discrete_laplace(draws: UniformDraws, scale: int) -> int:
    """P(k) ∝ exp(−|k| / scale)."""
    while True:
        rest = draws.below(scale)
        if not draws.decays(rest, scale):
            continue
        times = 0
        while draws.decays(1, 1):
            times += 1
        size, negative = rest + scale * times, draws.happens(1, 2)
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(draws: UniformDraws, variance: int) -> int:
    """P(k) ∝ exp(−k² / 2 variance); the variance is a whole number from 1."""
    scale = isqrt(variance) + 1
    while True:
        k = discrete_laplace(draws, scale)
        off = (abs(k) * scale - variance) ** 2
        if draws.decays(off, 2 * variance * scale**2):
            return k


def draws_of(
    stream: Stream, variance: int, shape: tuple[int, ...], step: float
) -> npt.NDArray[np.float64]:
    """An array of draws of this variance, times ``step``, which is a power of two."""
    uniform, count = UniformDraws(stream), int(np.prod(shape))
    numbers = [discrete_gaussian(uniform, variance) for _ in range(count)]
    return np.array([n * step for n in numbers], np.float64).reshape(shape)


# ---------------------------------------------------------------------- noise


@dataclass(frozen=True, slots=True)
class DifferentialPrivacy:
    """Noise that makes what is learned nearly independent of any one row: an (ε, δ) guarantee.

    For methods that learn from sums only: ``ChowLiuTree``, ``FedTrees(grow="together")`` and, for
    categories and booleans, ``MixtureOfProducts``, ``HiddenChowLiuTree`` and ``EinsumNetwork``.
    docs/differential-privacy.md states what is guaranteed.

    Parameters
    ----------
    epsilon : float
        The privacy loss: 1 is strong, above 4 weak.
    delta : float, default=1e-6
        The probability that the loss is larger; well below one over the number of rows.
    ranges : dict of str to (float, float), optional
        Publicly known ranges of numeric columns, not computed from the rows. Trees then split these
        columns at even intervals and spend nothing on finding thresholds.

    >>> import fedcircuits as fc
    >>> table = fc.Table.of({"rain": [True, True, False] * 40, "wet": [True, True, False] * 40})
    >>> model = fc.ChowLiuTree(privacy=fc.DifferentialPrivacy(1.0, 1e-5)).fit(fc.split(table, 3))
    >>> bool(model.epsilon_ <= 1.0)
    True
    """

    allowed: ClassVar[Declared] = {"epsilon": Real(above=0), "delta": Real(above=0, below=1)}

    epsilon: float
    delta: float = DELTA
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_arguments(self, FederationError)
        for name, ends in self.ranges.items():
            if len(ends) != 2 or not -inf < ends[0] < ends[1] < inf:
                raise FederationError(
                    f"ranges[{name!r}] must be two finite numbers that rise, got {ends!r}"
                )

    def noise(self, summation: Summation, parties: Sequence[str]) -> Noise:
        """The noise of a run, without a key: for members without rows."""
        return Noise(
            multiplier_for(self.epsilon, self.delta), summation.honest(parties), len(parties)
        )

    def spent(self, shares: Sequence[float]) -> PrivacySpent:
        """What releases with these shares of the budget spend."""
        multiplier = multiplier_for(self.epsilon, self.delta)
        epsilon = epsilon_of([multiplier / sqrt(s) for s in shares], self.delta)
        return PrivacySpent(epsilon, self.delta, RELATION)

    def clip_noise(self) -> float:
        """The ``noise`` of ``FeatureFusion`` that hides the representation of a row so well.

        >>> 4 < DifferentialPrivacy(2.0, 1e-6).clip_noise() < 5
        True
        """
        return 2 * multiplier_for(self.epsilon, self.delta)


def spent_on_representations(noise: float) -> PrivacySpent:
    """What one release of clipped representations spends, with noise as a share of ``clip``.

    Clipped vectors are at most twice ``clip`` apart.
    """
    return PrivacySpent(epsilon_of([noise / 2], DELTA), DELTA, REPRESENTATION)


PRIVACY = Instance(
    DifferentialPrivacy, "a guarantee such as DifferentialPrivacy(1.0, 1e-6)", or_=(None,)
)


def no_privacy(why: str) -> Instance:
    """For an estimator without a guarantee: it accepts only None, and the error says why."""
    return Instance(type(None), f"None, as {why}")


@dataclass(frozen=True, slots=True)
class Noise:
    """What one party adds to its numbers; nothing without a key, as at a server."""

    multiplier: float
    honest: int  # parties whose noise nobody else knows
    parties: int
    key: bytes | None = field(default=None, repr=False)

    def for_party(self) -> Noise:
        """With the party's own key, for one run: repeated noise would average out."""
        return replace(self, key=own_key("noise"))

    def deviation(self, sensitivity: float, share: float) -> float:
        """The deviation that a release needs from the honest parties."""
        return sensitivity * self.multiplier / sqrt(share)

    def total_deviation(self, sensitivity: float, share: float) -> float:
        """The deviation of the sum over all parties."""
        return self.deviation(sensitivity, share) * sqrt(self.parties / self.honest)

    def added(self, label: str, value: Array, sensitivity: float, share: float = 1.0) -> Array:
        """The value, in multiples of 2⁻²⁴, with noise; ``label`` must differ for every release."""
        if self.key is None:
            return value
        variance = ceil((self.deviation(sensitivity, share) / STEP) ** 2 / self.honest)
        stream = Stream(self.key, f"noise/{label}")
        return np.asarray(value + draws_of(stream, variance, np.shape(value), STEP))
