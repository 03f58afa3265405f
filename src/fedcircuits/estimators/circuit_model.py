"""A model of a given circuit: built by hand, taken from ``fc.structures``, or loaded.

Without parameters the circuit is a structure to learn: ``CircuitModel(circuit).fit(table)`` starts
from clusters of the rows and learns weights and leaves by EM or gradient descent. With parameters
it answers queries immediately, and ``fit`` continues from them.
"""

from __future__ import annotations

import os
from typing import Literal, Self

import numpy as np
import torch
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import ROWS_HELD_BACK, SEED, Choice, Declared, Real, Whole
from fedcircuits.circuits.evaluation.devices import device_of
from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.errors import ParameterError, StructureError, TableError
from fedcircuits.estimators.learner import Training, Weights, hold_back, progress, source_of
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.targets import with_target
from fedcircuits.learning.batches import Source
from fedcircuits.learning.descent import Descending, descend
from fedcircuits.learning.em import EMSchedule, Fitted, maximise_likelihood
from fedcircuits.learning.starts import MOST_ROWS, clusters, start_from
from fedcircuits.tables.schema import Schema

LEARNING: Declared = {
    "by": Choice("em", "gradient"), "epochs": Whole(1), "batch_size": Whole(1, or_=(None,)),
    "step": Real(above=0, most=1), "last_step": Real(above=0, most=1),
    "learning_rate": Real(above=0), "validation": ROWS_HELD_BACK, "patience": Whole(1),
    "random_state": SEED,
}  # fmt: skip


