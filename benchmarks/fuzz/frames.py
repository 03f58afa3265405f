"""Frames of the process engine, and the recipes in them: bytes that no honest party would send."""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.fuzz.judging import Attempt, mutated
from fedcircuits.engines.process.parcels import SIZES, Line
from fedcircuits.federation import recipes

HEADS = (
    b'["mail", "north", "a/b", "nothing"]', b'["at", "a step"]', b'["result"]', b"[]", b"{}",
    b"null", b"7", b'"mail"', b"[[[", b"[" * 5000, b"\xff\xfe", b"", b'[1, 2]', b"[NaN]", b"1e999",
    b'["mail", {"a": [1]}]', b'["\\ud800"]', b"[" + b"9" * 5000 + b"]", b'["mail"] x',
)  # fmt: skip
CLAIMS = (0, 1, 40, 2**16, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)


def prepare(folder: Path) -> Attempt:
    recipe = recipes.pack({"model": _learned(), "x": np.arange(6.0), "n": [1, "a", None, b"x"]})

    def attempt(rng: np.random.Generator, number: int) -> None:
        if number % 2:
            recipes.unpack(mutated(rng, recipe))
            return
        here, there = socket.socketpair()
        with here, there:
            here.sendall(_bytes(rng))
            here.close()
            line = Line(there)
            with contextlib.suppress(EOFError, OSError):  # the other end is gone
                for _ in range(3):
                    kind, _fields, body = line.receive()
                    assert isinstance(kind, str), f"a frame of kind {kind!r} was received"
                    bytes(body)

    return attempt


def _learned() -> Any:
    table = fc.Table.of({"a": [0.5, 1.5, 2.5], "b": ["x", "y", "x"]})
    model = fc.MixtureOfProducts(2, max_iter=2, random_state=0).fit(table)
    return [model.circuit_, model.parameters_, table]


def _bytes(rng: np.random.Generator) -> bytes:
    if rng.random() < 0.15:
        return rng.bytes(int(rng.integers(200)))
    head = HEADS[int(rng.integers(len(HEADS)))]
    if rng.random() < 0.2:
        head = json.dumps(["mail", "north", "x" * int(rng.integers(3000))]).encode()
    body = rng.bytes(int(rng.integers(60)))
    sizes = [len(head), len(body)]
    if rng.random() < 0.5:
        sizes[int(rng.integers(2))] = int(CLAIMS[int(rng.integers(len(CLAIMS)))])
    frame = SIZES.pack(sizes[0] % 2**32, sizes[1]) + head + body
    changed = bytearray(frame)
    if rng.random() < 0.3:
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(len(changed)))] if rng.random() < 0.2 else changed)
