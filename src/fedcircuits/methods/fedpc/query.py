"""Questions to a federated circuit: leaves stay where they were learned.

Roles: clients hold leaves; the coordinator holds the graph above them and asks.

    query/evidence   coordinator → client: the values and regions of columns that its leaves read,
                     every different row once. A client whose leaves read none of them is not asked.
    query/values     client → coordinator: log-values of its leaves (leaves, rows); for moments also
                     mean and variance of the variable under each leaf that has it.
    query/choice     coordinator → client, to complete rows: which leaf completes which row.
    query/completed  client → coordinator: the values of its columns for these rows.

Clients learn the evidence on their own columns and, where rows are completed, which of their leaves
were chosen. The coordinator learns how likely each leaf finds the evidence. Only values at the
border between a leaf and the nodes above it cross.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.circuit import Leaf
from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.distribution import Index, Regions
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, receive, send
from fedcircuits.federation.messages import (
    Booleans,
    IntegerVector,
    Message,
    RealMatrix,
    Reals,
    blaming,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Joint, View
from fedcircuits.tables.schema import Schema

Flags = npt.NDArray[np.bool_]
QuestionKind = Literal["values", "moments", "best"]


@dataclass(frozen=True, eq=False)
class Question:
    """One question about rows and one box."""

    kind: QuestionKind
    x: Array  # (rows, variables)
    regions: Regions
    at: int = -1  # the column of moments
    region: Region = ()

    @cached_property
    def columns(self) -> frozenset[int]:
        """Columns that say something."""
        seen = np.flatnonzero(~np.isnan(self.x).all(axis=0))
        return frozenset((*seen.tolist(), *self.regions, *([self.at] if self.at >= 0 else [])))

    def leaves_asked(self, leaves: Iterable[Leaf], schema: Schema) -> list[Leaf]:
        """Those of a party's leaves that it is about; the best completion is about all."""
        known = {schema.names[c] for c in self.columns}
        return [leaf for leaf in leaves if self.kind == "best" or known & set(leaf.scope)]


class QueryEvidence(Message, frozen=True):
    """What is known of a client's columns, every different row once."""

    tag: ClassVar[str] = "query/evidence"

    kind: QuestionKind
    columns: tuple[str, ...]
    rows: RealMatrix  # (different rows, columns)
    restricted: tuple[str, ...]  # a column for each interval
    intervals: RealMatrix  # (intervals, 2)
    variable: str  # whose moments are asked for, "" if none of this client's
    region: RealMatrix  # (intervals of this variable, 2)


class LeafAnswers(Message, frozen=True):
    """What a client's leaves say to the evidence."""

    tag: ClassVar[str] = "query/values"
    reveals: ClassVar[str] = "how likely each of its leaves finds the evidence"

    values: RealMatrix  # (leaves asked, rows), log-values
    moments: Reals | None = None  # (2, leaves asked, rows)


class ChosenLeaves(Message, frozen=True):
    """Which rows a client completes, and with which of its leaves."""

    tag: ClassVar[str] = "query/choice"
    reveals: ClassVar[str] = "which of its leaves were chosen for which row"

    source: IntegerVector  # of every row to complete, among the rows of the evidence
    chosen: Booleans  # (leaves, rows to complete)
    columns: tuple[str, ...]  # to answer with


class CompletedRows(Message, frozen=True):
    """A client's columns, NaN where it was not chosen."""

    tag: ClassVar[str] = "query/completed"
    reveals: ClassVar[str] = "values of its columns, completed"

    values: RealMatrix  # (rows to complete, columns)


# ---------------------------------------------------------------------- clients


def respond(view: View, completes: bool, seed: int) -> Flow[None]:
    """Answer one question; ``completes``: and fill in rows afterwards."""
    question = _question(view, (yield from receive(COORDINATOR, QueryEvidence)))
    leaves = question.leaves_asked(view.leaves, view.schema)
    answers = yield from compute("evaluating its leaves", lambda: _answers(view, leaves, question))
    yield from send(COORDINATOR, answers)
    if not completes:
        return
    choice = yield from receive(COORDINATOR, ChosenLeaves)
    rng = None if question.kind == "best" else np.random.default_rng(seed)
    yield from send(COORDINATOR, CompletedRows(_completed(view, question, choice, rng)))


