"""Federated feature fusion (Ma, Hoang and Chen 2023): owners train apart, one gather, one fusion.

Roles: owners hold columns, series and perhaps labels of rows, or labels alone; a coordinator holds
none.

    agree    owner → coordinator: names, kinds and categories of its columns, its number of rows.
             coordinator → owner: agreed kinds of its columns, who takes part.
    key      first owner → other owners, not the coordinator: a key for row tokens.
    labels   holders of the target → owners without it: row tokens and labels, only with
             share_target. Without it, those owners learn from their rows alone.
    gather   owner → coordinator, once: for each row a token, its representation (width numbers in
             float32, float16 or int8), its label where the owner has it, whether it is held back;
             and which columns were read.
    graph    coordinator → owner: the graph and where its nodes live.
    query    fusion_query.py

Representations of single rows leave their owner: not the rows, but what its encoder says of them,
from which a reader who knows the encoder, or many rows, can infer things about them. They may be
clipped and noise added (``clip``, ``noise``). The coordinator learns representations, labels, and
which rows of different owners belong together, not which rows they are; owners learn who takes
part, the graph, and where they ask, predictions. Encoders stay with their owners.

Owners may lack rows, in training and in questions: an owner is absent from rows that it lacks, or
of which all its values are missing. Which rows are held back, to stop by, follows from ids and seed
(fusion_rows.py), so that no owner has learned from rows that the fusion stops by. A lost owner ends
training; others' encoders are kept. The run may be repeated without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.federation.federation import COORDINATOR, Party, row_ids
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import Summation, broadcast_payload, gather_payloads
from fedcircuits.federation.tokens import Tokens, tokens
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.learning.encoders.apart import Goal
from fedcircuits.learning.encoders.encoders import Encoder, Job, fit_all, nothing_to_read
from fedcircuits.methods.fusion import joint_training as fusion_together
from fedcircuits.methods.fusion import sums as fusion_sums
from fedcircuits.methods.fusion.fitting import Fusion, FusionSettings, fuse
from fedcircuits.methods.fusion.fused import (
    FusionView,
    OwnerView,
    graph_of,
    require_predictions,
    vectors_of,
)
from fedcircuits.methods.fusion.rows import (
    Flags,
    Joined,
    Traffic,
    by_token,
    content_order,
    held_back,
    joined,
    masked,
    told,
)
from fedcircuits.methods.fusion.together import Together
from fedcircuits.methods.fusion.votes import Vote, Votes, elect
from fedcircuits.methods.meeting import hello as agreement
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table


@dataclass(frozen=True, slots=True)
class Plan:
    """What all parties of a run do alike."""

    target: str
    settings: FusionSettings
    vote: Vote | None = None  # predictions are combined instead of representations
    share_target: bool = False
    traffic: Traffic = "float32"
    validation: float = 0.125
    clip: float | None = None  # the largest norm of a representation
    noise: float = 0.0  # deviation of what is added to every number, as a share of clip
    given: Array | None = None  # a graph (owners, owners)
    seed: int = 0
    training: Literal["apart"] | Together = "apart"
    summation: Summation | None = None  # owners add representations up, and show no other

    @property
    def operation(self) -> str:
        return self.vote or self.settings.head


@dataclass(frozen=True, slots=True)
class Task:
    """What the coordinator has asked of an owner."""

    table: Table  # in the agreed kinds and codes
    target: Variable
    members: tuple[str, ...]
    receivers: tuple[str, ...]  # of labels, if this owner has them
    senders: tuple[str, ...]  # of labels, if it has not


# ---------------------------------------------------------------------- owners


def owner(party: Party, plan: Plan, encoder: Encoder, secret: bytes) -> Flow[OwnerView]:
    task = yield from _agreed(party)
    key = yield from agreement.key_of(party.name, task.members, secret)
    name = task.target.name
    y = yield from agreement.target_of(task.table, name, key, task.receivers, task.senders)
    job = job_of(party, task.table, task.target, y, encoder, plan)
    own = tokens(ids_of(task.table, party), key)
    learned = yield from _encoder(party, plan, task, job, own)
    if plan.vote is not None:
        require_predictions(learned, task.target, party.name)
    vectors = vectors_of(learned, task.table, plan.vote is not None)
    shown = masked(vectors, plan.clip, plan.noise, party.name, key)
    yield from _give(party, plan, task, job, own, shown, learned)
    heard = yield from recv_payload(COORDINATOR, "graph/circuit")
    graph = expect(heard, dict, COORDINATOR, "graph/circuit")
    return OwnerView(
        party.name, Circuit.from_json(graph["circuit"]), graph["placement"], task.target, learned,
        plan.vote is not None, party.allow_collect,
    )  # fmt: skip


def _encoder(party: Party, plan: Plan, task: Task, job: Job, own: Tokens) -> Flow[Encoder]:
    """The owner's encoder, trained apart or, for comparison, together with others."""
    if plan.training != "apart" and nothing_to_read(job.table, job.target):
        raise FederationError(
            f"{party.name} holds nothing but {plan.target!r}: training={plan.training!r} needs "
            "columns of every owner"
        )
    if plan.training in ("tied", "averaged"):
        every = plan.training == "averaged"
        return (yield from fusion_together.tie(party.name, task.members, job, every))
    learned = None
    if plan.training != "scratch":
        learned = yield from compute(_step_of(job, plan), job, fit_all)
    if plan.training in ("joint", "scratch"):
        labels = _own_labels(task)
        learned = yield from fusion_together.join(job, own, labels, learned)
    assert learned is not None
    return learned


