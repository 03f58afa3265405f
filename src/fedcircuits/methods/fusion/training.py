"""Federated feature fusion (Ma, Hoang and Chen 2023): owners train separately, representations are
gathered once, and the coordinator trains one fusion.

**Who takes part.** Owners, which hold columns, series and perhaps labels of rows, or labels only;
and a coordinator without data.

**What crosses:**

    agree    owner → coordinator: the distinct numbers of its target, where they may be classes
             (methods/meeting/task.py); versions; names, kinds and categories of its columns, its
             number of rows. coordinator → owner: agreed kinds of its columns, the target, who takes
             part.
    key      first owner → other owners, not the coordinator: a key for row tokens.
    labels   owner → coordinator: row tokens (rows,). coordinator → holders of the target and owners
             without it: which of its rows the other holds. holder → owner: labels of these rows
             (methods/meeting/tokens.py). Only with ``share_target``; without it, those owners
             learn from their rows without labels.
    gather   owner → coordinator, once: tokens (rows,), representations (rows, width) in float32,
             float16 or int8, labels (rows,) where the owner has them, which rows are held out;
             and which columns were read (gathering.py, where sums replace single rows if asked).
    graph    coordinator → owner: whose columns are read, the width of representations, and how
             they are fused.
    query    query.py

**What each party learns.** Representations of single rows leave their owner: not the rows, but the
outputs of its encoder, from which a reader who knows the encoder, or many rows, can infer things
about them. They can be clipped, and noise can be added (``clip``, ``noise``). The coordinator
learns representations, labels, and which rows of different owners belong together, but cannot
identify the rows; owners learn who takes part, and the graph. Encoders stay with their owners.

Owners may lack rows, in training and in queries: an owner is absent from rows that it lacks or in
which all its values are missing. The held-out rows for early stopping follow from ids and
seed (``held_back``), so no owner has trained on rows by which the fusion stops. A lost owner ends
training; the encoders of the others are kept, and the run can be repeated without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, broadcast, compute, digest, gather, receive, send
from fedcircuits.federation.messages import AnyArray, Message, blaming, require
from fedcircuits.federation.placement import Placement
from fedcircuits.learning.encoders.choosing import EncoderJob, fit_all
from fedcircuits.learning.encoders.foreign import Encoder
from fedcircuits.methods.fusion import gathering
from fedcircuits.methods.fusion.fitting import Fusion, OwnerRows, Vote, Votes, elect, fuse
from fedcircuits.methods.fusion.gathering import (
    Flags,
    JoinedRows,
    ListedRows,
    RowFacts,
    Showing,
    Width,
)
from fedcircuits.methods.fusion.heads import FusionSettings
from fedcircuits.methods.fusion.query import FusionView, OwnerView, graph_of, shown_rows, vectors_of
from fedcircuits.methods.meeting import hello
from fedcircuits.methods.meeting.hello import Assignment, Hello, Method
from fedcircuits.methods.meeting.task import TargetTask, agree_on_task, with_task
from fedcircuits.methods.meeting.tokens import (
    RowRule,
    agreed_values,
    hidden_rows,
    match_tokens,
    send_tokens,
    target_of,
)
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

METHOD = Method("fusion", 1)


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Settings that are the same at all parties of a run."""

    members: tuple[str, ...]
    target: str
    settings: FusionSettings
    vote: Vote | None = None  # predictions are combined instead of representations
    share_target: bool = False
    validation: float = 0.125
    given: Array | None = None  # a graph (owners, owners)
    seed: int = 0
    showing: Showing = field(default_factory=Showing)
    rows: RowRule = "tokens"  # how they are matched
    task: TargetTask = "given"

    @property
    def operation(self) -> str:
        return self.vote or self.settings.head

    def for_owner(self) -> FusionPlan:
        return replace(self, showing=self.showing.for_owner())


class FusionAssignment(Assignment, frozen=True):
    """What the coordinator asks of an owner."""

    target: Variable


class FusionGraph(Message, frozen=True):
    """What the fusion's graph follows from, beside the plan: by owner in their order."""

    tag: ClassVar[str] = "graph/circuit"
    reveals: ClassVar[str] = "the graph"

    columns: dict[str, tuple[str, ...]]  # that its encoder reads
    widths: dict[str, Width]  # of its representations


