"""Events and evidence: what is asked and what is known, from text or from Python values.

An event is a union of disjoint boxes (``regions``). Evidence is what is known: variables fixed to
a value, and an event over the others. Text is read by ``grammar``; in Python evidence may also be
a mapping of names to

    a value              the variable has it
    (low, high)          between the two, ends included; None is an open end
    {a, b} or [a, b]     one of these
    None or NaN          not known

An exact value of a real variable has probability zero. It can be known but not asked for, and known
only for certain: as a separate condition, not under ``or`` or ``not``. Further conditions on a
fixed variable are checked against its value and dropped. A variable that can have only one value is
fixed, however that was expressed. Evidence that nothing can satisfy is an error; an event that
nothing can satisfy, such as ``n = 2.5`` of a count, has no boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.conditions import (
    Condition,
    between,
    compare,
    interval_around,
    is_missing,
    members,
)
from fedcircuits.circuits.questions.grammar import And, Not, Or, Tree, read, read_question
from fedcircuits.circuits.questions.regions import (
    EVERYTHING,
    NOTHING,
    Event,
    complement,
    conjunction,
    disjunction,
    single_value,
    whole,
)
from fedcircuits.circuits.questions.scanner import located
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable


@dataclass(frozen=True, slots=True)
class Evidence:
    values: Mapping[str, float] = field(default_factory=dict)  # numbers of the circuit
    event: Event = EVERYTHING  # over other variables than those of values

    def row(self, schema: Schema) -> Array:
        """(1, variables) with NaN for what no value is known of."""
        return np.array([[self.values.get(name, np.nan) for name in schema.names]])


def parse_event(text: str, schema: Schema) -> Event:
    """``parse_event("age > 40 and sex = female", schema)``."""
    return _event(read(text, schema), _Reading(schema, text, None))


def parse_evidence(known: str | Mapping[str, object] | None, schema: Schema) -> Evidence:
    """``parse_evidence("age = 40, smoker", schema)`` or ``parse_evidence({"age": 40}, schema)``."""
    if known is None or (isinstance(known, str) and not known.strip()):
        return Evidence()
    if isinstance(known, str):
        return _evidence(read(known, schema), schema, known)
    if not isinstance(known, Mapping):
        raise QueryError(
            f"evidence must be text or a mapping of names to values, got {type(known).__name__}"
        )
    conditions = [c for name, value in known.items() for c in _known(schema[name], value)]
    return _evidence(And(tuple(conditions)), schema, None)


def parse_question(text: str, schema: Schema) -> tuple[Event, Evidence]:
    """``parse_question("P(risk = high | age > 60)", schema)``; P( ) may be left out."""
    asked, given = read_question(text, schema)
    event = _event(asked, _Reading(schema, text, None))
    return event, Evidence() if given is None else _evidence(given, schema, text)


@dataclass(frozen=True, slots=True)
class _Reading:
    schema: Schema
    text: str | None  # None where there is no text to point into
    fixed: Mapping[str, float] | None  # None where nothing can be fixed: in an event


def _event(tree: Tree, reading: _Reading, negated: bool = False) -> Event:
    if isinstance(tree, Not):
        return _event(tree.part, reading, not negated)
    if isinstance(tree, Condition):
        return _of_condition(tree, reading, negated)
    events = [_event(part, reading, negated) for part in tree.parts]
    if isinstance(tree, And) != negated:
        return conjunction(*events)
    return disjunction(events, reading.schema)


def _of_condition(condition: Condition, reading: _Reading, negated: bool) -> Event:
    variable = condition.variable
    if reading.fixed and variable.name in reading.fixed:
        holds = condition.holds(reading.fixed[variable.name])
        return EVERYTHING if holds != negated else NOTHING
    if condition.exact:
        raise located(_exact(condition, reading), reading.text, condition.position)
    region = condition.region()
    if negated:
        region = complement(region, variable)
    if region == whole(variable):
        return EVERYTHING
    return ({variable.name: region},) if region else NOTHING


def _exact(condition: Condition, reading: _Reading) -> str:
    name = condition.variable.name
    lower, upper = interval_around(condition.numbers[0])
    instead = f"give an interval such as {lower} < {name} < {upper}"
    if reading.fixed is None:
        return f"an exact value of {name!r}, which is real, has probability zero: {instead}"
    return (
        f"{name!r} is real: evidence gives it one exact value, not several and not under "
        f"'or' or 'not'; {instead}"
    )


# ---------------------------------------------------------------------- evidence


def _evidence(tree: Tree, schema: Schema, text: str | None) -> Evidence:
    parts = list(_conjuncts(tree))
    fixed: dict[str, float] = {}
    for part, negated in parts:
        if isinstance(part, Condition) and part.exact and not negated and len(part.numbers) == 1:
            fixed.setdefault(part.variable.name, part.numbers[0])
    event, reading = EVERYTHING, _Reading(schema, text, fixed)
    for part, negated in parts:
        event = conjunction(event, _event(part, reading, negated))
        if not event:
            names = ", ".join(
                repr(n) for n in dict.fromkeys(c.variable.name for c in _conditions(part))
            )
            message = f"the evidence contradicts itself: no value of {names} satisfies all of it"
            raise located(message, text, next(_conditions(part)).position)
    return _settled(fixed, event, schema)


def _conjuncts(tree: Tree, negated: bool = False) -> Iterator[tuple[Tree, bool]]:
    """The parts that must all hold, each with whether it is negated."""
    if isinstance(tree, Not):
        yield from _conjuncts(tree.part, not negated)
    elif isinstance(tree, Or if negated else And):
        for part in tree.parts:
            yield from _conjuncts(part, negated)
    else:
        yield tree, negated


def _conditions(tree: Tree) -> Iterator[Condition]:
    if isinstance(tree, Condition):
        yield tree
    else:
        for part in (tree.part,) if isinstance(tree, Not) else tree.parts:
            yield from _conditions(part)


def _settled(fixed: Mapping[str, float], event: Event, schema: Schema) -> Evidence:
    """Variables that have the same single value in every box become fixed."""
    values = dict(fixed)
    for name, region in event[0].items():
        value = single_value(region, schema[name])
        if value is not None and all(b.get(name) == region for b in event):
            values[name] = value
    boxes = tuple({n: r for n, r in box.items() if n not in values} for box in event)
    return Evidence(values, boxes)


def _known(variable: Variable, value: object) -> tuple[Condition, ...]:
    """What an entry of a mapping says."""
    if isinstance(value, tuple):
        return _interval(variable, value)
    if isinstance(value, set | frozenset | list):
        if not value:
            raise QueryError(f"{variable.name!r}: expected at least one value, got {value!r}")
        return (members(variable, value),)
    return () if is_missing(value) else (members(variable, [value]),)


def _interval(variable: Variable, ends: tuple[object, ...]) -> tuple[Condition, ...]:
    if len(ends) != 2:
        raise QueryError(
            f"{variable.name!r}: expected an interval (low, high), got {len(ends)} values; "
            "alternatives are a set"
        )
    low = None if is_missing(ends[0]) or ends[0] == -math.inf else ends[0]
    high = None if is_missing(ends[1]) or ends[1] == math.inf else ends[1]
    if low is not None and high is not None:
        return between(variable, low, high)
    above = () if low is None else (compare(variable, ">=", low),)
    return above if high is None else (*above, compare(variable, "<=", high))
