"""Learners that take one table, or a federation of parties with different rows of the same columns.
In a federation only sums are exchanged, and the model is the one learned from all rows."""

from __future__ import annotations

import warnings
from typing import ClassVar, Generic, Self, TypeVar

from fedcircuits.circuits.graph.structures import by_kind
from fedcircuits.engines.outcome import Engine
from fedcircuits.engines.watching import Callback
from fedcircuits.errors import FederationError
from fedcircuits.estimators.federated import FederatedEstimator, FederatedRun, TrainingState
from fedcircuits.estimators.learner import Learner, Training, Weights
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.methods.shared import noisy
from fedcircuits.methods.shared import training as shared
from fedcircuits.methods.shared.training import LearnedTogether, SharedPlan
from fedcircuits.privacy.differential import no_privacy

R = TypeVar("R")
TWO = "with two parties, each can compute the other's counts by subtracting its own from the sum"
NO_PRIVACY = no_privacy(
    "the contribution of a row to sums of numbers is unbounded: with noise, HiddenChowLiuTree, "
    "MixtureOfProducts and ChowLiuTree learn from categories and booleans, and FedTrees from all "
    "kinds"
)


class FederatedLearner(Learner, FederatedEstimator[R], Generic[R]):
    """A learner whose ``fit`` takes one table, or a federation of rows."""

    summation: Summation
    target: str | None

    def fit(
        self,
        X: Training | Federation,
        y: object = None,
        sample_weight: Weights = None,
        *,
        engine: str | Engine | None = None,
        resume: bool | str = False,
        name: str | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from a DataFrame, Table, array or file, or from a federation.

        ``sample_weight`` is for tables in memory; ``engine``, ``resume``, ``name`` and
        ``callback`` are for federations (see ``FedPC.fit``).
        """
        self.__dict__.pop("ledger_", None)
        if not isinstance(X, Federation):
            if self.privacy is not None:
                raise FederationError(
                    "privacy needs a federation, whose parties add the noise; for one table: "
                    "fit(Federation({'all': table}))"
                )
            return super().fit(X, y, sample_weight)
        if sample_weight is not None:
            raise FederationError(
                "sample_weight works for one table only: parties count whole rows"
            )
        federation = self._checked(X, y)
        self.target_ = self.target
        if len(federation) == 2 and self.privacy is None:
            warnings.warn(TWO, UserWarning, stacklevel=2)
        return self._train(federation, self._programs, engine, resume, name, callback)


class SharedByEM(FederatedLearner[LearnedTogether]):
    """Learners whose circuit has one structure for all rows and parameters learned by EM.

    In a federation the structure is learned from summed counts, and an epoch is one round over all
    rows (methods/shared/training.py). ``start_`` holds the initial parameters. With ``privacy``
    there are a few noisy rounds and no likelihoods, so ``history_`` is empty.
    """

    alone: ClassVar[tuple[tuple[str, object, str], ...]] = ()  # parameters that need one table
    enough: ClassVar[int] = 2_000  # rows with which a party learns well enough alone

    def _check_federation(self, federation: Federation) -> Federation:
        shared.same_columns({p.name: p.table.schema for p in federation})
        name = type(self).__name__
        for argument, wanted, why in self.alone:
            if getattr(self, argument) != wanted:
                raise FederationError(
                    f"{name}({argument}={getattr(self, argument)!r}) works for one table only: "
                    f"{why}; use {argument}={wanted!r} for a federation"
                )
        if not self.summation.exact:
            raise FederationError(
                f"{name} adds up exactly, so that all parties have one circuit: expected Hub(), "
                f"Tree(…) or Secret(), got {type(self.summation).__name__}"
            )
        if self.privacy is not None:
            noisy.refuse_numbers(federation.schema)
        self.summation.members(federation.names)  # an error where they cannot add up so
        if self.target is not None:
            federation.schema.index(self.target)
        return federation

    def to_send(self) -> Self:
        """An unfitted copy to send to parties, without functions as parameters."""
        learner = type(self)(**self.get_params(deep=False))
        if getattr(learner, "leaf_family", None) is by_kind:
            learner.set_params(leaf_family=by_kind.__name__)
        return learner

    def _programs(
        self, federation: Federation, state: TrainingState
    ) -> dict[str, Program[LearnedTogether]]:
        names, summation = federation.names, self.summation
        noise = None if self.privacy is None else self.privacy.noise(summation, names)
        least = max(party.least_count for party in federation)
        plan = SharedPlan(names, summation, state.seed, noise, least)
        learner = self.to_send()
        programs: dict[str, Program[LearnedTogether]] = {
            COORDINATOR: Program(shared.coordinator, {"plan": plan, "learner": learner})
        }
        for party in federation:
            arguments = {"party": party, "plan": plan.for_party(), "learner": learner}
            programs[party.name] = Program(shared.client, arguments)
        return programs

    def _keep(self, run: FederatedRun[LearnedTogether]) -> None:
        result = run.results[COORDINATOR]
        self.start_ = result.beginning.start
        self._keep_fitted(result.beginning.circuit, result.fitted)
        self._spend(noisy.shares_of(noisy.rounds_of(self.rounds()[0])))
