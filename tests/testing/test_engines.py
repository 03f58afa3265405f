"""check_engine and check_summation must call every planted error by its name.

Broken engines are the one in memory behind something that meddles with effects or outcomes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.flow import (
    Effect,
    Flow,
    Program,
    Recv,
    Send,
    through,
)
from fedcircuits.federation.messages import encode_fields, fields_of
from fedcircuits.federation.sums.collectives import Collective, Summation, Then, TreeSum
from fedcircuits.federation.sums.topology import star
from fedcircuits.testing import check_engine, check_summation
from fedcircuits.testing.engines import LAWS
from fedcircuits.testing.trials import hear, say

Meddle = Callable[[Effect], Effect | None]  # None: the effect is swallowed
Programs = Mapping[str, Program[Any]]


def meddled(program: Program[Any], meddle: Meddle) -> Flow[Any]:
    def handle(effect: Effect) -> Flow[object]:
        changed = meddle(effect)
        return None if changed is None else (yield changed)

    return through(program.start(), handle)


def on_effects(make: Callable[[], Meddle]) -> Engine:
    def run(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
        inner = {n: Program(meddled, {"program": p, "meddle": make()}) for n, p in programs.items()}
        return memory.run(inner, kept)

    return run


def on_payloads(change: Callable[[Any], Any]) -> Engine:
    def meddle(effect: Effect) -> Effect:
        if not isinstance(effect, Send):
            return effect
        fields = {name: change(value) for name, value in fields_of(effect.data).items()}
        return replace(effect, data=encode_fields(fields))

    return on_effects(lambda: meddle)


def on_outcomes(change: Callable[[Outcome[Any]], None]) -> Engine:
    def run(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
        outcome = memory.run(programs, kept)
        change(outcome)
        return outcome

    return run


def one_tag() -> Meddle:
    """All messages of a sender in one queue."""
    return lambda e: e if not isinstance(e, Send | Recv) else replace(e, tag="x")


def forget_rounds() -> Meddle:
    """A tag works once: later messages under it are dropped as doubles."""
    seen: dict[tuple[str, str], int] = defaultdict(int)

    def meddle(effect: Effect) -> Effect | None:
        if isinstance(effect, Send):
            seen[effect.receiver, effect.tag] += 1
            return effect if seen[effect.receiver, effect.tag] == 1 else None
        return effect

    return meddle


def swap_pairs() -> Meddle:
    """Every even number overtakes the odd one before it."""

    def meddle(effect: Effect) -> Effect:
        if isinstance(effect, Send) and effect.tag == "order/number":
            number = fields_of(effect.data)["value"]
            assert isinstance(number, int)
            return replace(effect, data=encode_fields({"value": number ^ 1}))
        return effect

    return meddle


def without_axes(payload: Any) -> Any:
    return np.atleast_1d(payload) if isinstance(payload, np.ndarray) else payload


def single(payload: Any) -> Any:
    is_double = isinstance(payload, np.ndarray) and payload.dtype == np.float64
    return payload.astype(np.float32).astype(np.float64) if is_double else payload


def cut(payload: Any) -> Any:
    long = isinstance(payload, np.ndarray) and payload.nbytes > 10_000_000
    return np.where(np.arange(len(payload)) < 10_000_000, payload, 0) if long else payload


def to_nobody() -> Meddle:
    def meddle(effect: Effect) -> Effect | None:
        strange = isinstance(effect, Send) and effect.receiver in ("nobody", "a")
        return None if strange and effect.tag == "unknown/word" else effect  # type: ignore[union-attr]

    return meddle


def swallow_words() -> Meddle:
    return lambda e: None if isinstance(e, Send) and e.tag in ("fail/word", "early/word") else e


def leak(outcome: Outcome[Any]) -> None:
    for name, lost in outcome.lost.items():
        outcome.lost[name] = PartyLostError(lost.party, f"{lost} {lost.__cause__}")


def blame_oneself(outcome: Outcome[Any]) -> None:
    for name, lost in outcome.lost.items():
        outcome.lost[name] = PartyLostError(name, str(lost))


def lose_results(outcome: Outcome[Any]) -> None:
    if outcome.lost:
        outcome.results.clear()


def change_arguments(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
    """Row-major memory read as column-major."""
    outcome = memory.run(programs, kept)
    for name, result in outcome.results.items():
        if isinstance(result, np.ndarray) and not result.flags.c_contiguous:
            outcome.results[name] = result.ravel(order="K").reshape(result.shape)
    return outcome


def redo(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
    return memory.run(programs, None)


def mix_parties(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
    """Kept work found by its step alone."""
    known = {step: value for (_, step), value in (kept or {}).items()}
    return memory.run(programs, {(p, s): v for p in programs for s, v in known.items()})


def with_views(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
    """Arrays are handed over as they are: a change by the sender is seen by the receiver."""
    outcome = memory.run(programs, kept)
    for found in outcome.results.values():
        if isinstance(found, list) and len(found) == 1 and np.shape(found[0]) == (10,):
            found[0] = np.full(10, -1.0)
    return outcome


def drop_last_entry(outcome: Outcome[Any]) -> None:
    del outcome.ledger.entries[-1:]


def count_data_only(outcome: Outcome[Any]) -> None:
    entries = [replace(e, bytes=e.bytes - 5) for e in outcome.ledger]
    outcome.ledger.entries[:] = entries


BROKEN: dict[str, tuple[str, Engine]] = {
    "swapped pairs": ("order", on_effects(swap_pairs)),
    "one queue a sender": ("tags", on_effects(one_tag)),
    "tags work once": ("tags", on_effects(forget_rounds)),
    "cut after 10 MB": ("large payloads", on_payloads(cut)),
    "no arrays without axes": ("odd payloads", on_payloads(without_axes)),
    "views": ("copies", with_views),
    "order of memory": ("arguments", change_arguments),
    "nobody is no error": ("unknown receivers", on_effects(to_nobody)),
    "messages of the dead vanish": ("losses", on_effects(swallow_words)),
    "messages of the early vanish": ("early finishers", on_effects(swallow_words)),
    "texts of errors": ("errors", on_outcomes(leak)),
    "wrong blame": ("errors", on_outcomes(blame_oneself)),
    "all fail when one does": ("losses", on_outcomes(lose_results)),
    "work is done again": ("kept work", redo),
    "work of others": ("kept work", mix_parties),
    "kept work is dropped": ("kept work", on_outcomes(lambda o: o.kept.clear())),
    "single precision": ("numerics", on_payloads(single)),
    "an entry is missing": ("ledger", on_outcomes(drop_last_entry)),
    "bytes of headers": ("ledger", on_outcomes(count_data_only)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_engines_are_caught(name: str) -> None:
    law, engine = BROKEN[name]
    with pytest.raises(AssertionError, match=f"law '{law}' fails"):
        check_engine(engine)
    others = [other for other in LAWS if other != law]
    with pytest.raises(AssertionError, match=f"law '{law}' fails"):  # by that law itself
        check_engine(engine, without=others)


def test_a_record_that_does_not_fit_is_caught() -> None:
    def run(programs: Programs, kept: Kept | None = None) -> Outcome[Any]:
        outcome = memory.run(programs, kept)
        for found in outcome.results.values():
            if isinstance(found, tuple) and hasattr(found[1], "inbox"):
                found[1].inbox.reverse()
        return outcome

    with pytest.raises(AssertionError, match="law 'replay' fails"):
        check_engine(run)


def test_laws_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown laws \['speed'\]"):
        check_engine(memory.run, without=["speed"])
    check_engine(on_effects(swap_pairs), without=["order"])


# ---------------------------------------------------------------------- summations


@dataclass(frozen=True)
class AllToAll:
    """Everybody sends its value to everybody; wrong in the ways that its fields say."""

    me: str
    members: tuple[str, ...]
    forgets_last: bool = False
    changes: bool = False
    flat: bool = False
    single: bool = False
    half: bool = False
    no_then: bool = False
    keeps: bool = False
    own_word: bool = False
    rounds_word: bool = False
    no_word: bool = False
    sums: dict[str, Array] = field(default_factory=dict)

    def sum(
        self, tag: str, value: Array, reveals: str = "", then: Then | None = None
    ) -> Flow[Array]:
        others = [m for m in self.members if m != self.me]
        sent = value.astype(np.float32) if self.single else value
        for other in others:
            yield from say(other, tag, sent, reveals)
        total = value if self.changes else value.astype(np.float64)
        for other in others[:-1] if self.forgets_last else others:
            total += yield from hear(other, tag)  # type: ignore[arg-type]
        if self.keeps:
            total = self.sums.setdefault(tag, total)
        if self.half:
            return total.astype(np.float32)  # type: ignore[return-value]
        total = total if then is None or self.no_then else then(total)
        return total.ravel() if self.flat else total

    def agree(self, tag: str, value: Array, reveals: str = "") -> Flow[Array]:
        others = [m for m in self.members if m != self.me]
        if self.own_word:
            return value
        word = value
        if self.me != self.members[0]:
            word = yield from hear(self.members[0], tag)  # type: ignore[assignment]
        else:
            for other in others:
                yield from say(other, tag, value, reveals)
        if self.no_word:
            return np.zeros(99)
        return word.astype(np.float64) if self.rounds_word else word


@dataclass(frozen=True)
class Everyone(Summation):
    """A choice, with a member that is no party."""

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        return (*parties, "witness")

    def at(self, me: str, members: Sequence[str]) -> AllToAll:
        assert "witness" in members
        return AllToAll(me, tuple(members))


def test_sums() -> None:
    check_summation(AllToAll)
    check_summation(lambda me, members: TreeSum(me, star(members, members[-1])), tolerance=1e-10)
    check_summation(Everyone())


def test_counts_of_parties() -> None:
    tried: list[int] = []

    def make(me: str, members: tuple[str, ...]) -> Collective:
        tried.append(len(members))
        return AllToAll(me, members)

    check_summation(make, counts=[2, 7])
    assert sorted(set(tried)) == [2, 7]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("forgets_last", r"with 2 members: member 0, sum 0 of shape \(\) is off by"),
        ("changes", "own value was changed"),
        ("flat", "shape that member 0, sum 0"),
        ("single", "with 2 members: member 0, sum 0 .* is off by"),
        ("half", r"type of numbers of member 0, sum 0 .* got dtype\('float32'\)"),
        ("no_then", "shape that member 0, sum 0 of shape .*, with then"),
        ("keeps", "member 0, sum 1 .*, under a tag used before"),
        ("own_word", "with 2 members: what member 1 agrees to, bit for bit the same for all"),
        ("rounds_word", "what member 0 agrees to, bit for bit"),
        ("no_word", "which none of them had"),
    ],
)
def test_broken_summations_are_caught(fault: str, words: str) -> None:
    def make(me: str, members: tuple[str, ...]) -> Collective:
        return AllToAll(me, members, **{fault: True})  # type: ignore[arg-type]

    with pytest.raises(AssertionError, match=words):
        check_summation(make)


def test_a_hub_that_is_not_there() -> None:
    with pytest.raises(AssertionError, match="not another party of this run"):
        check_summation(lambda me, members: TreeSum(me, star(members, "nobody")))
