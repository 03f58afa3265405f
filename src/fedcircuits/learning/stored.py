"""What a file says of a predictor: JSON and arrays of unknown origin, checked when they are read.

``Fields`` are the fields of one JSON object, ``StoredArrays`` the arrays of one node. Both know
whose they are ("the encoder of north"). What they answer is of the kind, range or shape that was
asked for; anything else is a FileError that names the thing, what was expected and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.tables.schema import Schema, Variable

T = TypeVar("T", bound=str | None)
AnyArray = npt.NDArray[np.generic]
LARGEST = 2**63 - 1


@contextmanager
def read_from(path: object) -> Iterator[None]:
    """Whatever is found to be wrong inside is wrong with this file."""
    try:
        yield
    except FedcircuitsError as error:
        raise FileError(
            f"{path} is damaged: {error}; get the file again, or save the model anew"
        ) from error


@dataclass(frozen=True, slots=True)
class Fields:
    """``Fields("the encoder of north", {"width": 8}).whole("width", least=1)``."""

    what: str
    values: Mapping[str, object]

    @classmethod
    def of(cls, what: str, found: object) -> Fields:
        if not isinstance(found, dict):
            raise FileError(f"{what} must be an object, got {shortened(found)}")
        return cls(what, found)

    def __getitem__(self, name: str) -> object:
        if name not in self.values:
            raise FileError(f"{self.what} has no field {name!r}")
        return self.values[name]

    def text(self, name: str) -> str:
        found = self[name]
        return found if isinstance(found, str) else self._refuse(name, "text")

    def flag(self, name: str) -> bool:
        found = self[name]
        return found if isinstance(found, bool) else self._refuse(name, "true or false")

    def word(self, name: str, known: Sequence[T]) -> T:
        found = self[name]
        for word in known:
            if found == word and type(found) is type(word):
                return word
        return self._refuse(name, f"one of {', '.join(map(repr, known))}")

    def whole(self, name: str, least: int = 0, most: int = LARGEST) -> int:
        found = self[name]
        if isinstance(found, int) and not isinstance(found, bool) and least <= found <= most:
            return found
        return self._refuse(name, f"a whole number from {least}")

    def number(
        self, name: str, least: float = -math.inf, most: float = math.inf, above: float = -math.inf
    ) -> float:
        """A finite number from ``least`` to ``most``, more than ``above``."""
        found = _finite(self[name])
        if found is not None and least <= found <= most and found > above:
            return found
        return self._refuse(name, f"a number {_range(least, most, above)}".strip())

    def share(self, name: str) -> float:
        found = _finite(self[name])
        if found is not None and 0 <= found < 1:
            return found
        return self._refuse(name, "a share from 0 to below 1")

    def pair(self, name: str) -> tuple[float, float]:
        first, second = (_finite(v) for v in self.rows(name, 2))
        if first is not None and second is not None:
            return first, second
        return self._refuse(name, "two numbers")

    def rows(self, name: str, length: int | None = None) -> list[object]:
        found = self[name]
        if isinstance(found, list) and length in (None, len(found)):
            return found
        return self._refuse(name, "a list" if length is None else f"a list of {length}")

    def texts(self, name: str) -> list[str]:
        found = [v for v in self.rows(name) if isinstance(v, str)]
        return found if len(found) == len(self.rows(name)) else self._refuse(name, "texts")

    def none(self, name: str) -> bool:
        return self[name] is None

    def inner(self, name: str, what: str | None = None) -> Fields:
        return Fields.of(what or f"{name!r} of {self.what}", self[name])

    def schema(self, name: str) -> Schema:
        return Schema.from_json(self[name])

    def variable(self, name: str) -> Variable:
        found = self.schema(name).variables
        return found[0] if len(found) == 1 else self._refuse(name, "one variable")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise FileError(f"{self.what}: {name!r} must be {expected}, got {shortened(self[name])}")


def _range(least: float, most: float, above: float) -> str:
    words = {f"from {least:g}": least, f"above {above:g}": above, f"to {most:g}": most}
    return " ".join(word for word, value in words.items() if math.isfinite(value))


def _finite(found: object) -> float | None:
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if abs(found) < 1e308 else None


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
        found = self.left.pop(name)
        fits = len(found.shape) == len(shape) and all(
            e is None or f == e for f, e in zip(found.shape, shape, strict=True)
        )
        if found.dtype != dtype or not fits:
            expected = str(shape).replace("None", "any")
            raise FileError(
                f"{self.what}: expected {name!r} of the shape {expected} and {dtype}, got "
                f"{found.shape} and {found.dtype}"
            )
        if finite and not np.isfinite(found.astype(np.float64)).all():
            raise FileError(f"{self.what}: {name!r} must be finite, got NaN or infinite values")
        return found

    def end(self) -> None:
        for name in self.left:
            raise FileError(f"{self.what} has an array {name!r}, which is none of its own")


def overall_of(arrays: StoredArrays, target: Variable) -> Array:
    """ "overall" (outputs,): shares of the target's classes, or the mean of a number."""
    found = arrays.take("overall", (target.size or 1,), "float64").astype(np.float64)
    if target.size and ((found < 0).any() or abs(found.sum() - 1) > 1e-6):
        raise FileError(f"overall shares of {target.name!r} must add up to 1, got {found.tolist()}")
    return found


def plain(value: object) -> object:
    """A setting as JSON has it, whatever library its number comes from."""
    if isinstance(value, np.generic):
        return value.item()
    return list(map(plain, value)) if isinstance(value, tuple | list) else value
