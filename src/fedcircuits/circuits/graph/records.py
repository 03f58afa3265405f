"""Records in files: the description of a model besides its graph, checked when it is read.

A part of a model is declared once, as a frozen struct or slotted dataclass with typed fields:

    class StoredForest(msgspec.Struct, frozen=True):
        parties: list[str]
        threshold: Probability

It is written as JSON by ``fields_of`` and read by ``record_of``, which refuses anything that would
not be written this way: a field that is missing, unknown, of another type, out of its range, or not
finite. Records may be nested. ``StoredArrays`` are the arrays of one node, each taken with the
shape and type that it must have. All raise FileError that names the thing, what was expected and
what was found.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from reprlib import repr as shortened
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.tables.schema import Schema, Variable

R = TypeVar("R")
AnyArray: TypeAlias = npt.NDArray[np.generic]
Json: TypeAlias = dict[str, Any]
SchemaJson: TypeAlias = list[Any]  # of ``Schema.to_json``
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
BelowOne: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1)]


@contextmanager
def read_from(path: object) -> Iterator[None]:
    """Whatever is found to be wrong inside is wrong with this file."""
    try:
        yield
    except FedcircuitsError as error:
        raise FileError(
            f"{path} is damaged: {error}; get the file again, or save the model anew"
        ) from error


# ---------------------------------------------------------------------- JSON


def fields_of(record: object) -> Json:
    """The fields as JSON has them, numbers of numpy as plain ones."""
    try:
        fields: Json = json.loads(msgspec.json.encode(record, enc_hook=_plain))
    except (TypeError, ValueError, OverflowError) as error:
        raise FileError(f"{type(record).__name__} cannot be written as JSON: {error}") from None
    return fields


def record_of(kind: type[R], content: object, what: str) -> R:
    """The record that JSON of unknown origin holds; ``what`` is its name in errors."""
    try:
        record = msgspec.convert(content, kind)  # before 0.21 huge integers are a SystemError
    except (msgspec.ValidationError, OverflowError, RecursionError, SystemError) as error:
        raise FileError(f"{what}: {_in_words(str(error), content)}") from None
    if problem := _difference(fields_of(record), content):
        raise FileError(f"{what}: {problem}")
    return record


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds {type(value).__name__}")


def _in_words(problem: str, content: object) -> str:
    """ "Expected `int` >= 1 - at `$.settings.width`" with the field in front, and what is there."""
    text, _, place = problem.partition(" - at `$")
    field = place.strip("`.")
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field):
        if isinstance(content, list) and number:
            content = content[int(number)]
        elif isinstance(content, dict):
            content = content.get(name)
    got = "" if "got" in text or not text.startswith("Expected") else f", got {shortened(content)}"
    return f"{field!r}: {text}{got}" if field else f"{text}{got}"


def _difference(written: object, read: object, at: str = "") -> str:
    """What in JSON is not as it would be written."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name in (*written, *read):
            if name not in read:
                return f"{at}it has no field {name!r}"
            if name not in written:
                return f"{at}it has a field {name!r}, which is unknown"
            if problem := _difference(written[name], read[name], f"{at}{name!r}: "):
                return problem
        return ""
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        pairs = zip(written, read, strict=True)
        return next((p for w, f in pairs if (p := _difference(w, f, at))), "")
    finite = not isinstance(read, float) or math.isfinite(read)
    same = written == read and isinstance(written, bool) == isinstance(read, bool)
    return "" if same and finite else f"{at}expected a finite value that could have been written"


def variable_of(schema: SchemaJson, what: str) -> Variable:
    """The variable of a schema that must have one alone."""
    variables = Schema.from_json(schema).variables
    if len(variables) != 1:
        raise FileError(f"{what} must be one variable, got {len(variables)}")
    return variables[0]


# ---------------------------------------------------------------------- arrays


class StoredArrays:
    """The arrays of one node, taken one by one; ``end`` refuses those that nobody took."""

    def __init__(self, what: str, arrays: Mapping[str, AnyArray]) -> None:
        self.what, self.left = what, dict(arrays)

    def take(
        self, name: str, shape: tuple[int | None, ...], dtype: str = "float32", finite: bool = True
    ) -> AnyArray:
        """``shape`` has None where any size will do."""
        if name not in self.left:
            raise FileError(f"{self.what} has no array {name!r}")
        array = self.left.pop(name)
        fits = len(array.shape) == len(shape) and all(
            e is None or n == e for n, e in zip(array.shape, shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            expected = str(shape).replace("None", "any")
            raise FileError(
                f"{self.what}: expected {name!r} of the shape {expected} and {dtype}, got "
                f"{array.shape} and {array.dtype}"
            )
        if finite and not np.isfinite(array.astype(np.float64)).all():
            raise FileError(f"{self.what}: {name!r} must be finite, got NaN or infinite values")
        return array

    def end(self) -> None:
        for name in self.left:
            raise FileError(f"{self.what} has an array {name!r}, which is none of its own")


def overall_of(arrays: StoredArrays, target: Variable) -> Array:
    """ "overall" (outputs,): shares of the target's classes, or the mean of a number."""
    overall = arrays.take("overall", (target.size or 1,), "float64").astype(np.float64)
    if target.size and ((overall < 0).any() or abs(overall.sum() - 1) > 1e-6):
        raise FileError(
            f"overall shares of {target.name!r} must add up to 1, got {overall.tolist()}"
        )
    return overall
