"""What is in the hands of whoever trains and asks: everything it keeps, and everything it heard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import fedcircuits as fc
from fedcircuits.engines.sites.station import CALLER
from fedcircuits.federation.described import DescribedTable
from tests.engines.sites.local import LocalSites

ENGINES = ("engine", "_engine")  # the way to the sites, which tests have in the same process


class Listening:
    """The bodies of all frames that reach the caller, opened as it opens them."""

    def __init__(self, sites: LocalSites) -> None:
        self.frames: list[bytes] = []
        courier = sites.couriers[CALLER]
        hear = courier.hear

        def heard(site: str, head: Any, body: Any) -> None:
            self.frames.append(repr(head).encode() + bytes(body))
            hear(site, head, body)

        courier.hear = heard

    @property
    def bytes(self) -> bytes:
        return b"\0".join(self.frames)


def kept(thing: object, seen: set[int] | None = None) -> Iterator[object]:
    """A thing and all that can be reached from it, but for the engine."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type):
        return
    seen.add(id(thing))
    yield thing
    parts: list[object] = []
    if isinstance(thing, Mapping):
        parts = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts = list(thing)
    elif isinstance(thing, DescribedTable):
        parts = [thing.schema, thing.row_ids, thing.chosen]
    elif dataclasses.is_dataclass(thing):
        parts = [getattr(thing, f.name, None) for f in dataclasses.fields(thing)]
    if hasattr(thing, "__dict__"):
        parts += [value for name, value in vars(thing).items() if name not in ENGINES]
    for part in parts:
        yield from kept(part, seen)


def values_of(federation: fc.Federation) -> np.ndarray[Any, np.dtype[np.float64]]:
    """All real numbers in the tables of its parties."""
    columns = [
        party.table.values[:, i]
        for party in federation
        for i, variable in enumerate(party.table.schema)
        if variable.kind == "real"
    ]
    return np.unique(np.concatenate(columns)) if columns else np.zeros(0)


def found_in_hands(model: object, heard: Listening, local: fc.Federation) -> list[str]:
    """Which values, tables or row ids of parties the caller has."""
    values, found = values_of(local), []
    for thing in kept(model):
        if isinstance(thing, fc.Table) and not isinstance(thing, DescribedTable):
            found.append("a table")
        if isinstance(thing, np.ndarray) and thing.dtype.kind == "f":
            found += [f"{v}" for v in np.intersect1d(thing, values)]
    told = heard.bytes
    found += [f"{v} was heard" for v in values.tolist() if np.float64(v).tobytes() in told]
    for party in local:
        ids = [] if party.table.row_ids is None else party.table.row_ids.tolist()
        found += [f"{i} was heard" for i in ids if isinstance(i, str) and i.encode() in told]
    return found
