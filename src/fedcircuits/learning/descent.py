"""Gradient training of any circuit: Adam on the mean log-likelihood of batches, as an alternative
to EM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.devices import CPU
from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.em import Fitted, Report, check_learnable, mean_log_likelihood
from fedcircuits.learning.stopping import EarlyStopping


@dataclass(frozen=True, slots=True)
class Descending:
    """How Adam goes over the rows."""

    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 0.01
    patience: int = 5  # epochs without a gain on the validation rows


def descend(
    circuit: Circuit,
    start: Parameters,
    rows: Source,
    plan: Descending,
    rng: np.random.Generator,
    validation: InMemory | None = None,
    report: Report | None = None,
    device: torch.device = CPU,
) -> Fitted:
    """Adam from ``start``; with validation rows, the parameters that were best on them."""
    check_learnable(circuit, rows)
    program = CircuitProgram(circuit, torch.float32, device)
    model = Differentiable(program, start)
    fused = device.type in ("cpu", "cuda")  # one pass over the numbers instead of several
    optimiser = torch.optim.Adam(model.parameters(), lr=plan.learning_rate, fused=fused)
    history: list[float] = []
    scores: list[float] = []
    best = model.packed()
    for epoch in range(plan.epochs):
        total = 0.0
        for x, weight in rows.batches(plan.batch_size, rng):
            optimiser.zero_grad()
            loss = _loss(model(torch.from_numpy(x).to(device)), weight, rows.weight / len(rows))
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total -= float(loss.detach()) * len(x)
        history.append(total / len(rows))
        if report is not None:
            report(epoch + 1, history[-1])
        if validation is not None:
            scores.append(mean_log_likelihood(program, model.packed(), validation))
        if validation is None or scores[-1] >= max(scores):
            best = model.packed()
        if EarlyStopping(plan.patience).ends(scores):
            break
    learned = program.unpack(best)
    return Fitted(learned, tuple(history), tuple(scores), len(history) < plan.epochs)


def _loss(values: Tensor, weight: Array | None, mean: float) -> Tensor:
    """Weights are divided by their mean over all rows, so that a heavy batch counts more."""
    if weight is None:
        return -values.mean()
    return -(values * torch.from_numpy(weight / mean).to(values)).mean()
