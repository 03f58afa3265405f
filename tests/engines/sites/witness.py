"""What a caller of connected sites has in its hands: all that it received, all that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.engines.sites.local import LocalSites

AnyArray = npt.NDArray[np.generic]
LONG = 16  # bytes: fewer are found anywhere


class Overheard:
    """Every frame that the caller's courier brings, as it is opened."""

    def __init__(self, sites: LocalSites) -> None:
        self.frames: list[tuple[str, bytes]] = []
        courier = sites.couriers["coordinator"]
        hear = courier.hear

        def heard(site: str, head: list[object], body: Any) -> None:
            self.frames.append((str(head[0]), bytes(body)))
            hear(site, head, body)

        courier.hear = heard

    @property
    def bytes(self) -> bytes:
        return b"\0".join(body for _, body in self.frames)


def within(value: object, seen: set[int] | None = None) -> Iterator[object]:
    """A value and all that it leads to."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type | str | int | float | bool | None):
        return
    seen.add(id(value))
    yield value
    parts: list[object] = []
    if isinstance(value, Mapping):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif is_dataclass(value):
        parts = [getattr(value, f.name, None) for f in fields(value) if f.name != "values"]
    elif type(value).__module__.startswith("fedcircuits.estimators"):
        parts = list(vars(value).values())
    for part in parts:
        yield from within(part, seen)


def arrays_in(value: object) -> list[AnyArray]:
    return [v for v in within(value) if isinstance(v, np.ndarray) and v.nbytes >= LONG]


def found_in(data: bytes, secrets: list[AnyArray]) -> list[AnyArray]:
    """Those of which some piece of sixteen bytes stands in the data."""
    found = []
    for secret in secrets:
        raw = np.ascontiguousarray(secret).tobytes()
        pieces = {raw[i : i + LONG] for i in range(0, len(raw) - LONG + 1, LONG)}
        if any(len(set(piece)) > 4 and piece in data for piece in pieces):
            found.append(secret)
    return found