def _question(view: View, evidence: QueryEvidence) -> Question:
    """The evidence in the order of this party's columns."""
    schema, sent = view.schema, evidence
    columns = _places(sent.columns, schema, "columns")
    different = len(set(columns)) == len(columns)
    require(different, COORDINATOR, QueryEvidence, "columns", "a column is named twice")
    require_shape(sent.rows, (None, len(columns)), COORDINATOR, QueryEvidence, "rows")
    x = np.full((len(sent.rows), len(schema)), np.nan)
    x[:, columns] = sent.rows
    _require_values(x, schema, COORDINATOR, QueryEvidence, "rows")
    restricted = _places(sent.restricted, schema, "restricted")
    intervals = _intervals(sent, "intervals", len(restricted))
    regions: dict[int, list[tuple[float, float]]] = {}
    for column, interval in zip(restricted, intervals, strict=True):
        regions.setdefault(column, []).append(interval)
    at = _places([sent.variable], schema, "variable")[0] if sent.variable else -1
    fits = at < 0 or (sent.kind == "moments" and at not in columns)
    require(fits, COORDINATOR, QueryEvidence, "variable", "expected an unknown one, of moments")
    region = tuple(_intervals(sent, "region", None))
    return Question(sent.kind, x, {c: tuple(r) for c, r in regions.items()}, at, region)


def _places(names: Sequence[str], schema: Schema, field: str) -> list[int]:
    with blaming(COORDINATOR, QueryEvidence, field):
        return [schema.index(name) for name in names]


def _intervals(
    evidence: QueryEvidence, field: str, number: int | None
) -> list[tuple[float, float]]:
    sent: Array = getattr(evidence, field)
    require_shape(sent, (number, 2), COORDINATOR, QueryEvidence, field)
    rising = bool((sent[:, 0] < sent[:, 1]).all())  # not so of NaN
    require(rising, COORDINATOR, QueryEvidence, field, "expected lower ends before upper ends")
    return [(float(lower), float(upper)) for lower, upper in sent]


