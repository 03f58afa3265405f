"""A federated circuit: every query is a run of flows between its parties."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.queryable import Queryable, Regions
from fedcircuits.circuits.questions.regions import EVERYTHING, Event
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import QueryError
from fedcircuits.estimators import record
from fedcircuits.estimators.circuit_model import CircuitModel
from fedcircuits.estimators.federated import FederatedEstimator, ask
from fedcircuits.estimators.model import Given, Model
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.messages import Ledger, require
from fedcircuits.federation.placement import Answers, Joint, Placement, View, leaves_at
from fedcircuits.federation.recipes import Held, fresh_key, own_key
from fedcircuits.methods.fedpc import query, root_answers
from fedcircuits.methods.fedpc.query import Asker
from fedcircuits.methods.fedpc.question import Question
from fedcircuits.methods.meeting.collecting import LearnedPart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")
R = TypeVar("R")


class FederatedCircuit(FederatedEstimator[R], Model):
    """A federated estimator whose model is a circuit over the columns of all parties."""

    joint_: Joint  # what the coordinator holds
    views_: dict[str, View | Held]  # what every party holds, or where it does
    placement_: Placement
    target: str | None = None
    answers: Answers = "leaves"

    @property
    def _distribution(self) -> FederatedDistribution:  # type: ignore[override]
        self._check_fitted()
        ready = self.__dict__.get("_ready")
        if ready is None or ready.views is not self.views_:
            kind = RootDistribution if self.answers == "root" else FederatedDistribution
            ready = kind(self.joint_, self.views_, self._engine, self.queries_)
            self.__dict__["_ready"] = ready
        distribution: FederatedDistribution = ready
        return distribution

    def collect(self) -> CircuitModel:
        """The whole circuit as a local model, if every party allows it."""
        self._check_collect()
        leaves: dict[str, tuple[Circuit, Parameters]] = {}
        for party, view in self._handed_over(self.views_, View).items():
            names = {leaf.name for leaf in leaves_at(self.circuit_, self.placement_, party)}
            fits = view.parameters.circuits.keys() == names
            require(fits, party, LearnedPart, "part", "expected its own leaves of this model")
            leaves |= view.parameters.circuits
        parameters = Parameters(self.joint_.parameters.values, leaves)
        return CircuitModel(self.circuit_, parameters, self.target)

    def _save_collected(self, path: str | os.PathLike[str]) -> None:
        """With a record of the training, which reports and the dashboard show."""
        self.collect().save(path)
        record.write(Path(path), record.of_training(cast("FederatedEstimator[object]", self)))

    def plot(
        self, given: Given = None, columns: Sequence[str] | None = None, ax: Axes | None = None
    ) -> Figure:
        """Plot the circuit by party, and marginals before and after ``given``, if every party
        allows that the model is collected."""
        from fedcircuits.pictures.drawing import beside, figure_of, within
        from fedcircuits.pictures.federation import placed_drawing
        from fedcircuits.pictures.marginals import Beliefs, marginals_drawing

        whole = self.collect()
        drawing = placed_drawing(whole.circuit_, self.placement_, whole.parameters_)
        beliefs = Beliefs(whole._distribution, *whole._given(given))
        drawing = beside(drawing, marginals_drawing(beliefs, columns))
        figure = figure_of(drawing, title=type(self).__name__)
        return figure if ax is None else within(ax, figure)


class FederatedDistribution(Queryable):
    """Queries of a circuit whose leaves are held by parties (methods/fedpc/query.py)."""

    def __init__(
        self, joint: Joint, views: Mapping[str, View | Held], engine: Engine, ledger: Ledger
    ) -> None:
        self.views, self.engine, self.ledger = views, engine, ledger
        self.circuit, self.asker = joint.circuit, Asker(joint)
        if self.circuit.units[self.circuit.root.name] != 1:
            raise QueryError("the root must have one unit to be asked")

    @property
    def deterministic(self) -> bool:
        """Unknown, because nobody sees all leaves."""
        return False

    # ------------------------------------------------------------------ answers

    def log_values_within(self, x: Array, regions: Regions) -> Array:
        if len(x) == 0:
            return np.zeros(0)
        return self._ask(query.evaluate, Question("values", x, regions))

    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        if len(x) == 0:
            return np.zeros(0), np.zeros(0)
        return self._ask(query.moments, Question("moments", x, regions, at, region))

    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        if len(x) == 0 or not np.isnan(x).any():
            return x.copy()
        roles = (COORDINATOR, *sorted(self.views))
        seeds = {p: 0 if rng is None else int(rng.integers(2**62)) for p in roles}
        question = Question("best" if rng is None else "values", x, regions)
        return self._ask(query.complete, question, seeds)

    def posterior(self, x: Array, variable: str, given: Event = EVERYTHING) -> Array:
        """All codes in one query: parties that do not hold the variable are asked once."""
        at, size = self.circuit.schema.index(variable), self.circuit.schema[variable].size
        if not size or len(x) == 0:
            return super().posterior(x, variable, given)
        self._check(x, ignored=at)
        rows = np.tile(x, (size, 1))
        rows[:, at] = np.repeat(np.arange(size), len(x))
        joint = self._log_joint(rows, given).reshape(size, len(x)).T
        with np.errstate(invalid="ignore"):
            weights = np.exp(joint - joint.max(axis=1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def _ask(
        self,
        role: Callable[..., Flow[T]],
        question: Question,
        seeds: Mapping[str, int] = {},
    ) -> T:
        """Run one query. ``seeds`` holds a seed per role if rows are to be completed."""
        arguments: dict[str, object] = {"asker": self.asker, "question": question}
        clients, fillers = self.asker.clients_asked(question), []
        if seeds:
            arguments["seed"] = seeds[COORDINATOR]
            fillers = self.asker.clients_completing(question)
        programs: dict[str, Program[T | int | None]] = {COORDINATOR: Program(role, arguments)}
        for party in dict.fromkeys([*clients, *fillers]):
            settings = {"completes": party in fillers, "seed": seeds.get(party, 0)}
            programs[party] = Program(query.respond, {"view": self.views[party], **settings})
        return self._answer(programs)

    def _answer(self, programs: Mapping[str, Program[T | int | None]]) -> T:
        """The coordinator's result; parties count the rows they have answered."""
        results = ask(self.engine, programs, self.ledger)
        for party in programs.keys() - {COORDINATOR}:
            view, answered = self.views[party], results[party]
            if isinstance(view, View) and isinstance(answered, int):  # the engine may have a copy
                view.budget.answered = max(view.budget.answered, answered)
        return results[COORDINATOR]  # type: ignore[return-value]


class RootDistribution(FederatedDistribution):
    """Likelihoods computed so that nobody learns the value of a leaf
    (methods/fedpc/root_answers.py)."""

    def log_values_within(self, x: Array, regions: Regions) -> Array:
        question = Question("values", x, regions)
        if len(x) == 0 or not self.asker.clients_asked(question):
            return super().log_values_within(x, regions)
        members: dict[str, object] = {"members": tuple(sorted(self.views))}
        asks = {"asker": self.asker, "question": question, **members, "key": fresh_key()}
        programs: dict[str, Program[Array | int | None]] = {
            COORDINATOR: Program(root_answers.evaluate, asks)
        }
        for party, view in self.views.items():
            holds: dict[str, object] = {"view": view, **members, "key": own_key("shares")}
            programs[party] = Program(root_answers.respond, holds)
        return self._answer(programs)

    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        raise _needs_leaves("means and variances")

    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        raise _needs_leaves("draws and completions")


def _needs_leaves(what: str) -> QueryError:
    return QueryError(
        f"{what} are mixed by how likely each leaf finds the evidence, and answers='root' tells "
        "likelihoods of whole rows alone: ask for likelihoods, probabilities or posteriors, or fit "
        "with answers='leaves'"
    )
