"""What all federated estimators share: checking, running, lost parties, resuming, asking.

``fit`` runs one program per party (and one of the coordinator, where a method has one) in an
engine, keeps what each of them learned, and the ledger of what crossed. A run that fails leaves
its state behind, so that ``fit(…, resume=True)`` repeats no work that was done. Questions after
training are runs of programs too; ``queries_`` is their ledger.
What a fitted model keeps where, and how it is saved, is in parts.py.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, Self, TypeAlias, TypeVar, get_args

from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import Choice, Declared, Instance, check_arguments
from fedcircuits.engines.choice import Seal, engine_of
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.engines.watching import Callback, watched
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError
from fedcircuits.estimators import parts
from fedcircuits.estimators.parts import ModelInParts, refuse_to_collect
from fedcircuits.estimators.progress import Bar
from fedcircuits.federation.described import checked_name
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.recipes import (
    Fill,
    Held,
    Here,
    Once,
    Open,
    Own,
    filled,
    fresh_key,
    own_key,
    pack,
)
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.tokens import RowRule
from fedcircuits.methods.meeting import collecting
from fedcircuits.methods.meeting.intersection import openmined
from fedcircuits.privacy.differential import DifferentialPrivacy
from fedcircuits.tables.series import refuse_series

R = TypeVar("R")  # what a role returns at the end of training
T = TypeVar("T")
ON_LOST = Choice("stop", "continue")
ROWS = Choice(*get_args(RowRule))
AGAIN = "release sums of the same rows with other noise, and spend the privacy budget again"
CALLBACK = Instance(Callable, "a function of one argument, a Progress", or_=(None,))  # type: ignore[arg-type]
SUMMATION = Instance(
    Summation,
    "a way to add up, with brackets, such as Hub(), Tree(graph), Secret() or, for mixtures over "
    "columns, Chebyshev(graph) and Metropolis(graph)",
)


@dataclass(slots=True)
class TrainingState:
    """What a run that failed leaves to the next: its seed and name, the work that was done, and
    what parties that run here have drawn. ``again``: whether it goes on where it was broken off."""

    seed: int = field(default_factory=lambda: secrets.randbits(32), repr=False)
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    drawn: dict[tuple[str, str], bytes] = field(default_factory=dict, repr=False)
    kept: Kept = field(default_factory=dict, repr=False)
    parties: tuple[str, ...] = ()  # who took part when training began
    again: bool = False
    losses: list[str] = field(default_factory=list)  # parties without which it went on
    secret: ClassVar[bytes] = own_key("secret")  # of a party, with which row ids are hidden

    def fill(self, party: str) -> Fill:
        """What a party that runs here has drawn. What hides its rows is again the same in a run
        that goes on; keys of shares are others, since others' messages may be others, too."""
        keys: dict[str, bytes] = {}

        def drawn(place: Open) -> object:
            match place:
                case Own("secret"):
                    return self.drawn.setdefault((party, place.what), fresh_key())
                case Own(what):
                    return keys.setdefault(what, fresh_key())
                case Once(what, start, stop) if not isinstance(what, Held):
                    return what.hand_out(start, stop)
            raise FederationError(f"{party} runs here and has no {place}")

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


