"""Logarithms of secret probabilities: error, range, rounds, and that nothing is opened unmasked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.engines import memory
from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.operations.exponents import FRACTION
from fedcircuits.privacy.operations.secure_log import Logarithm, log_masks, logs_of
from fedcircuits.privacy.operations.truncation import MASKED
from fedcircuits.privacy.sharing.group import SHARE, Group
from fedcircuits.privacy.sharing.sharing import opened, summed
from fedcircuits.testing import check_protocol
from tests.privacy.parties import answers, names, programs, together


def mean_logs(
    me: str, members: tuple[str, ...], key: bytes, own: Any, least: int = 10, ahead: bool = False
) -> Flow[Any]:
    """log2 of the mean of the parties' numbers."""
    logarithm = Logarithm(len(members), least)
    group = Group.of(me, members, key, "log").over(logarithm.ring)
    point = FixedPoint(logarithm.precision, 1, logarithm.ring)
    p = yield from summed(group, "give/p", point.encode(np.asarray(own) / len(members)))
    masks = None
    if ahead:
        masks = yield from log_masks(group, "ahead", p[..., 0].size, logarithm)
    found = yield from logs_of(group, "log", p, logarithm, masks)
    told = yield from opened(group.over(FIELD), "end/logs", found, "logarithms")
    return FixedPoint(FRACTION, 20).decode(told)


@pytest.mark.parametrize(("count", "least"), [(3, 10), (4, 10), (5, 16), (8, 10)])
def test_logarithms(count: int, least: int) -> None:
    """Of numbers over the whole range, both ends and just below 1."""
    rng = np.random.default_rng(count)
    p = np.exp2(-rng.uniform(0, least, (3, 20)))
    p[0, :5] = 1, 2.0**-least, 1 - 2.0**-30, 0.5, 0.75
    found = answers(mean_logs, dict.fromkeys(names(count), p), least=least)
    for own in found.values():
        assert np.abs(own - np.log2(p)).max() < Logarithm(count, least).error < 1e-10


def test_of_means() -> None:
    """Every party has other numbers; the logarithm is that of their mean."""
    rng = np.random.default_rng(0)
    given = {me: rng.uniform(2.0**-10, 1, 30) for me in names(3)}
    found = answers(mean_logs, given, ahead=True)
    mean = np.mean(list(given.values()), axis=0)
    assert np.abs(found["party0"] - np.log2(mean)).max() < Logarithm(3).error


@pytest.mark.parametrize(("count", "made"), [(3, 3), (5, 4), (8, 4)])
def test_rounds(count: int, made: int) -> None:
    """26 after masks, which take 2 + ⌈log2(t + 1)⌉; only masked numbers are opened."""
    outcome = together(mean_logs, dict.fromkeys(names(count), (0.5,)))
    assert not outcome.lost
    tags = {e.tag for e in outcome.ledger if e.phase == "log"}
    ahead = {tag for tag in tags if tag.startswith("log/masks")}
    assert len(tags - ahead) == Logarithm(count).rounds == 26
    assert len(ahead) == made
    assert {e.reveals for e in outcome.ledger if e.phase == "log"} == {SHARE, MASKED}
    rows = [e for e in outcome.ledger if e.tag in tags - ahead]
    assert len(rows) == 26 * count * (count - 1)


def test_numbers_out_of_range_are_refused() -> None:
    logarithm = Logarithm(3)
    logarithm.check(np.array([2.0**-10, 1.0]))
    for wrong in (2.0**-10.1, 0.0, 1.001, np.nan):
        with pytest.raises(ParameterError, match=r"from 2\^−10 to 1, of 2 1 are not"):
            logarithm.check(np.array([0.5, wrong]))


def test_laws_of_protocols() -> None:
    check_protocol(programs(mean_logs, dict.fromkeys(names(3), (0.3, 0.9))), run=memory.run)
