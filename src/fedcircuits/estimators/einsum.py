"""Einsum networks: many units on a given structure, learned by minibatch EM or gradient descent.

Columns of a table differ in scale, so bounds on variances are relative to the variance of each
column. Pixels share one scale: with ``image`` the bounds are in pixel units, and EM is initialised
with clusters of every part of the image. Gaussian leaves learned on grey levels k/255 become
masses, for bits per dimension, if the leaves are given the family "gaussian_mass" with the same
parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch

from fedcircuits.arguments import Choice, Declared, Real
from fedcircuits.circuits.evaluation.devices import device_of
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import AnyFamily, Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import (
    LeafFamily,
    by_kind,
    class_conditional,
    poon_domingos,
    random_binary,
)
from fedcircuits.circuits.leaves import Gaussian, GaussianMass
from fedcircuits.errors import StructureError
from fedcircuits.estimators.federated import SUMMATION
from fedcircuits.estimators.federated_learner import SharedByEM
from fedcircuits.estimators.learner import BY_BATCHES, hold_back, progress
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.batches import Source
from fedcircuits.learning.descent import Descending, descend
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.starts import (
    MOST_ROWS,
    clusters,
    softened,
    start_from,
    start_from_regions,
)
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows
from fedcircuits.methods.shared.training import HUB
from fedcircuits.privacy.differential import PRIVACY, DifferentialPrivacy
from fedcircuits.tables.schema import Schema

LEAST = 1e-4  # default lower bound on the relative variance of a leaf


class EinsumNetwork(SharedByEM):
    """An einsum network: many units per region of a random binary or Poon–Domingos structure.

    ``fit`` takes one table, or a federation of parties that hold different rows of the same
    columns. In a federation, an epoch is one round of full-batch EM, and ``batch_size``, ``step``
    and ``last_step`` have no effect.

    Parameters
    ----------
    units : int, default=16
        The number of units per region.
    depth : int or None, default=None
        How many times the variables are randomly halved. None: chosen by their number, at most 4.
    repetitions : int, default=8
        The number of random divisions.
    image : tuple of int or None, default=None
        ``(height, width)`` or ``(height, width, channels)``: regions are then rectangles of an
        image, and ``depth`` and ``repetitions`` are not used.
    step_size : int, default=7
        Images are split at multiples of this number of pixels.
    pieces : int or None, default=None
        If given, images are split into this number of pieces per side instead.
    target : str or None, default=None
        The column to predict, which must be the last of the table. The circuit is then
        P(target) · P(rest | target).
    training : {"em", "gradient"}, default="em"
        Minibatch EM, or Adam on the mean log-likelihood.
    epochs : int, default=30
        The maximum number of passes over the rows.
    batch_size : int, default=256
        The number of rows per update.
    step, last_step : float, default=0.3 and 0.01
        The step size of EM in the first and in the last epoch; 1 replaces the old statistics.
    learning_rate : float, default=0.01
        The learning rate of Adam.
    minimum_variance : float or None, default=None
        The smallest variance of Gaussian leaves. None: 1e-4 times the variance of the column, or
        of all pixels of an image.
    maximum_variance : float, default=inf
        The largest variance of Gaussian leaves.
    validation : float, default=0.1
        The share of rows held out, on which the best epoch is chosen.
    tol : float, default=1e-4
        The smallest improvement per row and epoch that counts.
    patience : int, default=5
        Learning stops after this many epochs without improvement on the held-out rows.
    leaf_family : str or callable, default=by_kind
        The family of the leaves, or a function from a variable to its family.
    summation : Summation, default=Hub()
        How the parties of a federation compute sums: ``Hub()``, ``Tree(graph)``, or ``Secret()``,
        which hides the contributions of single parties.
    privacy : DifferentialPrivacy or None, default=None
        Differential privacy for the rows of a federation by noise that the parties add to their
        counts; for categories and booleans only. ``epsilon_`` and the ledger report the epsilon
        spent.
    device : str, default="cpu"
        The torch device for learning from one table and for queries: "cpu", "cuda", "cuda:1".
    random_state : int or None, default=None
        The seed; the same seed gives the same model. None draws one.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> rows = np.random.default_rng(0).normal(size=(200, 4))
    >>> model = EinsumNetwork(units=4, epochs=3, random_state=0).fit(rows)
    >>> model.score_samples(rows).shape
    (200,)
    """

    allowed: ClassVar[Declared] = {
        "training": Choice("em", "gradient"), "learning_rate": Real(above=0), **BY_BATCHES,
        "summation": SUMMATION, "privacy": PRIVACY,
    }  # fmt: skip
    alone: ClassVar[tuple[tuple[str, object, str], ...]] = (
        ("training", "em", "parties add up the statistics of EM"),
    )

    def __init__(
        self,
        units: int = 16,
        *,
        depth: int | None = None,
        repetitions: int = 8,
        image: tuple[int, ...] | None = None,
        step_size: int = 7,
        pieces: int | None = None,
        target: str | None = None,
        training: Literal["em", "gradient"] = "em",
        epochs: int = 30,
        batch_size: int = 256,
        step: float = 0.3,
        last_step: float = 0.01,
        learning_rate: float = 0.01,
        minimum_variance: float | None = None,
        maximum_variance: float = np.inf,
        validation: float = 0.1,
        tol: float = 1e-4,
        patience: int = 5,
        leaf_family: LeafFamily = by_kind,
        summation: Summation = HUB,
        privacy: DifferentialPrivacy | None = None,
        device: str = "cpu",
        random_state: int | None = None,
    ) -> None:
        self.units = units
        self.depth = depth
        self.repetitions = repetitions
        self.image = image
        self.step_size = step_size
        self.pieces = pieces
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
        self.summation = summation
        self.privacy = privacy
        self.device = device
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        circuit = self._structure(schema, rng)
        kept, held = hold_back(rows, self.validation, rng)
        x = kept.some(MOST_ROWS, rng)
        scale = self._scale(circuit, x, schema)
        soft = None if self.image else clusters(x, circuit.schema, self.units, rng)
        start = self._start(circuit, x, soft, scale, rng)
        if self.training == "gradient":
            plan = Descending(self.epochs, self.batch_size, self.learning_rate, self.patience)
            tell = progress(type(self).__name__, self.epochs)
            here = device_of(self.device)
            fitted = descend(circuit, start, kept, plan, rng, held, tell, here)
            self._keep_fitted(circuit, fitted)
            return
        schedule = replace(self.rounds()[0], batch_size=self.batch_size)
        self._em(
            circuit, start, kept, schedule, rng, validation=held, dtype=torch.float32,
            rules=self._bounds(scale, scale or 1.0), scale=scale,
        )  # fmt: skip

    # ------------------------------------------------------------------ of a federation

    def clusters_summed(self, schema: Schema) -> tuple[int, int | None]:
        """One cluster per unit of a region."""
        return self.units, None

    def beginning(self, rows: ClusteredRows, schema: Schema, rng: np.random.Generator) -> Beginning:
        """One structure for all parties, and initial leaves from clusters of summed statistics."""
        circuit = self._structure(schema, rng)
        scale = self._scale(circuit, rows.values, schema)
        soft = softened(rows.labels, self.units, rng)
        start = self._start(circuit, rows.values, soft, scale, rng)
        return Beginning(circuit, start, self._bounds(scale, scale or 1.0), scale)

    def rounds(self) -> tuple[EMSchedule, float]:
        """Full-batch epochs; the best on held-out rows is kept."""
        schedule = EMSchedule(self.epochs, None, self.step, self.last_step, self.tol, self.patience)
        return schedule, self.validation

    # ------------------------------------------------------------------ both

    def _scale(self, circuit: Circuit, x: Array, schema: Schema) -> float | None:
        """The standard deviation of all pixels, for an image."""
        columns = [schema.index(n) for n in circuit.schema.names]
        if columns != list(range(len(schema))):
            raise StructureError("the target must be the last column of the table")
        pixels = len(schema) - (self._predicted is not None)
        return None if self.image is None else float(np.nanstd(x[:, :pixels])) or 1.0

    def _start(
        self,
        circuit: Circuit,
        x: Array,
        soft: Array | None,
        scale: float | None,
        rng: np.random.Generator,
    ) -> Parameters:
        if scale is None and soft is not None:
            return start_from(circuit, x, soft, rng, 0.5)
        assert scale is not None
        return start_from_regions(circuit, x, rng, self._bounds(scale, 1.0))

    def _bounds(self, scale: float | None, unit: float) -> Rules:
        """Bounds on variances of Gaussian leaves for data in multiples of ``unit``."""
        most = self.maximum_variance
        least = self.minimum_variance
        if least is None:
            least = min(LEAST * (scale or 1.0) ** 2, most)
        rules: dict[str, AnyFamily] = {"gaussian": Gaussian(least / unit**2, most / unit**2)}
        if scale is not None:
            rules["gaussian_mass"] = GaussianMass(least, most)  # never standardised
        return rules

    def _structure(self, schema: Schema, rng: np.random.Generator) -> Circuit:
        if self._predicted is None:
            return self._regions(schema, rng)
        rest = schema.select([n for n in schema.names if n != self._predicted])
        return class_conditional(self._regions(rest, rng), schema[self._predicted])

    def _regions(self, schema: Schema, rng: np.random.Generator) -> Circuit:
        if self.image is not None:
            height, width, *channels = self.image
            step = self.step_size if self.pieces is None else None
            return poon_domingos(
                schema, height=height, width=width, step=step, pieces=self.pieces, units=self.units,
                channels=channels[0] if channels else 1, leaf_family=self.leaf_family,
            )  # fmt: skip
        depth = self.depth or max(1, min(4, len(schema).bit_length() - 2))
        return random_binary(
            schema, depth=depth, repetitions=self.repetitions, units=self.units, rng=rng,
            leaf_family=self.leaf_family,
        )  # fmt: skip
