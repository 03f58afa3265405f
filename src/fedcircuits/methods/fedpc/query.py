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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.circuit import Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.queryable import Index, Regions
from fedcircuits.errors import QueryError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, receive, send
from fedcircuits.federation.messages import (
    Message,
    blaming,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Joint, View
from fedcircuits.methods.fedpc.question import (
    ChosenLeaves,
    CompletedRows,
    LeafAnswers,
    QueryEvidence,
    Question,
    check_rows_behind,
)
from fedcircuits.methods.refinement.roles import NATS
from fedcircuits.tables.schema import Schema

Flags = npt.NDArray[np.bool_]
ROUNDING = 1e-3  # of log-values: leaves may be learned in 32 bits


# ---------------------------------------------------------------------- clients


def respond(view: View, completes: bool, seed: int) -> Flow[int | None]:
    """Answer one question; ``completes``: and fill in rows afterwards. Returns how many rows the
    party has answered so far, if there is a limit: who gave it a copy of the view takes it back."""
    question = told_question(view.schema, (yield from receive(COORDINATOR, QueryEvidence)))
    if view.answers == "root":
        raise QueryError(f"{view.me} does not answer for single leaves: query with answers='root'")
    check_rows_behind(view, question)
    answered = view.budget.after(len(question.x), view.me)
    leaves = question.leaves_asked(view.leaves, view.schema)
    answers = yield from compute("evaluating its leaves", lambda: _answers(view, leaves, question))
    if np.isnan(answers.values).any():
        raise QueryError(f"leaves of {view.me} give the evidence no finite likelihood")
    yield from send(COORDINATOR, answers)
    if not completes:
        return answered
    choice = yield from receive(COORDINATOR, ChosenLeaves)
    _check_choice(choice, view, len(question.x))
    more = len(choice.source) - len(question.x)  # one row may be completed many times
    answered = view.budget.after(more, view.me, len(question.x)) if more > 0 else answered
    rng = None if question.kind == "best" else np.random.default_rng(seed)
    yield from send(COORDINATOR, CompletedRows(_completed(view, question, choice, rng)))
    return answered


def told_question(schema: Schema, evidence: QueryEvidence) -> Question:
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
            values[i] = leaf_values(view, leaf, question)
        if question.at in places:
            at = places[question.at]
            moments[:, i] = distribution.moments_within(x, regions, at, question.region)
    return LeafAnswers(values, moments if question.at >= 0 else None)


def leaf_values(view: View, leaf: Leaf, question: Question) -> Array:
    """log-values of one leaf, (rows,)."""
    x, regions, _ = _of_leaf(view, leaf, question)
    return view.leaf(leaf.name).log_values_within(x, regions)


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

    def highest(self, leaves: Sequence[int], question: Question) -> Array:
        """The highest log-value of these leaves, (leaves, 1): 0, but for densities of numbers."""
        schema, every = self.joint.circuit.schema, self.joint.circuit.leaves()
        known = range(len(schema)) if question.kind == "best" else question.seen
        dense = {schema.names[c] for c in known if schema.variables[c].kind == "real"}
        scopes = [set(leaf.scope) for leaf in every]
        return np.array([[ROUNDING + NATS * len(dense & scopes[i])] for i in leaves]).reshape(-1, 1)

    def about(self, leaves: Sequence[int], question: Question) -> Flags:
        """Which of these leaves have the variable of moments."""
        name, every = self.joint.circuit.schema.names[question.at], self.joint.circuit.leaves()
        scopes = [leaf.scope for leaf in every]
        return np.array([name in scopes[i] for i in leaves], np.bool_)

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
        regions = {i: question.regions[c] for i, c in enumerate(columns) if c in question.regions}
        gaps = (wanted & np.isnan(question.x))[:, columns]
        _check_completed(values, party, held, gaps, regions)
        gaps = np.isnan(filled[:, columns])
        filled[:, columns] = np.where(gaps, values, filled[:, columns])
    return filled


def _check_completed(
    values: Array, party: str, schema: Schema, wanted: Flags, regions: Regions
) -> None:
    require_shape(values, wanted.shape, party, CompletedRows, "values")
    _check_values(values, schema, party, CompletedRows, "values")
    filled = not np.isnan(values[wanted]).any()
    require(filled, party, CompletedRows, "values", "a value that it was to fill in is missing")
    for column, region in regions.items():
        completed = values[wanted[:, column], column]
        inside = np.any([(completed >= low) & (completed <= high) for low, high in region], axis=0)
        problem = f"expected values within the regions that the {COORDINATOR} asked for"
        require(bool(np.all(inside)), party, CompletedRows, "values", problem)


def _gathered(asker: Asker, question: Question, clients: Sequence[str]) -> Flow[_AllAnswers]:
    sources, sizes = {}, {}
    for party in clients:
        evidence, sources[party] = evidence_for(asker, party, question)
        sizes[party] = len(evidence.rows)
        yield from send(party, evidence, reveals=evidence.revealing)
    values = np.zeros((sum(map(len, asker.leaves.values())), len(question.x)))
    spread = np.zeros((2, *values.shape)) if question.at >= 0 else np.zeros((2, 0, 0))
    for party in clients:
        answers = yield from receive(party, LeafAnswers)
        leaves = asker.leaves_asked(party, question)
        shape = (len(leaves), sizes[party])
        about = asker.about(leaves, question) if question.at in asker.columns[party] else None
        _check_answers(answers, party, shape, asker.highest(leaves, question), about)
        values[leaves] = answers.values[:, sources[party]]
        if answers.moments is not None:
            spread[:, leaves] = answers.moments[:, :, sources[party]]
    return _AllAnswers(values, spread, sources)


def _check_answers(
    answers: LeafAnswers,
    party: str,
    shape: tuple[int, int],
    highest: Array,
    about: Flags | None,
) -> None:
    """``highest``: log-value of every leaf (leaves, 1); ``about``: leaves that have the variable of
    moments, where the party was asked for them."""
    require_shape(answers.values, shape, party, LeafAnswers, "values")
    sound = bool((answers.values <= highest).all())  # not so of NaN
    problem = "expected log-values that its columns can have, finite or −∞"
    require(sound, party, LeafAnswers, "values", problem)
    fits = (answers.moments is not None) == (about is not None)
    require(fits, party, LeafAnswers, "moments", "expected only where they were asked for")
    if answers.moments is not None and about is not None:
        require_shape(answers.moments, (2, *shape), party, LeafAnswers, "moments")
        (mean, variance), counts = answers.moments, answers.values > -np.inf
        sound = bool(((np.abs(mean) < np.inf) & (variance >= 0))[counts & about[:, None]].all())
        require(sound, party, LeafAnswers, "moments", "expected means, and variances from 0")


def evidence_for(
    asker: Asker, party: str, question: Question, every: bool = False
) -> tuple[QueryEvidence, Index]:
    """The evidence for a client: every distinct row of its columns once, and which row is which;
    ``every``: all rows as they come."""
    names = asker.joint.circuit.schema.names
    columns = [c for c in asker.columns.get(party, []) if c in question.columns]
    seen = [c for c in columns if not np.isnan(question.x[:, c]).all()]
    known = np.nan_to_num(question.x[:, seen], nan=np.inf)  # as NaN, gaps would never be equal
    rows, source = np.unique(known, axis=0, return_inverse=True)
    rows = np.where(np.isinf(rows), np.nan, rows)
    if every:
        rows, source = question.x[:, seen], np.arange(len(question.x))
    elif not seen:
        rows, source = np.zeros((1, 0)), np.zeros(len(question.x), np.int64)
    regions = {names[c]: question.regions[c] for c in columns if c in question.regions}
    at = names[question.at] if question.at in columns else ""
    shown = tuple(names[c] for c in seen)
    evidence = QueryEvidence(question.kind, shown, rows, regions, at, question.region)
    return evidence, source.reshape(-1)