# ---------------------------------------------------------------------- owners


def owner(party: Party, plan: FusionPlan, encoder: Encoder, secret: bytes) -> Flow[OwnerView]:
    party = yield from with_task(party, plan.target, plan.task)
    shared = plan.target if plan.share_target else None
    run = (METHOD, FusionAssignment, shared, plan.members)
    assignment, table = yield from hello.introduce(party, *run)
    me, showing = party.name, plan.showing
    target = _checked_target(assignment, table, plan)
    hidden = yield from hidden_rows(me, gathering.ids_of(party), plan.members, secret, plan.rows)
    tokens, order = hidden.rising()
    if plan.share_target:
        yield from send_tokens(hidden)
    y = yield from target_of(table, target.name, order, *assignment.routes(me), target.size)
    job = job_of(party, table, target, y, encoder, plan)
    learned = yield from compute("training its encoder", job, fit_all, _key_of(job, plan))
    vectors = vectors_of(learned, table, me, target, plan.vote is not None)
    shown = gathering.masked(vectors, showing)
    facts = _facts_of(table, target, learned, job.held, shown.shape[1], order)
    if showing.summation is None:
        kind = gathering.TrainingRepresentations
        message = gathering.packed(kind, tokens, shown[order], showing.traffic, facts=facts)
        yield from send(COORDINATOR, message, reveals=_revealed(plan, facts, learned))
    else:
        yield from gathering.add_rows(
            me, plan.members, showing.summation, tokens, shown[order], facts
        )
    graph = _checked_graph((yield from receive(COORDINATOR, FusionGraph)), me, facts, plan, target)
    votes, clip, noise = plan.vote is not None, showing.clip, showing.noise
    return OwnerView(me, *graph, target, learned, votes, clip, noise)


def _checked_target(assignment: FusionAssignment, table: Table, plan: FusionPlan) -> Variable:
    """The target, if all that the coordinator asks is as the plan says."""
    target, named = assignment.target, assignment.holders is not None
    known = [v for v in table.schema if v.name == target.name] or [target]
    for part, holds, expected in (
        ("target", target.name == plan.target, repr(plan.target)),
        ("target", known == [target], f"the kind and categories of its own {target.name!r}"),
        (
            "holders",
            named == plan.share_target,
            f"them with share_target, {plan.share_target} here",
        ),
    ):
        require(holds, COORDINATOR, FusionAssignment, part, f"expected {expected}")
    return target


def job_of(
    party: Party, table: Table, target: Variable, y: Array, encoder: Encoder, plan: FusionPlan
) -> EncoderJob:
    """An owner's training: its rows with the labels that it has or received."""
    columns = [n for n in table.names if n != target.name]
    plain = table.select((*columns, *table.series))
    schema = Schema((*plain.schema.variables, target))
    values = np.column_stack([plain.values, y])
    rows = Table(schema, values, plain.row_ids, plain.series)
    held = gathering.held_back(gathering.ids_of(party), plan.validation, plan.seed)
    seed = (int(plan.seed), zlib.crc32(party.name.encode()))
    return EncoderJob(encoder, rows, target.name, held, seed)


def _key_of(job: EncoderJob, plan: FusionPlan) -> str:
    """The key under which the result of an owner's training is kept."""
    text = json.dumps(
        [repr(job.encoder), list(job.seed), plan.validation, job.table.schema.to_json()]
    )
    return digest(text, job.table.values, *job.table.series.values())  # values with labels


def _facts_of(
    table: Table, target: Variable, encoder: Encoder, held: Flags, width: int, order: AnyArray
) -> RowFacts:
    """What else the coordinator needs of these rows, in the order of tokens."""
    reading = getattr(encoder, "reading_", None)
    names = [n for n in (*table.names, *table.series) if n != target.name]
    columns = tuple(names if reading is None else reading.names)
    labels: AnyArray | None = None
    if target.name in table.schema:
        labels = table.values[order, table.schema.index(target.name)]
        if target.size:
            kind = np.int16 if target.size < 2**15 else np.int32
            labels = np.where(np.isnan(labels), -1, labels).astype(kind)
    return RowFacts(width, columns, held[order], labels)  # type: ignore[arg-type]


