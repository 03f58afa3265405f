"""The base class of VerticalGaussianMixture and VerticalKMeans: programs of members, sample
weights, resumed runs, and queries about rows of a table or of parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.arguments import check_arguments
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine, Kept
from fedcircuits.engines.watching import Callback
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators import questions
from fedcircuits.estimators.federated import (
    FederatedEstimator,
    FederatedRun,
    MakePrograms,
    TrainingState,
)
from fedcircuits.estimators.model import Rows
from fedcircuits.estimators.vertical_number import NumberSearch
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.recipes import Held, part_of
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.federation.sums.topology import Neighbourhood, hubs
from fedcircuits.methods.meeting.hello import Hello, check_rows
from fedcircuits.methods.meeting.rows import SampleWeights, check_matchable
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.vertical import answers, kmeans
from fedcircuits.methods.vertical.answers import AnswersPlan, Learned
from fedcircuits.methods.vertical.em import EMPlan, EMProgress
from fedcircuits.methods.vertical.kmeans import KMeansResult
from fedcircuits.methods.vertical.points import KMeansPlan, MeansProgress
from fedcircuits.methods.vertical.rows import check_holders
from fedcircuits.methods.vertical.training import EMResult
from fedcircuits.tables.schema import Schema

HUB = Hub()
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
P = TypeVar("P", EMProgress, MeansProgress)
Weights: TypeAlias = npt.ArrayLike | Mapping[str, float] | None  # or a pandas Series by row id


class VerticalEstimator(FederatedEstimator[R]):
    """Base class of estimators for parties that hold different columns of matched rows."""

    summation: Summation
    hops: int
    rows: RowRule
    schema_: Schema
    labels_: dict[str, Labels | Held]  # by party: the component or cluster of each of its rows
    _parties: tuple[str, ...]  # participants when training began
    _components: int  # or clusters
    _columns: Mapping[str, Schema]  # the columns modelled, by party
    _kept: Mapping[str, EMResult | KMeansResult | Held]  # the complete results by party
    _learned: Mapping[str, Learned | Held]  # by party with columns: what gives terms of rows
    _at_sites: bool  # whether the parties are sites
    _search: NumberSearch[Self]  # an unfinished search for the number of components

    number_argument: ClassVar[str]  # the parameter with the number of components, or "auto"

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine | None = None,
        sample_weight: Weights = None,
        resume: bool | str = False,
        name: str | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from a federation.

        Parameters
        ----------
        X : Federation
            The parties and their tables.
        y : None
            Not allowed: the target is a column of a party.
        engine : {"memory", "process", "ray"} or callable, default="memory"
            Where the parties run.
        sample_weight : array-like, mapping or Series, optional
            Weights of rows: by row id, or in the order of the first party's rows.
        resume, name, callback
            See ``FedPC.fit``.
        """
        if getattr(self, self.number_argument) == "auto":
            given = {"engine": engine, "sample_weight": sample_weight, "callback": callback}
            return self._fit_best(X, y, resume, given, name)
        federation = self._checked(X, y)
        self._parties = federation.names
        programs = self._programs_for(federation, party_weights(sample_weight, federation))
        return self._train(federation, programs, engine, resume, name, callback)

    def _fit_best(
        self, X: Federation, y: object, resume: bool | str, given: dict[str, Any], name: str | None
    ) -> Self:
        """Train with increasing numbers and keep the best model; ``given``: arguments of fit."""
        check_arguments(self, FederationError)
        self._check_with_auto()
        if isinstance(resume, str):
            raise FederationError(
                f"{self.number_argument}='auto' can be resumed with resume=True only in the "
                f"program that started it; elsewhere, give a number: {self.number_argument}=3"
            )
        search = self.__dict__.get("_search") if resume else None
        if not isinstance(search, NumberSearch):
            search = NumberSearch(self.number_argument, {})
        self._search = search

        def fit(model: Self, again: bool) -> None:
            number = getattr(model, self.number_argument)
            run_name = None if name is None else f"{name}-{number}"
            model.fit(X, y, resume=again, name=run_name, **given)

        best = search.run(self, fit)
        arguments = self.get_params(deep=False)
        learned = {n: v for n, v in vars(best).items() if n not in arguments}
        self.__dict__.update(learned)
        self.criteria_ = search.criteria
        del self._search
        return self

    def criterion(self) -> float:
        """The criterion for choosing the number of components: lower is better."""
        raise NotImplementedError

    def most_components(self) -> int:
        """The largest number of components for this number of rows."""
        raise NotImplementedError

    def _check_with_auto(self) -> None:
        """FederationError for parameters that fix the number of components."""

    def _programs_for(
        self, federation: Federation, weights: Mapping[str, SampleWeights]
    ) -> MakePrograms[R]:
        """A function that makes the programs of the current participants; ``weights`` by party."""
        raise NotImplementedError

    def _check_federation(self, federation: Federation) -> Federation:
        hellos = {p.name: Hello.of(p.table, kmeans.METHOD) for p in federation}
        for name, hello in hellos.items():
            check_rows(name, hello.rows)
        check_holders({name: hello.schema for name, hello in hellos.items()})
        check_matchable(hellos)
        return federation

    def _members(
        self,
        member: Callable[..., Flow[T]],
        coordinator: Callable[..., Flow[U]],
        federation: Federation,
        state: TrainingState,
        plan: object,
        arguments: Mapping[str, Mapping[str, object]],
        server: Mapping[str, object] = {},
    ) -> dict[str, Program[T | U]]:
        """One program per party and one of the coordinator, which computes sums if the summation
        says so. ``arguments``: by name and party; ``server``: of the coordinator."""
        secret = state.secrets_of(federation.names, self.rows)
        names, summation = federation.names, self._summation(federation.names)
        summation.members(names)  # an error where they cannot add up so
        same: dict[str, object] = {"parties": names, "plan": plan}
        programs: dict[str, Program[T | U]] = {
            COORDINATOR: Program(coordinator, {**same, "summation": summation, **server})
        }
        for party in federation:
            given = {argument: of.get(party.name) for argument, of in arguments.items()}
            given |= {"party": party, "secret": secret[party.name]}
            programs[party.name] = Program(
                member, {**same, "summation": summation.for_party(), **given}
            )
        return programs

    def _summation(self, parties: Sequence[str]) -> Summation:
        """The summation of these parties, all of those trained or fewer."""
        return self.summation.without_lost(self._parties, parties)

    def _hubs(self, parties: Sequence[str]) -> tuple[Neighbourhood, ...]:
        """Groups of parties whose columns move to one member."""
        topology = self._summation(parties).topology(parties) if self.hops else None
        if self.hops and topology is None:
            raise FederationError(
                f"hops={self.hops} moves columns to neighbours in a graph, but "
                f"{type(self.summation).__name__} has none: use Tree, Chebyshev or Metropolis "
                "with a graph, or hops=0"
            )
        return () if topology is None else hubs(topology, int(self.hops))

    # ------------------------------------------------------------------ questions

    def _set_kept(
        self, run: FederatedRun[R], columns: Mapping[str, Schema], components: int, terms: str
    ) -> None:
        """Set the results of parties, local or remote; ``terms``: the part that gives terms."""
        self._columns, self._components = columns, components
        self._kept = {n: run.results[n] for n in run.federation.names}  # type: ignore[misc]
        self.labels_ = {n: part_of(kept, "labels") for n, kept in self._kept.items()}
        self._learned = {n: part_of(self._kept[n], terms) for n in columns}
        self._at_sites = run.federation.engine is not None

    def _table_terms(self, X: Rows) -> Array:
        """Terms (components, rows) of rows of a table, summed over the parties."""
        self._check_fitted()
        index, x = self.schema_.index, questions.values_of(X, self.schema_)
        evidence = {p: x[:, [index(n) for n in s.names]] for p, s in self._columns.items()}
        question: dict[str, object] = {"evidence": evidence, "components": self._components}
        programs: dict[str, Program[Array | None]] = {COORDINATOR: Program(answers.asker, question)}
        for party, learned in self._learned.items():
            programs[party] = Program(answers.answerer, {"learned": learned})
        terms = self._ask(programs)[COORDINATOR]
        assert terms is not None
        return terms

    def _party_answers(self, X: Federation, log_weights: Array | None = None) -> Array:
        """Answers (…, rows) about rows of parties: in the order of the first party's rows, then
        rows that it does not hold."""
        self._check_fitted()
        if (X.engine is not None) != self._at_sites:
            where = "at sites" if self._at_sites else "in this process"
            raise QueryError(
                f"the model has learned from parties {where}, but is asked about rows of others: "
                "query the federation that it was trained on, or rows of a table"
            )
        moved = self._hubs(X.names)
        _check_readable(X, self.schema_, self._columns, moved)
        plan = AnswersPlan(self._components, self.schema_, log_weights, moved, self.rows)
        roles, arguments = (answers.member, answers.coordinator), {"learned": self._learned}
        results = self._ask(self._members(*roles, X, TrainingState(), plan, arguments))
        numbers = results[COORDINATOR]
        assert numbers is not None
        return numbers

    def _parts(self, name: str, kind: type[T]) -> dict[str, T]:
        """A part of the results of every party with columns, if all allow it."""
        self._check_collect()
        return self._handed_over({p: part_of(self._kept[p], name) for p in self._columns}, kind)


