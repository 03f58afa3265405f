"""The prediction task, classes or a number, where the kind of the target does not determine it.

Kinds of columns are inferred from their values: labels 0, 1 and 2 look like counts, and like reals
if one of them is missing. In a target, a few whole numbers are usually labels ("auto"), or the user
says that they are ("classes"). Only holders know which numbers there are, so before the hello:

    agree/classes   party → coordinator: the distinct numbers of its target; not if the task is
                    "auto" and they are many or not whole
    agree/task      coordinator → party: the classes of all parties, or that it is a number

The coordinator and all parties learn which classes there are, as for a category.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, broadcast, gather, receive, send
from fedcircuits.federation.messages import FiniteVector, Message, require
from fedcircuits.tables.schema import Kind
from fedcircuits.tables.table import Table

TargetTask: TypeAlias = Literal["given", "number", "classes", "auto"]
FEW = 20  # different whole numbers that are taken as classes


class OwnClasses(Message, frozen=True):
    """The different numbers of a party's target; none if it lacks the target."""

    tag: ClassVar[str] = "agree/classes"
    reveals: ClassVar[str] = "the distinct values of its target, if they are few whole numbers"

    values: FiniteVector | None  # rising; None: they are not taken as classes


class AgreedClasses(Message, frozen=True):
    """The classes of all parties; None: the target is a number."""

    tag: ClassVar[str] = "agree/task"
    reveals: ClassVar[str] = "the classes of the target, or that the target is numeric"

    values: FiniteVector | None  # rising


def with_task(party: Party, target: str, task: TargetTask) -> Flow[Party]:
    """At a party: itself, with its target as the classes of all parties or as a number.

    ``task`` is what the user says: "given" where kinds of columns say it.
    """
    holds = target in party.table.schema
    if task == "given":
        return party
    if task == "number":
        return _retyped(party, target, "real") if holds else party
    values = _distinct(party.table, target) if holds else np.zeros(0)
    reveals = OwnClasses.reveals if task == "auto" else "the distinct values of its target"
    message = OwnClasses(values if task == "classes" or _are_few(values) else None)
    yield from send(COORDINATOR, message, reveals=reveals)
    classes = (yield from receive(COORDINATOR, AgreedClasses)).values
    if classes is None:
        return party
    known = message.values is not None and bool(np.isin(values, classes).all())
    sound = known and len(classes) > 0 and bool((classes[1:] > classes[:-1]).all())
    require(sound, COORDINATOR, AgreedClasses, "values", "expected rising numbers, its own too")
    return _retyped(party, target, "category", np.asarray(classes, np.float64)) if holds else party


def agree_on_task(members: Sequence[str], task: TargetTask) -> Flow[None]:
    """At the coordinator: the classes that all parties have, for all of them."""
    if task in ("given", "number"):
        return
    classes_of = yield from gather(members, OwnClasses)
    for party, classes in classes_of.items():
        values = np.zeros(0) if classes.values is None else classes.values
        rising = bool((values[1:] > values[:-1]).all())
        fits = rising and (task == "classes" or _are_few(values))
        require(fits, party, OwnClasses, "values", f"expected rising numbers, {FEW} whole ones")
    lists = [classes.values for classes in classes_of.values() if classes.values is not None]
    every = np.unique(np.concatenate(lists)) if len(lists) == len(classes_of) else np.zeros(0)
    sound = len(every) > 0 and (task == "classes" or _are_few(every))
    yield from broadcast(members, AgreedClasses(every if sound else None))


def _are_few(values: Array) -> bool:
    return len(values) <= FEW and bool((values % 1 == 0).all())


def _distinct(table: Table, name: str) -> Array:
    numbers = Table.of(table.select([name]), kinds={name: "real"})
    distinct = np.unique(numbers.values)
    return distinct[np.isfinite(distinct)]


def _retyped(party: Party, name: str, kind: Kind, classes: Array | None = None) -> Party:
    if classes is None:
        return replace(party, table=Table.of(party.table, kinds={name: kind}))
    labels = [int(v) if v % 1 == 0 else float(v) for v in classes.tolist()]
    table = Table.of(party.table, kinds={name: kind}, categories={name: labels})
    return replace(party, table=table)
