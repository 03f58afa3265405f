"""Separate training of many owners at once, each as if it were alone.

An owner has a network (networks.py) with a linear layer on its representation, which predicts a
class, a number, or the owner's input if there are no labels. Each owner has its own start, order of
rows and early stopping: Adam on batches, the weights with the least loss on held-back rows, an end
after ``patience`` epochs without a lower loss. Everything is elementwise along the axis of owners,
so a batch of owners learns the same as one after the other, up to the rounding of products.

Owners are processed ``OWNERS`` at a time: with more, a step no longer fits into caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.learning.encoders.networks import Network, Shapes, Weights, flattened, views
from fedcircuits.learning.stopping import EarlyStopping

Goal: TypeAlias = Literal["classes", "numbers"]
Floats: TypeAlias = npt.NDArray[np.float32]
Report: TypeAlias = Callable[[int, int, str], None]  # epochs done, and in all; in words
OWNERS = 32  # on one core 0.6 ms per owner and step, with 207 at once 0.7, with one 1.4
PIECE = 2048  # rows of one step without gradient
_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def reporting_to(report: Report) -> Iterator[None]:
    """Training inside reports its progress to ``report``."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def report_epoch(who: str, done: int, total: int) -> None:
    if (report := _REPORT.get()) is not None:
        report(done, total, f"{who}, epoch {done} of at most {total}")


