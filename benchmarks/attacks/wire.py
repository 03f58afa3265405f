"""What every role of a run had in its hands: the arguments it began with, and what it received.

``Tap`` is the memory engine with an ear at every role, behind its seals: what a role can read is
what an attacker in its place has. A role may also lie: what it sends is changed on its way out. It
works on this checkout and on the one before messages were records, where payloads were arrays and
dicts; nothing of the package is used but the shape of programs and effects.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fedcircuits.engines import memory
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.flow import Program, Recv, Send

try:
    from fedcircuits.federation.messages import encode_fields, fields_of
except ImportError:  # before messages were records
    from fedcircuits.federation.wire import decode

    encode_fields = fields_of = None  # type: ignore[assignment]

Change = Callable[[str, str, Any], Any]  # sender, tag and fields to fields


@dataclass
class Role:
    """One party, coordinator or asker of a run."""

    arguments: Mapping[str, object]
    received: list[tuple[str, str, Any]] = field(default_factory=list)  # sender, tag, fields
    sent: list[tuple[str, str, Any]] = field(default_factory=list)  # receiver, tag, fields

    def heard(self, phase: str = "") -> list[Any]:
        return [data for _, tag, data in self.received if tag.startswith(phase)]

    def arrays(self, phase: str = "") -> list[Any]:
        """All arrays that it received under tags that begin so."""
        return [a for a in walked(self.heard(phase)) if isinstance(a, np.ndarray)]

    def keys(self) -> list[bytes]:
        """Whatever could be a key: bytes of its arguments, and of what it received and sent."""
        told = [data for _, _, data in [*self.received, *self.sent]]
        found = [v for v in walked([self.arguments, told]) if isinstance(v, bytes)]
        return list(dict.fromkeys(v for v in found if 16 <= len(v) <= 64))

    def joined(self, others: Iterable["Role"]) -> "Role":
        """What this role and others hold together."""
        every = [self, *others]
        whole = Role({str(i): role.arguments for i, role in enumerate(every)})
        for role in every:
            whole.received += role.received
            whole.sent += role.sent
        return whole


class Tap:
    """``fit(federation, engine=Tap())``; every run is in ``runs``, by role."""

    def __init__(self, lies: Mapping[str, Change] | None = None) -> None:
        self.lies = dict(lies or {})  # by party
        self.runs: list[dict[str, Role]] = []
        self.results: list[Mapping[str, Any]] = []  # what roles ended with

    def __call__(self, programs: Mapping[str, Program[Any]], kept: Any = None) -> Any:
        run = {name: Role(_innermost(program).arguments) for name, program in programs.items()}
        self.runs.append(run)
        tapped = {
            name: _inside(program, run[name], self.lies.get(name))
            for name, program in programs.items()
        }
        outcome = memory.run(tapped, kept)
        self.results.append(outcome.results)
        return outcome

    def role(self, name: str) -> Role:
        """The role in all runs together."""
        return Role({}).joined(run[name] for run in self.runs if name in run)


def _innermost(program: Program[Any]) -> Program[Any]:
    inner = program.arguments.get("program")
    return _innermost(inner) if isinstance(inner, Program) else program


def _inside(program: Program[Any], role: Role, lie: Change | None) -> Program[Any]:
    """The program with an ear behind its seals, if it has any."""
    inner = program.arguments.get("program")
    if isinstance(inner, Program):
        covered = {**program.arguments, "program": _inside(inner, role, lie)}
        return Program(program.function, covered)
    return Program(tapped, {"program": program, "role": role, "lie": lie})


def tapped(program: Program[Any], role: Role, lie: Change | None) -> Iterator[Any]:
    """The same flow, that keeps what it receives and sends."""
    flow: Any = program.start()
    answer: Any = None
    trouble: PartyLostError | None = None
    while True:
        try:
            effect = flow.send(answer) if trouble is None else flow.throw(trouble)
        except StopIteration as stop:
            return stop.value
        answer = trouble = None
        if isinstance(effect, Send):
            effect = _said(effect, role, lie)
        try:
            answer = yield effect
        except PartyLostError as lost:
            trouble = lost
            continue
        if isinstance(effect, Recv):
            role.received.append((effect.sender, effect.tag, _read(answer)))


def _said(effect: Any, role: Role, lie: Change | None) -> Any:
    name = "data" if hasattr(effect, "data") else "payload"
    told = _read(getattr(effect, name))
    if lie is not None and (said := lie(effect.receiver, effect.tag, told)) is not told:
        told = said
        data = told if encode_fields is None else encode_fields(told)
        effect = replace(effect, **{name: data})
    role.sent.append((effect.receiver, effect.tag, told))
    return effect


def _read(data: Any) -> Any:
    if fields_of is None:
        return decode(data.data) if hasattr(data, "data") and is_dataclass(data) else data
    return fields_of(data)


def walked(value: Any, whole: Callable[[Any], bool] = lambda value: False) -> Iterator[Any]:
    """Everything within mappings, sequences, records and estimators but those taken whole."""
    if isinstance(value, Program):
        value = value.arguments
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif is_dataclass(value) and not isinstance(value, type) and not whole(value):
        inner = [getattr(value, one.name, None) for one in fields(value)]
    elif isinstance(value, BaseEstimator):
        inner = list(vars(value).values())
    else:
        yield value
        return
    for one in inner:
        yield from walked(one, whole)
