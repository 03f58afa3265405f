"""Owners that train together instead of apart, as flows: what one gather is compared with.

    tied, averaged   the first owner tells its start; after every epoch owners send it the weights
                     that they share, and it sends the mean. It learns every owner's weights. Tied
                     encoders share everything but their first layers, so that numbers of
                     representations come to mean the same; averaged ones share all weights, which
                     is federated averaging of one model
    joint, scratch   owner → coordinator, once: row tokens, labels, which rows are held back. Then
                     for every batch: coordinator → owner: which of its rows, and the gradient at
                     its representations of the batch before; owner → coordinator: those of the
                     batch. After every epoch the same for rows held back, without gradient. It is
                     vertical federated learning. "joint" starts from encoders trained apart

Of joint training the coordinator learns representations of every row in every epoch, owners the
gradient of the loss, from which labels can be inferred. It takes 2 messages per owner and batch,
where fusion takes one in all. Encoders must be networks of ours; tied ones all of one shape.
together.py computes the same for all owners at once, without messages; a test compares both.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.errors import ParameterError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, Program, gather, receive, send
from fedcircuits.federation.messages import (
    AnyNumbers,
    Booleans,
    Count,
    FiniteMatrix,
    IntegerVector,
    Ledger,
    Message,
    require_shape,
)
from fedcircuits.federation.sums.collectives import TreeSum
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.federation.sums.topology import star
from fedcircuits.learning.encoders.apart import PIECE, Floats, Learned, Training, ends
from fedcircuits.learning.encoders.choosing import EncoderJob
from fedcircuits.learning.encoders.encoders import NetworkEncoder
from fedcircuits.learning.encoders.networks import views
from fedcircuits.methods.fusion.fitting import (
    Fusion,
    FusionTraining,
    OwnerRows,
    Standardisation,
    batch_of,
)
from fedcircuits.methods.fusion.gathering import content_order
from fedcircuits.methods.fusion.training import FusionPlan
from fedcircuits.methods.meeting.tokens import (
    TokenMessage,
    agreed_values,
    match_messages,
    rising_order,
)
from fedcircuits.methods.meeting.tokens import tokens as tokens_of

FIRST = ("inputs", "weight 0", "bias 0")  # layers that are never tied
WHAT = "representations of single rows"
KEY = bytes(range(32))


class JointRows(TokenMessage, frozen=True):
    """Which rows an owner has, and what it knows of them."""

    tag: ClassVar[str] = "joint/tokens"
    reveals: ClassVar[str] = "labels of rows, and which it holds"

    there: Booleans
    held: Booleans
    width: Count
    labels: AnyNumbers


class JointTurn(Message, frozen=True):
    """What an owner does next: a step, a look at rows, or the end."""

    tag: ClassVar[str] = "joint/rows"
    reveals: ClassVar[str] = "which of its rows are used, and how the loss changes with them"

    kind: Literal["learn", "look", "end"]
    best: bool  # whether its weights are the best so far
    rows: IntegerVector
    gradient: FiniteMatrix | None


class JointValues(Message, frozen=True):
    tag: ClassVar[str] = "joint/values"
    reveals: ClassVar[str] = WHAT

    values: FiniteMatrix


class SteppedEncoder:
    """One owner's network while owners train together, a step at a time."""

    def __init__(self, job: EncoderJob) -> None:
        assert isinstance(job.encoder, NetworkEncoder)
        self.job = job
        self.encoder: NetworkEncoder = clone(job.encoder)
        self.ready = self.encoder.ready(job.table, job.target, job.held, job.seed)
        self.schedule = self.encoder.schedule()
        self.run = Training(
            self.ready.network, self.ready.goal, self.ready.outputs, [self.ready.job],
            self.schedule, stops=False,
        )  # fmt: skip
        self._pending: torch.Tensor | None = None

    @property
    def weights(self) -> Floats:
        """(size,)"""
        return np.array(self.run.adam.flat.detach().numpy()[0])

    def with_weights(self, weights: npt.NDArray[np.floating]) -> Self:
        if weights.shape != self.weights.shape:
            raise ParameterError("encoders that are trained together must have one shape")
        with torch.no_grad():
            self.run.adam.flat.copy_(torch.from_numpy(weights.astype(np.float32))[None])
        return self

    def shared(self, every: bool) -> npt.NDArray[np.bool_]:
        """(size,): which weights are averaged."""
        parts = [
            np.full(int(np.prod(shape)), every or name not in FIRST)
            for name, shape in self.run.shapes.items()
        ]
        return np.concatenate(parts)

    def forward(self, x: Floats) -> Floats:
        """Representations (rows, width) of inputs, whose gradient ``backward`` will take."""
        weights = views(self.run.adam.flat, self.run.shapes)
        h = self.ready.network.represent(weights, torch.from_numpy(x)[None])[0]
        self._pending = h
        return np.asarray(h.detach().numpy())

    def backward(self, gradient: npt.NDArray[np.floating]) -> None:
        """One step of the optimiser, by the gradient at what ``forward`` gave."""
        assert self._pending is not None
        (slope,) = torch.autograd.grad(
            self._pending, self.run.adam.flat, torch.from_numpy(np.array(gradient, np.float32))
        )
        self.run.adam.step(slope)
        self._pending = None

    def represent(self, x: Floats) -> Floats:
        with torch.no_grad():
            weights = views(self.run.adam.flat, self.run.shapes)
            parts = [
                self.ready.network.represent(weights, torch.from_numpy(x[at : at + PIECE])[None])[0]
                for at in range(0, len(x), PIECE)
            ]
        return np.concatenate([np.zeros((0, self.width), np.float32), *(p.numpy() for p in parts)])

    @property
    def width(self) -> int:
        return int(self.ready.network.width)

    def finish(self) -> NetworkEncoder:
        """The encoder with the weights as they are."""
        history = np.array(self.run.history[0], np.float32)
        learned = Learned(self.weights, history, len(history))
        return self.encoder.keep(self.ready, learned)


