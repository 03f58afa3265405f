"""FedPC: one circuit from data that stay with their parties, however they are split."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Mapping
from typing import Literal, Self

import numpy as np

from fedcircuits.circuits.parameters import Parameters
from fedcircuits.engines.choice import engine_of
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.estimators.federated import FederatedDistribution
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.model import CircuitModel, Model
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.placement import Placement, View
from fedcircuits.protocols import one_pass
from fedcircuits.protocols.one_pass import Learner, Plan, Rule, Trained

Result = View | Trained


class FedPC(Model):
    """One joint distribution over the variables of all parties.

    ``learner``       learns the leaves; one for all parties, or a dict by party
    ``clusters``      of every party's rows, where parties hold other columns
    ``products``      combinations of clusters to keep at most; "auto": all that occur
    ``weights``       of combinations: "cooccurrence" counts, the paper's "sizes", or "em"
    ``shared_leaves`` of columns that several parties hold: one a "cluster", or the paper's "pooled"
    ``target``        the column to predict; its classes are clustered apart
    ``share_target``  whether its holders tell the others the class of shared rows
    ``refine``        rounds of EM over the whole circuit across parties that hold the same rows
    ``on_lost``       a party that is lost: "stop", or "continue" where others hold its columns

    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(200, 1)) + rng.normal(size=(200, 4)))
    >>> model = FedPC(random_state=0).fit(fc.split(table, 2, by="columns"))
    >>> model.kind_, model.score_samples(table).shape
    ('vertical', (200,))
    """

    views_: dict[str, View]
    placement_: Placement
    ledger_: Ledger  # of training
    queries_: Ledger  # of questions since
    notes_: tuple[str, ...]
    history_: tuple[float, ...]
    kind_: str

    def __init__(
        self,
        learner: Learner | Mapping[str, Learner] | None = None,
        *,
        clusters: int | Literal["auto"] = "auto",
        products: int | Literal["auto"] = "auto",
        weights: Rule = "cooccurrence",
        shared_leaves: Literal["cluster", "pooled"] = "cluster",
        target: str | None = None,
        share_target: bool = False,
        refine: int = 0,
        on_lost: Literal["stop", "continue"] = "stop",
        random_state: int | None = None,
    ) -> None:
        self.learner = learner
        self.clusters = clusters
        self.products = products
        self.weights = weights
        self.shared_leaves = shared_leaves
        self.target = target
        self.share_target = share_target
        self.refine = refine
        self.on_lost = on_lost
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine = "memory",
        resume: bool = False,
    ) -> Self:
        """Learn from a federation. ``resume`` takes up the work of a run that has failed."""
        if not isinstance(X, Federation):
            raise FederationError(
                f"FedPC learns from a Federation of parties, got {type(X).__name__}: "
                "Federation({'north': table, 'south': table}), or split(table, 3) to try out"
            )
        self._check_settings(X)
        plan = self._plan()
        run = engine_of(engine)
        kept: Kept = self.__dict__.get("_kept", {}) if resume else {}
        ledger = Ledger()
        federation = X
        while True:
            outcome = run(self._programs(federation, plan), kept)
            ledger.add(outcome.ledger)
            self._kept, kept = outcome.kept, outcome.kept
            if not outcome.lost:
                break
            federation = self._without(federation, outcome)
        self._keep(outcome, ledger, federation, run)
        return self

    def _plan(self) -> Plan:
        seed = self.random_state
        if seed is None:
            seed = self.__dict__.setdefault("_seed", secrets.randbits(32))
        return Plan(
            self.clusters, self.products, self.weights, self.shared_leaves, self.target,
            self.share_target, self.refine, seed,
        )  # fmt: skip

    def _programs(self, federation: Federation, plan: Plan) -> dict[str, Program[Result]]:
        programs: dict[str, Program[Result]] = {}
        secret = self.__dict__.setdefault("_secret", secrets.token_bytes(32))
        for party in federation:
            own = {"party": party, "plan": plan, "learner": self._learner(party.name)}
            programs[party.name] = Program(one_pass.client, {**own, "secret": secret})
        told: dict[str, object] = {"members": federation.names, "plan": plan}
        return {COORDINATOR: Program(one_pass.coordinator, told), **programs}

    def _learner(self, party: str) -> Learner:
        if isinstance(self.learner, Mapping):
            return self.learner[party]
        return LearnSPN() if self.learner is None else self.learner

    def _without(self, federation: Federation, outcome: Outcome[Result]) -> Federation:
        """The federation without who was lost first, or the error that says what happened."""
        error = next(iter(outcome.lost.values()))
        lost = error.party
        if self.on_lost != "continue" or lost not in federation.parties:
            raise _resumable(error)
        left = [n for n in federation.names if n != lost]
        if left:
            rest = federation.select(left)
            if set(rest.schema.names) == set(federation.schema.names):
                warnings.warn(f"{error}; going on without {lost}", UserWarning, stacklevel=3)
                return rest
        gone = set(federation[lost].table.names)
        alone = [v for v in federation.schema.names if v in gone]
        raise PartyLostError(
            lost, f"{error}; going on without it is not possible: nobody else holds {alone[:4]}"
        ) from error

    def _keep(
        self, outcome: Outcome[Result], ledger: Ledger, federation: Federation, run: Engine
    ) -> None:
        views: dict[str, View] = {}
        for name, result in outcome.results.items():
            if isinstance(result, Trained):
                self.notes_, self.history_ = result.notes, result.history
                views[name] = result.view
            else:
                views[name] = result
        self.views_, self.ledger_, self.queries_ = views, ledger, Ledger()
        self.circuit_ = views[COORDINATOR].circuit
        self.placement_ = views[COORDINATOR].placement
        self.kind_ = federation.kind
        self._run = run
        for state in ("_kept", "_ready", "_seed", "_secret"):
            self.__dict__.pop(state, None)
        for note in self.notes_:
            warnings.warn(note, UserWarning, stacklevel=3)

    def _check_settings(self, federation: Federation) -> None:
        for name, value in (("clusters", self.clusters), ("products", self.products)):
            if value != "auto" and (not isinstance(value, int | np.integer) or value < 1):
                raise FederationError(f"{name} must be 'auto' or a number from 1, got {value!r}")
        for name, word, known in (
            ("weights", self.weights, ("cooccurrence", "sizes", "em")),
            ("shared_leaves", self.shared_leaves, ("cluster", "pooled")),
            ("on_lost", self.on_lost, ("stop", "continue")),
        ):
            if word not in known:
                raise FederationError(f"{name} must be one of {', '.join(known)}, got {word!r}")
        if isinstance(self.learner, Mapping):
            absent = [n for n in federation.names if n not in self.learner]
            if absent:
                raise FederationError(
                    f"learner has none for {absent[0]!r}: give one for each party"
                )
        if self.target is not None:
            federation.schema.index(self.target)

    # ------------------------------------------------------------------ questions

    @property
    def _distribution(self) -> FederatedDistribution:  # type: ignore[override]
        self._check_fitted()
        ready = self.__dict__.get("_ready")
        if ready is None or ready.views is not self.views_:
            ready = FederatedDistribution(self.views_, self._run, self.queries_)
            self.__dict__["_ready"] = ready
        found: FederatedDistribution = ready
        return found

    def collect(self) -> CircuitModel:
        """The whole circuit in one place, if every party has allowed it."""
        self._check_fitted()
        refused = [n for n, v in self.views_.items() if n != COORDINATOR and not v.allow_collect]
        if refused:
            raise FederationError(
                f"{', '.join(refused)} did not allow what they have learned to leave them: "
                "Federation(…, allow_collect=True), or ask the model where it is"
            )
        inner = {n: c for v in self.views_.values() for n, c in v.parameters.circuits.items()}
        weights = self.views_[COORDINATOR].parameters.values
        return CircuitModel(self.circuit_, Parameters(weights, inner), self.target)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The collected circuit as one .fc file, if every party has allowed it."""
        self.collect().save(path)

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k not in ("_kept", "_secret")}


def _resumable(error: PartyLostError) -> PartyLostError:
    text = f"{error}; the others' work is kept: fit(…, resume=True) goes on from there"
    found = PartyLostError(error.party, text)
    found.__cause__ = error
    return found
