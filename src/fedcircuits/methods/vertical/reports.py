"""What whoever asked for a mixture or for clusters is told of them, when training has ended.

A server that has added up knows how the run has ended. Where parties add up among themselves, the
first of them tells:

    result/mixture   first party → coordinator: weights of components (K,), log-likelihoods per row,
                     whether EM has settled, which components began anew, how many rows there are,
                     the columns of all parties
    result/means     first party → coordinator: the sum of distances, rounds, how many rows there
                     are, columns of all parties

And with or without a server, of a mixture:

    result/block     party → coordinator: how many numbers it has learned for one component, and
                     which components have collapsed in which of its columns

Nothing of rows or parameters crosses here: a party keeps what it has learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcircuits.federation.flow import Flow, receive
from fedcircuits.federation.messages import (
    Count,
    FiniteVector,
    Message,
    RealVector,
    blaming,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.methods.vertical.block import joint_of
from fedcircuits.methods.vertical.rows import check_holders, holders
from fedcircuits.tables.schema import Schema, Variable

Columns = dict[str, tuple[Variable, ...]]  # by party
TWO_PARTIES = (
    "there are two parties with columns: each can work out the other's terms of every row from the "
    "result, and nearly its values where these are few columns"
)


class MixtureOutcome(Message, frozen=True):
    """How EM has ended."""

    tag: ClassVar[str] = "result/mixture"
    reveals: ClassVar[str] = (
        "weights of components, log-likelihoods, how many rows there are, columns of all parties"
    )

    weights: FiniteVector  # (components,)
    bounds: RealVector  # (iterations,): log-likelihood per row before every update
    bound: float  # the same at the end
    settled: bool
    restarts: tuple[tuple[Count, Count], ...]  # components that have begun anew, and when
    rows: Count  # that count
    columns: Columns
    notes: tuple[str, ...]


class MeansOutcome(Message, frozen=True):
    """How k-means has ended."""

    tag: ClassVar[str] = "result/means"
    reveals: ClassVar[str] = "the sum of distances, how many rows there are, columns of all parties"

    inertia: float
    rounds: Count
    rows: Count  # that count
    columns: Columns
    notes: tuple[str, ...]


class BlockReport(Message, frozen=True):
    """What a party says of its block."""

    tag: ClassVar[str] = "result/block"
    reveals: ClassVar[str] = "how many numbers it has learned, and where components collapsed"

    numbers: Count  # of one component
    collapsed: dict[str, list[Count]]  # by column, components without any spread in it


@dataclass(frozen=True, slots=True, eq=False)
class TrainedMixture:
    """What whoever asked for a mixture has at the end."""

    outcome: MixtureOutcome
    joint: Joint
    columns: Mapping[str, Schema]  # by party, of its block
    numbers: int  # that all parties have learned for one component
    sound: bool  # whether no component has collapsed
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TrainedMeans:
    """What whoever asked for clusters has at the end."""

    outcome: MeansOutcome
    columns: Mapping[str, Schema]  # by party, of its centres
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------------- at the coordinator


def mixture_told(leader: str, components: int, rounds: int) -> Flow[MixtureOutcome]:
    """What the first party tells, of so many components and rounds at most."""
    outcome = yield from receive(leader, MixtureOutcome)
    require_shape(outcome.weights, (components,), leader, MixtureOutcome, "weights")
    shares = bool((outcome.weights >= 0).all()) and abs(outcome.weights.sum() - 1) < 1e-6
    known = all(k < components and t <= rounds for k, t in outcome.restarts)
    for field, holds, problem in (
        ("weights", shares, "expected shares that add up to 1"),
        ("bounds", 0 < len(outcome.bounds) <= rounds, f"expected 1 to {rounds} log-likelihoods"),
        ("bounds", bool((outcome.bounds < np.inf).all()), "expected numbers"),
        ("bound", outcome.bound < np.inf, "expected a number"),
        ("rows", outcome.rows > 0, "expected at least 1"),
        ("restarts", known, f"expected components below {components} and rounds to {rounds}"),
    ):
        require(holds, leader, MixtureOutcome, field, problem)
    return outcome


def means_told(leader: str, rounds: int) -> Flow[MeansOutcome]:
    outcome = yield from receive(leader, MeansOutcome)
    fits = 0 < outcome.rounds <= rounds
    require(fits, leader, MeansOutcome, "rounds", f"expected 1 to {rounds}")
    require(abs(outcome.inertia) < np.inf, leader, MeansOutcome, "inertia", "expected a number")
    require(outcome.rows > 0, leader, MeansOutcome, "rows", "expected at least 1")
    return outcome


def schemas_of(
    outcome: MixtureOutcome | MeansOutcome, parties: Sequence[str], leader: str
) -> dict[str, Schema]:
    """By party its columns, each with one holder."""
    known = outcome.columns.keys() == set(parties)
    require(known, leader, outcome.tag, "columns", f"expected those of {', '.join(parties)}")
    with blaming(leader, outcome.tag, "columns"):
        schemas = {p: Schema(outcome.columns[p]) for p in parties}
        check_holders(schemas)
    return schemas


def trained_mixture(
    outcome: MixtureOutcome,
    schemas: Mapping[str, Schema],
    blocks: Mapping[str, BlockReport],
    hubs: Sequence[Neighbourhood],
    reg_covar: float,
) -> TrainedMixture:
    """From how EM has ended, and what every party says of its block."""
    held = holders(schemas, hubs)
    for party, block in blocks.items():
        schema = held.get(party, Schema(()))
        fits = all(
            name in schema and all(k < len(outcome.weights) for k in which)
            for name, which in block.collapsed.items()
        )
        require(fits, party, BlockReport, "collapsed", "expected its columns, and components")
    notes = [*outcome.notes, *two_parties(held), *_restarted(outcome.restarts)]
    notes += [n for p, b in blocks.items() for n in _collapsed(p, b.collapsed, reg_covar)]
    joint = joint_of(np.array(outcome.weights, np.float64), schemas, held)
    numbers = sum(block.numbers for block in blocks.values())
    sound = not any(block.collapsed for block in blocks.values())
    return TrainedMixture(outcome, joint, held, numbers, sound, tuple(notes))


def two_parties(held: Mapping[str, Schema]) -> list[str]:
    return [TWO_PARTIES] if len(held) == 2 else []


def _collapsed(me: str, columns: Mapping[str, Sequence[int]], reg_covar: float) -> list[str]:
    return [
        f"{_named(which)} collapsed at {me}: {column!r} varies no more there than reg_covar="
        f"{reg_covar:g} says; raise reg_covar, or take fewer components"
        for column, which in columns.items()
    ]


def _named(which: Sequence[int]) -> str:
    if len(which) == 1:
        return f"component {which[0]} has"
    return f"components {', '.join(map(str, which[:5]))}{', …' if len(which) > 5 else ''} have"


def _restarted(restarts: Sequence[tuple[int, int]]) -> list[str]:
    which = ", ".join(f"component {k} after {t} iterations" for k, t in restarts[:5])
    which += ", …" if len(restarts) > 5 else ""
    return [f"without rows, and begun anew at the row of lowest density: {which}"] if which else []