def _require_values(x: Array, schema: Schema, sender: str, kind: type[Message], field: str) -> None:
    """Codes of categories, and finite numbers; NaN for what is not known."""
    sizes = np.array([v.size or np.inf for v in schema])
    coded = np.isfinite(sizes)
    wrong = np.isinf(x) | (coded & ((x < 0) | (x >= sizes) | (np.floor(x) < x)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        expected = schema.variables[column].described()
        problem = f"{schema.names[column]!r} is {expected}, got {x[row, column]:g}"
        require(False, sender, kind, field, problem)


def _answers(view: View, leaves: Sequence[Leaf], question: Question) -> LeafAnswers:
    rows = len(question.x)
    values = np.zeros((len(leaves), rows))
    moments = np.zeros((2, len(leaves), rows))
    for i, leaf in enumerate(leaves):
        distribution = view.leaf(leaf.name)
        x, regions, places = _of_leaf(view, leaf, question)
        if question.kind == "best":
            values[i] = distribution.best_paths(x)
        else:
            values[i] = distribution.log_values_within(x, regions)
        if question.at in places:
            at = places[question.at]
            moments[:, i] = distribution.moments_within(x, regions, at, question.region)
    return LeafAnswers(values, moments if question.at >= 0 else None)


def _of_leaf(view: View, leaf: Leaf, question: Question) -> tuple[Array, Regions, dict[int, int]]:
    """Rows and regions in the columns of a leaf's own circuit, and where those columns are."""
    schema = view.leaf(leaf.name).circuit.schema
    columns = [view.schema.index(n) for n in schema.names]
    places = {c: i for i, c in enumerate(columns)}
    regions = {places[c]: r for c, r in question.regions.items() if c in places}
    return question.x[:, columns], regions, places


def _completed(
    view: View, question: Question, choice: ChosenLeaves, rng: np.random.Generator | None
) -> Array:
    """(rows, columns asked for) with NaN where this party was not chosen to fill in."""
    source, chosen, known = choice.source, choice.chosen, len(question.x)
    inside = bool(((source >= 0) & (source < known)).all())
    problem = f"expected rows from 0 to {known - 1}, which {QueryEvidence.tag!r} has"
    require(inside, COORDINATOR, ChosenLeaves, "source", problem)
    shape = (len(view.leaves), len(source))
    require_shape(chosen, shape, COORDINATOR, ChosenLeaves, "chosen")
    held = sorted({name for leaf in view.leaves for name in leaf.scope})
    fits = sorted(choice.columns) == held
    require(fits, COORDINATOR, ChosenLeaves, "columns", f"expected {', '.join(held)}")
    out = np.full((len(source), len(view.schema)), np.nan)
    for leaf, of_leaf in zip(view.leaves, chosen, strict=True):
        rows = np.flatnonzero(of_leaf)
        if not len(rows):
            continue
        x, regions, places = _of_leaf(view, leaf, question)
        filled = view.leaf(leaf.name).completed_within(x[source[rows]], regions, rng)
        finite = bool(np.isfinite(filled).all())
        require(finite, COORDINATOR, QueryEvidence, "intervals", "they have no room for a value")
        out[rows[:, None], np.array(list(places))] = filled
    return out[:, [view.schema.index(name) for name in choice.columns]]


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What all clients have answered."""

    values: Array  # (leaves of the whole circuit, rows)
    moments: Array  # (2, leaves, rows)
    source: dict[str, Index]  # by client: where each row is among the rows it was sent


def evaluate(joint: Joint, upper: UpperCircuit, packed: Packed, question: Question) -> Flow[Array]:
    """log p(x, regions), (rows,)."""
    answers = yield from _gathered(joint, question, clients_asked(joint, question))
    return upper.log_values(answers.values, packed)


def moments(
    joint: Joint, upper: UpperCircuit, packed: Packed, question: Question
) -> Flow[tuple[Array, Array]]:
    """Mean and variance of a column (rows,): those of the leaves, mixed by their posteriors."""
    answers = yield from _gathered(joint, question, clients_asked(joint, question))
    posterior, _ = upper.posteriors(answers.values, packed)
    name = joint.circuit.schema.names[question.at]
    has = [i for i, leaf in enumerate(joint.circuit.leaves()) if name in leaf.scope]
    weight, (mean, variance) = posterior[has], answers.moments[:, has]
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.where(weight > 0, weight * mean, 0.0).sum(axis=0)
        spread = np.where(weight > 0, weight * (variance + np.square(mean - total)), 0.0)
    return total, spread.sum(axis=0)


def complete(
    joint: Joint, upper: UpperCircuit, packed: Packed, question: Question, seed: int
) -> Flow[Array]:
    """x with NaN filled by draws, or by the best single path."""
    fillers = clients_completing(joint, question)
    clients = list(dict.fromkeys([*clients_asked(joint, question), *fillers]))
    answers = yield from _gathered(joint, question, clients)
    rng = None if question.kind == "best" else np.random.default_rng(seed)
    chosen = upper.choices(answers.values, packed, rng)[0] >= 0  # (leaves, rows)
    held = _leaves_held(joint)
    for party in fillers:
        names = tuple(joint.circuit.schema.names[c] for c in _columns(joint, held[party]))
        choice = ChosenLeaves(answers.source[party], chosen[list(held[party])], names)
        yield from send(party, choice)
    filled = question.x.copy()
    for party in fillers:
        values = (yield from receive(party, CompletedRows)).values
        columns = _columns(joint, held[party])
        _check_completed(values, joint, party, held[party], chosen, np.isnan(question.x))
        gaps = np.isnan(filled[:, columns])
        filled[:, columns] = np.where(gaps, values, filled[:, columns])
    return filled


def _check_completed(
    values: Array,
    joint: Joint,
    party: str,
    leaves: Mapping[int, Leaf],
    chosen: Flags,
    gaps: Flags,
) -> None:
    schema, columns = joint.circuit.schema, _columns(joint, leaves)
    require_shape(values, (len(gaps), len(columns)), party, CompletedRows, "values")
    names = [schema.names[c] for c in columns]
    _require_values(values, schema.select(names), party, CompletedRows, "values")
    wanted = np.zeros(values.shape, np.bool_)
    for i, leaf in leaves.items():
        wanted[np.ix_(chosen[i], np.isin(names, leaf.scope))] = True
    lacks = bool((wanted & gaps[:, columns] & np.isnan(values)).any())
    require(not lacks, party, CompletedRows, "values", "a value that it was to fill in is missing")


def clients_asked(joint: Joint, question: Question) -> list[str]:
    """Clients whose leaves read some of the evidence, or complete it."""
    schema, held = joint.circuit.schema, _leaves_held(joint)
    return [p for p, own in held.items() if question.leaves_asked(own.values(), schema)]


def clients_completing(joint: Joint, question: Question) -> list[str]:
    """Clients with a column to fill in."""
    gaps = np.asarray(np.isnan(question.x).any(axis=0))
    return [p for p, own in _leaves_held(joint).items() if gaps[_columns(joint, own)].any()]


def _leaves_held(joint: Joint) -> dict[str, dict[int, Leaf]]:
    """By client its leaves, with their numbers among all."""
    held: dict[str, dict[int, Leaf]] = {}
    for i, leaf in enumerate(joint.circuit.leaves()):
        held.setdefault(joint.placement[leaf.name], {})[i] = leaf
    return held


def _columns(joint: Joint, leaves: Mapping[int, Leaf]) -> list[int]:
    names = dict.fromkeys(n for leaf in leaves.values() for n in leaf.scope)
    return sorted(joint.circuit.schema.index(n) for n in names)


def _gathered(joint: Joint, question: Question, clients: Sequence[str]) -> Flow[_Gathered]:
    held, sources, sizes = _leaves_held(joint), {}, {}
    for party in clients:
        evidence, sources[party] = _evidence(joint, held[party], question)
        sizes[party] = len(evidence.rows)
        names = list(dict.fromkeys([*evidence.columns, *evidence.restricted]))
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        what = f"evidence on {shown}" if names else "what it is asked, without evidence"
        yield from send(party, evidence, reveals=what)
    number = {leaf.name: i for own in held.values() for i, leaf in own.items()}
    shape = (len(number), len(question.x))
    values = np.zeros(shape)
    spread = np.zeros((2, *shape)) if question.at >= 0 else np.zeros((2, 0, 0))
    for party in clients:
        answers = yield from receive(party, LeafAnswers)
        asked = question.leaves_asked(held[party].values(), joint.circuit.schema)
        places = [number[leaf.name] for leaf in asked]
        within = question.at in _columns(joint, held[party])
        _check_answers(answers, party, (len(asked), sizes[party]), within)
        values[places] = answers.values[:, sources[party]]
        if answers.moments is not None:
            spread[:, places] = answers.moments[:, :, sources[party]]
    return _Gathered(values, spread, sources)


def _check_answers(
    answers: LeafAnswers, party: str, shape: tuple[int, int], with_moments: bool
) -> None:
    require_shape(answers.values, shape, party, LeafAnswers, "values")
    sound = not np.isnan(answers.values).any() and not np.isposinf(answers.values).any()
    require(sound, party, LeafAnswers, "values", "expected log-values, finite or −∞")
    fits = (answers.moments is not None) == with_moments
    require(fits, party, LeafAnswers, "moments", "expected only where they were asked for")
    if answers.moments is not None:
        require_shape(answers.moments, (2, *shape), party, LeafAnswers, "moments")


def _evidence(
    joint: Joint, leaves: Mapping[int, Leaf], question: Question
) -> tuple[QueryEvidence, Index]:
    """What a client is told: every different row of its columns once, and which row is which."""
    names, said = joint.circuit.schema.names, question.columns
    columns = [c for c in _columns(joint, leaves) if c in said]
    seen = [c for c in columns if not np.isnan(question.x[:, c]).all()]
    known = np.nan_to_num(question.x[:, seen], nan=np.inf)  # as NaN, gaps would never be equal
    rows, source = np.unique(known, axis=0, return_inverse=True)
    rows = np.where(np.isinf(rows), np.nan, rows)
    if not seen:
        rows, source = np.zeros((1, 0)), np.zeros(len(question.x), np.int64)
    regions = [(c, a, b) for c in columns for a, b in question.regions.get(c, ())]
    evidence = QueryEvidence(
        question.kind,
        tuple(names[c] for c in seen),
        rows,
        tuple(names[c] for c, _, _ in regions),
        np.asarray([r[1:] for r in regions], np.float64).reshape(-1, 2),
        names[question.at] if question.at in columns else "",
        np.asarray(question.region, np.float64).reshape(-1, 2),
    )
    return evidence, source.reshape(-1)
