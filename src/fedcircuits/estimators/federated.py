"""What all federated estimators share: checking, running, lost parties, resuming, asking.

``fit`` runs one program per party (and one of the coordinator, where a method has one) in an
engine, keeps what each of them learned, and the ledger of what crossed. A run that fails leaves
its state behind, so that ``fit(…, resume=True)`` repeats no work that was done. Questions after
training are runs of programs too; ``queries_`` is their ledger.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, get_args

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import Choice, Declared, Instance, check_arguments
from fedcircuits.engines.choice import Seal, engine_of
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.estimators.progress import Bar
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.recipes import Fill, Open, Own, filled, own
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.tokens import RowRule
from fedcircuits.methods.meeting.intersection import openmined
from fedcircuits.privacy.differential.noise import DifferentialPrivacy
from fedcircuits.privacy.sharing.randomness import fresh_key
from fedcircuits.tables.series import refuse_series

R = TypeVar("R")  # what a role returns at the end of training
T = TypeVar("T")
ON_LOST = Choice("stop", "continue")
ROWS = Choice(*get_args(RowRule))
AGAIN = "release sums of the same rows with other noise, and spend the privacy budget again"
SUMMATION = Instance(
    Summation,
    "a way to add up, with brackets, such as Hub(), Tree(graph), Secret() or, for mixtures over "
    "columns, Chebyshev(graph) and Metropolis(graph)",
)


@dataclass(slots=True)
class TrainingState:
    """What a run that failed leaves to the next: its seed and name, the work that was done, and
    what parties that run here have drawn."""

    seed: int = field(default_factory=lambda: secrets.randbits(32), repr=False)
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    drawn: dict[tuple[str, str], bytes] = field(default_factory=dict, repr=False)
    kept: Kept = field(default_factory=dict, repr=False)
    parties: tuple[str, ...] = ()  # who took part when training began
    secret: ClassVar[bytes] = own("secret")  # of a party, with which row ids are hidden

    def fill(self, party: str) -> Fill:
        """What a party that runs here has drawn: again the same in a run that goes on."""

        def drawn(place: Open) -> object:
            if not isinstance(place, Own):
                raise FederationError(f"{party} runs here and has no {place}")
            return self.drawn.setdefault((party, place.what), fresh_key())

        return drawn

    def secrets_of(self, parties: Sequence[str], rows: RowRule) -> dict[str, bytes]:
        """By party, what it hides row ids with: a secret of the first alone, from which it makes
        a key for the others or, where rows are matched privately, a secret of each."""
        holds = parties if rows == "private" else parties[:1]
        return {p: self.secret if p in holds else b"" for p in parties}


@dataclass(frozen=True, slots=True)
class FederatedRun(Generic[R]):
    """Training that has come to its end."""

    results: Mapping[str, R] = field(repr=False)  # by role: what it has returned
    ledger: Ledger
    federation: Federation  # who took part to the end
    engine: Engine
    seed: int = field(repr=False)


MakePrograms: TypeAlias = Callable[[Federation, TrainingState], Mapping[str, Program[R]]]


class Savable(Protocol):
    def save(self, path: str | os.PathLike[str]) -> None: ...


class FederatedEstimator(BaseEstimator, Generic[R]):  # type: ignore[misc]
    """Learns one model from a federation, in the style of scikit-learn.

    An estimator declares in ``allowed`` what its arguments may be, and fills in four hooks:

    ``_check_federation(federation)``       refuse parties that cannot learn this together
    ``_programs(federation, state)``        one program per role, for those who (still) take part
    ``_missing_without(federation, lost)``  what the model would lack without a lost party
    ``_keep(run)``                          turn results into attributes; ``ledger_``, ``queries_``,
                                            ``kind_`` and ``_engine`` are set before
    """

    allowed: ClassVar[Declared] = {}
    reads_series: ClassVar[bool] = False
    on_lost: Literal["stop", "continue"] = "stop"
    random_state: int | None = None
    sealed: Seal = "auto"  # messages that the engine relays
    privacy: DifferentialPrivacy | None = None

    ledger_: Ledger  # of training
    epsilon_: float  # that training has spent, if ``privacy`` was asked for
    queries_: Ledger  # of questions since
    notes_: tuple[str, ...] = ()  # what the user should know; each is a warning too
    kind_: str  # how the data were split: "horizontal", "vertical", "hybrid"
    _engine: Engine
    _allow_collect: dict[str, bool]
    _pooled: tuple[str, ...] = ()  # notes on categories that few rows have

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn from a federation.

        Parameters
        ----------
        X : Federation
            The parties and their tables.
        y : None
            Ignored; here for compatibility with scikit-learn.
        engine : {"memory", "process"} or callable, optional
            Where the parties run: in memory, unless the federation is connected to sites.
            Messages are sealed where an engine relays them: "process", and every engine that says
            so.
        resume : bool, default=False
            Whether to take up the work of a run that has failed.
        """
        return self._train(self._checked(X), self._programs, engine, resume)

    def _checked(self, given: object) -> Federation:
        """The federation to learn from, if it and all arguments are as they must be."""
        check_arguments(self, FederationError)
        if self.privacy is not None and self.on_lost == "continue":
            raise FederationError(f"on_lost='continue' would {AGAIN}: take on_lost='stop'")
        federation = require_federation(given, type(self).__name__, self.reads_series)
        summation = getattr(self, "summation", None)
        if isinstance(summation, Summation):
            summation.prepare("summation")
        if getattr(self, "rows", None) == "private":
            openmined()  # an error that says how to get it
        self._pooled = federation.notes
        return self._check_federation(federation.pooled())

    def _check_federation(self, federation: Federation) -> Federation:
        """Raise if these parties cannot learn this; else the federation, perhaps retyped."""
        return federation

    def _programs(self, federation: Federation, state: TrainingState) -> Mapping[str, Program[R]]:
        """One program per role. ``state.seed`` is ``random_state``, or drawn if that is None."""
        raise NotImplementedError

    def _missing_without(self, federation: Federation, lost: str) -> str:
        """What the model would lack without a party, for an error; "" if the others can go on."""
        return "" if len(federation) > 1 else "no other party is left"

    def _keep(self, run: FederatedRun[R]) -> None:
        """Turn results into attributes."""
        raise NotImplementedError

    def _train(
        self,
        federation: Federation,
        programs: MakePrograms[R],
        engine: str | Engine | None,
        resume: bool,
    ) -> Self:
        """Run to the end and keep what was learned. To be called by ``fit`` itself, so that
        warnings name the line that called it."""
        if resume and self.privacy is not None:
            raise FederationError(f"resume=True would {AGAIN}: fit anew, and count both runs")
        left = self.__dict__.get("_state") if resume else None
        self._state = state = left if isinstance(left, TrainingState) else TrainingState()
        state.parties = federation.names
        if self.random_state is not None:
            state.seed = int(self.random_state)
        with Bar(type(self).__name__):
            run = self._run(federation, programs, engine, state)
        self.ledger_, self.queries_ = run.ledger, Ledger()
        self.__dict__.pop("epsilon_", None)
        self.kind_, self._engine = run.federation.kind, run.engine
        self._allow_collect = {p.name: p.allow_collect for p in run.federation}
        self._keep(run)
        self.notes_ = (*self._pooled, *self.notes_)
        for name in ("_state", "_ready", "_pooled"):
            self.__dict__.pop(name, None)
        for note in self.notes_:
            warnings.warn(note, UserWarning, stacklevel=3)
        return self

    def _run(
        self,
        federation: Federation,
        programs: MakePrograms[R],
        engine: str | Engine | None,
        state: TrainingState,
    ) -> FederatedRun[R]:
        """Run the programs, again without whoever is lost if the user wants that and the model
        lacks nothing."""
        ledger = Ledger()
        while True:
            roles = programs(federation, state)
            run = engine_of(federation.engine if engine is None else engine, self.sealed)
            outcome = run_programs(run, roles, state)
            ledger.add(outcome.ledger)
            state.kept = outcome.kept
            if not outcome.lost:
                return FederatedRun(outcome.results, ledger, federation, run, state.seed)
            error = next(iter(outcome.lost.values()))
            if self.on_lost == "stop" or error.party not in federation.parties:
                raise _resumable(error, state.kept) from error
            if missing := self._missing_without(federation, error.party):
                text = f"{error}; going on without it is not possible: {missing}"
                raise PartyLostError(error.party, text) from error
            warnings.warn(f"{error}; going on without {error.party}", UserWarning, stacklevel=4)
            federation = federation.select([n for n in federation.names if n != error.party])

    def _spend(self, shares: Sequence[float]) -> None:
        """Write down what releases with these shares of the budget have spent."""
        if self.privacy is not None:
            self.ledger_.privacy = self.privacy.spent(shares)
            self.epsilon_ = self.ledger_.privacy.epsilon

    # ------------------------------------------------------------------ after training

    def _check_fitted(self) -> None:
        if not hasattr(self, "queries_"):
            raise NotFittedError(
                f"this {type(self).__name__} has learned nothing yet: call fit first"
            )

    def _ask(self, programs: Mapping[str, Program[T]]) -> Mapping[str, T]:
        """Run a question where the model was trained; what crosses is added to ``queries_``."""
        return ask(self._engine, programs, self.queries_)

    def _check_collect(self) -> None:
        """Raise unless the model is fitted and every party lets what it learned leave it."""
        self._check_fitted()
        refuse_to_collect(self._allow_collect)

    def collect(self) -> Savable:
        """The whole model in one place, if every party has allowed it."""
        raise QueryError(f"{type(self).__name__} has no form in one place")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the collected model as one .fc file, if every party has allowed it."""
        self.collect().save(path)

    def __getstate__(self) -> dict[str, object]:
        """Without what belongs to a run: the state of a failed one, distributions made ready."""
        kept = super().__getstate__().items()
        return {name: value for name, value in kept if name not in ("_state", "_ready")}


def run_programs(
    engine: Engine, programs: Mapping[str, Program[T]], state: TrainingState
) -> Outcome[T]:
    """Open places are filled in at the sites, or here where the parties run here."""
    if named := getattr(engine, "named", None):
        return named(state.run)(programs, state.kept)  # type: ignore[no-any-return]
    return engine({n: filled(p, state.fill(n)) for n, p in programs.items()}, state.kept)


def ask(engine: Engine, programs: Mapping[str, Program[T]], ledger: Ledger) -> Mapping[str, T]:
    """What every role found out in answer to a question, or FederationError."""
    outcome = run_programs(engine, programs, TrainingState())
    ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"the question could not be answered: {error}") from error
    return outcome.results


def require_federation(given: object, estimator: str, series: bool = False) -> Federation:
    """FederationError unless it is a federation; ``series``: whether series may be read."""
    if not isinstance(given, Federation):
        raise FederationError(
            f"{estimator} learns from a Federation of parties, got {type(given).__name__}: "
            "Federation({'north': table, 'south': table}), or split(table, 3) to try out"
        )
    for party in given:
        if party.table.series and not series:
            refuse_series(party.table.series, estimator, f" of {party.name}")
    return given


def check_one_each(name: str, given: object, federation: Federation) -> None:
    """FederationError unless an argument that is given by party has one for each."""
    absent = [n for n in federation.names if isinstance(given, Mapping) and n not in given]
    if absent:
        raise FederationError(f"{name} has none for {absent[0]!r}: give one for each party")


def refuse_to_collect(allowed: Mapping[str, bool]) -> None:
    """Raise unless every party has allowed what it has learned to leave it."""
    refused = [n for n, allows in allowed.items() if n != COORDINATOR and not allows]
    if refused:
        raise FederationError(
            f"{', '.join(refused)} did not allow what they have learned to leave them: "
            "Federation(…, allow_collect=True), or ask the model where it is"
        )


def _resumable(error: PartyLostError, kept: Kept) -> PartyLostError:
    if error.party == COORDINATOR or not kept:
        return error
    text = f"{error}; the others' work is kept: fit(…, resume=True) goes on from there"
    return PartyLostError(error.party, text)