def _agreed(party: Party) -> Flow[Task]:
    asked = yield from agreement.introduced(party)
    (target,) = Schema.from_json(asked["target"])
    return Task(
        in_agreed(party.table, Schema.from_json(asked["schema"])),
        target,
        tuple(asked["members"]),
        tuple(asked["receivers"]),
        tuple(asked["senders"]),
    )


def job_of(
    party: Party, table: Table, target: Variable, y: Array, encoder: Encoder, plan: Plan
) -> Job:
    """An owner's training: its rows with the labels that it has or was told."""
    columns = [n for n in table.names if n != target.name]
    plain = table.select((*columns, *table.series))
    schema = Schema((*plain.schema.variables, target))
    whole = Table(schema, np.column_stack([plain.values, y]), plain.row_ids, plain.series)
    held = held_back(ids_of(table, party), plan.validation, plan.seed)
    seed = (int(plan.seed), zlib.crc32(party.name.encode()))
    return Job(encoder, whole, target.name, held, seed)


def _step_of(job: Job, plan: Plan) -> str:
    """The name of an owner's training, by which its result is kept."""
    text = json.dumps(
        [repr(job.encoder), list(job.seed), plan.validation, job.table.schema.to_json()]
    )
    rows = zlib.crc32(job.table.values.tobytes())  # with labels
    for array in job.table.series.values():
        rows = zlib.crc32(array.tobytes(), rows)
    return f"training its encoder ({zlib.crc32(text.encode()):08x}{rows:08x})"


def ids_of(table: Table, party: Party) -> AnyArray:
    return np.arange(len(table)) if table.row_ids is None else row_ids(party)


def _give(
    party: Party, plan: Plan, task: Task, job: Job, own: Tokens, shown: Array, encoder: Encoder
) -> Flow[None]:
    """The one gather: representations, labels, rows held back, and which columns were read."""
    columns: dict[str, AnyArray] = {"held": job.held}
    labels = _own_labels(task)
    if labels is not None:
        columns["labels"] = labels
    name, reading = task.target.name, getattr(encoder, "reading_", None)
    names = [n for n in (*task.table.names, *task.table.series) if n != name]
    read = np.asarray(names if reading is None else reading.names, dtype=np.str_)
    if plan.summation is not None:
        others = {"columns": read}
        yield from fusion_sums.give(
            party.name, task.members, plan.summation, own, shown, columns, others
        )
        return
    _, message = by_token(own, shown, plan.traffic, **columns)
    message["columns"] = read
    told = _revealed(plan, shown.shape[1], labels is not None)
    yield from send_payload(COORDINATOR, "gather/rows", message, told)


