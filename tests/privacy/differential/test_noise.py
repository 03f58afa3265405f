"""Noise of parties: as much as is needed whoever adds up, of keys of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.privacy.differential import STEP, Noise, multiplier_for
from tests.drawn import drawn

NAMES = ("north", "east", "south", "west", "centre")
VALUES = np.arange(3000.0)


def noisy(me: str, summation: Summation, noise: Noise) -> Flow[Any]:
    members = summation.members(NAMES)
    own = noise.added("counts", VALUES if me in NAMES else np.zeros(len(VALUES)), 2.0, 0.25)
    return (yield from summation.at(me, members).sum("count/all", own))


@pytest.mark.parametrize(
    ("summation", "honest"),
    [(fc.Hub(), 1), (fc.Tree("path"), 1), (fc.Secret(), 3), (fc.Secret(threshold="all"), 1)],
)
def test_a_sum_has_the_noise_of_all_and_those_who_see_most_miss_enough(
    summation: Any, honest: int
) -> None:
    """Secret sums equal the plain sum with noise of the right variance."""
    plan = fc.DifferentialPrivacy(1.0, 1e-5).noise(summation, NAMES)
    assert plan.honest == honest and summation.honest(NAMES) == honest
    roles = {
        n: Program(
            noisy,
            {"me": n, "summation": drawn(summation.for_party()), "noise": drawn(plan.for_party())}
            if n in NAMES
            else {"me": n, "summation": summation, "noise": plan},
        )
        for n in summation.members(NAMES)
    }
    outcome = memory.run(roles)
    assert not outcome.lost
    noise = np.asarray(outcome.results["north"]) - 5 * VALUES
    needed = 2.0 * multiplier_for(1.0, 1e-5) / 0.25**0.5
    assert plan.deviation(2.0, 0.25) == pytest.approx(needed)
    expected = needed**2 * 5 / honest
    assert plan.total_deviation(2.0, 0.25) == pytest.approx(expected**0.5)
    assert abs(noise.var() / expected - 1) < 5 * (2 / len(noise)) ** 0.5
    assert abs(noise.mean()) < 5 * (expected / len(noise)) ** 0.5
    assert ((noise / STEP) % 1 == 0).all()


def test_without_a_key_nothing_is_added() -> None:
    plan = fc.DifferentialPrivacy(1.0).noise(fc.Hub(), NAMES)
    assert plan.key is None and plan.added("counts", VALUES, 1.0) is VALUES


def test_keys_are_drawn_for_each_party_and_run_and_never_shown() -> None:
    plan = fc.DifferentialPrivacy(1.0).noise(fc.Hub(), NAMES)
    one, two = drawn(plan.for_party()), drawn(plan.for_party())
    assert one.key != two.key and "key" not in repr(one)
    first = one.added("counts", VALUES, 1.0)
    assert np.array_equal(first, one.added("counts", VALUES, 1.0)), "a flow that is run again"
    assert not np.array_equal(first, one.added("others", VALUES, 1.0))
    assert not np.array_equal(first, two.added("counts", VALUES, 1.0))


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1.0, 1e-6), (1.0, 0), (1.0, 1.0)])
def test_a_guarantee_is_one(epsilon: float, delta: float) -> None:
    with pytest.raises(FederationError, match=r"(epsilon|delta) must be a number above 0"):
        fc.DifferentialPrivacy(epsilon, delta)