@dataclass(frozen=True, slots=True)
class Schedule:
    epochs: int = 60
    learning_rate: float = 0.003
    batch: int = 100
    patience: int = 15


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What one owner learns from."""

    x: Floats  # (rows, …)
    y: Floats  # (rows, outputs): numbers, NaN where there are none; or (rows,): codes of classes
    held: npt.NDArray[np.bool_]  # (rows,): rows to stop by
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Learned:
    weights: Floats  # (size,)
    history: Floats  # (epochs,): losses on held-back rows
    best: int  # the epoch whose weights these are


def shapes_with_head(network: Network, outputs: int) -> Shapes:
    return {**network.shapes(), "head": (network.width, outputs), "head bias": (1, outputs)}


def learn(
    network: Network,
    goal: Goal,
    outputs: int,
    jobs: Sequence[TrainingJob],
    schedule: Schedule,
) -> list[Learned]:
    """Every owner's weights; all jobs have arrays of one shape and equally many held-back rows."""
    learned: list[Learned] = []
    total = -(-len(jobs) // OWNERS) * schedule.epochs
    for at in range(0, len(jobs), OWNERS):
        run = Training(network, goal, outputs, jobs[at : at + OWNERS], schedule)
        for epoch in range(schedule.epochs):
            done = at // OWNERS * schedule.epochs + epoch
            report_epoch(f"{len(jobs)} owners", done, total)
            if not run.epoch():
                break
        learned += run.learned()
    return learned


def head(weights: Weights, representation: Tensor) -> Tensor:
    """(owners, rows, outputs)"""
    return torch.baddbmm(weights["head bias"], representation, weights["head"])


def losses(goal: Goal, output: Tensor, y: Tensor) -> Tensor:
    """(owners,): the mean over rows, of cross-entropy or of squared errors."""
    if goal == "classes":
        flat = torch.nn.functional.cross_entropy(
            output.flatten(0, 1), y.long().flatten(), reduction="none"
        )
        return flat.view(y.shape).mean(dim=1)
    known = ~torch.isnan(y)
    error = torch.where(known, output - torch.nan_to_num(y), 0.0).square().sum(dim=(1, 2))
    return error / known.sum(dim=(1, 2)).clamp(min=1)


def ends(losses: Sequence[float], patience: int) -> bool:
    """Whether training ends by its losses on held-out rows (stopping.py)."""
    return EarlyStopping(patience).ends([-loss if isfinite(loss) else -inf for loss in losses])


class Adam:
    """On one vector an owner, (owners, size)."""

    def __init__(self, flat: Tensor, rate: float) -> None:
        self.flat, self.rate, self.steps = flat, rate, 0
        self.mean, self.square = torch.zeros_like(flat), torch.zeros_like(flat)

    def step(self, gradient: Tensor) -> None:
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = (self.square / (1 - 0.999**self.steps)).sqrt_().add_(1e-8)
        with torch.no_grad():
            self.flat.addcdiv_(self.mean, scale, value=-self.rate / (1 - 0.9**self.steps))

    def keep(self, owners: Tensor) -> None:
        """Go on with these owners alone."""
        self.flat = self.flat.detach()[owners].requires_grad_()
        self.mean, self.square = self.mean[owners], self.square[owners]


class Training:
    """Some owners' training, an epoch at a time; owners that have ended are left out."""

    def __init__(
        self, network: Network, goal: Goal, outputs: int, jobs: Sequence[TrainingJob],
        schedule: Schedule, stops: bool = True,
    ) -> None:  # fmt: skip
        self.network, self.goal, self.schedule, self.stops = network, goal, schedule, stops
        self.shapes = shapes_with_head(network, outputs)
        self.rngs = [np.random.default_rng(job.seed) for job in jobs]
        starts = [self._start(rng, outputs) for rng in self.rngs]
        self.adam = Adam(torch.tensor(np.stack(starts)).requires_grad_(), schedule.learning_rate)
        self.x, self.y = _stacked(jobs, held=False)
        self.held = _stacked(jobs, held=True)
        self.best = np.stack(starts)
        self.least = np.full(len(jobs), np.inf)
        self.when = np.zeros(len(jobs), np.int64)
        self.history: list[list[float]] = [[] for _ in jobs]
        self.active = np.arange(len(jobs))

    def _start(self, rng: np.random.Generator, outputs: int) -> Floats:
        weights = self.network.start(rng)
        bound = 1 / np.sqrt(self.network.width)
        weights["head"] = rng.uniform(-bound, bound, (self.network.width, outputs))
        weights["head bias"] = np.zeros((1, outputs))
        return flattened(weights, self.shapes)

    def epoch(self) -> bool:
        """Whether any owner continues."""
        rows = self.x.shape[1]
        orders = np.stack([self.rngs[i].permutation(rows) for i in self.active])
        order = torch.from_numpy(orders)
        owner = torch.arange(len(order))[:, None]
        for at in range(0, rows, self.schedule.batch):
            where = order[:, at : at + self.schedule.batch]
            weights = views(self.adam.flat, self.shapes)
            output = head(weights, self.network.represent(weights, self.x[owner, where]))
            loss = losses(self.goal, output, self.y[owner, where]).sum()
            (gradient,) = torch.autograd.grad(loss, self.adam.flat)
            self.adam.step(gradient)
        return self._judge()

    def _judge(self) -> bool:
        x, y = self.held if self.held[0].shape[1] else (self.x, self.y)
        with torch.no_grad():
            weights = views(self.adam.flat, self.shapes)
            each_loss = losses(self.goal, head(weights, self.network.represent(weights, x)), y)
        lower = each_loss.numpy() < self.least[self.active]
        for i, loss in zip(self.active, each_loss.tolist(), strict=True):
            self.history[i].append(loss)
        better = self.active[lower]
        self.best[better] = self.adam.flat.detach().numpy()[lower]
        self.least[better] = each_loss.numpy()[lower]
        self.when[better] = [len(self.history[i]) for i in better]
        patience = self.schedule.patience
        goes_on = np.array([not ends(self.history[i], patience) for i in self.active])
        if self.stops and not goes_on.all():
            self._leave_out(goes_on)
        return bool(len(self.active))

    def _leave_out(self, goes_on: npt.NDArray[np.bool_]) -> None:
        rest = torch.from_numpy(np.flatnonzero(goes_on))
        self.active = self.active[goes_on]
        self.adam.keep(rest)
        self.x, self.y = self.x[rest], self.y[rest]
        self.held = self.held[0][rest], self.held[1][rest]

    def learned(self) -> list[Learned]:
        return [
            Learned(self.best[i], np.array(self.history[i], np.float32), int(self.when[i]))
            for i in range(len(self.best))
        ]


def _stacked(jobs: Sequence[TrainingJob], held: bool) -> tuple[Tensor, Tensor]:
    """(owners, rows, …) of the rows to learn from, or of the held-out ones."""
    x = np.stack([job.x[job.held == held] for job in jobs])
    y = np.stack([job.y[job.held == held] for job in jobs])
    return torch.from_numpy(x), torch.from_numpy(y)


def represented(
    network: Network, weights: Floats, shapes: Shapes, x: Floats
) -> tuple[Floats, Floats]:
    """Representation (rows, width) and output (rows, outputs) of one owner's rows."""
    network_views = views(torch.from_numpy(np.array(weights, np.float32))[None], shapes)
    first, second = [], []
    with torch.no_grad():
        for at in range(0, max(1, len(x)), PIECE):
            h = network.represent(
                network_views, torch.from_numpy(np.asarray(x[at : at + PIECE]))[None]
            )
            first.append(h[0].numpy())
            second.append(head(network_views, h)[0].numpy())
    return np.concatenate(first), np.concatenate(second)
