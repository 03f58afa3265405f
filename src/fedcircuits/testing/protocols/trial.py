"""A protocol under test: its first run in memory, with which all other runs are compared.

Values must be equal to the last bit; ``difference`` says where they first differ. Arrays are
compared by type, shape and bytes, numbers likewise (so that NaN equals NaN and −0 is not 0),
everything else by its parts: elements, fields, or the state that a copy would have, so that
anything that can be sent to another process can be compared. Cached values (``cached_property``,
fields excluded from comparison) are ignored, and so is the state of random generators.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Set
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import torch

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Envelope, Program, Record, recording

SOURCES = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
ARRAYS = (np.ndarray, np.generic, float, complex)
FRAMES = (pd.DataFrame, pd.Series, pd.Index)


def difference(expected: object, result: object) -> str:
    """Where they first differ, such as ``.weights[2]: other bytes``; empty if they are equal."""
    return _difference(expected, result, "", {})


Seen = dict[tuple[int, int], tuple[object, object]]  # pairs by their ids, held so that these stay


def _difference(a: object, b: object, at: str, seen: Seen) -> str:
    if a is b or isinstance(a, SOURCES) or (id(a), id(b)) in seen:
        return ""
    if type(a) is not type(b):
        return f"{at}: {type(b).__name__} instead of {type(a).__name__}"
    seen[id(a), id(b)] = a, b  # parts may lead back to the whole
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        a, b = a.detach().numpy(), b.detach().numpy()
    if isinstance(a, ARRAYS):
        return _of_arrays(np.asarray(a), np.asarray(b), at)
    if isinstance(a, FRAMES):
        return "" if a.equals(b) else f"{at}: other values"
    parts, other = _parts(a), _parts(b)
    if parts is None or other is None:
        return "" if a == b else f"{at}: {_short(b)} instead of {_short(a)}"
    for mine, theirs in zip_longest(parts, other):
        if mine is None or theirs is None or mine[0] != theirs[0]:
            return f"{at}: other or more parts ({_name(mine)}, {_name(theirs)})"
        if inner := _difference(mine[1], theirs[1], at + mine[0], seen):
            return inner
    return ""


def _of_arrays(a: np.ndarray, b: np.ndarray, at: str) -> str:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{at}: {b.dtype} {b.shape} instead of {a.dtype} {a.shape}"
    if a.dtype.names is not None:  # bytes between fields mean nothing
        each = (_of_arrays(a[n], b[n], f"{at}[{n!r}]") for n in a.dtype.names)
        return next(filter(None, each), "")
    if a.dtype.hasobject:
        return _difference(a.tolist(), b.tolist(), at, {})
    return "" if a.tobytes() == b.tobytes() else f"{at}: other bytes"


Part = tuple[str, object]  # as it is written behind the whole


def _parts(value: object) -> Iterator[Part] | None:
    """The parts in a canonical order; None if there are none."""
    if isinstance(value, Mapping):
        return iter([(f"[{k!r}]", value[k]) for k in sorted(value, key=repr)])
    if isinstance(value, list | tuple):
        return iter([(f"[{i}]", v) for i, v in enumerate(value)])
    if isinstance(value, Set | str | bytes | int | type) or value is None:
        return None
    if is_dataclass(value) and type(value).__reduce__ is object.__reduce__:
        return iter([(f".{f.name}", getattr(value, f.name)) for f in fields(value) if f.compare])
    return _state(value)


def _state(value: object) -> Iterator[Part] | None:
    try:
        reduced = value.__reduce_ex__(4)
    except TypeError:  # functions, modules, handles
        return None
    if isinstance(reduced, str):
        return None
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    if isinstance(state, Mapping):
        attributes = [item for kind in type(value).__mro__ for item in vars(kind).items()]
        kept = {name for name, attribute in attributes if isinstance(attribute, cached_property)}
        state = {f".{name}": v for name, v in state.items() if name not in kept}
    parts: list[Part] = [("()", make), ("()", arguments)]
    parts += sorted(state.items()) if isinstance(state, dict) else [("", state)]
    return iter([*parts, ("[]", list(items or ())), ("[]", list(pairs or ()))])


def _name(part: Part | None) -> str:
    return "none" if part is None else part[0]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"


T = TypeVar("T")
Programs = Mapping[str, Program[T]]


@dataclass(frozen=True, slots=True)
class TrialSettings(Generic[T]):
    equal: Callable[[T, T], bool] | None
    silent: frozenset[str]
    unread: frozenset[str]
    goes_on: bool
    run: Engine


@dataclass(frozen=True, slots=True)
class Trial(Generic[T]):
    fresh: Callable[[], Programs[T]]  # programs that nobody has run
    settings: TrialSettings[T]
    results: Mapping[str, T]
    records: Mapping[str, Record]
    outcome: Outcome[Any]
    spent: tuple[str, ...]  # global sources of randomness that were used
    changed: str  # the first argument of a program that is another than before

    @classmethod
    def of(cls, fresh: Callable[[], Programs[T]], settings: TrialSettings[T]) -> Trial[T]:
        programs = fresh()
        before, sources = _copied(programs), _sources()
        results, records, outcome = recorded(programs)
        spent = [n for n, state in _sources().items() if difference(sources[n], state)]
        changed = before if isinstance(before, str) else _changed(before, programs)
        return cls(fresh, settings, results, records, outcome, tuple(spent), changed)

    def same(self, results: Mapping[str, T], run: str) -> Iterator[str]:
        """Differences in the results of another run."""
        for name, expected in self.results.items():
            if name not in results:
                yield f"{name} has no result {run}"
            elif self.settings.equal is not None:
                if not self.settings.equal(expected, results[name]):
                    yield f"the result of {name} is another one {run}"
            elif where := difference(expected, results[name]):
                yield f"the result of {name} is another one {run}: result{where}"

    def sends(self, sent: Mapping[str, list[Envelope]], run: str) -> Iterator[str]:
        """Differences in the messages of another run, in the order of the first."""
        left = {name: list(reversed(sends)) for name, sends in sent.items()}
        for name, message, _ in self.messages():
            if name in left and (not left[name] or left[name].pop() != message):
                what = f"{message.tag!r} to {message.party}"
                yield f"{name} sends other bytes {run}, or nothing, as {what}"
        for name, more in left.items():
            if more:
                yield f"{name} sends {len(more)} more messages {run}"

    def messages(self) -> Iterator[tuple[str, Envelope, str]]:
        """Sender, message, and what it is said to reveal, in the order of sending."""
        left = {name: iter(record.sent) for name, record in self.records.items()}
        for entry in self.outcome.ledger:
            yield entry.sender, next(left[entry.sender]), entry.reveals


def recorded(
    programs: Programs[T], kept: Kept | None = None
) -> tuple[dict[str, T], dict[str, Record], Outcome[Any]]:
    """Results and records of all parties of a run in memory, or a ProtocolError."""
    outcome = memory.run({n: Program(recording, {"program": p}) for n, p in programs.items()}, kept)
    require_all(outcome)
    results = {name: result for name, (result, _) in outcome.results.items()}
    return results, {name: record for name, (_, record) in outcome.results.items()}, outcome


def require_all(outcome: Outcome[Any]) -> None:
    if outcome.lost:
        raise ProtocolError(f"lost parties: {'; '.join(map(str, outcome.lost.values()))}")


def _sources() -> dict[str, object]:
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002
    return {"random": random.getstate(), "numpy.random": legacy, "torch": torch.get_rng_state()}


def _copied(programs: Programs[T]) -> Programs[T] | str:
    try:
        return deepcopy(programs)
    except Exception as error:
        return f"they cannot be copied to be compared ({type(error).__name__}: {error})"


def _changed(before: Programs[T], after: Programs[T]) -> str:
    for name, program in after.items():
        if where := difference(before[name].arguments, program.arguments):
            return f"{name} has changed an argument: arguments{where}"
    return ""
