"""The .fc file: one zip with a circuit, its parameters and what is known about them; no pickle.

    fedcircuits.json        format, metadata, SHA-256 of the other members; how it was learned
    circuit.json            schema and nodes; circuits that are leaves, by leaf
    parameters.safetensors  every array, under ["node", "parameter"] or ["leaf", …, "node", …]

A model whose leaves live at sites has neither: beside fedcircuits.json there is

    model.msgpack           the coordinator's part, as a recipe (federation/recipes.py)

It is written to a temporary file next to the target and moved there as a whole, so that a crash
leaves the old file or the new one. Every member is checked before use: a file that is truncated,
modified or of another format is refused with its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import safetensors.numpy

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Product
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.tables.schema import ReadingHabits

FORMAT = 1
ABOUT, GRAPH, VALUES = "fedcircuits.json", "circuit.json", "parameters.safetensors"
PART = "model.msgpack"
LARGEST_RATIO = 200  # of the size of all members to the size of the file; more is suspicious
PREDICTORS = ("FeatureFusion", "FedTrees")  # estimators whose files hold predictors
Metadata = Mapping[str, object]
Place = tuple[str, ...]  # the leaves that lead to a circuit: () is the whole one


def write(
    path: str | os.PathLike[str], circuit: Circuit, parameters: Parameters, metadata: Metadata
) -> None:
    """The file at ``path``, whole or not at all; FileError says why not."""
    parameters.check(circuit)
    tensors: dict[str, Array] = {}
    graph = _collect(circuit, parameters, (), tensors)
    members = {GRAPH: _json(graph, "circuit"), VALUES: safetensors.numpy.save(tensors)}
    write_members(path, members, metadata)


def write_members(
    path: str | os.PathLike[str],
    members: Mapping[str, bytes],
    metadata: Metadata,
    training: Metadata | None = None,
) -> None:
    """A file of these members, whole or not at all."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    about: dict[str, object] = {
        "format": FORMAT, "sha256": digests, "metadata": dict(metadata),
    }  # fmt: skip
    if training is not None:
        about["training"] = dict(training)
    data = {ABOUT: _json(about, "metadata"), **members}
    replace_file(Path(path), lambda file: _write_zip(file, data))


def read(path: str | os.PathLike[str]) -> tuple[Circuit, Parameters, dict[str, object]]:
    """Circuit, parameters and metadata of a file, all of them checked."""
    path = Path(path)
    members, metadata, about = _checked_members(path)
    if PART in members:
        what = f"the coordinator's part of {metadata.get('estimator', 'a model')}"
        raise FileError(f"{path} holds {what}, the rest is at sites: fedcircuits.load(path)")
    graph = _object(path, GRAPH, members[GRAPH])
    try:
        tensors = _tensors(members[VALUES])
        circuit, parameters = _rebuild(graph, (), tensors)
        _refuse_surplus(tensors)
        parameters.check(circuit)
        if habits := _habits(about):
            circuit = replace(circuit, schema=replace(circuit.schema, habits=habits))
    except FedcircuitsError as error:
        raise _damaged(path, str(error)) from error
    except RecursionError as error:
        raise _damaged(path, "its circuits are nested too deeply") from error
    return circuit, parameters, metadata


def require_estimator(path: object, metadata: Metadata, expected: str | None) -> None:
    """FileError unless a file holds what is expected; None: no predictor of ours."""
    estimator = metadata.get("estimator")
    if estimator == expected or (expected is None and estimator not in PREDICTORS):
        return
    if estimator in PREDICTORS:
        what = f"{estimator}, which predicts {metadata.get('target')!r} and is no distribution"
        raise FileError(f"{path} holds {what}: load it with fedcircuits.{estimator}.load")
    raise FileError(f"{path} holds no {expected}: load it with fedcircuits.load")


def is_part(path: Path) -> bool:
    """Whether a file claims to hold the coordinator's part of a model that is at sites."""
    try:
        with zipfile.ZipFile(path) as archive:
            return PART in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def read_members(path: Path) -> tuple[dict[str, bytes], dict[str, object]]:
    """The members of a file, which have the bytes that were written, and its metadata."""
    members, metadata, _ = _checked_members(path)
    return members, metadata


