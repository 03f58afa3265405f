"""What a party learns by itself from few rows: a mixture of circuits, weighted by held-out rows.

Two parties cannot hide from each other what they add to a sum, so they learn no circuit by sums
(mixing.py). Each of them learns the same candidates from its own rows alone, beside the circuit of
its learner, and weights them by rows that it holds out. Nothing crosses.

The circuit answers queries, from which counts of rows can be inferred. As in the learner's own
circuits, counts of categories and bins below the least count are therefore pooled, in every unit of
every leaf: the rows of a unit are those that reach it, in expectation. A column with fewer values
than the least count has none, and of a column without values only the learner knows what to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import TableError
from fedcircuits.learning.leaf_em import rows_reaching
from fedcircuits.learning.least_counts import pooled
from fedcircuits.learning.least_counts import without_few as columns_without_few
from fedcircuits.methods.shared.training import SharedLearner, in_one_place
from fedcircuits.tables.table import Table

FEW_ROWS = 2_000  # of a party: with more its learner does well enough
FEWEST = 20  # rows of which some are held out; from fewer only the learner learns
PARTS = 5  # of the rows, of which one is held out
FOLDS = 200  # rows: of fewer, three of these parts are held out in turn
LEAST_WEIGHT = 0.02  # of a circuit that is kept
FLOOR = -1e4  # nats of a row that a circuit finds impossible
STACKED, STACKING = 5.0, 50  # preference for the best circuit; rounds
PSEUDO = 2.0  # rows at most that smoothing has added to a count
Learned = tuple[Circuit, Parameters]


class MixedAlone(BaseEstimator):  # type: ignore[misc]
    """Learns what ``learner`` does, mixed with what ``sharers`` learn from the same rows."""

    circuit_: Circuit
    parameters_: Parameters

    def __init__(
        self,
        learner: BaseEstimator,
        sharers: Sequence[SharedLearner],
        least_count: int = 1,
        random_state: int = 0,
    ) -> None:
        self.learner = learner
        self.sharers = sharers
        self.least_count = least_count
        self.random_state = random_state

    @classmethod
    def of(
        cls, learner: BaseEstimator, sharers: Sequence[SharedLearner], target: str | None
    ) -> Self:
        """``target``: the column to predict, which the learner is told if it asks for it."""
        copy = clone(learner)
        if "target" in copy.get_params():
            copy.set_params(target=target)
        return cls(copy, tuple(sharers))

    def fit(self, X: Table) -> Self:
        """Learn from some of the rows, weight by the others, and learn from all."""
        values = columns_without_few(X.values, self.least_count)
        if self.least_count > 1 and np.isnan(values).all():
            raise TableError(
                f"no column has as many as {self.least_count} values, and nothing is learned from "
                f"fewer: give more rows, or least_count=1"
            )
        X = Table(X.schema, values)
        weights = self._weights(X)
        kept = [i for i, weight in enumerate(weights) if weight]
        members = [self._learned(i, X) for i in kept]
        self.circuit_, self.parameters_ = mixture(members, weights[kept])
        return self

    def _weights(self, table: Table) -> Array:
        """Of the learner and of every candidate, by rows that are held out."""
        if len(table) < FEWEST or np.isnan(table.values).all(axis=0).any():
            return np.asarray(np.eye(1 + len(self.sharers))[0])
        part = np.random.default_rng(self.random_state).permutation(len(table)) % PARTS
        logs = []
        for fold in range(3 if len(table) < FOLDS else 1):
            rest, held = table.rows(part != fold), table.rows(part == fold)
            every = (self._learned(i, rest) for i in range(1 + len(self.sharers)))
            logs.append(np.stack([log_values(each, held) for each in every]))
        weights = stacked_weights(np.concatenate(logs, axis=1))
        weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
        return np.asarray(weights / weights.sum())

    def _learned(self, number: int, table: Table) -> Learned:
        """The learner's circuit if it is the first, or that of a candidate."""
        if not number:
            learner = clone(self.learner)
            settings = {"least_count": self.least_count, "random_state": self.random_state}
            learner.set_params(**{k: v for k, v in settings.items() if k in learner.get_params()})
            learner.fit(table)
            return learner.circuit_, learner.parameters_
        about = self.sharers[number - 1], self.random_state, self.least_count
        learned = in_one_place(table.values, table.schema, *about)
        return without_few(
            learned.beginning.circuit, learned.fitted.parameters, table.values, self.least_count
        )


def mixture(members: Sequence[Learned], shares: Array) -> Learned:
    """One sum over circuits of the same columns."""
    if len(members) == 1:
        return members[0]
    schema = members[0][0].schema
    leaves = tuple(Leaf(f"{i}", CIRCUIT, schema.names) for i in range(len(members)))
    root = Sum("mixture", tuple(leaf.name for leaf in leaves))
    weights = {root.name: {WEIGHT: (shares / shares.sum())[None]}}
    inner = {leaf.name: member for leaf, member in zip(leaves, members, strict=True)}
    return inline(Circuit((*leaves, root), schema), Parameters(weights, inner))


def without_few(circuit: Circuit, parameters: Parameters, values: Array, least: int) -> Learned:
    """The same circuit, in which no category or bin of a leaf stands for few rows."""
    if least <= 1:
        return circuit, parameters
    program = CircuitProgram(circuit)
    packed = program.pack(parameters)
    counts = program.counts(torch.from_numpy(values.copy()), packed)
    reach, changed = rows_reaching(program, counts, packed), dict(parameters.values)
    for leaf in circuit.leaves():
        if "probability" in parameters.values.get(leaf.name, {}):
            changed[leaf.name] = _leaf(parameters[leaf.name], reach[leaf.name], least)
    return circuit, Parameters(changed, parameters.circuits)


def _leaf(arrays: Arrays, rows: Array, least: int) -> Arrays:
    """``rows``: that reach every unit and have the variable (units, variables)."""
    probability = arrays["probability"]
    single = probability.ndim == rows.ndim  # of a boolean, by one of its two values
    if single:
        probability = np.stack([1 - probability, probability], axis=-1)
    counts = probability * rows[..., None]
    overall = counts.sum(axis=0) / np.maximum(rows.sum(axis=0), 1e-300)[:, None]
    shares = np.where(rows.sum(axis=0)[:, None] > 0, overall, probability.mean(axis=0))
    shown = pooled(counts, least + int(PSEUDO), shares[None]) + shares
    shown = shown / shown.sum(axis=-1, keepdims=True)
    return {**arrays, "probability": shown[..., 1] if single else shown}


def log_values(learned: Learned, rows: Table) -> Array:
    circuit, parameters = learned
    values = np.array(rows.select(circuit.schema.names).values)
    logs = Distribution(circuit, parameters).log_values_within(values, {}).reshape(-1)
    return np.asarray(np.maximum(logs, FLOOR))


def stacked_weights(logs: Array) -> Array:
    """Weights of models that maximise the likelihood of held-back rows, from log-likelihoods
    (models, rows); shrunk towards the best model, since few rows hardly distinguish models."""
    start = np.full(len(logs), 1.0)
    start[logs.mean(axis=1).argmax()] += STACKED
    weights = start / start.sum()
    for _ in range(STACKING):
        share = logs + np.log(weights)[:, None]
        share = np.exp(share - logsumexp(share, axis=0))
        weights = (share.sum(axis=1) + 0.1 * start) / (logs.shape[1] + 0.1 * start.sum())
    return np.asarray(weights)
