"""What all federated estimators share: running the flows of training, lost parties, resuming."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fedcircuits.engines.choice import engine_of
from fedcircuits.engines.outcome import Engine, Kept
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.tables.series import refuse_series

T = TypeVar("T")
Programs = Callable[[Federation], Mapping[str, Program[T]]]
Missed = Callable[[Federation, str], str]  # what is missing without a party, "" if nothing


@dataclass(slots=True)
class State:
    """What a run that failed leaves to the next: its work, its seed, its secret."""

    seed: int = field(default_factory=lambda: secrets.randbits(32))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    kept: Kept = field(default_factory=dict)

    @classmethod
    def of(cls, estimator: object, resume: bool) -> State:
        """What the estimator's last run left, if it is to be resumed; else a fresh one."""
        left = getattr(estimator, "_state", None) if resume else None
        return left if isinstance(left, State) else cls()


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    results: Mapping[str, T]
    ledger: Ledger
    federation: Federation  # who took part to the end
    engine: Engine


def require_federation(given: object, estimator: str, series: bool = False) -> Federation:
    """``series``: whether this estimator reads series columns."""
    if isinstance(given, Federation):
        for party in given:
            if party.table.series and not series:
                refuse_series(party.table.series, estimator, f" of {party.name}")
        return given
    raise FederationError(
        f"{estimator} learns from a Federation of parties, got {type(given).__name__}: "
        "Federation({'north': table, 'south': table}), or split(table, 3) to try out"
    )


def require_summation(name: str, given: object) -> None:
    """FederationError unless it says how to add up, and leaves keys to the parties."""
    if isinstance(given, type) or not isinstance(given, Summation):
        got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise FederationError(
            f"{name} must say how to add up, such as Hub(), Tree(graph), Secret() or, for mixtures "
            f"over columns, Chebyshev(graph) and Metropolis(graph), with brackets; got {got}"
        )
    given.prepare(name)


def run_training(
    federation: Federation,
    programs: Programs[T],
    engine: str | Engine,
    state: State,
    missed: Missed | None,
) -> Run[T]:
    """Run to the end; without whoever is lost, where ``missed`` is given and misses nothing."""
    run, ledger = engine_of(engine), Ledger()
    while True:
        outcome = run(programs(federation), state.kept)
        ledger.add(outcome.ledger)
        state.kept = outcome.kept
        if not outcome.lost:
            return Run(outcome.results, ledger, federation, run)
        error = next(iter(outcome.lost.values()))
        if missed is None or error.party not in federation.parties:
            raise _resumable(error, state.kept) from error
        if gone := missed(federation, error.party):
            raise PartyLostError(
                error.party, f"{error}; going on without it is not possible: {gone}"
            ) from error
        warnings.warn(f"{error}; going on without {error.party}", UserWarning, stacklevel=4)
        federation = federation.select([n for n in federation.names if n != error.party])


def _resumable(error: PartyLostError, kept: Kept) -> PartyLostError:
    if error.party == COORDINATOR or not kept:
        return error
    text = f"{error}; the others' work is kept: fit(…, resume=True) goes on from there"
    return PartyLostError(error.party, text)


def refuse_to_collect(allowed: Mapping[str, bool]) -> None:
    """Raise unless every party has allowed what it has learned to leave it."""
    refused = [n for n, allows in allowed.items() if n != COORDINATOR and not allows]
    if refused:
        raise FederationError(
            f"{', '.join(refused)} did not allow what they have learned to leave them: "
            "Federation(…, allow_collect=True), or ask the model where it is"
        )


def answered(run: Engine, programs: Mapping[str, Program[object]], ledger: Ledger) -> object:
    """What the coordinator has found out from the parties that a question concerns."""
    outcome = run(programs)
    ledger.add(outcome.ledger)
    for error in outcome.lost.values():
        raise FederationError(f"the question could not be answered: {error}") from error
    return outcome.results[COORDINATOR]
