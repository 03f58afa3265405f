"""Damaged .fc files: each kind is refused, by name and with a reason."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FileError
from fedcircuits.tables.schema import Schema, Variable

ABOUT, GRAPH, VALUES = files.ABOUT, files.GRAPH, files.VALUES
Members = dict[str, bytes]


def model() -> tuple[Circuit, Parameters]:
    """A mixture of two with a circuit as a leaf."""
    nodes = (
        Leaf("g", "gaussian", ("x",), 2),
        Leaf("c", "categorical", ("colour",), 2),
        Leaf("party", "circuit", ("y",), 2),
        Product("p", ("g", "c", "party")),
        Sum("root", ("p",)),
    )
    schema = Schema((Variable("x"), Variable("colour", "category", ("red", "blue")), Variable("y")))
    below = Circuit((Leaf("g", "gaussian", ("y",), 2),), Schema.real(["y"]))
    gaussian = {"mean": np.array([[0.0], [1.0]]), "variance": np.ones((2, 1))}
    values = {
        "g": gaussian,
        "c": {"probability": np.full((2, 1, 2), 0.5)},
        "root": {"weight": np.array([[0.25, 0.75]])},
    }
    inner = {"party": (below, Parameters({"g": gaussian}))}
    return Circuit(nodes, schema), Parameters(values, inner)


@cache
def whole() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        files.write(f"{folder}/m.fc", *model(), {"n": 1})
        return Path(f"{folder}/m.fc").read_bytes()


def refuse(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(FileError) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------- by chance


def test_the_undamaged_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.fc").write_bytes(whole())
    circuit, parameters, metadata = files.read(tmp_path / "m.fc")
    assert (circuit, parameters, metadata) == (*model(), {"n": 1})


def test_truncated_anywhere(tmp_path: Path) -> None:
    for length in [*range(0, len(whole()), 5), len(whole()) - 1]:
        found = refuse(tmp_path / "short.fc", whole()[:length])
        assert "truncated" in found and "get the file again" in found


def test_flipped_anywhere(tmp_path: Path) -> None:
    """All contents are guarded; what a zip says besides may change, and then changes nothing."""
    path, refused, places = tmp_path / "flipped.fc", 0, range(0, len(whole()), 3)
    for at in places:
        changed = bytearray(whole())
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        try:
            found = files.read(path)
        except FileError as error:
            refused += 1
            assert "flipped.fc" in str(error)
        else:
            assert found == (*model(), {"n": 1})
    assert refused > 0.8 * len(places)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.fc"
        refuse(path, data)
        refuse(path, b"PK\x03\x04" + data)
        refuse(path, data + b"PK\x05\x06" + bytes(18))
        refuse(path, data + whole()[200:])


# ---------------------------------------------------------------------- with intent


def members() -> Members:
    with zipfile.ZipFile(io.BytesIO(whole())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(found: Members, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", how) as archive:
        for name, data in found.items():
            archive.writestr(name, data)
    return target.getvalue()


def signed(found: Members, **about: object) -> bytes:
    """With the digests that the members have: what somebody who wants to be read would do."""
    digests = {n: hashlib.sha256(found[n]).hexdigest() for n in (GRAPH, VALUES)}
    head = {**json.loads(members()[ABOUT]), "sha256": digests, **about}
    return packed({**found, ABOUT: json.dumps(head).encode()})


def with_graph(change: Callable[[dict[str, object]], object]) -> bytes:
    """The file after a change of its graph, in place or by what is returned."""
    found = members()
    graph = json.loads(found[GRAPH])
    changed = change(graph)
    return signed({**found, GRAPH: json.dumps(graph if changed is None else changed).encode()})


def with_tensors(change: Callable[[dict[str, np.ndarray]], object]) -> bytes:
    found = members()
    tensors = dict(safetensors.numpy.load(found[VALUES]))
    change(tensors)
    return signed({**found, VALUES: safetensors.numpy.save(tensors)})


def with_header(change: Callable[[dict[str, dict[str, object]]], object]) -> bytes:
    """The file after a change of what safetensors says of its arrays."""
    found = members()
    (length,) = struct.unpack("<Q", found[VALUES][:8])
    header = json.loads(found[VALUES][8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + found[VALUES][8 + length :]
    return signed({**found, VALUES: data})


def doubled() -> bytes:
    target = io.BytesIO(whole())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(target, "a") as archive:
            archive.writestr(GRAPH, b"{}")
    return target.getvalue()


def encrypted() -> bytes:
    """Every header of a member gets the mark of encryption."""
    data = bytearray(whole())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(mark, at + 4)
    return bytes(data)


def bomb() -> bytes:
    return packed({**members(), VALUES: bytes(200_000_000)})


def claims(size: int) -> bytes:
    """The catalogue says that a member is of another size."""
    data = bytearray(whole())
    at = data.find(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(data)


def nested(levels: int) -> bytes:
    return b'{"circuit":' * levels + b"1" + b"}" * levels


def key(*names: str) -> str:
    return json.dumps([*names])


ROOT, MEAN = key("root", "weight"), key("g", "mean")
KINDS: list[tuple[str, Callable[[], bytes], list[str]]] = [
    ("empty", lambda: b"", ["not a fedcircuits model or is truncated"]),
    ("text", lambda: b"x,y\n1,2\n", ["not a fedcircuits model"]),
    ("only the end of a zip", lambda: whole()[-22:], ["truncated"]),
    ("without its first half", lambda: whole()[len(whole()) // 2 :], []),
    ("another zip", lambda: packed({"a.txt": b"hello"}), ["expected the members", "a.txt"]),
    ("an empty zip", lambda: packed({}), ["expected the members", "found none"]),
    ("no about", lambda: packed({GRAPH: b"{}", VALUES: b""}), ["expected the members", ABOUT]),
    ("no graph", lambda: packed({ABOUT: b"{}", VALUES: b""}), ["expected the members", GRAPH]),
    ("no values", lambda: packed({ABOUT: b"{}", GRAPH: b"{}"}), ["expected the members", VALUES]),
    ("a member more", lambda: packed({**members(), "run.py": b"evil"}), ["run.py"]),
    ("a member twice", doubled, ["expected the members"]),
    ("a path outside", lambda: packed({**members(), "../../etc/x": b""}), ["../../etc/x"]),
    ("a path instead", lambda: packed({f"../{n}": d for n, d in members().items()}), ["../"]),
    (
        "members swapped",
        lambda: packed({**members(), GRAPH: members()[VALUES], VALUES: members()[GRAPH]}),
        [GRAPH, "bytes that were written"],
    ),
    (
        "a graph without its digest",
        lambda: packed({**members(), GRAPH: members()[GRAPH].replace(b"red", b"rot")}),
        [GRAPH, "bytes that were written", "SHA-256"],
    ),
    (
        "values without their digest",
        lambda: packed({**members(), VALUES: members()[VALUES][:-1] + b"\x01"}),
        [VALUES, "bytes that were written"],
    ),
    ("a digest changed", lambda: signed(members(), sha256={GRAPH: "0" * 64}), ["SHA-256"]),
    ("digests of no form", lambda: signed(members(), sha256="none"), ["SHA-256"]),
    ("another format", lambda: signed(members(), format=2), ["format 2", "reads format 1"]),
    ("a format of text", lambda: signed(members(), format="1"), ["format '1'"]),
    ("metadata of no form", lambda: signed(members(), metadata=[]), ["metadata", "not an object"]),
    ("about is no JSON", lambda: packed({**members(), ABOUT: b"{"}), [ABOUT, "not JSON"]),
    ("about is a list", lambda: packed({**members(), ABOUT: b"[]"}), [ABOUT, "not a JSON object"]),
    ("about is no text", lambda: packed({**members(), ABOUT: b"\xff\xfe"}), [ABOUT, "not JSON"]),
    ("a graph of no JSON", lambda: signed({**members(), GRAPH: b"{]"}), [GRAPH, "not JSON"]),
    ("a graph of a list", lambda: with_graph(lambda g: [g]), [GRAPH, "not a JSON object"]),
    ("a deep graph", lambda: signed({**members(), GRAPH: nested(50_000)}), [GRAPH, "not JSON"]),
    ("no circuit", lambda: with_graph(lambda g: g.pop("circuit") and None), ["'nodes'"]),
    ("no leaves", lambda: with_graph(lambda g: g.update(leaves=3)), ["'leaves'"]),
    (
        "not decomposable",
        lambda: with_graph(lambda g: g["circuit"]["nodes"][3].__setitem__(2, ["g", "g"])),  # type: ignore[index]
        ["product 'p'", "not decomposable"],
    ),
    (
        "an unknown family",
        lambda: with_graph(lambda g: g["circuit"]["nodes"][0].__setitem__(2, "evil")),  # type: ignore[index]
        ["leaf 'g'", "unknown leaf family 'evil'"],
    ),
    ("an inner circuit missing", lambda: with_graph(lambda g: g["leaves"].clear()), ["'party"]),  # type: ignore[attr-defined]
    (
        "an inner circuit too many",
        lambda: with_graph(lambda g: g["leaves"].update(g=g["leaves"]["party"])),  # type: ignore[attr-defined, index]
        ["a circuit for 'g'"],
    ),
    (
        "an inner circuit of nonsense",
        lambda: with_graph(lambda g: g["leaves"].update(party=[])),  # type: ignore[attr-defined]
        ["'circuit' and 'leaves'"],
    ),
    ("weights of NaN", lambda: with_tensors(lambda t: t[ROOT].fill(np.nan)), ["'root'", "finite"]),
    ("weights of 2", lambda: with_tensors(lambda t: t[ROOT].fill(1.0)), ["'root'", "add up to 1"]),
    (
        "negative weights",
        lambda: with_tensors(lambda t: t.update({ROOT: np.array([[-1.0, 2.0]])})),
        ["'root'", "negative"],
    ),
    (
        "a wrong shape",
        lambda: with_tensors(lambda t: t.update({ROOT: np.array([[1.0]])})),
        ["sum 'root'", "(1, 2)", "(1, 1)"],
    ),
    ("an array missing", lambda: with_tensors(lambda t: t.pop(MEAN)), ["leaf 'g'", "mean"]),
    ("a node missing", lambda: with_tensors(lambda t: t.pop(ROOT)), ["'root'", "no parameters"]),
    (
        "an inner array missing",
        lambda: with_tensors(lambda t: t.pop(key("party", "g", "mean"))),
        ["circuit of leaf 'party'", "'g'", "mean"],
    ),
    *(
        (
            f"an array of a {word}",
            lambda name=name: with_tensors(lambda t: t.update({key(*name): np.ones((1, 1))})),
            words,
        )
        for word, name, words in (
            ("parameter too many", ["root", "bias"], ["'root'", "bias"]),
            ("node that is not there", ["ghost", "weight"], ["'ghost'", "no node with parameters"]),
            ("product", ["p", "weight"], ["'p'", "no node with parameters"]),
            ("circuit leaf", ["party", "weight"], ["'party'", "no node with parameters"]),
            ("place that is not there", ["g", "x", "mean"], ["'g/x'", "no node with parameters"]),
        )
    ),
    *(
        (
            f"an array of {dtype}",
            lambda dtype=dtype: with_tensors(lambda t: t.update({MEAN: t[MEAN].astype(dtype)})),
            ["leaf 'g'", "float64", dtype],
        )
        for dtype in ("float32", "float16", "int64", "bool", "uint8")
    ),
    *(
        (
            f"a name of {word}",
            lambda name=name: with_tensors(lambda t: t.update({name: t.pop(MEAN)})),
            ["which node it belongs to"],
        )
        for word, name in (
            ("no JSON", "g.mean"),
            ("a number", "3"),
            ("a text", '"ab"'),
            ("one part", '["g"]'),
            ("numbers", "[1, 2]"),
            ("lists", '[["g"], "mean"]'),
            ("depth", "[" * 5_000),
        )
    ),
    *(
        (f"{word} by header", lambda change=change: with_header(change), words)
        for word, change, words in (
            ("bfloat16", lambda h: h[MEAN].update(dtype="BF16", shape=[8, 1]), []),
            ("complex", lambda h: h[MEAN].update(dtype="C64"), []),
            ("an unknown type", lambda h: h[MEAN].update(dtype="F128"), ["cannot be read"]),
            (
                "a huge shape",
                lambda h: h[MEAN].update(shape=[1 << 60, 1 << 60]),
                ["cannot be read"],
            ),
            ("a negative shape", lambda h: h[MEAN].update(shape=[-1, 2]), ["cannot be read"]),
            ("a place outside", lambda h: h[MEAN].update(data_offsets=[0, 1 << 50]), []),
        )
    ),
    ("garbage values", lambda: signed({**members(), VALUES: b"garbage!" * 9}), ["cannot be read"]),
    ("empty values", lambda: signed({**members(), VALUES: b""}), ["cannot be read"]),
    (
        "a huge header of values",
        lambda: signed({**members(), VALUES: struct.pack("<Q", 1 << 62) + b"{}"}),
        ["cannot be read"],
    ),
    ("encryption", encrypted, ["encrypted"]),
    ("a zip bomb", bomb, ["claim to unpack to 200,0"]),
    ("a false size", lambda: claims(3_000_000_000), ["claim to unpack to 3,000"]),
    ("a smaller size", lambda: claims(3), []),
    ("an unusual packing", lambda: packed(members(), zipfile.ZIP_LZMA), ["packed in an unknown"]),
]


@pytest.mark.parametrize(
    ("make", "words"), [k[1:] for k in KINDS], ids=[k[0].replace(" ", "-") for k in KINDS]
)
def test_refused(tmp_path: Path, make: Callable[[], bytes], words: list[str]) -> None:
    found = refuse(tmp_path / "m.fc", make())
    for word in words:
        assert word in found
    assert "Error" not in found and "Traceback" not in found and len(found) < 500


def test_the_same_file_made_by_others_is_read(tmp_path: Path) -> None:
    """The refusals above are due to the damage, not to how the test packs."""
    for data in (signed(members()), with_graph(lambda g: None), with_tensors(lambda t: None)):
        (tmp_path / "m.fc").write_bytes(data)
        assert files.read(tmp_path / "m.fc")[:2] == model()


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="it is a folder"):
        files.read(tmp_path)
    with pytest.raises(FileError, match=r"none\.fc: there is no such file"):
        files.read(tmp_path / "none.fc")
    with pytest.raises(FileError, match="cannot read"):
        files.read("nul\0.fc")
