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

from collections.abc import Iterable, Sequence
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
    regions: dict[str, Region]
    variable: str  # whose moments are asked for, "" if none of this client's
    region: Region  # to which this variable is restricted


class LeafAnswers(Message, frozen=True):
    """What a client's leaves say to the evidence."""

    tag: ClassVar[str] = "query/values"
    reveals: ClassVar[str] = "how likely each of its leaves finds the evidence"

    values: RealMatrix  # (leaves asked, rows), log-values
    moments: Reals | None  # (2, leaves asked, rows)


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
    question = _question(view.schema, (yield from receive(COORDINATOR, QueryEvidence)))
    leaves = question.leaves_asked(view.leaves, view.schema)
    answers = yield from compute("evaluating its leaves", lambda: _answers(view, leaves, question))
    yield from send(COORDINATOR, answers)
    if not completes:
        return
    choice = yield from receive(COORDINATOR, ChosenLeaves)
    _check_choice(choice, view, len(question.x))
    rng = None if question.kind == "best" else np.random.default_rng(seed)
    yield from send(COORDINATOR, CompletedRows(_completed(view, question, choice, rng)))


def _question(schema: Schema, evidence: QueryEvidence) -> Question:
    """The evidence in the order of this party's columns."""
    columns = _places(schema, evidence.columns, "columns")
    require_shape(evidence.rows, (None, len(columns)), COORDINATOR, QueryEvidence, "rows")
    x = np.full((len(evidence.rows), len(schema)), np.nan)
    x[:, columns] = evidence.rows
    _check_values(x, schema, COORDINATOR, QueryEvidence, "rows")
    regions = dict(zip(_places(schema, tuple(evidence.regions), "regions"),
                       evidence.regions.values(), strict=True))  # fmt: skip
    at = _places(schema, (evidence.variable,), "variable")[0] if evidence.variable else -1
    fits = at < 0 or (evidence.kind == "moments" and at not in columns)
    require(fits, COORDINATOR, QueryEvidence, "variable", "expected an unknown one, of moments")
    for field, region in (*(("regions", r) for r in regions.values()), ("region", evidence.region)):
        rising = all(lower < upper for lower, upper in region)
        sound = rising and (len(region) > 0 or (field == "region" and at < 0))
        require(sound, COORDINATOR, QueryEvidence, field, "expected lower ends below upper ends")
    return Question(evidence.kind, x, regions, at, evidence.region)


def _places(schema: Schema, names: Sequence[str], field: str) -> list[int]:
    with blaming(COORDINATOR, QueryEvidence, field):
        places = [schema.index(name) for name in names]
    different = len(set(places)) == len(places)
    require(different, COORDINATOR, QueryEvidence, field, "a column is named twice")
    return places