def _check_readable(
    federation: Federation,
    schema: Schema,
    columns: Mapping[str, Schema],
    moved: Sequence[Neighbourhood],
) -> None:
    """QueryError unless every party has columns that it, or nobody, had in training."""
    root = {m: hub.root for hub in moved for m in hub.members}
    for party in federation:
        home = columns.get(root.get(party.name, party.name), Schema(()))
        for name in party.table.names:
            if name in schema and name not in home:
                holder = next((p for p, names in columns.items() if name in names), "another")
                raise QueryError(
                    f"{party.name} has {name!r}, which the model has learned at {holder}: parties "
                    "need the columns that they had in training; or query with a table"
                )


def party_weights(given: Weights, federation: Federation) -> dict[str, SampleWeights]:
    """Sample weights by party: by row id, or in the order of the first party's rows; empty if none
    are given."""
    if given is None:
        return {}
    first, *others = federation
    if isinstance(given, Mapping | pd.Series):
        values = numbers("sample_weight", [weight for _, weight in given.items()])
        by_id = SampleWeights(values, tuple(str(key) for key, _ in given.items()))
        by_party = {p.name: by_id for p in federation}
    else:
        values = numbers("sample_weight", given)
        if values.shape != (len(first.table),):
            raise FederationError(
                f"sample_weight: expected one for each of the {len(first.table):,} rows of "
                f"{first.name}, got the shape {values.shape}; weights by row id are a Series"
            )
        same = SampleWeights(values)  # of others too, where rows are in one order at all
        matched = first.table.row_ids is not None
        by_party = {p.name: SampleWeights(np.zeros(0)) if matched else same for p in others}
        by_party[first.name] = same
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise FederationError("sample_weight must be numbers from 0, some are not")
    if not values.any():
        raise FederationError("sample_weight must be positive for some row, but all are 0")
    return by_party


def numbers(name: str, given: object) -> Array:
    """A user's argument as an array of numbers."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise FederationError(f"{name}: expected numbers, got {str(given)[:60]}") from None


def latest(
    kept: Kept, members: Sequence[str], plan: EMPlan | KMeansPlan, kind: type[P]
) -> tuple[Kept, dict[str, P]]:
    """The latest progress that all members have kept of a run with this plan."""
    steps: dict[tuple[int, int], dict[str, str]] = {}
    for (member, step), state in kept.items():
        if isinstance(state, kind) and state.plan is not None:
            if replace(state.plan, hubs=plan.hubs) == plan:  # hubs may have changed
                steps.setdefault((state.run, state.round), {})[member] = step
    common = [place for place, each in steps.items() if set(members) <= set(each)]
    if not common:
        return {}, {}
    last = steps[max(common)]
    left = {(m, last[m]): kept[m, last[m]] for m in members}
    return left, {m: state for (m, _), state in left.items() if isinstance(state, kind)}
