"""Owners that train together instead of apart, for comparison with one gather.

    tied, averaged   the first owner tells its start; after every epoch owners send it the weights
                     that they share, and it sends the mean. It learns every owner's weights.
    joint, scratch   owner → coordinator, once: row tokens, labels, which rows are held back. Then
                     for every batch: coordinator → owner: which of its rows, and the gradient
                     at its representations of the batch before; owner → coordinator: those of
                     the batch. After every epoch the same for rows held back, without gradient.
                     "joint" starts from encoders that were trained apart.

Of joint training the coordinator learns representations of every row in every epoch, owners the
gradient of the loss, from which labels can be inferred. It takes 2 messages an owner and batch,
where fusion takes one in all. Encoders must be networks of ours; tied ones all of one shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import HubSum, gather_payloads
from fedcircuits.federation.tokens import Labels, Tokens, matched
from fedcircuits.federation.wire import AnyArray
from fedcircuits.learning.encoders.encoders import Encoder, Frozen, Job
from fedcircuits.methods.fusion.fitting import (
    Fusion,
    FusionSettings,
    FusionTraining,
    Gathered,
    Scale,
    batch_of,
)
from fedcircuits.methods.fusion.rows import content_order, told
from fedcircuits.methods.fusion.together import Session
from fedcircuits.tables.schema import Variable

WHAT = "representations of single rows"


def tie(me: str, members: Sequence[str], job: Job, every: bool) -> Flow[Encoder]:
    """Every owner's part of tied training."""
    session = Session(job)
    summation = HubSum(me, tuple(members), members[0])
    start = yield from summation.agree(
        "tie/start", session.weights.astype(np.float64), "weights to begin with"
    )
    session.with_weights(np.asarray(start))
    shared = session.shared(every)
    for epoch in range(session.schedule.epochs):
        session.epoch()
        weights = session.weights
        total = yield from summation.sum(
            f"tie/weights/{epoch}", weights[shared].astype(np.float64), "weights of its encoder"
        )
        weights[shared] = total / len(members)
        session.with_weights(weights)
    return session.finish()


# ---------------------------------------------------------------------- joint training


def join(job: Job, own: Tokens, labels: AnyArray | None, learned: Encoder | None) -> Flow[Encoder]:
    """An owner's part; ``learned`` is its encoder to go on from."""
    session = Session(job)
    if learned is not None:
        apart = learned.encoder if isinstance(learned, Frozen) else learned
        session.with_weights(apart.weights_)  # type: ignore[attr-defined]
    x, known = session.ready.reading.read(job.table)
    order = np.argsort(own)
    message: dict[str, AnyArray] = {
        "tokens": own[order],
        "there": known[order],
        "held": job.held[order],
        "width": np.array([session.width]),
    }
    if labels is not None:
        message["labels"] = labels[order]
    yield from send_payload(
        COORDINATOR, "joint/tokens", message, "labels of rows, and which it holds"
    )
    x, best, turn = x[order], session.weights, 0
    while True:
        tag = f"joint/rows/{turn}"
        asked = expect((yield from recv_payload(COORDINATOR, tag)), dict, COORDINATOR, tag)
        if "gradient" in asked:
            session.backward(asked["gradient"])
        if asked["kind"][1]:
            best = session.weights
        if asked["kind"][0] == 2:
            return session.with_weights(best).finish()
        rows = x[asked["rows"].astype(np.int64)]
        found = session.forward(rows) if asked["kind"][0] == 0 else session.represent(rows)
        yield from send_payload(COORDINATOR, f"joint/values/{turn}", found, WHAT)
        turn += 1


