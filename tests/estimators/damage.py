"""Files of predictors, changed with intent: what somebody who wants to be read would do."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from fedcircuits.circuits.graph import files
from fedcircuits.errors import FileError

JUNK: tuple[object, ...] = (None, True, -1, "x", [], float("nan"), 10**400)
Tensors = dict[str, np.ndarray]


def changed(
    data: bytes,
    metadata: Any = None,
    graph: Any = None,
    tensors: Callable[[Tensors], object] | None = None,
) -> bytes:
    """The file with another part, and the digests that it has then."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    if graph is not None:
        found[files.GRAPH] = json.dumps(graph).encode()
    if tensors is not None:
        arrays = dict(safetensors.numpy.load(found[files.VALUES]))
        tensors(arrays)
        found[files.VALUES] = safetensors.numpy.save(arrays)
    about = json.loads(found[files.ABOUT])
    for name in (files.GRAPH, files.VALUES):
        about["sha256"][name] = hashlib.sha256(found[name]).hexdigest()
    about["metadata"] = about["metadata"] if metadata is None else metadata
    found[files.ABOUT] = json.dumps(about).encode()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, member in found.items():
            archive.writestr(name, member)
    return target.getvalue()


def refused(data: bytes, ask: Callable[[str], np.ndarray], answers: np.ndarray) -> bool:
    """By name; what is not refused answers as before. ``ask``: load the file, and ask it."""
    Path("spoiled.fc").write_bytes(data)
    try:
        found = ask("spoiled.fc")
    except FileError as error:
        assert "spoiled.fc" in str(error) and len(str(error)) < 600
        return True
    assert np.array_equal(found, answers)
    return False


def part(data: bytes, member: str) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read(member))


def places(found: Any) -> Iterator[tuple[Any, ...]]:
    """Where something stands in nested objects and lists."""
    pairs = found.items() if isinstance(found, dict) else enumerate(found)
    for key, value in pairs:
        yield (key,)
        if isinstance(value, dict | list):
            yield from ((key, *rest) for rest in places(value))


def spoiled(whole: Any) -> Iterator[tuple[str, Any]]:
    """Every field left out, and with everything in its place that does not belong there."""
    for place in places(whole):
        for junk in (*JUNK, "left out"):
            found = deepcopy(whole)
            at = found
            for key in place[:-1]:
                at = at[key]
            if junk == "left out":
                del at[place[-1]]
            else:
                at[place[-1]] = junk
            yield f"{place}: {str(junk)[:12]}", found


def broken(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The array with other numbers, shapes and kinds."""
    if array.dtype.kind == "f":
        yield "NaN", np.full_like(array, np.nan)
        yield "infinite", np.full_like(array, np.inf)
        yield "half", array.astype(np.float16)
    if array.dtype.kind == "i":
        yield "large", np.full_like(array, 10**6)
        yield "negative", np.full_like(array, -2)
    yield "text", array.astype(np.float64).astype(np.uint8 if array.dtype != np.uint8 else np.int8)
    yield "shorter", array[:-1]
    yield "longer", np.concatenate([array, array[:1]])
    yield "deeper", array[None]
    yield "empty", array[:0]
