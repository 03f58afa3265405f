"""check_messages: what keeps the contract passes, and every way to break it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.federation.flow import Flow, Program, Recv, receive, send
from fedcircuits.federation.messages import Count, FiniteMatrix, Message, require_shape
from fedcircuits.testing import check_messages, trials


class Rows(Message, frozen=True):
    """Rows of one party."""

    tag: ClassVar[str] = "rows/values"
    reveals: ClassVar[str] = "its rows"

    values: FiniteMatrix
    counts: list[Count]
    name: str = "nobody"


def tells() -> Flow[None]:
    yield from send("b", Rows(np.ones((2, 3)), [1, 2]))


def careful() -> Flow[float]:
    rows = yield from receive("a", Rows)
    require_shape(rows.values, (2, 3), "a", Rows, "values")
    return float(rows.values.sum())


def careless() -> Flow[float]:
    """It trusts the length of a list."""
    rows = yield from receive("a", Rows)
    require_shape(rows.values, (2, 3), "a", Rows, "values")
    return float(rows.values[0, 0] / rows.counts[1])


def blames_another() -> Flow[float]:
    rows = yield from receive("a", Rows)
    require_shape(rows.values, (2, 3), "c", Rows, "values")
    return 0.0


def hears_anything() -> Flow[float]:
    """It never looks at what it is told."""
    yield Recv("a", "rows/values")
    return 0.0


def talking(reader: Callable[[], Any]) -> dict[str, Program[Any]]:
    return {"a": Program(tells, {}), "b": Program(reader, {})}


def test_a_careful_reader() -> None:
    assert check_messages(talking(careful)) > 15


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (careless, "'counts' is shorter: b says: b failed .* IndexError"),
        (blames_another, "'values' is shorter: b says: c sent"),
        (hears_anything, "'values' is a number: it was not refused"),
    ],
)
def test_readers_that_break_the_contract(reader: Callable[[], Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_messages(talking(reader))


def summing(how: Any) -> dict[str, Program[Any]]:
    members = how.members(("a", "b", "c"))
    given = {"members": members, "make": how.at, "values": [np.ones((2, 3))]}
    offer = {"offer": [np.ones(2)]}
    return {me: Program(trials.summation, {"me": me, **given, **offer}) for me in members}


@pytest.mark.parametrize(
    "how", [fc.Hub(), fc.Tree("cycle"), fc.Chebyshev("cycle", tolerance=0.1), fc.Secret()]
)
def test_sums(how: Any) -> None:
    """Every way to add up refuses malformed numbers, decisions and shares."""
    assert check_messages(lambda: summing(how), most=120) == 120
