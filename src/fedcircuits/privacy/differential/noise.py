"""Differential privacy of what is learned from sums: every party adds noise to its own numbers
before they leave it.

Neighbouring tables differ in one row of one party: it has values in one of them and is empty, all
its values missing, in the other. How many rows a party has is public, and so are columns, their
kinds and their categories. Whatever is learned, and everything that crosses, then has nearly the
same distribution for both tables:

    P(seen | one) ≤ exp(ε) P(seen | other) + δ

Noise is discrete Gaussian on multiples of 2⁻²⁴ (discrete_gaussian.py), of a variance for each party
such that those who may put together what they see still miss the variance that is needed:

    arrays of parties are seen (a hub, a tree)   each party adds all of it
    a summation hides them                       each of N parties adds 1/(N − t) of it, where t of
                                                 them together see nothing but the sum

The budget is one multiplier for the whole run (accounting.py); releases have shares of it that add
up to 1. A release of sensitivity Δ and share s has the deviation Δ · multiplier / √s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, sqrt
from typing import ClassVar

import numpy as np

from fedcircuits.arguments import Declared, Instance, Real, check_arguments
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.ledger import PrivacySpent
from fedcircuits.federation.recipes import own_key
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.privacy.differential.accounting import epsilon_of, multiplier_for
from fedcircuits.privacy.differential.discrete_gaussian import draws_of
from fedcircuits.privacy.sharing.randomness import Stream

STEP = 2.0**-24  # noise and what it is added to are multiples of it
DELTA = 1e-6  # where nobody says
REPRESENTATION = (
    "what one row is represented by at one owner, its encoder given; not: what the encoder has "
    "learned from the row, labels, and which rows an owner knows; every question spends again"
)
RELATION = "one row of one party, full or empty; the number of rows is public"


@dataclass(frozen=True, slots=True)
class DifferentialPrivacy:
    """Noise so that what is learned hardly depends on any one row: an (ε, δ) guarantee.

    It is for methods that learn from sums alone: ``ChowLiuTree``, ``FedTrees(grow="together")``
    and, of categories and booleans, ``MixtureOfProducts``, ``HiddenChowLiuTree`` and
    ``EinsumNetwork``. docs/differential-privacy.md says what is guaranteed.

    Parameters
    ----------
    epsilon : float
        The privacy loss: 1 is strong, above 4 weak.
    delta : float, default=1e-6
        The probability that the loss is larger; well below one over the number of rows.
    ranges : dict of str to (float, float), optional
        Of columns of numbers, where their values lie as everybody knows beforehand: not found from
        the rows. Trees then cut these columns evenly and spend nothing on finding where.

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
        """The noise of a run, without a key: for whoever has no rows."""
        return Noise(
            multiplier_for(self.epsilon, self.delta), summation.honest(parties), len(parties)
        )

    def spent(self, shares: Sequence[float]) -> PrivacySpent:
        """By releases with these shares of the budget."""
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
    """By one release of clipped representations, with noise as a share of ``clip``.

    Clipped vectors are at most twice ``clip`` apart.
    """
    return PrivacySpent(epsilon_of([noise / 2], DELTA), DELTA, REPRESENTATION)


PRIVACY = Instance(
    DifferentialPrivacy, "a guarantee such as DifferentialPrivacy(1.0, 1e-6)", or_=(None,)
)


def no_privacy(why: str) -> Instance:
    """Of an estimator whose model would have no guarantee: it takes None alone, and says why."""
    return Instance(type(None), f"None, as {why}")


@dataclass(frozen=True, slots=True)
class Noise:
    """What one party adds to its numbers; without a key nothing, as a server does."""

    multiplier: float
    honest: int  # parties whose noise nobody else knows
    parties: int
    key: bytes | None = field(default=None, repr=False)

    def for_party(self) -> Noise:
        """With a key of its own. It is for one run: noise drawn again would average out."""
        return replace(self, key=own_key("noise"))

    def deviation(self, sensitivity: float, share: float) -> float:
        """That a release needs of those whose noise nobody else knows."""
        return sensitivity * self.multiplier / sqrt(share)

    def total_deviation(self, sensitivity: float, share: float) -> float:
        """Of the sum over all parties."""
        return self.deviation(sensitivity, share) * sqrt(self.parties / self.honest)

    def added(self, label: str, value: Array, sensitivity: float, share: float = 1.0) -> Array:
        """The value, of multiples of 2⁻²⁴, with noise; ``label`` is another for every release."""
        if self.key is None:
            return value
        variance = ceil((self.deviation(sensitivity, share) / STEP) ** 2 / self.honest)
        stream = Stream(self.key, f"noise/{label}")
        return np.asarray(value + draws_of(stream, variance, np.shape(value), STEP))
