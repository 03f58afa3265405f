"""The base class of federated estimators: validation, training, lost parties, resuming, queries.

``fit`` runs one program per party, and one of the coordinator if the method has one, in an engine.
It keeps what each role has learned, and the ledger of all messages. A run that fails keeps its
state, so that ``fit(…, resume=True)`` repeats no finished work. Queries after training are runs of
programs too, recorded in ``queries_``. Where the parts of a fitted model are held and how it is
saved is in parts.py.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, Self, TypeAlias, TypeVar, get_args

from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import Choice, Declared, Instance, check_arguments
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.engines.watching import Callback, watched
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError
from fedcircuits.estimators import parts
from fedcircuits.estimators.engine_choice import Seal, engine_of
from fedcircuits.estimators.parts import ModelInParts, refuse_to_collect
from fedcircuits.estimators.progress import Bar
from fedcircuits.federation.described import checked_name
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import Ledger
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
from fedcircuits.methods.meeting import collecting
from fedcircuits.methods.meeting.intersection import openmined
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.privacy.differential import DifferentialPrivacy
from fedcircuits.tables.series import refuse_series

R = TypeVar("R")  # what a role returns at the end of training
T = TypeVar("T")
ON_LOST = Choice("stop", "continue")
ROWS = Choice(*get_args(RowRule))
AGAIN = "release sums of the same rows with fresh noise, and spend the privacy budget again"
CALLBACK = Instance(Callable, "a function of one argument, a Progress", or_=(None,))  # type: ignore[arg-type]
SUMMATION = Instance(
    Summation,
    "a way to add up, with brackets, such as Hub(), Tree(graph), Secret() or, for mixtures over "
    "columns, Chebyshev(graph) and Metropolis(graph)",
)


@dataclass(slots=True)
class TrainingState:
    """The state of a run, kept if it fails: its seed and name, finished work, and random values of
    parties that run locally. ``again`` says whether the run resumes an interrupted one."""

    seed: int = field(default_factory=lambda: secrets.randbits(32), repr=False)
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    drawn: dict[tuple[str, str], bytes] = field(default_factory=dict, repr=False)
    kept: Kept = field(default_factory=dict, repr=False)
    parties: tuple[str, ...] = ()  # participants when training began
    again: bool = False
    losses: list[str] = field(default_factory=list)  # notes on parties lost during training
    secret: ClassVar[bytes] = own_key("secret")  # a party's secret for hiding row ids

    def fill(self, party: str) -> Fill:
        """Random values of a party that runs locally. The secret that hides its row ids stays the
        same when a run is resumed; keys of shares are drawn anew, as messages may differ."""
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
        """The secrets by party that hide row ids: one of the first party, which derives a key for
        the others, or one per party if rows are matched privately."""
        holds = parties if rows == "private" else parties[:1]
        return {p: self.secret if p in holds else b"" for p in parties}


@dataclass(frozen=True, slots=True)
class FederatedRun(Generic[R]):
    """A completed training."""

    results: Mapping[str, R] = field(repr=False)  # by role
    ledger: Ledger
    federation: Federation  # participants at the end
    engine: Engine
    seed: int = field(repr=False)


MakePrograms: TypeAlias = Callable[[Federation, TrainingState], Mapping[str, Program[R]]]


class FederatedEstimator(ModelInParts, Generic[R]):
    """Base class of estimators that learn one model from a federation.

    A subclass declares the valid values of its parameters in ``allowed`` and implements four hooks:

    ``_check_federation(federation)``       raise if these parties cannot learn the model together
    ``_programs(federation, state)``        one program per role, for the current participants
    ``_missing_without(federation, lost)``  what the model would lack without a lost party
    ``_keep(run)``                          set attributes from the results; ``ledger_``,
                                            ``queries_``, ``kind_`` and ``_engine`` are set before.
                                            What a site has learned is a handle, ``Held``

    ``collect`` assembles a local model from the parts that ``_handed_over`` returns.
    """

    allowed: ClassVar[Declared] = {}
    reads_series: ClassVar[bool] = False
    on_lost: Literal["stop", "continue"] = "stop"
    random_state: int | None = None
    sealed: Seal = "auto"  # whether messages relayed by the engine are encrypted
    privacy: DifferentialPrivacy | None = None

    ledger_: Ledger  # of training
    epsilon_: float  # spent in training, if ``privacy`` is set
    queries_: Ledger  # of queries since training
    notes_: tuple[str, ...] = ()  # remarks for the user; all but choices are also warnings
    _choices: tuple[str, ...] = ()  # automatic choices and their reasons
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
            Not allowed: the target is a column of a party.
        engine : {"memory", "process", "ray"} or callable, optional
            Where the parties run; by default in memory, or at the sites the federation is connected
            to. Messages are encrypted if the engine relays them, as "process" does.
        resume : bool or str, default=False
            Whether to continue a run that failed, or the name of a run on sites that was
            interrupted in another process.
        name : str, optional
            The name of the model, under which sites keep what they learn; random by default.
        callback : callable, optional
            Called with a ``Progress`` for every step, message, round and loss: round, party,
            phase, likelihood, bytes, time left. It is called by one thread at a time.
        """
        return self._train(self._checked(X, y), self._programs, engine, resume, name, callback)

    def _checked(self, given: object, y: object = None) -> Federation:
        """The federation to learn from, after validation of all parameters."""
        if y is not None:
            raise FederationError(
                "y is not used: in a federation the target is a column of a party; name it, "
                "target='…'"
            )
        check_arguments(self, FederationError)
        if self.privacy is not None and self.on_lost == "continue":
            raise FederationError(f"on_lost='continue' would {AGAIN}: use on_lost='stop'")
        federation = require_federation(given, type(self).__name__, self.reads_series)
        summation = getattr(self, "summation", None)
        if isinstance(summation, Summation):
            summation.prepare("summation")
        if getattr(self, "rows", None) == "private":
            openmined()  # an error that says how to get it
        self._pooled = federation.notes
        return self._check_federation(federation.pooled())

    def _check_federation(self, federation: Federation) -> Federation:
        """Raise if these parties cannot learn the model; else the federation, possibly changed."""
        return federation

    def _programs(self, federation: Federation, state: TrainingState) -> Mapping[str, Program[R]]:
        """One program per role. ``state.seed`` is ``random_state``, or random if that is None."""
        raise NotImplementedError

    def _missing_without(self, federation: Federation, lost: str) -> str:
        """What the model would lack without a party, for an error; "" if others can continue."""
        return "" if len(federation) > 1 else "no other party is left"

    def _keep(self, run: FederatedRun[R]) -> None:
        """Set attributes from the results."""
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
        """Train and keep the results. It must be called by ``fit`` directly, so that warnings
        refer to the caller's line."""
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
        for note in notes:  # losses were warned about before
            warnings.warn(note, UserWarning, stacklevel=3)
        return self

    def _begun(self, engine: Engine, resume: bool | str, name: str | None) -> TrainingState:
        """The state of a new or resumed training."""
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
        """Run the programs; with ``on_lost="continue"``, again without a lost party if the model
        then lacks nothing."""
        ledger = Ledger()
        while True:
            roles = programs(federation, state)
            if not state.again:
                parts.remember(engine, state.run, self, state.seed, federation.names)
            outcome = run_programs(engine, roles, state)
            ledger.add(outcome.ledger)
            state.kept = outcome.kept
            if not outcome.lost:
                results = {role: outcome.results[role] for role in roles}  # in the order of roles
                return FederatedRun(results, ledger, federation, engine, state.seed)
            error = next(iter(outcome.lost.values()))
            if self.on_lost == "stop" or error.party not in federation.parties:
                raise _resumable(error, state, engine) from error
            if missing := self._missing_without(federation, error.party):
                text = f"{error}; continuing without it is not possible: {missing}"
                raise PartyLostError(error.party, text) from error
            state.losses.append(f"{error}; continuing without {error.party}")
            warnings.warn(state.losses[-1], UserWarning, stacklevel=4)
            federation = federation.select([n for n in federation.names if n != error.party])
            state.run, state.again = parts.next_name(engine, state.run), False

    def _spend(self, shares: Sequence[float]) -> None:
        """Record the privacy spent by releases with these shares of the budget."""
        if self.privacy is not None:
            self.ledger_.privacy = self.privacy.spent(shares)
            self.epsilon_ = self.ledger_.privacy.epsilon

    # ------------------------------------------------------------------ after training

    def _check_fitted(self) -> None:
        if not hasattr(self, "queries_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _ask(self, programs: Mapping[str, Program[T]]) -> Mapping[str, T]:
        """Run a query where the model was trained; messages are recorded in ``queries_``."""
        return ask(self._engine, programs, self.queries_)

    def _check_collect(self) -> None:
        """Raise unless the model is fitted and every party allows collection."""
        self._check_fitted()
        refuse_to_collect(self._allow_collect)

    def _handed_over(self, parts: Mapping[str, T | Held], kind: type[T]) -> dict[str, T]:
        """Parts of the model held by parties, sent if their owners allow it: a run like any other,
        recorded in ``queries_`` and in the audits of sites. Objects of other libraries are never
        sent: they can be collected only if they are local."""
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
    """Run programs. Open places are filled in at the sites, or here for local parties."""
    if named := getattr(engine, "named", None):
        return named(state.run, state.again)(programs, state.kept)  # type: ignore[no-any-return]
    return engine({n: filled(p, state.fill(n)) for n, p in programs.items()}, state.kept)


def ask(engine: Engine, programs: Mapping[str, Program[T]], ledger: Ledger) -> Mapping[str, T]:
    """The results of a query by role, or FederationError."""
    sites = hasattr(engine, "named")  # there a query needs no name: it is never resumed
    outcome = engine(programs) if sites else run_programs(engine, programs, TrainingState())
    ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"the question could not be answered: {error}") from error
    return outcome.results


def _resumable(error: PartyLostError, state: TrainingState, engine: Engine) -> PartyLostError:
    if hasattr(engine, "named"):
        how = f"its work at the sites is kept: fit(…, resume={state.run!r}) continues from there"
        return PartyLostError(error.party, f"{error}; {how}")
    if error.party == COORDINATOR or not state.kept:
        return error
    text = f"{error}; the others' work is kept: fit(…, resume=True) continues from there"
    return PartyLostError(error.party, text)


def require_federation(given: object, estimator: str, series: bool = False) -> Federation:
    """FederationError unless ``given`` is a federation; ``series``: whether series are allowed."""
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
    """FederationError unless a parameter given as a mapping has an entry for each party."""
    absent = [n for n in federation.names if isinstance(given, Mapping) and n not in given]
    if absent:
        raise FederationError(f"{name} has no entry for {absent[0]!r}: give one for each party")
