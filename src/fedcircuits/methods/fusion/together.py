"""One owner's network while owners train together, a step at a time: what fusion is compared with.

tied       after every epoch, weights that owners share are averaged over all of them: those of
           everything but the first layer, so that numbers of representations come to mean the
           same, or all of them, which is federated averaging of one model
joint      the fusion sends back how its loss changes with the representation of each row, and
           the owner goes on from there: vertical federated learning
"""

from __future__ import annotations

from typing import Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from torch import Tensor

from fedcircuits.errors import ParameterError
from fedcircuits.learning.encoders.apart import PIECE, Floats, Learned, Training
from fedcircuits.learning.encoders.encoders import Encoder, Frozen, Job, NetworkEncoder, encoder_of
from fedcircuits.learning.encoders.foreign import ForeignEncoder
from fedcircuits.learning.encoders.networks import views

Together: TypeAlias = Literal["tied", "averaged", "joint", "scratch"]
OWN = ("inputs", "weight 0", "bias 0")  # first layers, which are never tied


class Session:
    """``Session(job)`` starts anew, ``Session(job).with_weights(w)`` from what was learned."""

    def __init__(self, job: Job) -> None:
        own = encoder_of(job.encoder)
        own = own.encoder if isinstance(own, Frozen) else own
        if not isinstance(own, NetworkEncoder):
            model = own.model if isinstance(own, ForeignEncoder) else own
            raise ParameterError(
                f"{type(model).__name__} cannot be trained together with others: only "
                "SequenceEncoder and TabularEncoder can"
            )
        self.job = job
        self.encoder: NetworkEncoder = clone(own)
        self.ready = self.encoder._ready(job)
        self.schedule = self.encoder._schedule()
        lesson, network = self.ready.lesson, self.ready.network
        self.run = Training(
            network, self.ready.goal, self.ready.outputs, [lesson], self.schedule, stops=False
        )
        self.losses: list[float] = []
        self._pending: Tensor | None = None

    @property
    def weights(self) -> Floats:
        """(size,)"""
        return np.array(self.run.adam.flat.detach().numpy()[0])

    def with_weights(self, weights: npt.NDArray[np.floating]) -> Self:
        if weights.shape != self.weights.shape:
            raise ParameterError(
                f"an owner has {len(self.weights)} weights and another one "
                f"{len(weights)}: encoders that are trained together must have one shape"
            )
        with torch.no_grad():
            self.run.adam.flat.copy_(torch.from_numpy(weights.astype(np.float32))[None])
        return self

    def shared(self, every: bool) -> npt.NDArray[np.bool_]:
        """(size,): which weights are averaged."""
        parts = [
            np.full(int(np.prod(shape)), every or name not in OWN)
            for name, shape in self.run.shapes.items()
        ]
        return np.concatenate(parts)

    def epoch(self) -> None:
        self.run.epoch()

    def forward(self, x: Floats) -> Floats:
        """Representations (rows, width) of inputs, whose gradient ``backward`` will take."""
        weights = views(self.run.adam.flat, self.run.shapes)
        found = self.ready.network.represent(weights, torch.from_numpy(x)[None])[0]
        self._pending = found
        return np.asarray(found.detach().numpy())

    def backward(self, gradient: Floats) -> None:
        """One step of the optimiser, by the gradient at what ``forward`` gave."""
        assert self._pending is not None
        (found,) = torch.autograd.grad(
            self._pending, self.run.adam.flat, torch.from_numpy(np.array(gradient, np.float32))
        )
        self.run.adam.step(found)
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

    def finish(self) -> Encoder:
        """The encoder with the weights as they are."""
        history = np.array(self.run.history[0], np.float32)
        return self.encoder._keep(
            self.job, self.ready, Learned(self.weights, history, len(history))
        )
