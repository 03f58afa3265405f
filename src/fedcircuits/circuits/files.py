"""The .fc file: one zip with a circuit, its parameters and what is known about them; no pickle.

    fedcircuits.json        format, version of the writer, metadata, SHA-256 of the other members
    circuit.json            schema and nodes; circuits that are leaves, by leaf
    parameters.safetensors  every array, under ["node", "parameter"] or ["leaf", …, "node", …]

Written to a temporary file beside the target and moved there whole, so that a crash leaves the old
file or the new one. Read with every member checked before use: a file that is truncated, tampered
with or not ours is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.family import Array, Arrays
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.errors import FedcircuitsError, FileError

FORMAT = 1
ABOUT, GRAPH, VALUES = "fedcircuits.json", "circuit.json", "parameters.safetensors"
LARGEST_RATIO = 200  # of a member's size to its packed size; more is no graph of ours
Metadata = Mapping[str, object]


def write(
    path: str | os.PathLike[str], circuit: Circuit, parameters: Parameters, metadata: Metadata
) -> None:
    parameters.check(circuit)
    tensors: dict[str, Array] = {}
    graph = _collect(circuit, parameters, (), tensors)
    members = {GRAPH: _json(graph), VALUES: safetensors.numpy.save(tensors)}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    about = {"format": FORMAT, "sha256": digests, "metadata": dict(metadata)}
    _write_whole(Path(path), {ABOUT: _json(about), **members})


def read(path: str | os.PathLike[str]) -> tuple[Circuit, Parameters, dict[str, object]]:
    path = Path(path)
    members = _members(path)
    about = _object(path, ABOUT, members[ABOUT])
    _check_digests(path, about, members)
    metadata = about.get("metadata", {})
    if not isinstance(metadata, dict):
        raise _damaged(path, f"the metadata in {ABOUT} is not an object")
    try:
        tensors = safetensors.numpy.load(members[VALUES])
        named = {tuple(json.loads(key)): np.asarray(a) for key, a in tensors.items()}
        circuit, parameters = _rebuild(_object(path, GRAPH, members[GRAPH]), (), named)
        parameters.check(circuit)
    except FileError:
        raise
    except FedcircuitsError as error:
        raise _damaged(path, str(error)) from error
    except Exception as error:  # safetensors and json raise errors of many kinds
        raise _damaged(path, f"its contents cannot be read ({error})") from error
    return circuit, parameters, metadata


# ---------------------------------------------------------------------- graph and tensors


def _collect(
    circuit: Circuit, parameters: Parameters, path: tuple[str, ...], tensors: dict[str, Array]
) -> dict[str, object]:
    for node, arrays in parameters.values.items():
        if node in circuit.by_name:
            for name, array in arrays.items():
                key = json.dumps([*path, node, name], ensure_ascii=False)
                tensors[key] = np.ascontiguousarray(array)
    inner = {
        leaf: _collect(*parameters.circuits[leaf], (*path, leaf), tensors)
        for leaf in parameters.circuits
    }
    return {"circuit": circuit.to_json(), "leaves": inner}


def _rebuild(
    graph: object, path: tuple[str, ...], tensors: Mapping[tuple[str, ...], Array]
) -> tuple[Circuit, Parameters]:
    if not isinstance(graph, dict) or not isinstance(graph.get("leaves"), dict):
        raise FileError("a circuit must have 'circuit' and 'leaves'")
    circuit = Circuit.from_json(graph.get("circuit"))
    values: dict[str, dict[str, Array]] = {}
    for key, array in tensors.items():
        if len(key) == len(path) + 2 and key[: len(path)] == path:
            values.setdefault(key[-2], {})[key[-1]] = array
    inner = {leaf: _rebuild(g, (*path, leaf), tensors) for leaf, g in graph["leaves"].items()}
    frozen: dict[str, Arrays] = dict(values)
    return circuit, Parameters(frozen, inner)


def _json(data: object) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise FileError(f"the metadata cannot be written as JSON: {error}") from None


# ---------------------------------------------------------------------- the zip


def _write_whole(path: Path, members: Mapping[str, bytes]) -> None:
    if not path.parent.is_dir():
        raise FileError(f"cannot write {path}: the folder {path.parent} does not exist")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in members.items():  # fixed dates: equal models, equal files
                    how = zipfile.ZIP_STORED if name == VALUES else zipfile.ZIP_DEFLATED
                    archive.writestr(zipfile.ZipInfo(name), data, how)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _members(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        raise FileError(f"cannot read {path}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if sorted(names) != sorted((ABOUT, GRAPH, VALUES)):
                raise FileError(
                    f"{path} is not a fedcircuits model: expected the members {ABOUT}, {GRAPH} "
                    f"and {VALUES}, found {', '.join(names[:5]) or 'none'}"
                )
            for info in archive.infolist():
                if info.file_size > LARGEST_RATIO * info.compress_size + (1 << 20):
                    raise FileError(f"{path}: {info.filename} unpacks to {info.file_size} bytes")
            return {name: archive.read(name) for name in names}
    except FileError:
        raise
    except zipfile.BadZipFile as error:
        raise FileError(
            f"{path} is not a fedcircuits model or is truncated: {error}; "
            "get the file again, or save the model anew"
        ) from None
    except Exception as error:  # zlib, encryption, unknown compression
        raise _damaged(path, str(error)) from error


def _object(path: Path, name: str, data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"{name} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise _damaged(path, f"{name} is not an object")
    return found


def _check_digests(path: Path, about: dict[str, object], members: Mapping[str, bytes]) -> None:
    version, digests = about.get("format"), about.get("sha256")
    if version != FORMAT:
        raise FileError(
            f"{path} has format {version!r}, this version of fedcircuits reads format {FORMAT}: "
            "use the version that wrote it, or save the model anew"
        )
    for name in (GRAPH, VALUES):
        found = hashlib.sha256(members[name]).hexdigest()
        if not isinstance(digests, dict) or digests.get(name) != found:
            raise _damaged(path, f"{name} does not have the bytes that were written")


def _damaged(path: Path, problem: str) -> FileError:
    return FileError(f"{path} is damaged: {problem}; get the file again, or save the model anew")