def _check_values(x: Array, schema: Schema, sender: str, kind: type[Message], field: str) -> None:
    """Codes of categories, and finite numbers; NaN for what is not known."""
    sizes = np.array([v.size or np.inf for v in schema])
    coded = np.isfinite(sizes)
    wrong = np.isinf(x) | (coded & ((x < 0) | (x >= sizes) | (np.floor(x) < x)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        variable = schema.variables[column]
        problem = f"{variable.name!r} is {variable.described()}, got {x[row, column]:g}"
        require(False, sender, kind, field, problem)


def _answers(view: View, leaves: Sequence[Leaf], question: Question) -> LeafAnswers:
    values = np.zeros((len(leaves), len(question.x)))
    moments = np.zeros((2, *values.shape))
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


def _check_choice(choice: ChosenLeaves, view: View, rows: int) -> None:
    inside = bool(((choice.source >= 0) & (choice.source < rows)).all())
    problem = f"expected rows from 0 to {rows - 1}, which {QueryEvidence.tag!r} has"
    require(inside, COORDINATOR, ChosenLeaves, "source", problem)
    shape = (len(view.leaves), len(choice.source))
    require_shape(choice.chosen, shape, COORDINATOR, ChosenLeaves, "chosen")
    held = sorted({name for leaf in view.leaves for name in leaf.scope})
    fits = sorted(choice.columns) == held
    require(fits, COORDINATOR, ChosenLeaves, "columns", f"expected {', '.join(held)}")


def _completed(
    view: View, question: Question, choice: ChosenLeaves, rng: np.random.Generator | None
) -> Array:
    """(rows, columns asked for) with NaN where this party was not chosen to fill in."""
    out = np.full((len(choice.source), len(view.schema)), np.nan)
    for leaf, chosen in zip(view.leaves, choice.chosen, strict=True):
        rows = np.flatnonzero(chosen)
        if not len(rows):
            continue
        x, regions, places = _of_leaf(view, leaf, question)
        filled = view.leaf(leaf.name).completed_within(x[choice.source[rows]], regions, rng)
        finite = bool(np.isfinite(filled).all())
        require(finite, COORDINATOR, QueryEvidence, "regions", "they have no room for a value")
        out[rows[:, None], np.array(list(places))] = filled
    return out[:, [view.schema.index(name) for name in choice.columns]]


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, eq=False)
class Asker:
    """A circuit at its coordinator, ready to be asked."""

    joint: Joint

    @cached_property
    def upper(self) -> UpperCircuit:
        return UpperCircuit(self.joint.circuit)

    @cached_property
    def packed(self) -> Packed:
        return self.upper.pack(self.joint.parameters)

    @cached_property
    def leaves(self) -> dict[str, dict[int, Leaf]]:
        """By client its leaves, with their numbers among all."""
        held: dict[str, dict[int, Leaf]] = {}
        for i, leaf in enumerate(self.joint.circuit.leaves()):
            held.setdefault(self.joint.placement[leaf.name], {})[i] = leaf
        return held

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """By client the columns of its leaves, in the order of the circuit."""
        index = self.joint.circuit.schema.index
        return {
            party: sorted({index(n) for leaf in leaves.values() for n in leaf.scope})
            for party, leaves in self.leaves.items()
        }

    def leaves_asked(self, party: str, question: Question) -> list[int]:
        """Numbers of the client's leaves that a question is about."""
        numbers = {leaf.name: i for i, leaf in self.leaves[party].items()}
        leaves = question.leaves_asked(self.leaves[party].values(), self.joint.circuit.schema)
        return [numbers[leaf.name] for leaf in leaves]

    def clients_asked(self, question: Question) -> list[str]:
        """Clients whose leaves read some of the evidence, or complete it."""
        return [party for party in self.leaves if self.leaves_asked(party, question)]

    def clients_completing(self, question: Question) -> list[str]:
        """Clients with a column to fill in."""
        gaps = np.asarray(np.isnan(question.x).any(axis=0))
        return [party for party, columns in self.columns.items() if gaps[columns].any()]


@dataclass(frozen=True, slots=True)
class _AllAnswers:
    values: Array  # (leaves of all clients, rows)
    moments: Array  # (2, leaves, rows)
    source: dict[str, Index]  # by client: where each row is among the rows it was sent


def evaluate(asker: Asker, question: Question) -> Flow[Array]:
    """log p(x, regions), (rows,)."""
    answers = yield from _gathered(asker, question, asker.clients_asked(question))
    return asker.upper.log_values(answers.values, asker.packed)


def moments(asker: Asker, question: Question) -> Flow[tuple[Array, Array]]:
    """Mean and variance of a column (rows,): those of the leaves, mixed by their posteriors."""
    answers = yield from _gathered(asker, question, asker.clients_asked(question))
    posterior, _ = asker.upper.posteriors(answers.values, asker.packed)
    name = asker.joint.circuit.schema.names[question.at]
    has = [i for i, leaf in enumerate(asker.joint.circuit.leaves()) if name in leaf.scope]
    weight, (mean, variance) = posterior[has], answers.moments[:, has]
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.where(weight > 0, weight * mean, 0.0).sum(axis=0)
        spread = np.where(weight > 0, weight * (variance + np.square(mean - total)), 0.0)
    return total, spread.sum(axis=0)


def complete(asker: Asker, question: Question, seed: int) -> Flow[Array]:
    """x with NaN filled by draws, or by the best single path."""
    fillers = asker.clients_completing(question)
    clients = list(dict.fromkeys([*asker.clients_asked(question), *fillers]))
    answers = yield from _gathered(asker, question, clients)
    rng = None if question.kind == "best" else np.random.default_rng(seed)
    chosen = asker.upper.choices(answers.values, asker.packed, rng)[0] >= 0  # (leaves, rows)
    schema, filled = asker.joint.circuit.schema, question.x.copy()
    for party in fillers:
        names = tuple(schema.names[c] for c in asker.columns[party])
        of_party = chosen[list(asker.leaves[party])]
        yield from send(party, ChosenLeaves(answers.source[party], of_party, names))
    for party in fillers:
        values = (yield from receive(party, CompletedRows)).values
        columns = asker.columns[party]
        wanted = np.zeros(filled.shape, np.bool_)
        for i, leaf in asker.leaves[party].items():
            wanted[np.ix_(chosen[i], [schema.index(n) for n in leaf.scope])] = True
        held = schema.select([schema.names[c] for c in columns])
        _check_completed(values, party, held, (wanted & np.isnan(question.x))[:, columns])
        gaps = np.isnan(filled[:, columns])
        filled[:, columns] = np.where(gaps, values, filled[:, columns])
    return filled


def _check_completed(values: Array, party: str, schema: Schema, wanted: Flags) -> None:
    require_shape(values, wanted.shape, party, CompletedRows, "values")
    _check_values(values, schema, party, CompletedRows, "values")
    filled = not np.isnan(values[wanted]).any()
    require(filled, party, CompletedRows, "values", "a value that it was to fill in is missing")


def _gathered(asker: Asker, question: Question, clients: Sequence[str]) -> Flow[_AllAnswers]:
    sources, sizes = {}, {}
    for party in clients:
        evidence, sources[party] = _evidence(asker, party, question)
        sizes[party] = len(evidence.rows)
        names = list(dict.fromkeys([*evidence.columns, *evidence.regions]))
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        what = f"evidence on {shown}" if names else "what it is asked, without evidence"
        yield from send(party, evidence, reveals=what)
    values = np.zeros((sum(map(len, asker.leaves.values())), len(question.x)))
    spread = np.zeros((2, *values.shape)) if question.at >= 0 else np.zeros((2, 0, 0))
    for party in clients:
        answers = yield from receive(party, LeafAnswers)
        leaves = asker.leaves_asked(party, question)
        shape = (len(leaves), sizes[party])
        _check_answers(answers, party, shape, question.at in asker.columns[party])
        values[leaves] = answers.values[:, sources[party]]
        if answers.moments is not None:
            spread[:, leaves] = answers.moments[:, :, sources[party]]
    return _AllAnswers(values, spread, sources)


def _check_answers(
    answers: LeafAnswers, party: str, shape: tuple[int, int], with_moments: bool
) -> None:
    require_shape(answers.values, shape, party, LeafAnswers, "values")
    sound = bool((answers.values < np.inf).all())  # not so of NaN
    require(sound, party, LeafAnswers, "values", "expected log-values, finite or −∞")
    fits = (answers.moments is not None) == with_moments
    require(fits, party, LeafAnswers, "moments", "expected only where they were asked for")
    if answers.moments is not None:
        require_shape(answers.moments, (2, *shape), party, LeafAnswers, "moments")


def _evidence(asker: Asker, party: str, question: Question) -> tuple[QueryEvidence, Index]:
    """What a client is told: every different row of its columns once, and which row is which."""
    names = asker.joint.circuit.schema.names
    columns = [c for c in asker.columns[party] if c in question.columns]
    seen = [c for c in columns if not np.isnan(question.x[:, c]).all()]
    known = np.nan_to_num(question.x[:, seen], nan=np.inf)  # as NaN, gaps would never be equal
    rows, source = np.unique(known, axis=0, return_inverse=True)
    rows = np.where(np.isinf(rows), np.nan, rows)
    if not seen:
        rows, source = np.zeros((1, 0)), np.zeros(len(question.x), np.int64)
    regions = {names[c]: question.regions[c] for c in columns if c in question.regions}
    at = names[question.at] if question.at in columns else ""
    shown = tuple(names[c] for c in seen)
    evidence = QueryEvidence(question.kind, shown, rows, regions, at, question.region)
    return evidence, source.reshape(-1)