class _Leader:
    """The coordinator's part: which rows are asked for, and what comes back."""

    def __init__(self, sent: Mapping[str, Mapping[str, AnyArray]], target: Variable) -> None:
        self.owners = tuple(sent)
        self.width = max(int(m["width"][0]) for m in sent.values())
        self.where = matched([np.asarray(m["tokens"], np.uint64) for m in sent.values()])
        labels = [np.asarray(m.get("labels", np.zeros(0)), np.float64) for m in sent.values()]
        if target.size:
            labels = [np.where(own < 0, np.nan, own) for own in labels]
        self.y = told(self.where, labels, self.owners, target.name)
        held = [m["held"] for m in sent.values()]
        self.held = told(self.where, held, self.owners, "rows held back") > 0
        there = [m["there"].astype(np.float64) for m in sent.values()]
        self.there = np.stack(
            [np.where(w >= 0, t[w], 0) > 0 for w, t in zip(self.where.T, there, strict=True)],
            axis=1,
        )
        self.turn = 0

    def rows(
        self, kind: int, rows: Labels, back: Sequence[AnyArray] | None, best: bool
    ) -> Flow[Gathered]:
        """Representations of rows, after the gradient of the rows before."""
        h = np.zeros((len(self.owners), len(rows), self.width), np.float32)
        places = []
        for i, party in enumerate(self.owners):
            has = np.flatnonzero(self.where[rows, i] >= 0)
            places.append(has)
            asked: dict[str, AnyArray] = {
                "kind": np.array([kind, int(best)]),
                "rows": self.where[rows[has], i],
            }
            if back is not None:
                asked["gradient"] = back[i]
            what = "which of its rows are used, and how the loss changes with them"
            yield from send_payload(party, f"joint/rows/{self.turn}", asked, what)
        if kind == 2:
            return Gathered(h, self.there[rows])
        found = yield from gather_payloads(self.owners, f"joint/values/{self.turn}")
        for i, party in enumerate(self.owners):
            own = expect(found[party], np.ndarray, party, "joint/values")
            if own.shape[0] != len(places[i]) or own.shape[1] > self.width:
                raise ProtocolError(f"{party} sent representations of the shape {own.shape}")
            h[i, places[i], : own.shape[1]] = own
        self.places, self.widths = places, [found[p].shape[1] for p in self.owners]  # type: ignore[union-attr]
        self.turn += 1
        return Gathered(h * self.there[rows].T[..., None], self.there[rows])

    def back(self, gradient: Array) -> list[AnyArray]:
        """Each owner's part of (owners, rows, width)."""
        return [
            np.ascontiguousarray(gradient[i][places][:, :wide])
            for i, (places, wide) in enumerate(zip(self.places, self.widths, strict=True))
        ]


def lead(
    members: Sequence[str], target: Variable, settings: FusionSettings, seed: int,
    given: Array | None, learned: bool,
) -> Flow[tuple[Fusion, tuple[float, float]]]:  # fmt: skip
    """The fusion, and the mean and deviation of a number that it predicts.

    ``learned``: encoders were trained apart, and what they say to begin with sets the scale.
    """
    heard = yield from gather_payloads(members, "joint/tokens")
    leader = _Leader({p: expect(heard[p], dict, p, "joint/tokens") for p in members}, target)
    known = np.flatnonzero(~np.isnan(leader.y) & leader.there.any(axis=1))
    rows = yield from leader.rows(1, known, None, best=False)
    order = content_order(rows, leader.y[known])  # the same in every run
    known, rows = known[order], rows.rows(order)
    held = leader.held[known]
    scale_h = Scale.of(rows.rows(~held)) if learned and settings.standardises else None
    y, scale = leader.y[known], (0.0, 1.0)
    if not target.size:
        scale = float(y.mean()), float(y.std()) or 1.0
    truth = ((y - scale[0]) / scale[1]).astype(np.float32)
    truth = truth if target.size else truth[:, None]
    training = FusionTraining(
        rows, truth, held, "classes" if target.size else "numbers", target.size or 1, settings,
        seed, given, scale_h,
    )  # fmt: skip
    learn, judge = known[~held], known[held] if held.any() else known
    back: list[AnyArray] | None = None
    for _ in range(settings.epochs):
        back = yield from _epoch(leader, training, learn, back)
        training.valid = batch_of((yield from leader.rows(1, judge, back, best=False)))
        back = None
        training.judge()
        if training.best == len(training.history["held back"]):  # so far
            yield from leader.rows(1, judge[:0], None, best=True)
        if len(training.history["held back"]) - training.best >= settings.patience:
            break
    if settings.graph == "knn":
        training.train = batch_of((yield from leader.rows(1, learn, None, best=False)))
    yield from leader.rows(2, judge[:0], None, best=False)
    return training.fusion(), scale


def _epoch(
    leader: _Leader, training: FusionTraining, rows: Labels, back: list[AnyArray] | None
) -> Flow[list[AnyArray] | None]:
    order = training.rng.permutation(len(rows))
    total = 0.0
    for at in range(0, len(order), training.settings.batch):
        where = order[at : at + training.settings.batch]
        batch = yield from leader.rows(0, rows[where], back, best=False)
        h, there = batch_of(batch)
        h.requires_grad_()
        total += training.step(h, there, training.y[where]) * len(where)
        assert h.grad is not None
        back = leader.back(h.grad.numpy())
    training.history["training"].append(total / max(1, len(order)))
    return back