# ---------------------------------------------------------------------- tied training


def tied(jobs: Mapping[str, EncoderJob], every: bool) -> tuple[dict[str, NetworkEncoder], Ledger]:
    """Encoders whose weights are averaged after every epoch: ``every`` one, or but first layers."""
    names = tuple(jobs)
    programs = {
        name: Program(tie, {"me": name, "members": names, "job": job, "every": every})
        for name, job in jobs.items()
    }
    outcome = memory.run(programs)
    assert not outcome.lost, outcome.lost
    return outcome.results, outcome.ledger


def tie(me: str, members: Sequence[str], job: EncoderJob, every: bool) -> Flow[NetworkEncoder]:
    own = SteppedEncoder(job)
    summation = TreeSum(me, star(tuple(members), members[0]))
    start = yield from summation.agree(
        "tie/start", own.weights.astype(np.float64), "weights to begin with"
    )
    own.with_weights(np.asarray(start))
    shared = own.shared(every)
    for epoch in range(own.schedule.epochs):
        own.run.epoch()
        weights = own.weights
        total = yield from summation.sum(
            f"tie/weights/{epoch}", weights[shared].astype(np.float64), "weights of its encoder"
        )
        weights[shared] = total / len(members)
        own.with_weights(weights)
    return own.finish()


# ---------------------------------------------------------------------- joint training


def joint(
    jobs: Mapping[str, EncoderJob],
    plan: FusionPlan,
    target: fc.Variable,
    learned: Mapping[str, NetworkEncoder] | None,
) -> tuple[dict[str, NetworkEncoder], Fusion, Ledger]:
    """Encoders and fusion that learn together, from ``learned`` encoders or from scratch."""
    programs: dict[str, Program[object]] = {
        name: Program(join, {"job": job, "learned": learned and learned[name]})
        for name, job in jobs.items()
    }
    told = {"members": tuple(jobs), "plan": plan, "target": target, "learned": bool(learned)}
    programs[COORDINATOR] = Program(lead, told)
    outcome = memory.run(programs)
    assert not outcome.lost, outcome.lost
    fusion = outcome.results.pop(COORDINATOR)
    assert isinstance(fusion, Fusion)
    return outcome.results, fusion, outcome.ledger  # type: ignore[return-value]


def join(job: EncoderJob, learned: NetworkEncoder | None) -> Flow[NetworkEncoder]:
    """An owner's part; ``learned`` is its encoder to go on from."""
    own = SteppedEncoder(job)
    if learned is not None:
        own.with_weights(learned.weights_)
    x, known = own.ready.reading.read(job.table)
    assert job.table.row_ids is not None
    tokens, order = rising_order(tokens_of(job.table.row_ids, KEY))
    labels = job.table.values[order, -1]
    message = JointRows(tokens, known[order], job.held[order], own.width, labels)  # type: ignore[arg-type]
    yield from send(COORDINATOR, message)
    x, best, number = x[order], own.weights, 0
    while True:
        turn = yield from receive(COORDINATOR, JointTurn, f"{JointTurn.tag}/{number}")
        if turn.gradient is not None:
            own.backward(turn.gradient)
        if turn.best:
            best = own.weights
        if turn.kind == "end":
            return own.with_weights(best).finish()
        rows = x[turn.rows.astype(np.int64)]
        h = own.forward(rows) if turn.kind == "learn" else own.represent(rows)
        yield from send(COORDINATOR, JointValues(h), f"{JointValues.tag}/{number}")  # type: ignore[arg-type]
        number += 1


