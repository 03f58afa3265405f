"""Einsum networks: many units on a given structure, learned by EM over batches or by gradients."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.evaluation.program import Program
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema
from fedcircuits.circuits.structures import (
    LeafFamily,
    by_kind,
    class_conditional,
    poon_domingos,
    random_binary,
)
from fedcircuits.errors import StructureError
from fedcircuits.estimators.learner import Learner, hold_back, progress
from fedcircuits.learning.batches import Source
from fedcircuits.learning.em import Schedule
from fedcircuits.learning.starts import MOST_ROWS, clusters, start_from
from fedcircuits.leaves import Gaussian


class EinsumNetwork(Learner):
    """``units`` distributions on every region of a random binary or Poon–Domingos structure.

    ``image=(height, width)`` or ``(height, width, channels)`` takes rectangles of an image, cut at
    multiples of ``step_size`` pixels; otherwise variables are halved at random, ``depth`` times,
    ``repetitions`` times over. With ``target`` the circuit is P(target) · P(rest | target).

    >>> from fedcircuits import Table
    >>> rows = np.random.default_rng(0).normal(size=(200, 4))
    >>> model = EinsumNetwork(units=4, epochs=3, random_state=0).fit(rows)
    >>> model.score_samples(rows).shape
    (200,)
    """

    def __init__(
        self,
        units: int = 16,
        *,
        depth: int | None = None,
        repetitions: int = 8,
        image: tuple[int, ...] | None = None,
        step_size: int = 7,
        target: str | None = None,
        training: Literal["em", "gradient"] = "em",
        epochs: int = 30,
        batch_size: int = 256,
        step: float = 0.3,
        last_step: float = 0.01,
        learning_rate: float = 0.01,
        minimum_variance: float = 1e-4,
        maximum_variance: float = np.inf,
        validation: float = 0.1,
        tol: float = 1e-4,
        patience: int = 5,
        leaf_family: LeafFamily = by_kind,
        random_state: int | None = None,
    ) -> None:
        self.units = units
        self.depth = depth
        self.repetitions = repetitions
        self.image = image
        self.step_size = step_size
        self.target = target
        self.training = training
        self.epochs = epochs
        self.batch_size = batch_size
        self.step = step
        self.last_step = last_step
        self.learning_rate = learning_rate
        self.minimum_variance = minimum_variance
        self.maximum_variance = maximum_variance
        self.validation = validation
        self.tol = tol
        self.patience = patience
        self.leaf_family = leaf_family
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        circuit = self._structure(schema, rng)
        kept, held = hold_back(rows, self.validation, rng)
        x = kept.some(MOST_ROWS, rng)
        columns = [schema.index(n) for n in circuit.schema.names]
        if columns != list(range(len(schema))):
            raise StructureError("the target must be the last column of the table")
        start = start_from(circuit, x, clusters(x, schema, self.units, rng), rng, aligned=0.5)
        if self.training == "gradient":
            self._descend(circuit, start, kept, held, rng)
            return
        plan = Schedule(
            self.epochs, self.batch_size, self.step, self.last_step, self.tol, self.patience
        )
        bounds = Gaussian(self.minimum_variance, self.maximum_variance)
        rules = {"gaussian": bounds}
        self._em(circuit, start, kept, plan, rng, validation=held, dtype=torch.float32, rules=rules)

    def _structure(self, schema: Schema, rng: np.random.Generator) -> Circuit:
        if self.target is None:
            return self._regions(schema, rng)
        rest = schema.select([n for n in schema.names if n != self.target])
        return class_conditional(self._regions(rest, rng), schema[self.target])

    def _regions(self, schema: Schema, rng: np.random.Generator) -> Circuit:
        if self.image is not None:
            height, width, *channels = self.image
            return poon_domingos(
                schema, height=height, width=width, step=self.step_size, units=self.units,
                channels=channels[0] if channels else 1, leaf_family=self.leaf_family,
            )  # fmt: skip
        depth = self.depth or max(1, min(4, len(schema).bit_length() - 2))
        return random_binary(
            schema, depth=depth, repetitions=self.repetitions, units=self.units, rng=rng,
            leaf_family=self.leaf_family,
        )  # fmt: skip

    def _descend(
        self,
        circuit: Circuit,
        start: Parameters,
        rows: Source,
        held: Array | None,
        rng: np.random.Generator,
    ) -> None:
        """Adam on the mean log-likelihood of batches."""
        program = Program(circuit, torch.float32)
        model = Differentiable(program, start)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        tell = progress(type(self).__name__, self.epochs)
        history: list[float] = []
        scores: list[float] = []
        best = model.packed()
        for epoch in range(self.epochs):
            total = 0.0
            for x, _ in rows.batches(self.batch_size, rng):
                optimiser.zero_grad()
                loss = -model(torch.from_numpy(x)).mean()
                loss.backward()
                optimiser.step()
                total -= float(loss.detach()) * len(x)
            history.append(total / len(rows))
            tell(epoch + 1, history[-1])
            if held is not None:
                found = program.log_values(torch.from_numpy(held), model.packed())
                scores.append(float(found.mean()))
            if held is None or scores[-1] >= max(scores):
                best = model.packed()
            if len(scores) > self.patience and max(scores[-self.patience :]) < max(scores):
                break
        self.circuit_, self.parameters_ = circuit, program.unpack(best)
        self.history_, self.validation_history_ = tuple(history), tuple(scores)
        self.converged_ = len(history) < self.epochs
