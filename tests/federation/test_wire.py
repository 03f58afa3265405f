"""Payloads as bytes: what goes in comes out, damaged bytes are refused and never crash."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.wire import decode, encode

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=5),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
NAMED = st.dictionaries(TEXTS, ARRAYS, min_size=1, max_size=3)


def same_array(found: Any, sent: Any) -> None:
    assert isinstance(found, np.ndarray) and found.shape == sent.shape
    assert found.dtype == sent.dtype.newbyteorder("<")
    np.testing.assert_array_equal(found, sent)
    assert not found.flags.writeable


@given(JSON)
def test_values_come_back(value: Any) -> None:
    found = decode(encode(value))
    assert found == value and type(found) is type(value)


@given(ARRAYS, st.booleans())
def test_arrays_come_back(array: Any, turned: bool) -> None:
    array = array.T[..., ::-1] if turned and array.ndim else array
    same_array(decode(encode(array)), array)
    same_array(decode(memoryview(encode(array))), array)


@given(NAMED)
def test_named_arrays_come_back_in_order(arrays: dict[str, Any]) -> None:
    found = decode(encode(arrays))
    assert isinstance(found, dict) and list(found) == list(arrays)
    for name, array in arrays.items():
        same_array(found[name], array)


@given(st.one_of(ARRAYS, NAMED, JSON), st.data())
def test_damaged_bytes_are_read_or_refused(payload: Any, data: st.DataObject) -> None:
    """Whatever is read can be sent on."""
    good = encode(payload)
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = data.draw(
        st.sampled_from([good[:at], good + b"x", good[:at] + b"\xff" + good[at + 1 :]])
        | st.binary(min_size=1, max_size=3).map(lambda new: good[:at] + new + good[at + 1 :])
    )
    try:
        found = decode(damaged)
    except ProtocolError:
        return
    encode(found)
    str(found)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for kind in (b"", b"J", b"A", b"M"):
        try:
            decode(kind + data)
        except ProtocolError:
            continue


def framed(kind: bytes, header: object, data: bytes) -> bytes:
    head = json.dumps(header).encode()
    return kind + len(head).to_bytes(4, "little") + head + data


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "unknown kind b''"),
        (b"X12", "unknown kind b'X'"),
        (b"J{", "cannot be read"),
        (b"JNaN", "NaN is no value of JSON"),
        (b"J" + b"[" * 100_000, "cannot be read"),
        (b"A\xff\xff\xff\xff[]", "cannot be read"),
        (framed(b"A", [], b""), "cannot be read"),
        (framed(b"A", [["", "|O", [1]]], b"12345678"), "no array of numbers or texts"),
        (framed(b"A", [["", "<M8", [1]]], b"12345678"), "no array of numbers or texts"),
        (framed(b"A", [["", "<f8,<f8", [1]]], b"12345678" * 2), "no array of numbers or texts"),
        (framed(b"A", [["", "<f8", [-1]]], b""), "no array of numbers or texts"),
        (framed(b"A", [["", "<f8", [2]]], b"12345678"), "cannot be read"),
        (framed(b"A", [["", "<f8", [10**30]]], b"12345678"), "cannot be read"),
        (framed(b"A", [["", "<f8", [1]]], b"12345678x"), "expected .* bytes"),
        (framed(b"A", [["", "|b1", [1]]], b"\x02"), "truth values"),
        (framed(b"A", [["", "<U1", [1]]], b"\xff\xff\xff\xff"), "letters"),
        (framed(b"M", [["x", "|b1", [1]]] * 2, b"\x00\x01"), "two arrays have the name 'x'"),
    ],
)
def test_bytes_that_are_no_message(message: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(message)


def nested() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload",
    [
        {1, 2},
        pytest.param(object(), id="object"),
        float("nan"),
        np.float32(1),
        "\ud800",
        np.array([None]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([1 + 2j]),
        {"mean": np.ones(2), "name": "x"},
        {"\ud800": np.ones(2)},
    ],
    ids=repr,
)
def test_what_does_not_cross(payload: Any) -> None:
    with pytest.raises(ProtocolError, match=r"a message must be|does not cross"):
        encode(payload)


def test_values_that_are_too_deep() -> None:
    with pytest.raises(ProtocolError, match="a message must be"):
        encode(nested())