class CircuitModel(Model):
    """A model of a given circuit, such as one of ``fc.structures``; ``fit`` learns its parameters.

    Parameters
    ----------
    circuit : Circuit
        The graph.
    parameters : Parameters or None, default=None
        The values of its nodes; None if they are to be learned by ``fit``.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    device : str, default="cpu"
        Where ``fit`` learns and questions are answered: "cpu", "cuda", "cuda:1".

    Examples
    --------
    >>> from fedcircuits import Table, structures
    >>> table = Table.of(np.random.default_rng(0).normal(size=(200, 2)))
    >>> circuit = structures.mixture_of_products(table.schema, 3)
    >>> model = CircuitModel(circuit).fit(table, by="em", epochs=5, random_state=0)
    >>> model.score_samples(table).shape
    (200,)
    """

    def __init__(
        self,
        circuit: Circuit,
        parameters: Parameters | None = None,
        target: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.circuit = circuit
        self.parameters = parameters
        self.target = target
        self.device = device
        if parameters is not None:
            parameters.check(circuit)
            self.circuit_, self.parameters_ = circuit, parameters

    @classmethod
    def from_module(cls, module: torch.nn.Module, target: str | None = None) -> Self:
        """The model of a module made by ``to_module``, with the parameters it has now."""
        if not isinstance(module, Differentiable):
            raise ParameterError(
                f"expected a module made by to_module, got {type(module).__name__}; from a larger "
                "network, give the part that is the circuit"
            )
        program = module.program
        learned = program.unpack(module.packed())
        return cls(program.circuit, learned, target, str(program.device))

    def fit(
        self,
        X: Training | None = None,
        y: object = None,
        sample_weight: Weights = None,
        *,
        by: Literal["em", "gradient"] = "em",
        epochs: int = 30,
        batch_size: int | None = 256,
        step: float = 0.3,
        last_step: float = 0.01,
        learning_rate: float = 0.01,
        validation: float = 0.1,
        patience: int = 5,
        random_state: int | None = None,
    ) -> Self:
        """Learn the weights of sums and the parameters of leaves; the graph stays.

        Parameters
        ----------
        X : DataFrame, Table, array, ParquetRows, str or path, or None
            The rows, with the columns of the circuit's schema. None: nothing is learned.
        y, sample_weight : array-like of shape (rows,) or None, default=None
            The column ``target``, if X does not have it; weights of the rows, for tables in memory.
        by : {"em", "gradient"}, default="em"
            Stepwise EM over batches, or Adam on the mean log-likelihood.
        epochs : int, default=30
            The largest number of passes over the rows.
        batch_size : int or None, default=256
            The number of rows per update; None, for EM only, uses all rows.
        step, last_step : float, default=0.3 and 0.01
            The step size of EM in the first and in the last epoch.
        learning_rate : float, default=0.01
            The learning rate of Adam.
        validation, patience : default=0.1 and 5
            The share of rows held out, on which the best epoch is chosen, and the number of epochs
            without improvement on them after which learning stops.
        random_state : int or None, default=None
            The seed; None draws one.
        """
        if X is None:
            return self._as_it_is()
        given = {
            "by": by, "epochs": epochs, "batch_size": batch_size, "step": step,
            "last_step": last_step, "learning_rate": learning_rate, "validation": validation,
            "patience": patience, "random_state": random_state,
        }  # fmt: skip
        for name, value in given.items():
            LEARNING[name].check(name, value, ParameterError)
        if y is not None:
            X, self.target_ = with_target(X, y, self.target, self._columns)
        plan: EMSchedule | Descending
        plan = EMSchedule(epochs, batch_size, step, last_step, patience=patience)
        if by == "gradient":
            Whole(1).check("batch_size", batch_size, ParameterError)
            plan = Descending(epochs, batch_size or 1, learning_rate, patience)
        with Bar(type(self).__name__):
            rows = source_of(X, sample_weight, type(self).__name__, self._columns)
            self._train(*rows, plan, validation, np.random.default_rng(random_state))
        return self

    @property
    def _columns(self) -> Schema:
        if not isinstance(self.circuit, Circuit):
            raise ParameterError(f"expected a Circuit to learn, got {type(self.circuit).__name__}")
        return self.circuit.schema

    def _train(
        self,
        rows: Source,
        schema: Schema,
        plan: EMSchedule | Descending,
        validation: float,
        rng: np.random.Generator,
    ) -> None:
        kept, held = hold_back(rows, validation, rng)
        circuit, start = self._begin(kept, schema, rng)
        tell, here = progress(type(self).__name__, plan.epochs), device_of(self.device)
        if isinstance(plan, Descending):
            fitted = descend(circuit, start, kept, plan, rng, held, tell, here)
        else:
            fitted = maximise_likelihood(
                circuit, start, kept, schedule=plan, validation=held, rng=rng, report=tell,
                device=here, dtype=torch.float64 if plan.batch_size is None else torch.float32,
            )  # fmt: skip
        self._keep(circuit, fitted)

    def _as_it_is(self) -> Self:
        if self.parameters is None:
            raise TableError(
                "this CircuitModel has no parameters: give rows to learn them from, fit(table)"
            )
        return self

    def _begin(
        self, rows: Source, schema: Schema, rng: np.random.Generator
    ) -> tuple[Circuit, Parameters]:
        """The circuit to learn, with nested circuits inlined, and its initial parameters."""
        if schema != self.circuit.schema:
            raise StructureError("the table must have the columns of the circuit's schema")
        if self.parameters is not None:
            return inline(self.circuit, self.parameters)
        x = rows.some(MOST_ROWS, rng)
        units = max(self.circuit.units[leaf.name] for leaf in self.circuit.leaves())
        soft = clusters(x, schema, units, rng)
        return self.circuit, start_from(self.circuit, x, soft, rng, aligned=0.5)

    def _keep(self, circuit: Circuit, fitted: Fitted) -> None:
        self.circuit_, self.parameters_ = circuit, fitted.parameters
        self.history_, self.converged_ = fitted.history, fitted.converged
        self.validation_history_ = fitted.validation

    def _check_fitted(self) -> None:
        if not hasattr(self, "circuit_"):
            raise NotFittedError(
                "this CircuitModel has no parameters yet: learn them with fit(table), or give them"
            )


def load_circuit(path: str | os.PathLike[str]) -> CircuitModel:
    """The circuit in an .fc file as a model; FileError for predictors."""
    circuit, parameters, metadata = files.read(path)
    if not circuit.is_density:
        files.require_estimator(path, metadata, None)
    target = metadata.get("target")
    return CircuitModel(circuit, parameters, target if isinstance(target, str) else None)