class FederatedEstimator(ModelInParts, Generic[R]):
    """Learns one model from a federation, in the style of scikit-learn.

    An estimator declares in ``allowed`` what its arguments may be, and fills in four hooks:

    ``_check_federation(federation)``       refuse parties that cannot learn this together
    ``_programs(federation, state)``        one program per role, for those who (still) take part
    ``_missing_without(federation, lost)``  what the model would lack without a lost party
    ``_keep(run)``                          turn results into attributes; ``ledger_``, ``queries_``,
                                            ``kind_`` and ``_engine`` are set before. What a site
                                            has learned is a handle, ``Held``

    What a model's parts in one place are, ``collect`` says, from parts that ``_handed_over``
    brings here.
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
    notes_: tuple[str, ...] = ()  # what the user should know; each is a warning too, but choices
    _choices: tuple[str, ...] = ()  # what was chosen and why
    kind_: str  # how the data were split: "horizontal", "vertical", "hybrid"
    _pooled: tuple[str, ...] = ()  # notes on categories that few rows have

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine | None = None,
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
            Refused: the target is a column of a party.
        engine : {"memory", "process", "ray"} or callable, optional
            Where the parties run: in memory, unless the federation is connected to sites.
            Messages are sealed where an engine relays them: "process", and every engine that says
            so.
        resume : bool or str, default=False
            Whether to take up the work of a run that has failed; or the name of one that was
            broken off on sites, by a process that is gone.
        name : str, optional
            Of the model, under which sites keep what they learn; by default it is drawn.
        callback : callable, optional
            Called with a ``Progress`` for every step, message, round and loss: round, party,
            phase, likelihood, bytes, time left. It is called by one thread at a time.
        """
        return self._train(self._checked(X, y), self._programs, engine, resume, name, callback)

    def _checked(self, given: object, y: object = None) -> Federation:
        """The federation to learn from, if it and all arguments are as they must be."""
        if y is not None:
            raise FederationError(
                "y is not used: in a federation the target is a column of a party; name it, "
                "target='…'"
            )
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
        resume: bool | str,
        name: str | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Run to the end and keep what was learned. To be called by ``fit`` itself, so that
        warnings name the line that called it."""
        if resume and self.privacy is not None:
            raise FederationError(f"resume=True would {AGAIN}: fit anew, and count both runs")
        runs = engine_of(federation.engine if engine is None else engine, self.sealed)
        self._state = state = self._begun(runs, resume, name)
        state.parties = federation.names
        if self.random_state is not None:
            state.seed = int(self.random_state)
        CALLBACK.check("callback", callback, FederationError)
        with Bar(type(self).__name__) as bar:
            see = [bar.see] if bar.shows else []
            with watched([*see, *([callback] if callback else [])]) as watch:
                run = self._run(federation, programs, runs, state)
        self.ledger_, self.queries_ = run.ledger, Ledger()
        self.__dict__.pop("epsilon_", None)
        self.kind_, self._engine, self.name_ = run.federation.kind, run.engine, state.run
        self.where_ = getattr(run.engine, "where", None)
        self._allow_collect = {p.name: p.allow_collect for p in run.federation}
        self.notes_ = self._choices = ()
        self._keep(run)
        trouble = watch.trouble if watch is not None else []
        notes = (*self._pooled, *self.notes_, *trouble)
        self.notes_ = (*state.losses, *self._choices, *notes)
        for attribute in ("_state", "_ready", "_pooled"):
            self.__dict__.pop(attribute, None)
        parts.keep(run.engine, self.name_, self)
        for note in notes:  # losses have been told
            warnings.warn(note, UserWarning, stacklevel=3)
        return self

    def _begun(self, engine: Engine, resume: bool | str, name: str | None) -> TrainingState:
        """The state of a training that begins, or goes on."""
        if isinstance(resume, str):
            seed = parts.recall(engine, resume).seed
            return TrainingState(seed=seed, run=resume, again=True)
        left = self.__dict__.get("_state") if resume else None
        if isinstance(left, TrainingState):
            left.again = True
            return left
        return TrainingState() if name is None else TrainingState(run=checked_name(name))

    def _run(
        self,
        federation: Federation,
        programs: MakePrograms[R],
        engine: Engine,
        state: TrainingState,
    ) -> FederatedRun[R]:
        """Run the programs, again without whoever is lost if the user wants that and the model
        lacks nothing."""
        ledger = Ledger()
        while True:
            roles = programs(federation, state)
            if not state.again:
                parts.remember(engine, state.run, self, state.seed, federation.names)
            outcome = run_programs(engine, roles, state)
            ledger.add(outcome.ledger)
            state.kept = outcome.kept
            if not outcome.lost:
                results = {role: outcome.results[role] for role in roles}  # whoever ended first
                return FederatedRun(results, ledger, federation, engine, state.seed)
            error = next(iter(outcome.lost.values()))
            if self.on_lost == "stop" or error.party not in federation.parties:
                raise _resumable(error, state, engine) from error
            if missing := self._missing_without(federation, error.party):
                text = f"{error}; going on without it is not possible: {missing}"
                raise PartyLostError(error.party, text) from error
            state.losses.append(f"{error}; going on without {error.party}")
            warnings.warn(state.losses[-1], UserWarning, stacklevel=4)
            federation = federation.select([n for n in federation.names if n != error.party])
            state.run, state.again = parts.next_name(engine, state.run), False

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

    def _handed_over(self, parts: Mapping[str, T | Held], kind: type[T]) -> dict[str, T]:
        """What parties hold, which they hand over if their owners allow it: a run like any other,
        of which ``queries_`` tells, and the audits of sites. Parts of other libraries cross no
        wire: they are handed over only where they are here already."""
        if not any(isinstance(part, Held) for part in parts.values()):
            try:
                pack(dict(parts))
            except ProtocolError:
                self._check_collect()
                return dict(parts)  # type: ignore[arg-type]
        gathers: dict[str, object] = {"parties": tuple(parts), "kind": kind}
        programs: dict[str, Program[dict[str, T] | None]] = {
            COORDINATOR: Program(collecting.take_over, gathers)
        }
        for party, part in parts.items():
            allow = Here("collect") if isinstance(part, Held) else self._allow_collect[party]
            holds: dict[str, object] = {"me": party, "part": part, "allow": allow}
            programs[party] = Program(collecting.hand_over, holds)
        parameters = self._ask(programs)[COORDINATOR]
        assert parameters is not None
        return parameters


def run_programs(
    engine: Engine, programs: Mapping[str, Program[T]], state: TrainingState
) -> Outcome[T]:
    """Open places are filled in at the sites, or here where the parties run here."""
    if named := getattr(engine, "named", None):
        return named(state.run, state.again)(programs, state.kept)  # type: ignore[no-any-return]
    return engine({n: filled(p, state.fill(n)) for n, p in programs.items()}, state.kept)


def ask(engine: Engine, programs: Mapping[str, Program[T]], ledger: Ledger) -> Mapping[str, T]:
    """What every role found out in answer to a question, or FederationError."""
    sites = hasattr(engine, "named")  # where a question needs no name: it is not taken up again
    outcome = engine(programs) if sites else run_programs(engine, programs, TrainingState())
    ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"the question could not be answered: {error}") from error
    return outcome.results


def _resumable(error: PartyLostError, state: TrainingState, engine: Engine) -> PartyLostError:
    if hasattr(engine, "named"):
        how = f"its work at the sites is kept: fit(…, resume={state.run!r}) goes on from there"
        return PartyLostError(error.party, f"{error}; {how}")
    if error.party == COORDINATOR or not state.kept:
        return error
    text = f"{error}; the others' work is kept: fit(…, resume=True) goes on from there"
    return PartyLostError(error.party, text)


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
