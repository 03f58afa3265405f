"""Arguments: what fits, what does not, and how an error says so."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from fedcircuits.arguments import (
    FLAG,
    SEED,
    Allowed,
    Choice,
    Declared,
    Instance,
    Real,
    Whole,
    check_arguments,
    is_whole,
)
from fedcircuits.errors import FederationError, ParameterError
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub

SUMS = Instance(Summation, "a way to add up")


@pytest.mark.parametrize(
    ("allowed", "right", "wrong", "expected"),
    [
        (Whole(1), [1, 10**30, np.int8(3)], [0, 1.0, True, "1", None], "a whole number from 1"),
        (Whole(0, 5), [0, 5], [-1, 6], "a whole number from 0 to 5"),
        (
            Whole(1, or_=("auto", None)),
            ["auto", None, 2, np.str_("auto")],
            [0, "all"],
            "'auto' or None or a whole number from 1",
        ),
        (
            Real(least=0),
            [0, 0.5, np.float32(2), np.int64(1)],
            [-1, np.nan, np.inf, True, "0", 10**400],
            "a number from 0",
        ),
        (Real(least=0, below=1), [0, 0.5], [1, -0.1], "a number from 0 to below 1"),
        (Real(least=0, most=1), [0, 1], [1.1], "a number from 0 to 1"),
        (Real(above=0), [1e-300], [0, -1], "a number above 0"),
        (Real(above=0, below=1), [0.5], [0, 1], "a number above 0 and below 1"),
        (
            Real(above=0, most=1, what="a share"),
            [1, 0.1],
            [0, 2],
            "a share above 0 and up to 1",
        ),
        (
            Choice("stop", "continue"),
            ["stop"],
            ["go", None, 1, np.zeros(2), pd.DataFrame({"a": [1]})],
            "one of 'stop', 'continue'",
        ),
        (FLAG, [True, False, np.True_], [1, 0, "yes", None], "one of True, False"),
        (SEED, [None, 0, 2**63 - 1], [-1, 2**63, 1.5], "None or a whole number from 0"),
        (SUMS, [Hub()], ["hub", None, Hub], "a way to add up"),
        (
            Whole(1, or_=("auto", SUMS)),
            ["auto", 3, Hub()],
            [0, Hub, "all"],
            "'auto' or a way to add up or a whole number from 1",
        ),
    ],
)
def test_what_fits(
    allowed: Allowed, right: list[object], wrong: list[object], expected: str
) -> None:
    for value in right:
        allowed.check("x", value, ParameterError)
    for value in wrong:
        with pytest.raises(ParameterError) as caught:
            allowed.check("x", value, ParameterError)
        assert str(caught.value).startswith(f"x must be {expected}, got ")


class Sketch:
    allowed: ClassVar[Declared] = {"clusters": Whole(1), "summation": SUMS}

    def __init__(self, clusters: object = 1, summation: object = Hub()) -> None:
        self.clusters, self.summation = clusters, summation


def test_objects_are_checked_by_what_their_class_declares() -> None:
    check_arguments(Sketch())
    with pytest.raises(FederationError, match=r"^clusters must be a whole number from 1, got -1$"):
        check_arguments(Sketch(-1), FederationError)
    with pytest.raises(ParameterError, match=r"got the class Hub$"):
        check_arguments(Sketch(1, Hub))
    with pytest.raises(ParameterError) as caught:
        check_arguments(Sketch("long " * 1000))
    assert len(str(caught.value)) < 200


def test_whole_numbers() -> None:
    assert is_whole(1) and is_whole(np.uint8(3), 3) and is_whole(0, 0)
    assert not any(map(is_whole, (0, 1.0, True, None, "1")))