def _checked_members(path: Path) -> tuple[dict[str, bytes], dict[str, object], Metadata]:
    """The same, and everything that the file says about itself."""
    members = _members(path)
    about = _object(path, ABOUT, members.pop(ABOUT))
    _check_digests(path, about, members)
    metadata = about.get("metadata", {})
    if not isinstance(metadata, dict):
        raise _damaged(path, f"the metadata in {ABOUT} is not an object")
    return members, metadata, about


def note_training(path: Path, training: Mapping[str, object]) -> None:
    """Add to a model's file how it was learned; the model in it stays as it is."""
    members, metadata = read_members(path)
    write_members(path, members, metadata, training)


def training_of(path: Path) -> dict[str, object]:
    """What ``note_training`` has added, unchecked; empty if there is nothing."""
    training = _object(path, ABOUT, _members(path)[ABOUT]).get("training", {})
    return training if isinstance(training, dict) else {}


def _habits(about: Metadata) -> tuple[ReadingHabits, ...]:
    """How the files that a model was trained on write numbers and dates."""
    training = about.get("training")
    known = training.get("habits", {}) if isinstance(training, dict) else {}
    try:
        return tuple(msgspec.convert(known, dict[str, ReadingHabits]).values())
    except (msgspec.ValidationError, OverflowError, RecursionError, SystemError) as error:
        raise FileError(f"its record of the training: {error}") from None


# ---------------------------------------------------------------------- graph and tensors


def _collect(
    circuit: Circuit, parameters: Parameters, place: Place, tensors: dict[str, Array]
) -> dict[str, object]:
    inner: dict[str, object] = {}
    for node in circuit.nodes:
        if isinstance(node, Leaf) and node.family == CIRCUIT:
            below = parameters.circuits[node.name]
            inner[node.name] = _collect(*below, (*place, node.name), tensors)
        elif not isinstance(node, Product) and node.name in parameters:
            for name, array in parameters[node.name].items():
                key = json.dumps([*place, node.name, name], ensure_ascii=False)
                tensors[key] = np.ascontiguousarray(array)
    return {"circuit": circuit.to_json(), "leaves": inner}


def _tensors(data: bytes) -> dict[Place, dict[str, dict[str, Array]]]:
    """Arrays by place, node and parameter."""
    try:
        arrays = safetensors.numpy.load(data)
    except Exception as error:  # of many kinds, some of Rust's and some of numpy's
        reason = str(error).removeprefix("Error while deserializing: ")
        raise FileError(f"{VALUES} cannot be read ({reason})") from error
    tensors: dict[Place, dict[str, dict[str, Array]]] = {}
    for key, array in sorted(arrays.items()):  # safetensors has no order
        *place, node, name = _names(key)
        tensors.setdefault(tuple(place), {}).setdefault(node, {})[name] = np.asarray(array)
    return tensors


def _names(key: str) -> list[str]:
    try:
        names = json.loads(key)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) < 2 or not all(isinstance(n, str) for n in names):
        raise FileError(f"the array {key[:80]!r} does not say which node it belongs to")
    return names


def _rebuild(
    graph: object, place: Place, tensors: dict[Place, dict[str, dict[str, Array]]]
) -> tuple[Circuit, Parameters]:
    """The circuit at a place with its parameters, which leave ``tensors``."""
    if not isinstance(graph, dict) or not isinstance(graph.get("leaves"), dict):
        raise FileError("a circuit must be an object with 'circuit' and 'leaves'")
    circuit, below = Circuit.from_json(graph.get("circuit")), graph["leaves"]
    arrays = tensors.get(place, {})
    values: dict[str, Arrays] = {}
    inner = {}
    for node in circuit.nodes:
        if isinstance(node, Leaf) and node.family == CIRCUIT and node.name in below:
            inner[node.name] = _rebuild(below[node.name], (*place, node.name), tensors)
        elif not isinstance(node, Product) and node.name in arrays:
            values[node.name] = arrays.pop(node.name)
    if surplus := [name for name in below if name not in inner]:
        raise FileError(f"there is a circuit for {surplus[0]!r}, which is no leaf of that family")
    return circuit, Parameters(values, inner)


