"""The conformance suite of protocols: what every engine, ledger and user may rely on.

A protocol is run in memory once, with every message recorded; each law is then tried on it, in
further runs of equal programs where needed. One AssertionError names each law that failed and how:

    completes          nobody is lost; else nothing more is tried
    processes          every party in a process of its own: the same results and messages
    determinism        the same programs have the same results and send the same bytes
    replay             every flow sends the same bytes again from its inbox alone
    kept work          the same, with all computations kept from the first run
    randomness         the global generators of Python, numpy and torch are left alone
    arguments          those of programs are as they were, but for sources of randomness
    reveals            every message that carries data says what its reader learns
    tags               they read "phase/what", in loops "phase/what/round"
    kinds              messages of one sender to one reader under one tag are of one kind
    unread messages    everything sent is read
    losses             where a party fails at its first, middle or last message, the run ends, and
                       whoever still needed it is lost and blames it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeVar

from fedcircuits.engines import process
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.errors import ProtocolError
from fedcircuits.testing.protocols import laws
from fedcircuits.testing.protocols.trial import Programs, Trial, TrialSettings

T = TypeVar("T")
Law = Callable[[Trial[Any]], Iterator[str]]  # what is wrong, as it is found
PATIENCE = 60.0  # seconds that a party in a process may wait for a message

LAWS: Mapping[str, Law] = {
    "processes": laws.in_other_engine,
    "determinism": laws.determinism,
    "replay": laws.replays,
    "kept work": laws.kept_work,
    "randomness": laws.randomness,
    "arguments": laws.arguments,
    "reveals": laws.reveals,
    "tags": laws.tags,
    "kinds": laws.kinds,
    "unread messages": laws.unread,
    "losses": laws.losses,
}


def processes(programs: Programs[T], kept: Kept | None = None) -> Outcome[T]:
    return process.run(programs, kept, timeout=PATIENCE)


def check_protocol(
    programs: Programs[T] | Callable[[], Programs[T]],
    *,
    without: Collection[str] = (),
    equal: Callable[[T, T], bool] | None = None,
    silent: Collection[str] = (),
    unread: Collection[str] = (),
    goes_on: bool = False,
    run: Engine = processes,
) -> None:
    """Raise AssertionError unless a protocol satisfies every law.

    Parameters
    ----------
    programs : mapping of str to Program, or callable
        The programs of all parties by name, or a function that makes equal ones each time.
    without : collection of str, default=()
        Names of laws to skip.
    equal : callable, optional
        Whether two results of a party are equal; by default to the last bit.
    silent, unread : collection of str, default=()
        Tags, without rounds, of messages that reveal nothing, and of those that need not be read.
    goes_on : bool, default=False
        Whether the protocol continues without a lost party.
    run : Engine
        An engine whose results must equal those of the memory engine.
    """
    if unknown := set(without) - LAWS.keys():
        raise ValueError(f"unknown laws {sorted(unknown)}: expected some of {', '.join(LAWS)}")
    settings = TrialSettings(equal, frozenset(silent), frozenset(unread), goes_on, run)
    if failures := _failures(_maker(programs), settings, without):
        raise AssertionError("the protocol breaks its contract\n  " + "\n  ".join(failures))


def _maker(programs: Programs[T] | Callable[[], Programs[T]]) -> Callable[[], Programs[T]]:
    if not isinstance(programs, Mapping):
        return programs

    def copied() -> Programs[T]:
        try:
            return deepcopy(programs)
        except Exception as error:
            raise ValueError(
                f"the programs cannot be copied ({type(error).__name__}: {error}): give a "
                "function that makes equal ones each time"
            ) from error

    return copied


def _failures(
    fresh: Callable[[], Programs[T]], settings: TrialSettings[T], without: Collection[str]
) -> list[str]:
    try:
        trial = Trial.of(fresh, settings)
    except ProtocolError as error:
        return [f"law 'completes' fails: {error}"]
    problems = {law: _first(holds, trial) for law, holds in LAWS.items() if law not in without}
    return [f"law {law!r} fails: {problem}" for law, problem in problems.items() if problem]


def _first(law: Law, trial: Trial[Any]) -> str:
    try:
        return next(law(trial), "")
    except Exception as error:  # a law that cannot be tried is not kept
        return f"{type(error).__name__}: {error}"
