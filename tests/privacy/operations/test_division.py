"""Quotients of secrets: the stated error for all denominators, zero among them, and rounds."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import pytest

from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.wire import encode
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.operations.division import Counts, Division, divided, scales
from fedcircuits.privacy.operations.truncation import masks_made
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.sharing import opened, summed
from tests.privacy.parties import answers, by_round, names, together


def divides(
    me: str, members: tuple[str, ...], key: bytes, own: tuple[Counts, Counts], division: Division,
    ahead: bool = False,
) -> Flow[Any]:  # fmt: skip
    division.check(*own)
    group = Group.of(me, members, key).over(division.ring)
    above = yield from summed(group, "parts/numerators", group.ring.elements(own[0]))
    below = yield from summed(group, "parts/denominators", group.ring.elements(own[1]))
    masks = None
    if ahead:
        plans = division.plans(own[0].size, own[1].size)
        masks = yield from masks_made(group, "parts/masks", plans)
    shares = yield from divided(group, "parts/quotient", above, below, division, masks)
    found = yield from opened(group.over(FIELD), "parts/total", shares, "the quotients")
    return FixedPoint(division.precision, 10).decode(found)


def cut_up(whole: Counts, count: int, rng: np.random.Generator) -> list[Counts]:
    """Parts that parties hold."""
    return [np.asarray(p) for p in np.moveaxis(rng.multinomial(whole, [1 / count] * count), -1, 0)]


@pytest.mark.parametrize("count", [3, 4, 5, 8, 12])
def test_quotients(count: int) -> None:
    """Batches of five numerators of one denominator: tiny, large and at the bound."""
    rng, division = np.random.default_rng(count), Division(count, bound=14)
    sizes = np.array([1, 2, 3, 10, 100, 1000, 12000])
    shares = rng.multinomial(sizes, [0.1, 0.0, 0.4, 0.2, 0.3])  # (denominators, numerators)
    parts = cut_up(shares, count, rng)
    own = {n: (a, a.sum(-1, keepdims=True)) for n, a in zip(names(count), parts, strict=True)}
    found = answers(divides, own, division=division)
    exact = shares / sizes[:, None]
    off = max(np.abs(value - exact).max() for value in found.values())
    assert off <= division.error < 8e-12 and division.ring == FIELD


def test_all_small_fractions() -> None:
    division, (b, a) = Division(3, bound=5), np.meshgrid(np.arange(1, 11), np.arange(11))
    a = np.minimum(a, b)
    own = dict.fromkeys(names(3), (a, b))
    found = answers(divides, own, division=division)["party1"]
    assert np.abs(found - a / b).max() <= division.error


def test_zero_over_zero_is_zero() -> None:
    own = {n: (np.zeros((2, 3), np.int64), np.zeros((2, 1), np.int64)) for n in names(3)}
    division = Division(3, bound=14)
    assert np.abs(answers(divides, own, division=division)["party0"]).max() <= division.error


def test_counts_out_of_range_are_refused_before_they_are_shared() -> None:
    division = Division(3, bound=10)
    fine = (np.array([3]), np.array([341]))
    division.check(*fine)
    for above, below in ((4, 3), (-1, 3), (1, 342), (1, 0)):
        odd = np.array([above]), np.array([below])
        own = dict.fromkeys(names(3), fine) | {"party1": odd}
        outcome = together(divides, own, division=division)
        assert not outcome.results and not [e for e in outcome.ledger if e.sender == "party1"]
        text = "0 ≤ numerator ≤ denominator ≤ 341 at each of 3 parties"
        assert text in str(outcome.lost["party1"]) and "party1" == outcome.lost["party0"].party
    with pytest.raises(ParameterError, match="2 are not"):
        division.check(np.array([4, 3, 9]), np.array([3, 3, 8]))


@pytest.mark.parametrize(("bound", "rounds"), [(4, 8), (14, 13), (20, 16)])
def test_rounds_do_not_depend_on_the_batch(bound: int, rounds: int) -> None:
    division = Division(3, bound)
    assert division.rounds == rounds
    for size in (1, 50):
        own = {n: (np.ones((size, 2), np.int64), np.full((size, 1), 3)) for n in names(3)}
        outcome = together(divides, own, division=division, ahead=True)
        rounds = by_round(outcome)
        assert sum(tag.startswith("parts/quotient/") for tag in rounds) == division.rounds
        assert rounds["parts/masks"] == 4 and set(rounds.values()) == {4, 6}


def test_what_one_division_costs() -> None:
    """13 rounds over the field: ten of 32 bytes a denominator and one of 16, then one of 16 for
    both and one of 16 a numerator. Masks: 21 a denominator and one a numerator."""
    division = Division(3, bound=14)
    assert (division.rounds, division.ring) == (13, FIELD)
    own = {n: (np.ones((10, 4), np.int64), np.full((10, 1), 7)) for n in names(3)}
    outcome = together(divides, own, division=division)
    sizes = {e.tag: e.bytes for e in outcome.ledger}
    numbers = [20] * 10 + [10, 50, 40]
    for i, count in enumerate(numbers):
        assert sizes[f"parts/quotient/{i}"] == len(encode(np.zeros((count, 16), np.uint8)))
    to = {e.receiver: e.bytes for e in outcome.ledger if e.tag == "parts/quotient/masks"}
    each = 16 * (21 * 10 + 40)
    expected = {n: len(encode(np.zeros(128 + k * each, np.uint8))) for k, n in enumerate(names(3))}
    assert to == expected


@pytest.mark.parametrize(("count", "bound"), [(3, 1), (3, 2), (3, 8), (5, 12), (16, 14), (3, 20)])
def test_steps(count: int, bound: int) -> None:
    """In exact arithmetic, with every rounding at its worst: y is 1/b to half the digits for every
    denominator tried, and no number on the way is wider than its masks are for."""
    division = Division(count, bound)
    off = -(-((count - 1) // 2) // 2) + 1
    step, fraction, coarse = division.plans(1, 1)[0][1], division.fraction, division.coarse
    most = 1 << bound
    for b in {0, 1, 2, 3 % most, most // 2, most - 1, most, most * 3 // 5}:
        for sign_y, sign_d in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            y, d = 1 << (fraction - bound), b << (coarse - bound)
            for quarters in scales(bound, 2.0**-22)[0]:
                factor = isqrt(quarters << (2 * coarse + 4)) - quarters * d
                assert max(abs(y * factor), abs(d * factor)) < 1 << (step.width - 1)
                y = (y * factor >> step.shift) + sign_y * off
                d = (d * factor >> step.shift) + sign_d * off
            assert b == 0 or abs(1 - b * y / 2**fraction) < 2.0**-19


def test_scales_are_the_steps_of_division() -> None:
    """s from 3.5 down to 1, and the least d after each step as an exhaustive search finds it."""
    steps, least = scales(10, 2.0**-22)
    assert steps[0] == 14 and steps[-1] == 4 and set(steps) <= set(range(4, 15))
    d = np.linspace(2.0**-10, 1, 200_001)
    for quarters, bound in zip(steps, least, strict=True):
        d = d * (np.sqrt(quarters) - quarters / 4 * d)
        assert bound - 1e-12 <= d.min() and d.max() <= 1 + 1e-12
    assert 1 - d.min() < 2.0**-22


def test_bounds_that_are_none() -> None:
    with pytest.raises(ParameterError, match="expected a bound from 1"):
        Division(3, bound=0)