def _revealed(plan: FusionPlan, facts: RowFacts, encoder: Encoder) -> str:
    what = shown_rows(plan.vote is not None, plan.showing, facts.width, encoder)
    also = f", their values of {plan.target}" if facts.labels is not None else ""
    return f"{what}{also}; columns that its encoder reads"


def _checked_graph(
    graph: FusionGraph, me: str, facts: RowFacts, plan: FusionPlan, target: Variable
) -> tuple[Circuit, Placement]:
    width, columns = facts.width, facts.columns if facts.width else ()
    for part, holds, expected in (
        ("columns", graph.columns.get(me, ()) == columns, f"{', '.join(columns)} of {me}"),
        ("widths", graph.widths.get(me, 0) == width, f"{width} of {me}"),
        ("widths", list(graph.widths) == list(graph.columns), "those of the owners of columns"),
        ("widths", all(graph.widths.values()), "at least 1 for each owner"),
    ):
        require(holds, COORDINATOR, FusionGraph, part, f"expected {expected}")
    with blaming(COORDINATOR, FusionGraph, "columns"):
        return graph_of(graph.columns, graph.widths, plan.operation, target.size or 1)


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, slots=True)
class TrainedFusion:
    """What the coordinator has at the end."""

    view: FusionView
    notes: tuple[str, ...] = ()


def coordinator(plan: FusionPlan) -> Flow[TrainedFusion]:
    yield from agree_on_task(plan.members, plan.task)
    hellos = yield from hello.hellos_of(plan.members, METHOD)
    target, holders = yield from _assign(hellos, plan)
    if plan.share_target:
        yield from match_tokens({p: said.rows for p, said in hellos.items()}, holders)
    every, facts = yield from _gathered(hellos, plan, target)
    labels = [gathering.labels_of(said) for said in facts.values()]
    y = agreed_values(every.where, labels, plan.members, plan.target)
    flags = [said.held for said in facts.values()]
    held = agreed_values(every.where, flags, plan.members, "held-out rows") > 0
    about = repr((plan.settings, plan.vote, plan.seed, *plan.members))
    view = yield from compute(
        "learning the fusion",
        lambda: _fused(every.rows, y, held, facts, plan, target),
        key=digest(about, every.rows.h, y),
    )
    columns = {p: facts[p].columns for p in view.owners}
    yield from broadcast(plan.members, FusionGraph(columns, _widths(facts)))
    return TrainedFusion(view, _notes(hellos, every, plan))


def _assign(
    hellos: Mapping[str, Hello], plan: FusionPlan
) -> Flow[tuple[Variable, tuple[str, ...]]]:
    """Tell every owner what to do; the target as all mean it, and who holds it."""
    ids = all(hello.ids for hello in hellos.values())
    if not ids and len(hellos) > 1:
        raise FederationError(
            "owners' rows are joined by row ids, and not all have them: Federation(…, row_id='…') "
            "or Table.from_series(…, row_id=ids)"
        )
    schemas = {p: hello.schema for p, hello in hellos.items()}
    schema = agree(schemas)
    if plan.target not in schema:
        raise FederationError(f"none of {', '.join(hellos)} has a column {plan.target!r}")
    target = schema[plan.target]
    check_vote(plan.vote, target)
    holders = tuple(p for p, hello in schemas.items() if plan.target in hello)
    for party in hellos:
        variables = schema.select(schemas[party].names).variables
        named = holders if plan.share_target else None
        assignment = FusionAssignment(plan.members, variables, ids, named, target)
        yield from send(party, assignment)
    return target, holders


def check_vote(vote: Vote | None, target: Variable) -> None:
    if vote == "threshold" and target.size != 2:
        kind = f"one of {target.size} classes" if target.size else "a number"
        raise FederationError(
            f"head='threshold' needs a target with two classes; {target.name!r} is {kind}: use "
            "head='vote'"
        )


