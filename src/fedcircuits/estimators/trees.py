"""Trees over the variables: Chow–Liu trees, and mixtures of them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedcircuits.arguments import COLUMN, ROWS_HELD_BACK, SEED, Declared, Real, Whole
from fedcircuits.errors import StructureError
from fedcircuits.estimators.federated import (
    SUMMATION,
    FederatedRun,
    TrainingState,
)
from fedcircuits.estimators.federated_learner import FederatedLearner
from fedcircuits.estimators.learner import Learner, hold_back, in_memory, progress
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.chow_liu.tree_mixtures import learn_mixture, mixture_circuit
from fedcircuits.learning.chow_liu.trees import chow_liu_circuit
from fedcircuits.learning.independence import OneHot, pair_tables
from fedcircuits.methods.chow_liu import training as summed_counts
from fedcircuits.methods.chow_liu.training import LearnedTree
from fedcircuits.methods.meeting.hello import same_variables
from fedcircuits.privacy.differential import PRIVACY, DifferentialPrivacy
from fedcircuits.tables.schema import Schema

HUB = Hub()


class ChowLiuTree(FederatedLearner[LearnedTree]):
    """The maximum-likelihood tree-shaped Bayesian network over categories and booleans.

    The circuit is deterministic, so most probable explanations are exact. ``fit`` takes one table,
    or a federation of parties that hold different rows of the same columns. Their pairwise counts
    are then summed, and the tree is the one learned from all rows. All parties see the sum and the
    tree; ``ledger_`` lists the messages.

    Parameters
    ----------
    smoothing : float, default=0.1
        The number of pseudo-rows added to each combination of categories.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    summation : Summation, default=Hub()
        How parties compute sums: ``Hub()``, ``Tree(graph)``, or ``Secret()``, which hides the
        counts of single parties.
    privacy : DifferentialPrivacy or None, default=None
        Differential privacy for rows, by noise in the counts of every party; for federations.
    random_state : int or None, default=None
        Ignored, as nothing is random; present for compatibility with other learners.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> table = Table.of({"rain": [True, True, False], "wet": [True, True, False]})
    >>> ChowLiuTree().fit(table).explain(table).exact
    True
    """

    allowed: ClassVar[Declared] = {
        "smoothing": Real(least=0), "target": COLUMN, "summation": SUMMATION, "privacy": PRIVACY,
        "random_state": SEED,
    }  # fmt: skip

    def __init__(
        self,
        *,
        smoothing: float = 0.1,
        target: str | None = None,
        summation: Summation = HUB,
        privacy: DifferentialPrivacy | None = None,
        random_state: int | None = None,
    ) -> None:
        self.smoothing = smoothing
        self.target = target
        self.summation = summation
        self.privacy = privacy
        self.random_state = random_state

    def _check_federation(self, federation: Federation) -> Federation:
        same_variables({p.name: p.table.schema for p in federation}, summed_counts.TREE)
        self.summation.members(federation.names)  # an error where they cannot add up so
        if self.target is not None:
            federation.schema.index(self.target)
        return federation

    def _programs(
        self, federation: Federation, state: TrainingState
    ) -> dict[str, Program[LearnedTree]]:
        names, summation = federation.names, self.summation
        noise = None if self.privacy is None else self.privacy.noise(summation, names)
        same: dict[str, object] = {"members": names, "smoothing": self.smoothing}
        asks = {**same, "summation": summation, "noisy": noise is not None}
        programs: dict[str, Program[LearnedTree]] = {
            COORDINATOR: Program(summed_counts.coordinator, asks)
        }
        for party in federation:
            arguments = {"summation": summation.for_party(), "noise": noise and noise.for_party()}
            programs[party.name] = Program(
                summed_counts.member, {**same, "party": party, **arguments}
            )
        return programs

    def _keep(self, run: FederatedRun[LearnedTree]) -> None:
        self.circuit_, self.parameters_ = run.results[COORDINATOR]
        self._spend([1.0])

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
    """A mixture of Chow–Liu trees, learned by EM; for categories and booleans.

    Parameters
    ----------
    components : int, default=20
        The number of trees in each mixture.
    ensemble : int, default=4
        The number of mixtures that are averaged, each initialised with different clusters. A larger
        ensemble helps more than more components.
    smoothing : float, default=20.0
        The number of pseudo-rows with the distribution of the whole table per component.
    max_iter : int, default=10
        The maximum number of EM iterations.
    tol : float, default=1e-4
        EM stops when the mean log-likelihood per row improves by less than this.
    validation : float, default=0.0
        The share of rows held out; if positive, the best iteration on them is kept.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    random_state : int or None, default=None
        The seed; the same seed gives the same model. None draws one.

    Examples
    --------
    >>> rows = np.random.default_rng(0).random((200, 4)) < 0.3
    >>> MixtureOfChowLiuTrees(2, ensemble=1, random_state=0).fit(rows).score_samples(rows).shape
    (200,)
    """

    allowed: ClassVar[Declared] = {
        "components": Whole(1), "ensemble": Whole(1), "smoothing": Real(least=0),
        "max_iter": Whole(1), "tol": Real(least=0), "validation": ROWS_HELD_BACK, "target": COLUMN,
        "random_state": SEED,
    }  # fmt: skip

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


def _refuse_numbers(schema: Schema, learner: str) -> None:
    for variable in schema:
        if not variable.size:
            raise StructureError(
                f"{learner} needs categories or booleans, but {variable.name!r} is a "
                f"{variable.kind}: use HiddenChowLiuTree, which takes every kind"
            )
