"""Trees over the variables: Chow–Liu, mixtures of them, and with a hidden state beside each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Self

import numpy as np
import torch

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import LeafFamily, by_kind, latent_tree
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, ParameterError, StructureError
from fedcircuits.estimators.learner import (
    Learner,
    Training,
    Weights,
    hold_back,
    in_memory,
    progress,
)
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.training import (
    State,
    require_federation,
    require_summation,
    run_training,
)
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.chow_liu.tree_mixtures import learn_mixture, mixture_circuit
from fedcircuits.learning.chow_liu.trees import chow_liu_circuit, learn_tree
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.spn.independence import OneHot, pair_tables
from fedcircuits.learning.starts import MOST_ROWS, clusters, start_from
from fedcircuits.methods.chow_liu import training as summed_counts
from fedcircuits.methods.private_forest.agreement import same_variables
from fedcircuits.tables.schema import Schema

HUB = Hub()
TWO = "of two parties each works out the other's counts: it takes its own off the sum"
Learned = tuple[Circuit, Parameters]


class ChowLiuTree(Learner):
    """The best tree-shaped Bayesian network over categories and booleans; deterministic, so that
    its most probable explanations are exact.

    It is learned from one table, or from a federation of parties that hold other rows of the same
    columns: their pairwise counts are added up, and the tree is that of all rows in one place.
    ``summation`` says who adds up: ``Hub()``, ``Tree(graph)``, or ``Secret()``, with which nobody
    sees one party's counts. All parties see the sum and the tree; ``ledger_`` has what crossed.

    >>> from fedcircuits import Table
    >>> table = Table.of({"rain": [True, True, False], "wet": [True, True, False]})
    >>> ChowLiuTree().fit(table).explain(table).exact
    True
    """

    ledger_: Ledger  # of a federation

    def __init__(
        self,
        *,
        smoothing: float = 0.1,
        target: str | None = None,
        summation: Summation = HUB,
        random_state: int | None = None,
    ) -> None:
        self.smoothing = smoothing
        self.target = target
        self.summation = summation
        self.random_state = random_state

    def fit(
        self,
        X: Training | Federation,
        y: object = None,
        sample_weight: Weights = None,
        *,
        engine: str | Engine = "memory",
        resume: bool = False,
    ) -> Self:
        """Learn from a DataFrame, Table, array or file, or from a federation in an ``engine``;
        ``resume`` takes up the work of a run that has failed."""
        self.__dict__.pop("ledger_", None)
        if not isinstance(X, Federation):
            return super().fit(X, y, sample_weight)
        if sample_weight is not None:
            raise FederationError("sample_weight is for one table: parties count whole rows")
        federation = self._checked(X)
        self._state = state = State.of(self, resume)
        with Bar("ChowLiuTree"):
            run = run_training(federation, self._programs, engine, state, None)
        learned = run.results[federation.names[0]]
        assert learned is not None, "a party has learned the tree"
        self.circuit_, self.parameters_ = learned
        self.ledger_ = run.ledger
        self.__dict__.pop("_state", None)
        return self

    def _checked(self, given: Federation) -> Federation:
        federation = require_federation(given, "ChowLiuTree")
        same_variables({p.name: p.table.schema for p in federation}, summed_counts.TREE)
        require_summation("summation", self.summation)
        self.summation.members(federation.names)  # an error where they cannot add up so
        if self.target is not None:
            federation.schema.index(self.target)
        if len(federation) == 2:
            warnings.warn(TWO, UserWarning, stacklevel=4)
        return federation

    def _programs(self, federation: Federation) -> Mapping[str, Program[Learned | None]]:
        names, summation = federation.names, self.summation
        told: dict[str, object] = {"members": names}
        programs: dict[str, Program[Learned | None]] = {}
        if COORDINATOR in summation.members(names):
            programs[COORDINATOR] = Program(summed_counts.server, told | {"summation": summation})
        for party in federation:
            own = {"party": party, "summation": summation.for_party(), "smoothing": self.smoothing}
            programs[party.name] = Program(summed_counts.member, told | own)
        return programs

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k != "_state"}

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        _refuse_numbers(schema, "ChowLiuTree")
        known = in_memory(rows, "ChowLiuTree")
        hot = OneHot.of(known.values, schema.variables)
        weight = None if known.weights is None else known.weights.astype(np.float32)
        tables = pair_tables(hot.matrix, weight)
        self.circuit_, self.parameters_ = chow_liu_circuit(
            schema, tables, hot.starts, self.smoothing
        )


class MixtureOfChowLiuTrees(Learner):
    """Components that are Chow–Liu trees, learned by EM; for categories and booleans.

    ``ensemble`` mixes several mixtures that began from other clusters, which is worth more than
    more components. ``smoothing`` is how many rows like the whole table every component is given
    besides its own. With ``validation``, that share of the rows is held back and the best round
    on them is kept.

    >>> rows = np.random.default_rng(0).random((200, 4)) < 0.3
    >>> MixtureOfChowLiuTrees(2, ensemble=1, random_state=0).fit(rows).score_samples(rows).shape
    (200,)
    """

    def __init__(
        self,
        components: int = 20,
        *,
        ensemble: int = 4,
        smoothing: float = 20.0,
        max_iter: int = 10,
        tol: float = 1e-4,
        validation: float = 0.0,
        target: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.components = components
        self.ensemble = ensemble
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.validation = validation
        self.target = target
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        _refuse_numbers(schema, "MixtureOfChowLiuTrees")
        self._check_settings()
        known = in_memory(rows, "MixtureOfChowLiuTrees")
        kept, held = hold_back(known, self.validation, rng)
        assert isinstance(kept, InMemory)
        judges = None if held is None else held.some(len(held), rng)  # by their weights
        members = [
            learn_mixture(
                kept.values, schema, self.components, rng,
                smoothing=self.smoothing, rounds=self.max_iter, tolerance=self.tol,
                weight=kept.weights, validation=judges,
                report=progress(f"MixtureOfChowLiuTrees, member {i + 1}", self.max_iter),
            )
            for i in range(self.ensemble)
        ]  # fmt: skip
        self.circuit_, self.parameters_ = mixture_circuit(schema, members)
        self.history_ = members[-1].history
        self.validation_history_ = members[-1].validation

    def _check_settings(self) -> None:
        for name in ("components", "ensemble", "max_iter"):
            if (value := getattr(self, name)) < 1:
                raise ParameterError(f"{name}: expected a whole number from 1, got {value!r}")
        if not 0 <= self.smoothing < np.inf:
            raise ParameterError(f"smoothing: expected a number from 0, got {self.smoothing!r}")


class HiddenChowLiuTree(Learner):
    """A hidden state of ``units`` values beside every variable, states joined by the Chow–Liu tree.

    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = HiddenChowLiuTree(units=4, epochs=3, random_state=0).fit(rows)
    >>> model.score_samples(rows).shape
    (200,)
    """

    def __init__(
        self,
        units: int = 32,
        *,
        target: str | None = None,
        epochs: int = 50,
        batch_size: int = 256,
        step: float = 0.3,
        last_step: float = 0.01,
        validation: float = 0.1,
        tol: float = 1e-4,
        patience: int = 5,
        leaf_family: LeafFamily = by_kind,
        random_state: int | None = None,
    ) -> None:
        self.units = units
        self.target = target
        self.epochs = epochs
        self.batch_size = batch_size
        self.step = step
        self.last_step = last_step
        self.validation = validation
        self.tol = tol
        self.patience = patience
        self.leaf_family = leaf_family
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        kept, held = hold_back(rows, self.validation, rng)
        x = kept.some(MOST_ROWS, rng)
        tree = learn_tree(x, schema)
        circuit = latent_tree(schema, tree, self.units, leaf_family=self.leaf_family)
        start = start_from(circuit, x, clusters(x, schema, self.units, rng), rng, aligned=0.8)
        plan = EMSchedule(
            self.epochs, self.batch_size, self.step, self.last_step, self.tol, self.patience
        )
        self._em(circuit, start, kept, plan, rng, validation=held, dtype=torch.float32)


def _refuse_numbers(schema: Schema, learner: str) -> None:
    for variable in schema:
        if not variable.size:
            raise StructureError(
                f"{learner} needs categories or booleans, but {variable.name!r} is a "
                f"{variable.kind}: use HiddenChowLiuTree, which takes every kind"
            )
