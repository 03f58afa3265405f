"""Baselines whose owners train together, all owners in one batched computation.

What the flows of joint_training.py compute, without their messages: owners of one shape go through
one product, which takes a fraction of the time of 207 owners after each other. A test compares
both.

    tied     one start, all owners; after every epoch the mean of shared weights
    jointly  the fusion's gradient goes back to every owner's encoder, batch by batch
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from sklearn.base import clone

import fedcircuits as fc
from benchmarks.fusion.joint_training import SteppedEncoder
from benchmarks.fusion.sets import TARGET
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.agreement import in_agreed
from fedcircuits.learning.encoders.apart import OWNERS, Learned, Training, ends
from fedcircuits.learning.encoders.choosing import EncoderJob
from fedcircuits.learning.encoders.encoders import NetworkEncoder
from fedcircuits.learning.encoders.foreign import Frozen
from fedcircuits.learning.encoders.networks import views
from fedcircuits.methods.fusion.fitting import Fusion, FusionTraining, OwnerRows, Standardisation
from fedcircuits.methods.fusion.gathering import content_order
from fedcircuits.methods.fusion.training import job_of


class Owners:
    """Encoders of one shape on the same rows, whose weights are stepped at once."""

    def __init__(self, model: fc.FeatureFusion, train: fc.Federation, encoder: NetworkEncoder):
        seed = int(model.random_state or 0)
        given = model._given(train, TARGET, train.names)
        self.plan = model._plan(TARGET, seed, train.names, given)
        target = train.schema[TARGET]
        self.jobs: list[EncoderJob] = []
        for party in train:
            table = in_agreed(party.table, train.schema)
            y = table.values[:, table.schema.index(TARGET)]
            self.jobs.append(job_of(party, table, target, y, encoder, self.plan))
        self.names = train.names
        self.encoders: list[NetworkEncoder] = [clone(encoder) for _ in self.jobs]
        self.ready = [
            e.ready(j.table, j.target, j.held, j.seed)
            for e, j in zip(self.encoders, self.jobs, strict=True)
        ]
        self.schedule = encoder.schedule()
        first = self.ready[0]
        jobs = [r.job for r in self.ready]
        self.runs = [
            Training(
                first.network, first.goal, first.outputs, jobs[at : at + OWNERS], self.schedule,
                stops=False,
            )
            for at in range(0, len(jobs), OWNERS)
        ]  # fmt: skip

    @property
    def weights(self) -> Array:
        """(owners, size)"""
        return np.concatenate([r.adam.flat.detach().numpy() for r in self.runs])

    def put(self, weights: Array) -> None:
        at = 0
        for run in self.runs:
            count = len(run.adam.flat)
            part = weights[at : at + count].astype(np.float32)
            with torch.no_grad():
                run.adam.flat.copy_(torch.from_numpy(part))
            at += count

    def finished(self, weights: Array) -> dict[str, Frozen]:
        found = {}
        for i, name in enumerate(self.names):
            learned = Learned(weights[i].astype(np.float32), np.zeros(0, np.float32), 0)
            own = self.encoders[i].keep(self.ready[i], learned)
            found[name] = Frozen(own)
        return found


def tied(
    model: fc.FeatureFusion, train: fc.Federation, encoder: NetworkEncoder, every: bool
) -> dict[str, Frozen]:
    """Encoders that are tied, or averaged in ``every`` weight."""
    owners = Owners(model, train, encoder)
    shared = SteppedEncoder(owners.jobs[0]).shared(every)
    owners.put(np.repeat(owners.weights[:1], len(owners.jobs), axis=0))
    for _ in range(owners.schedule.epochs):
        for run in owners.runs:
            run.epoch()
        weights = owners.weights.astype(np.float64)
        weights[:, shared] = weights[:, shared].mean(axis=0)
        owners.put(weights)
    return owners.finished(owners.weights)


def jointly(
    model: fc.FeatureFusion, train: fc.Federation, encoder: NetworkEncoder,
    ready: Mapping[str, Frozen] | None,
) -> tuple[dict[str, Frozen], Fusion]:  # fmt: skip
    """Encoders and fusion that learn jointly, from ready encoders or from scratch."""
    owners = Owners(model, train, encoder)
    if ready is not None:
        owners.put(np.stack([ready[n].encoder.weights_ for n in owners.names]))  # type: ignore[attr-defined]
    x = torch.from_numpy(
        np.stack(
            [r.reading.read(j.table)[0] for r, j in zip(owners.ready, owners.jobs, strict=True)]
        )
    )  # (owners, rows, …)
    y, held = owners.jobs[0].table.values[:, -1], owners.jobs[0].held
    order = content_order(_gathered(_represented(owners.runs, x)), y)
    x, y, held = x[:, torch.from_numpy(order)], y[order].astype(np.float32), held[order]
    settings, whole = owners.plan.settings, _gathered(_represented(owners.runs, x))
    scale = (
        Standardisation.of(whole.rows(~held))
        if ready is not None and settings.standardises
        else None
    )
    outputs = train.schema[TARGET].size
    training = FusionTraining(
        whole, y, held, "classes", outputs, settings, owners.plan.seed, owners.plan.given, scale
    )
    best = _descended(owners, training, x[:, torch.from_numpy(~held)], x[:, torch.from_numpy(held)])
    return owners.finished(best), training.fusion()


def _descended(
    owners: Owners, training: FusionTraining, learn: torch.Tensor, judge: torch.Tensor
) -> Array:
    """The weights with the least loss on rows held back."""
    best = owners.weights
    for _ in range(training.settings.epochs):
        order = training.rng.permutation(learn.shape[1])
        total = 0.0
        for at in range(0, len(order), training.settings.batch):
            where = torch.from_numpy(order[at : at + training.settings.batch])
            total += _stepped(owners.runs, training, learn[:, where], training.y[where])
        training.history["training"].append(total / len(order))
        training.valid = _represented(owners.runs, judge), None
        training.judge()
        if training.best == len(training.history["held back"]):
            best = owners.weights
        if ends(training.history["held back"], training.settings.patience):
            break
    return best


def _stepped(
    runs: Sequence[Training], training: FusionTraining, x: torch.Tensor, y: torch.Tensor
) -> float:
    parts, at = [], 0
    for run in runs:
        weights = views(run.adam.flat, run.shapes)
        parts.append(run.network.represent(weights, x[at : at + len(run.adam.flat)]))
        at += len(run.adam.flat)
    h = torch.cat([p.detach() for p in parts]).contiguous().requires_grad_()
    loss = training.step(h, None, y)
    assert h.grad is not None
    for run, part, slope in zip(runs, parts, h.grad.split([len(p) for p in parts]), strict=True):
        (gradient,) = torch.autograd.grad(part, run.adam.flat, slope)
        run.adam.step(gradient)
    return loss * len(y)


def _represented(runs: Sequence[Training], x: torch.Tensor) -> torch.Tensor:
    """(owners, rows, width)"""
    found, at = [], 0
    with torch.no_grad():
        for run in runs:
            weights = views(run.adam.flat, run.shapes)
            found.append(run.network.represent(weights, x[at : at + len(run.adam.flat)]))
            at += len(run.adam.flat)
    return torch.cat(found).contiguous()


def _gathered(h: torch.Tensor) -> OwnerRows:
    return OwnerRows(h.numpy(), np.ones((h.shape[1], h.shape[0]), bool))