def _gathered(
    hellos: Mapping[str, Hello], plan: FusionPlan, target: Variable
) -> Flow[tuple[JoinedRows, dict[str, RowFacts]]]:
    """All rows, and what every party has sent about its own."""
    showing = plan.showing
    if showing.summation is None:
        sizes = {p: hello.rows for p, hello in hellos.items()}
        messages = yield from gather(plan.members, gathering.TrainingRepresentations)
        facts = {p: message.facts for p, message in messages.items()}
        gathering.check_facts(facts, gathering.TrainingRepresentations, hellos, target)
        _check_widths(_widths(facts), plan)
        return gathering.joined(messages, _widths(facts), showing.traffic, sizes), facts
    listed = yield from gather(plan.members, ListedRows)
    for party, message in listed.items():
        fits = message.facts is not None and message.facts.width == message.width
        require(fits, party, ListedRows, "facts", f"expected those of width {message.width}")
        rows = hellos[party].rows
        require(message.rows == rows, party, ListedRows, "rows", f"expected {rows}")
    facts = {p: message.facts for p, message in listed.items() if message.facts is not None}
    gathering.check_facts(facts, ListedRows, hellos, target)
    return (yield from gathering.gather_sums(listed, showing.summation)), facts


def _widths(facts: Mapping[str, RowFacts]) -> dict[str, int]:
    """By owner: other parties hold labels only."""
    return {p: fact.width for p, fact in facts.items() if fact.width}


def _check_widths(widths: Mapping[str, int], plan: FusionPlan) -> None:
    settings = plan.settings
    if not widths:
        raise FederationError(f"no party holds a column besides {plan.target!r} to predict it from")
    if len(set(widths.values())) == 1 or plan.vote or settings.head == "concat":
        return
    if settings.align != "linear":
        (a, x), (b, y), *_ = sorted({w: p for p, w in widths.items()}.items())
        raise FederationError(
            f"{x} has representations of {a} numbers and {y} of {b}: align='linear' maps them to "
            f"one width; align={settings.align!r} needs encoders of equal width"
        )


def _fused(
    every: OwnerRows, y: Array, held: Flags, facts: Mapping[str, RowFacts], plan: FusionPlan,
    target: Variable,
) -> FusionView:  # fmt: skip
    """The fusion of rows with a label (y is NaN without), which stops by the held-out ones."""
    known = np.flatnonzero(~np.isnan(y) & every.there.any(axis=1))
    if not len(known):
        raise FederationError(f"no row has both a representation and a value of {plan.target!r}")
    known = known[gathering.content_order(every.rows(known), y[known])]
    rows, y, held = every.rows(known), y[known], held[known]
    held = np.zeros(len(held), np.bool_) if held.all() else held
    outputs, scale, overall = target.size or 1, (0.0, 1.0), np.array([y.mean()])
    if target.size:
        overall = np.bincount(y.astype(np.int64), minlength=target.size) / len(y)
    elif plan.vote is None:
        scale = float(y.mean()), float(y.std()) or 1.0
    widths = _widths(facts)
    owners = tuple(widths)
    fusion: Fusion | Votes
    if plan.vote is not None:
        fusion = elect(plan.vote, rows, y, held, target.size)
    else:
        truth = ((y - scale[0]) / scale[1]).astype(np.float32)
        at = [plan.members.index(p) for p in owners]
        fusion = fuse(
            rows, truth if target.size else truth[:, None], held,
            "classes" if target.size else "numbers", outputs, plan.settings, plan.seed,
            None if plan.given is None else plan.given[np.ix_(at, at)],
        )  # fmt: skip
    columns = {p: facts[p].columns for p in owners}
    graph = graph_of(columns, widths, plan.operation, outputs)
    return FusionView(*graph, target, overall, owners, max(widths.values()), fusion, scale)


def _notes(hellos: Mapping[str, Hello], every: JoinedRows, plan: FusionPlan) -> tuple[str, ...]:
    """What the user should know of how it was learned."""
    notes = []
    unlabelled = [p for p, hello in hellos.items() if plan.target not in hello.schema]
    if unlabelled and not plan.share_target:
        names = ", ".join(unlabelled[:4]) + (" …" if len(unlabelled) > 4 else "")
        notes.append(
            f"{names} learned without labels because they lack {plan.target!r}; with "
            "share_target=True its holders send them its values"
        )
    if len(hellos) > 1 and (every.where >= 0).sum(axis=1).max() < 2:
        notes.append(
            "no row is held by two owners, so nothing was fused: check that all owners write row "
            "ids in the same way"
        )
    return tuple(notes)
