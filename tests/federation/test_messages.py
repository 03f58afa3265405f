"""Messages as bytes: what goes in comes out, and whatever else arrives blames its sender."""

from __future__ import annotations

import tracemalloc
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcircuits.errors import MessageError, ProtocolError, TableError
from fedcircuits.federation.messages import (
    Booleans,
    Count,
    FiniteMatrix,
    IntegerVector,
    Message,
    Octets,
    Reals,
    RealVector,
    Texts,
    blaming,
    decode_message,
    encode_fields,
    encode_message,
    fields_of,
    require,
    require_shape,
)
from fedcircuits.tables.schema import Variable
from fedcircuits.testing.trials import Anything

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=5),
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SHAPES = hnp.array_shapes(min_dims=0, min_side=0, max_side=4)
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ARRAYS = DTYPES.flatmap(
    lambda d: hnp.arrays(
        d, SHAPES, elements=st.text(LETTERS, max_size=d.itemsize // 4) if d.kind == "U" else None
    )
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | WORDS | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


class Hospital(Message, frozen=True):
    """One field of every kind."""

    tag: ClassVar[str] = "test/hospital"

    variables: tuple[Variable, ...]
    sizes: dict[int, list[Count]]
    matrix: FiniteMatrix
    vector: RealVector
    places: IntegerVector
    flags: Booleans
    names: Texts
    share: Octets
    any: Reals
    key: bytes = b""


def hospital(**changed: Any) -> Hospital:
    fields: dict[str, Any] = {
        "variables": (Variable("age"), Variable("town", "category", ("ash", "elm"))),
        "sizes": {0: [3, 4]},
        "matrix": np.ones((2, 3)),
        "vector": np.array([np.nan, -np.inf]),
        "places": np.arange(3, dtype=np.uint16),
        "flags": np.array([[True]]),
        "names": np.array(["north"]),
        "share": np.zeros((2, 2), np.uint8),
        "any": np.float32(2.5) * np.ones((1, 1, 1), np.float32),
    }
    return Hospital(**(fields | changed))


def again(message: Message) -> Any:
    return decode_message(type(message), encode_message(message), "north", "test/hospital")


@given(PLAIN)
def test_values_come_back(value: Any) -> None:
    found = again(Anything(value)).value
    assert found == value and type(found) is type(value)


@given(ARRAYS, st.booleans())
def test_arrays_come_back(array: Any, turned: bool) -> None:
    array = array.T[..., ::-1] if turned and array.ndim else array
    for found in (again(Anything(array)).value, again(Anything({"x": [array]})).value["x"][0]):
        assert isinstance(found, np.ndarray) and found.shape == array.shape
        assert not array.size or found.dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(found, array)
        assert not array.size or not found.flags.writeable


@given(st.one_of(ARRAYS, PLAIN), st.data())
def test_damaged_bytes_are_read_or_blame_their_sender(value: Any, data: st.DataObject) -> None:
    good = encode_message(Anything(value))
    at = data.draw(st.integers(0, len(good) - 1))
    new = data.draw(st.binary(max_size=3))
    for damaged in (good[:at], good + b"x", good[:at] + new + good[at + 1 :]):
        try:
            found = decode_message(Anything, damaged, "north", "x/y")
        except MessageError as error:
            assert error.sender == "north" and "north sent 'x/y' that does not fit" in str(error)
        else:
            str(found)


@given(st.binary(max_size=40))
def test_any_bytes_blame_their_sender(data: bytes) -> None:
    with pytest.raises(MessageError, match="north sent 'x/y' that does not fit"):
        decode_message(Hospital, data, "north", "x/y")


def test_every_kind_of_field() -> None:
    found = again(hospital())
    assert found.variables == hospital().variables and found.sizes == {0: [3, 4]}
    assert list(fields_of(encode_message(found))) == list(Hospital.__struct_fields__)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("variables", [{"name": "x", "kind": "odd"}], "Invalid enum value 'odd'"),
        ("variables", [{"name": "x", "kind": "category"}], "a category needs its categories"),
        ("sizes", {0: [-1]}, "Expected `int` >= 0"),
        ("sizes", {"first": [1]}, "Expected `int`, got `str`"),
        ("sizes", [1], "Expected `object`, got `array`"),
        ("matrix", np.ones(3), "finite numbers with 2 dimensions, got float64 with 1"),
        ("matrix", np.ones((2, 3), int), "finite numbers with 2 dimensions, got int64 with 2"),
        ("matrix", np.array([[np.nan]]), "got values that are not finite"),
        ("matrix", 7, "expected an array of finite numbers with 2 dimensions, got int"),
        ("vector", "x", "expected an array of real numbers with 1 dimensions, got str"),
        ("places", np.ones(2), "whole numbers with 1 dimensions, got float64"),
        ("flags", np.ones(2, np.uint8), "expected an array of booleans"),
        ("names", np.ones(2), "expected an array of texts"),
        ("share", np.ones(2, np.uint16), "expected an array of bytes, got uint16"),
        ("any", [1.5], "expected an array of real numbers, got list"),
        ("key", "text", "Invalid base64|Expected `bytes`"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, words: str) -> None:
    data = encode_fields(fields_of(encode_message(hospital())) | {field: value})
    with pytest.raises(MessageError, match=words) as caught:
        decode_message(Hospital, data, "north", "test/hospital")
    assert caught.value.field.startswith(field) and caught.value.sender == "north"


@pytest.mark.parametrize("field", Hospital.__struct_fields__[:-1])
def test_a_missing_or_unknown_field_is_named(field: str) -> None:
    fields = fields_of(encode_message(hospital()))
    left = {n: v for n, v in fields.items() if n != field}
    with pytest.raises(MessageError, match=f"field '{field}'.*missing required field"):
        decode_message(Hospital, encode_fields(left), "north", "test/hospital")
    with pytest.raises(MessageError, match=r"field 'rows'.*unknown field"):
        decode_message(Hospital, encode_fields(fields | {"rows": 1}), "north", "x/y")


def extension(head: object, data: bytes) -> bytes:
    packed = msgspec.msgpack.encode(head)
    body = len(packed).to_bytes(2, "little") + packed + data
    return msgspec.msgpack.encode({"value": msgspec.msgpack.Ext(1, body)})


@pytest.mark.parametrize(
    ("head", "data"),
    [
        (("|O", [1]), b"12345678"),
        (("<M8", [1]), b"12345678"),
        (("<f8,<f8", [1]), b"12345678" * 2),
        (("<f8", [-1]), b""),
        (("<f8", [2]), b"12345678"),
        (("<f8", [2**63 - 1]), b"12345678"),
        (("<f8", [2**62, 2**62]), b"12345678"),
        (("<f8", [1]), b"12345678x"),
        (("|b1", [1]), b"\x02"),
        (("<U1", [1]), b"\xff\xff\xff\xff"),
        (("<U1", [1]), b"\x00\xd8\x00\x00"),
        (("<f16", [1]), b"12345678" * 2),
        (("<f8", [2**40, 0]), b""),
        (("<f8", [0, 2**62]), b""),
        (("<f8",), b"12345678"),
        ("<f8", b""),
    ],
)
def test_extensions_that_are_no_array(head: Any, data: bytes) -> None:
    with pytest.raises(MessageError, match="north sent"):
        decode_message(Anything, extension(head, data), "north", "x/y")


def test_few_bytes_take_little_memory() -> None:
    """An array of nothing whose texts would have a gigabyte each."""
    found = decode_message(Anything, extension(("<U250000000", [0]), b""), "north", "x/y")
    assert found.value.shape == (0,) and found.value.itemsize < 100


@pytest.mark.parametrize("kind", [list[int], tuple[Variable, ...], dict[int, int], bytes, str])
@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
def test_a_claimed_length_takes_no_memory(kind: Any, head: bytes) -> None:
    """Lists, mappings, bytes, texts and extensions that claim 4 GB in nine bytes."""
    message = msgspec.defstruct("Claim", [("x", kind)], bases=(Message,), frozen=True)
    data = b"\x81\xa1x" + head + b"\xff\xff\xff\xff" + b"\x01"
    tracemalloc.start()
    with pytest.raises(MessageError, match="north sent"):
        decode_message(message, data, "north", "x/y")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("value", [np.array([object()]), object(), {1: np.array([1j])}])
def test_what_does_not_cross(value: Any) -> None:
    with pytest.raises(ProtocolError, match="Anything cannot be sent"):
        encode_message(Anything(value))


def test_what_depends_on_the_plan() -> None:
    require(True, "north", Hospital, "places", "never seen")
    with pytest.raises(MessageError, match=r"'test/hospital' .* field 'places': beyond 3 rows"):
        require(False, "north", Hospital, "places", "beyond 3 rows")
    require_shape(np.ones((2, 3)), (None, 3), "north", Hospital, "matrix")
    with pytest.raises(MessageError, match="expected shape any × 4, got 2 × 3"):
        require_shape(np.ones((2, 3)), (None, 4), "north", Hospital, "matrix")
    with pytest.raises(MessageError, match="expected shape of a single number, got 1"):
        require_shape(np.ones(1), (), "north", "x/y", "matrix")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("patient 4711"), r"it is unusable \(KeyError\)"),
        (TableError("no column"), "no column"),
        (MessageError("south", "a/b", "x", "odd"), "south sent 'a/b'"),
    ],
)
def test_blaming(error: Exception, words: str) -> None:
    """Texts of other errors may hold values, and stay where they are."""
    with pytest.raises(MessageError, match=words) as caught, blaming("north", Hospital, "names"):
        raise error
    assert "4711" not in str(caught.value)