def _refuse_surplus(tensors: Mapping[Place, Mapping[str, object]]) -> None:
    for place, nodes in tensors.items():
        for node in nodes:
            name = "/".join((*place, node))
            raise FileError(f"there are arrays for {name!r}, which is no node with parameters")


def _json(data: object, what: str) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"the {what} cannot be written as JSON: {error}") from None


# ---------------------------------------------------------------------- the zip


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, whole or not at all: an older one stays until the new one is complete."""
    with _new_file(path) as (file, place):
        if place.exists():
            os.chmod(file.name, stat.S_IMODE(place.stat().st_mode))
        write(file)
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, place)


def check_writable(path: Path) -> None:
    """FileError if ``replace_file`` could not write there; to be asked before long work."""
    with _new_file(path):
        pass


@contextmanager
def _new_file(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A file beside the one of that name, and where a link of that name leads to; it is removed in
    the end unless it was moved there."""
    temporary = None
    try:
        place = Path(os.path.realpath(path))
        if not place.parent.is_dir():
            raise FileError(f"cannot write {path}: there is no folder {path.parent}; make it first")
        if place.exists() and not place.is_file():
            raise FileError(f"cannot write {path}: there is a folder or device of that name")
        temporary = place.with_name(f".{place.name[:100]}.{secrets.token_hex(8)}")
        with open(temporary, "xb") as file:
            yield file, place
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot write {path}: {reason}; an existing file is unchanged") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _write_zip(file: IO[bytes], members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)  # of a fixed date: equal models, equal files
            info.external_attr = 0o644 << 16
            how = zipfile.ZIP_STORED if name == VALUES else zipfile.ZIP_DEFLATED
            archive.writestr(info, data, how)


def _members(path: Path) -> dict[str, bytes]:
    try:
        if path.is_dir():
            raise FileError(f"cannot read {path}: it is a folder, expected an .fc file")
        with open(path, "rb") as file:
            return _unpacked(path, file)
    except FileNotFoundError:
        raise FileError(f"cannot read {path}: there is no such file") from None
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _unpacked(path: Path, file: IO[bytes]) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(file) as archive:
            _check_members(path, archive.infolist(), os.fstat(file.fileno()).st_size)
            return {info.filename: archive.read(info) for info in archive.infolist()}
    except FileError:
        raise
    except zipfile.BadZipFile as error:
        raise FileError(
            f"{path} is not a fedcircuits model or is truncated: {str(error)[:200]}; "
            "get the file again, or save the model anew"
        ) from None
    except Exception as error:  # zlib, encryption, unknown compression, places outside the file
        raise _damaged(path, str(error)[:200]) from error


def _check_members(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    names = [info.filename for info in members]
    if sorted(names) not in (sorted((ABOUT, GRAPH, VALUES)), sorted((ABOUT, PART))):
        raise FileError(
            f"{path} is not a fedcircuits model: expected the members {ABOUT}, {GRAPH} "
            f"and {VALUES}, found {', '.join(names[:5]) or 'none'}"
        )
    for info in members:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _damaged(path, f"{info.filename} is packed in an unknown way")
    unpacked = sum(info.file_size for info in members)
    if unpacked > LARGEST_RATIO * size + (1 << 20):
        raise _damaged(path, f"{size:,} bytes claim to unpack to {unpacked:,}")


def _object(path: Path, name: str, data: bytes) -> dict[str, object]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"{name} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise _damaged(path, f"{name} is not a JSON object")
    return content


def _check_digests(path: Path, about: dict[str, object], members: Mapping[str, bytes]) -> None:
    version, digests = about.get("format"), about.get("sha256")
    if version != FORMAT:
        raise FileError(
            f"{path} has format {version!r}, this version of fedcircuits reads format {FORMAT}: "
            "use the version that wrote it, or save the model anew"
        )
    for name in members:
        digest = hashlib.sha256(members[name]).hexdigest()
        if not isinstance(digests, dict) or digests.get(name) != digest:
            raise _damaged(path, f"{name} does not have the bytes that were written (SHA-256)")


def _damaged(path: Path, problem: str) -> FileError:
    return FileError(f"{path} is damaged: {problem}; get the file again, or save the model anew")