def _own_labels(task: Task) -> AnyArray | None:
    """As they travel: codes, −1 where missing, or numbers; None if this owner has none."""
    if task.target.name not in task.table.schema:
        return None
    y = task.table.values[:, task.table.schema.index(task.target.name)]
    if not task.target.size:
        return y
    return np.where(np.isnan(y), -1, y).astype(np.int16 if task.target.size < 2**15 else np.int32)


def _revealed(plan: Plan, width: int, labels: bool) -> str:
    what = "predictions" if plan.vote else "representations"
    also = f", their values of {plan.target}" if labels else ""
    return f"{what} of single rows, {width} numbers each{also}; columns that its encoder reads"


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, slots=True)
class Trained:
    """What the coordinator has at the end."""

    view: FusionView
    notes: tuple[str, ...] = ()


def coordinator(members: Sequence[str], plan: Plan) -> Flow[Trained]:
    target, unlabelled = yield from _plans(members, plan)
    joint = None
    if plan.training in ("joint", "scratch"):
        joint = yield from fusion_together.lead(
            members, target, plan.settings, plan.seed, plan.given, plan.training == "joint"
        )
    if plan.summation is not None:
        summed = yield from fusion_sums.take(members, plan.summation)
        sent, whole = summed.sent, Joined(summed.rows, summed.where)
        widths = {p: summed.width for p in members if sent[p]["width"][0]}
    else:
        found = yield from gather_payloads(members, "gather/rows")
        sent = {p: expect(found[p], dict, p, "gather/rows") for p in members}
        every = {p: int(sent[p]["values"].shape[1]) for p in members}
        widths = {p: wide for p, wide in every.items() if wide}  # others hold the target alone
        _refuse_widths(widths, plan)
        whole = joined(sent, tuple(widths), max(widths.values()))
    y = _truth(whole, sent, plan)
    held = told(whole.where, [m["held"] for m in sent.values()], members, "rows held back") > 0
    columns = {p: [str(n) for n in sent[p]["columns"]] for p in widths}
    given = plan.given
    if given is not None:
        given = given[np.ix_(*[[list(members).index(p) for p in widths]] * 2)]
    stamp = zlib.crc32(repr((plan.settings, plan.vote, plan.seed, *members)).encode())
    for array in (whole.rows.h, y):
        stamp = zlib.crc32(array.tobytes(), stamp)
    view = yield from compute(
        f"learning the fusion ({stamp:08x})",
        lambda: _fused(_Material(whole, y, held, columns, widths, given), plan, target, joint),
    )
    graph: Json = {
        "circuit": cast(Json, view.circuit.to_json()),
        "placement": cast(Json, dict(view.placement)),
    }
    yield from broadcast_payload(members, "graph/circuit", graph, "the graph")
    return Trained(view, _notes(unlabelled, whole, members, plan))


def _plans(members: Sequence[str], plan: Plan) -> Flow[tuple[Variable, list[str]]]:
    schemas, ids = yield from agreement.schemas_of(members)
    if not ids and len(members) > 1:
        raise FederationError(
            "owners' rows are joined by row ids, and not all have them: Federation(…, row_id='…') "
            "or Table.from_series(…, row_id=ids)"
        )
    schema = agree(schemas)
    target = schema[plan.target]  # or an error that names it
    hold = [p for p in members if plan.target in schemas[p]]
    lack = [p for p in members if p not in hold]
    for party in members:
        asked = agreement.asked(party, members, schemas, schema) | {
            "target": schema.select([plan.target]).to_json(),
            "receivers": lack if plan.share_target and party in hold else [],
            "senders": hold if plan.share_target and party in lack else [],
        }
        yield from send_payload(party, "agree/plan", cast(Json, asked), "who takes part")
    return target, [] if plan.share_target else lack