class Leader:
    """The coordinator's part: which rows are asked for, and what comes back."""

    def __init__(self, sent: Mapping[str, JointRows], target: str) -> None:
        self.owners = tuple(sent)
        self.width = max(m.width for m in sent.values())
        self.where = match_messages(sent)
        self.y = agreed_values(self.where, [m.labels for m in sent.values()], self.owners, target)
        held = [m.held for m in sent.values()]
        self.held = agreed_values(self.where, held, self.owners, "rows held back") > 0
        there = [m.there.astype(np.float64) for m in sent.values()]
        self.there = np.stack(
            [np.where(w >= 0, t[w], 0) > 0 for w, t in zip(self.where.T, there, strict=True)],
            axis=1,
        )
        self.number = 0

    def rows(
        self, kind: Literal["learn", "look", "end"], rows: Labels,
        back: Sequence[Array] | None = None, best: bool = False,
    ) -> Flow[OwnerRows]:  # fmt: skip
        """Representations of rows, after the gradient of the rows before."""
        h = np.zeros((len(self.owners), len(rows), self.width), np.float32)
        places = []
        for i, party in enumerate(self.owners):
            has = np.flatnonzero(self.where[rows, i] >= 0)
            places.append(has)
            gradient = None if back is None else back[i]
            turn = JointTurn(kind, best, self.where[rows[has], i], gradient)
            yield from send(party, turn, f"{JointTurn.tag}/{self.number}")
        if kind == "end":
            return OwnerRows(h, self.there[rows])
        sent = yield from gather(self.owners, JointValues, f"{JointValues.tag}/{self.number}")
        for i, party in enumerate(self.owners):
            values = sent[party].values
            require_shape(values, (len(places[i]), None), party, JointValues, "values")
            h[i, places[i], : values.shape[1]] = values
        self.places, self.widths = places, [sent[p].values.shape[1] for p in self.owners]
        self.number += 1
        return OwnerRows(h * self.there[rows].T[..., None], self.there[rows])

    def back(self, gradient: npt.NDArray[np.floating]) -> list[Array]:
        """Each owner's part of (owners, rows, width)."""
        return [
            np.ascontiguousarray(gradient[i][places][:, :wide])
            for i, (places, wide) in enumerate(zip(self.places, self.widths, strict=True))
        ]


def lead(
    members: Sequence[str], plan: FusionPlan, target: fc.Variable, learned: bool
) -> Flow[Fusion]:
    """The fusion of classes; ``learned``: what encoders say to begin with sets the scale."""
    settings = plan.settings
    leader = Leader((yield from gather(members, JointRows)), target.name)
    known = np.flatnonzero(~np.isnan(leader.y) & leader.there.any(axis=1))
    rows = yield from leader.rows("look", known)
    order = content_order(rows, leader.y[known])  # the same in every run
    known, rows = known[order], rows.rows(order)
    held = leader.held[known]
    scale = Standardisation.of(rows.rows(~held)) if learned and settings.standardises else None
    truth = leader.y[known].astype(np.float32)
    training = FusionTraining(
        rows, truth, held, "classes", target.size, settings, plan.seed, plan.given, scale
    )
    learn, judge = known[~held], known[held] if held.any() else known
    back: list[Array] | None = None
    for _ in range(settings.epochs):
        back = yield from _epoch(leader, training, learn, back)
        training.valid = batch_of((yield from leader.rows("look", judge, back)))
        back = None
        training.judge()
        if training.best == len(training.history["held back"]):  # so far
            yield from leader.rows("look", judge[:0], best=True)
        if ends(training.history["held back"], settings.patience):
            break
    if settings.graph == "knn":
        training.train = batch_of((yield from leader.rows("look", learn)))
    yield from leader.rows("end", judge[:0])
    return training.fusion()


def _epoch(
    leader: Leader, training: FusionTraining, rows: Labels, back: list[Array] | None
) -> Flow[list[Array] | None]:
    order = training.rng.permutation(len(rows))
    total = 0.0
    for at in range(0, len(order), training.settings.batch):
        where = order[at : at + training.settings.batch]
        batch = yield from leader.rows("learn", rows[where], back)
        h, there = batch_of(batch)
        h.requires_grad_()
        total += training.step(h, there, training.y[where]) * len(where)
        assert h.grad is not None
        back = leader.back(h.grad.numpy())
    training.history["training"].append(total / max(1, len(order)))
    return back
