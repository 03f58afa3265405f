"""Records in files: what is read is what was written, and anything else is refused in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from fedcircuits.circuits.graph.records import (
    BelowOne,
    Positive,
    Size,
    StoredArrays,
    fields_of,
    record_of,
    variable_of,
)
from fedcircuits.errors import FileError, StructureError


@dataclass(frozen=True, slots=True)
class Part:
    size: Size
    rate: Positive = 0.5
    share: BelowOne = 0.0


class Whole(msgspec.Struct, frozen=True):
    word: Literal["a", "b"] | None
    pair: tuple[float, float]
    flag: bool
    names: list[str]
    part: Part
    more: dict[str, Any] | None


GOOD = Whole("a", (1.0, 2.5), True, ["x"], Part(3), {"deep": [1, {"y": None}]})


def test_there_and_back() -> None:
    fields = fields_of(GOOD)
    assert fields["part"] == {"size": 3, "rate": 0.5, "share": 0.0}
    assert record_of(Whole, fields, "it") == GOOD
    numpy = Part(np.int64(3), np.float32(0.5), np.float64(0.25))  # type: ignore[arg-type]
    assert record_of(Part, fields_of(numpy), "it") == Part(3, 0.5, 0.25)
    with pytest.raises(FileError, match="Part cannot be written as JSON: it holds object"):
        fields_of(Part(object()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word": "c"}, "the thing: 'word': Invalid enum value 'c'"),
        ({"flag": 1}, "'flag': Expected `bool`, got `int`"),
        ({"pair": [1.0, None]}, "'pair.1.': Expected `float`, got `null`"),
        ({"pair": [1.0, float("inf")]}, "'pair': expected a finite value"),
        ({"pair": [1.0, float("nan")]}, "'pair': expected a finite value"),
        ({"pair": [1.0, 10**400]}, "the thing: "),
        ({"names": [1]}, "'names.0.': Expected `str`, got `int`"),
        ({"part": {"size": 0, "rate": 0.5, "share": 0.0}}, "'part.size': .* >= 1, got 0"),
        ({"part": {"size": True, "rate": 0.5, "share": 0.0}}, "'part.size': Expected `int`"),
        ({"part": {"size": 3, "rate": 0.0, "share": 0.0}}, "'part.rate': .* > 0.0, got 0.0"),
        ({"part": {"size": 3, "rate": 0.5, "share": 1}}, "'part.share': .* < 1.0, got 1"),
        ({"part": {"size": 3, "rate": 0.5}}, "'part': it has no field 'share'"),
        ({"part": {**fields_of(Part(3)), "new": 1}}, "'part': it has a field 'new'"),
        ({"part": "x"}, "'part': Expected `object`, got `str`"),
        ({"more": {"deep": float("nan")}}, "'more': 'deep': expected a finite value"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError, match=message):
        record_of(Whole, fields_of(GOOD) | change, "the thing")


@pytest.mark.parametrize("found", [None, 3, [], "x"])
def test_what_is_no_record(found: object) -> None:
    with pytest.raises(FileError, match="the thing: Expected `object`"):
        record_of(Whole, found, "the thing")
    with pytest.raises(FileError, match="missing required field `flag`"):
        record_of(Whole, {n: v for n, v in fields_of(GOOD).items() if n != "flag"}, "the thing")


def test_one_variable() -> None:
    assert variable_of([{"name": "x", "kind": "real"}], "the target").name == "x"
    with pytest.raises(FileError, match="the target must be one variable, got 0"):
        variable_of([], "the target")
    with pytest.raises(StructureError, match="kind"):
        variable_of([{"name": "x", "kind": "wave"}], "the target")


def test_arrays_say_what_they_expect() -> None:
    arrays = StoredArrays("north", {"a": np.ones((2, 3)), "b": np.ones(1)})
    with pytest.raises(FileError, match=r"north: expected 'a' of the shape \(2, any, 1\)"):
        arrays.take("a", (2, None, 1), "float64")
    with pytest.raises(FileError, match="north has an array 'b'"):
        arrays.end()
    with pytest.raises(FileError, match="north has no array 'c'"):
        arrays.take("c", (1,))
    with pytest.raises(FileError, match="'b' must be finite"):
        StoredArrays("north", {"b": np.array([np.nan])}).take("b", (1,), "float64")