def _refuse_widths(widths: Mapping[str, int], plan: Plan) -> None:
    settings = plan.settings
    if not widths:
        raise FederationError(f"nobody holds a column beside {plan.target!r} to predict it from")
    if len(set(widths.values())) == 1 or plan.vote or settings.head == "concat":
        return
    if settings.align != "linear":
        (a, x), (b, y), *_ = sorted({w: p for p, w in widths.items()}.items())
        raise FederationError(
            f"{x} has representations of {a} numbers and {y} of {b}: align='linear' takes them to "
            f"one width, align={settings.align!r} needs encoders of equal width"
        )


@dataclass(frozen=True, slots=True)
class _Material:
    """What the fusion is learned from."""

    whole: Joined
    y: Array  # (rows,)
    held: Flags  # (rows,)
    columns: Mapping[str, Sequence[str]]  # by owner
    widths: Mapping[str, int]
    given: Array | None  # a graph of these owners


def _fused(
    own: _Material, plan: Plan, target: Variable, joint: tuple[Fusion, tuple[float, float]] | None
) -> FusionView:
    known = np.flatnonzero(~np.isnan(own.y) & own.whole.rows.there.any(axis=1))
    if not len(known):
        raise FederationError(f"no row has both a representation and a value of {plan.target!r}")
    known = known[content_order(own.whole.rows.rows(known), own.y[known])]
    rows, y, held = own.whole.rows.rows(known), own.y[known], own.held[known]
    if held.all():
        held = np.zeros(len(held), np.bool_)
    scale = (0.0, 1.0)
    overall = np.array([y.mean()])
    if target.size:
        overall = np.bincount(y.astype(np.int64), minlength=target.size) / len(y)
    elif plan.vote is None:
        scale = float(y.mean()), float(y.std()) or 1.0
    fusion: Fusion | Votes
    if plan.vote is not None:
        fusion = elect(plan.vote, rows, y, held, target.size)
    elif joint is not None:
        fusion, scale = joint
    else:
        goal: Goal = "classes" if target.size else "numbers"
        truth = ((y - scale[0]) / scale[1]).astype(np.float32)
        truth = truth if target.size else truth[:, None]
        fusion = fuse(
            rows, truth, held, goal, target.size or 1, plan.settings, plan.seed, own.given
        )
    circuit, placement = graph_of(own.columns, own.widths, plan.operation, target.size or 1)
    width = max(own.widths.values())
    owners = tuple(own.widths)
    return FusionView(circuit, placement, target, overall, owners, width, fusion, scale)


def _truth(whole: Joined, sent: Mapping[str, Mapping[str, AnyArray]], plan: Plan) -> Array:
    labels: list[AnyArray] = []
    for message in sent.values():
        own = np.asarray(message.get("labels", np.zeros(0)))
        plain = own.astype(np.float64)
        labels.append(np.where(plain < 0, np.nan, plain) if own.dtype.kind == "i" else plain)
    return told(whole.where, labels, tuple(sent), plan.target)


def _notes(
    unlabelled: Sequence[str], whole: Joined, members: Sequence[str], plan: Plan
) -> tuple[str, ...]:
    """What the user should know of how it was learned."""
    found = []
    if unlabelled:
        names = ", ".join(unlabelled[:4]) + (" …" if len(unlabelled) > 4 else "")
        found.append(
            f"{names} learned without labels, from their rows alone: they lack {plan.target!r}; "
            "share_target=True lets its holders tell them"
        )
    if len(members) > 1 and (whole.where >= 0).sum(axis=1).max() < 2:
        found.append(
            "no row is held by two owners, so nothing was fused: look whether they write row ids "
            "in the same way"
        )
    return tuple(found)
