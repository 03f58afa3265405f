"""Conformance suites of engines and summations.

Both raise one AssertionError that names each law that failed and how. An engine is compared with
the memory engine: equal results to the last bit, equal bytes in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine, Outcome
from fedcircuits.federation.flow import Program, recording, replay
from fedcircuits.federation.messages import encode_message
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.testing import trials
from fedcircuits.testing.protocols.laws import by_way

LARGE = 20_000_000  # bytes
ODD: dict[str, Any] = {
    "number": 1.5,
    "nothing": None,
    "words": {"ä": [1, "zwei", None, True, {"deep": []}]},
    "array without axes": np.array(2.5),
    "no rows": np.zeros((0, 3), np.float32),
    "no columns": np.zeros((3, 0)),
    "booleans": np.array([True, False]),
    "texts": np.array([["north", ""], ["süd", "x"]]),
    "every second": np.arange(24.0).reshape(4, 6)[::2, 1::2],
    "turned": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    "big endian": np.arange(3, dtype=">i4"),
    "not a number": np.array([np.nan, -np.inf, -0.0]),
    "by name": {"mean": np.ones(3), "flags": np.array([True]), "none": np.zeros(0)},
}


def check_engine(run: Engine, *, without: Collection[str] = ()) -> None:
    """Raise AssertionError unless the engine satisfies every law of its contract.

    Parameters
    ----------
    run : Engine
    without : collection of str, default=()
        Names of laws that the engine is known to violate.
    """
    if unknown := set(without) - LAWS.keys():
        raise ValueError(f"unknown laws {sorted(unknown)}: expected some of {', '.join(LAWS)}")
    failures = []
    for law, holds in LAWS.items():
        if law not in without and (problem := _problem(lambda holds=holds: holds(run))):  # type: ignore[misc]
            failures.append(f"law {law!r} fails: {problem}")
    if failures:
        raise AssertionError("the engine breaks its contract\n  " + "\n  ".join(failures))


def _problem(check: Callable[[], None]) -> str | None:
    try:
        check()
    except AssertionError as error:
        return str(error) or "a trial did not hold"
    except Exception as error:  # a law that cannot be tried is not kept
        return f"{type(error).__name__}: {error}"
    return None


def _all(outcome: Outcome[Any]) -> dict[str, Any]:
    assert not outcome.lost, f"lost parties: {'; '.join(map(str, outcome.lost.values()))}"
    return outcome.results


def _same(result: object, expected: object, what: str) -> None:
    assert result == expected, f"{what}: expected {expected!r}, got {result!r}"


def _same_bytes(result: object, expected: object, what: str) -> None:
    kinds = type(result).__name__, type(expected).__name__
    assert _bytes(result) == _bytes(expected), f"{what}: other bytes ({kinds[0]} for {kinds[1]})"


def _bytes(value: object) -> bytes:
    return encode_message(trials.Anything(value))


# ---------------------------------------------------------------------- messages


def order(run: Engine) -> None:
    messages = [("order/number", i) for i in range(200)]
    programs = {
        "a": Program(trials.give, {"to": "b", "messages": messages}),
        "b": Program(trials.take, {"sender": "a", "tags": [t for t, _ in messages]}),
    }
    _same(_all(run(programs))["b"], list(range(200)), "messages of one sender under one tag")  # type: ignore[arg-type]


def tags(run: Engine) -> None:
    """Interleaved by the sender, read one tag after the other; then one tag in many rounds."""
    messages = [(f"tags/{'xyz'[i % 3]}", i) for i in range(30)]
    read = [f"tags/{tag}" for tag in "zxy" for _ in range(10)]
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.give, {"to": "b", "messages": messages}),
        "b": Program(trials.take, {"sender": "a", "tags": read}),
        "c": Program(trials.swap, {"other": "d", "payload": "from c", "rounds": 20}),
        "d": Program(trials.swap, {"other": "c", "payload": "from d", "rounds": 20}),
    }
    results = _all(run(programs))
    expected = [i for first in (2, 0, 1) for i in range(first, 30, 3)]
    _same(results["b"], expected, "messages read tag by tag")
    _same(results["c"], ["from d"] * 20, "a tag used in 20 rounds")


def large_payloads(run: Engine) -> None:
    """Sent both ways before anybody reads: an engine that waits for the reader deadlocks here."""
    rng = np.random.default_rng(1)
    sent = {name: rng.integers(0, 256, LARGE, np.uint8) for name in "ab"}
    programs = {
        me: Program(trials.swap, {"other": other, "payload": sent[me]})
        for me, other in (("a", "b"), ("b", "a"))
    }
    results = _all(run(programs))
    for me, other in (("a", "b"), ("b", "a")):
        assert np.array_equal(results[me][0], sent[other]), f"{LARGE:,} bytes came changed"


def odd_payloads(run: Engine) -> None:
    messages = [(f"odd/{name}", payload) for name, payload in ODD.items()]
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.give, {"to": "b", "messages": messages}),
        "b": Program(trials.take, {"sender": "a", "tags": [t for t, _ in messages]}),
    }
    received = _all(run(programs))["b"]
    for (name, payload), one in zip(ODD.items(), received, strict=True):
        _same_bytes(one, payload, f"payload {name!r}")
        _same(np.shape(one), np.shape(payload), f"shape of payload {name!r}")


def copies(run: Engine) -> None:
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.give_and_change, {"to": "b", "size": 10}),
        "b": Program(trials.take, {"sender": "a", "tags": ["copy/array"]}),
    }
    received = _all(run(programs))["b"][0].tolist()
    _same(received, list(range(10)), "an array that its sender changed after sending")


def arguments(run: Engine) -> None:
    table = np.arange(3_000.0).reshape(100, 30)
    tables = {"a": table, "b": table[::3, ::2], "c": np.asfortranarray(table), "d": table[:0]}
    results = _all(run({k: Program(trials.keep, {"table": v}) for k, v in tables.items()}))
    for name, value in tables.items():
        _same_bytes(results[name], value, f"the argument of {name}'s program")


# ---------------------------------------------------------------------- refusals and losses


def refused_payloads(run: Engine) -> None:
    for what in ("an array of objects", "an object"):
        programs = _give_and_blame([], "b")
        programs["a"] = Program(trials.give_unsendable, {"to": "b", "what": what})
        outcome = run(programs)
        assert "a" in outcome.lost, f"{what} was sent"
        _same(outcome.lost["a"].party, "a", f"who is lost by sending {what}")


def unknown_receivers(run: Engine) -> None:
    for receiver in ("nobody", "a"):
        outcome = run(_give_and_blame([("unknown/word", 1)], receiver))
        assert "a" in outcome.lost, f"a sent a message to {receiver!r} and was not stopped"
        text = str(outcome.lost["a"])
        named = repr(receiver) in text or f"to {receiver}:" in text  # all that others hear of it
        assert named, f"the error does not name {receiver!r}: {text}"


def _give_and_blame(messages: list[tuple[str, object]], to: str) -> dict[str, Program[Any]]:
    return {
        "a": Program(trials.give, {"to": to, "messages": messages}),
        "b": Program(trials.blame, {"sender": "a", "tag": "refused/never"}),
    }


def early_finishers(run: Engine) -> None:
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.finish_early, {"to": "b"}),
        "b": Program(trials.read_late, {"sender": "a"}),
    }
    results = _all(run(programs))
    _same(results["a"], "finished", "the result of the party that ended first")
    word, blamed = results["b"]
    _same(word, "done", "the message of a party that had ended")
    assert blamed.startswith("a|"), f"b waits for a, which has ended, and hears: {blamed}"


def errors(run: Engine) -> None:
    """Whoever waits for a failed party learns which party and step failed, never the text of an
    error or the key of a step."""
    for kind in trials.ERRORS:
        programs: dict[str, Program[Any]] = {
            "a": Program(trials.fail, {"to": "b", "words": 0, "kind": kind}),
            "b": Program(trials.blame, {"sender": "a", "tag": "fail/word"}),
            "c": Program(trials.take, {"sender": "a", "tags": ["fail/other"]}),
        }
        outcome = run(programs)
        _same(sorted(outcome.lost), ["a", "c"], "lost parties")
        _same({e.party for e in outcome.lost.values()}, {"a"}, "who is to blame")
        assert outcome.results["b"].startswith("a|"), f"b hears: {outcome.results['b']}"
        for text in (outcome.lost["a"].safe_text, str(outcome.lost["c"]), outcome.results["b"]):
            assert "learning from rows" in text, f"the error does not name the step: {text}"
            assert trials.SECRET not in text, f"the text of an error has left its party: {text}"


def losses(run: Engine) -> None:
    """Messages sent before a loss arrive first; the other parties continue."""
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.fail, {"to": "b", "words": 50}),
        "b": Program(trials.hear_until_lost, {"sender": "a", "tell": "c"}),
        "c": Program(trials.take, {"sender": "b", "tags": ["fail/heard"]}),
    }
    outcome = run(programs)
    _same(list(outcome.lost), ["a"], "lost parties")
    heard, blamed = outcome.results["b"]
    _same(heard, 50, "messages of a party before it was lost")
    assert blamed.startswith("a|"), f"b hears: {blamed}"
    _same(outcome.results["c"], [50], "what b tells c after the loss")


def kept_work(run: Engine) -> None:
    def programs(a: float, b: float, fails: bool) -> dict[str, Program[float]]:
        plan = {"a": (a, fails), "b": (b, False)}
        return {
            me: Program(trials.steps, {"me": me, "value": value, "fails": f})
            for me, (value, f) in plan.items()
        }

    first = run(programs(1.0, 2.0, True))
    expected = {(me, f"{n} step") for me in "ab" for n in ("first", "second")}
    _same(set(first.kept), expected, "steps whose results are kept when a fails")
    part = {key: value for key, value in first.kept.items() if key != ("a", "second step")}
    again = run(programs(5.0, 7.0, False), part)
    _same(dict(sorted(again.results.items())), {"a": 10.0, "b": 20.0}, "results from kept work")
    _same(set(again.kept), expected, "steps kept by the second run")


# ---------------------------------------------------------------------- equal to the one in memory


def _averaging() -> dict[str, Program[Array]]:
    members = ("a", "b", "c")
    rng = np.random.default_rng(3)
    return {
        me: Program(
            trials.averaging,
            {"me": me, "members": members, "table": rng.normal(size=(50, 4)), "rounds": 5},
        )
        for me in members
    }


def numerics(run: Engine) -> None:
    results, expected = _all(run(_averaging())), _all(memory.run(_averaging()))
    for name, value in expected.items():
        _same_bytes(results[name], value, f"the result of {name}, to the last bit")


def ledger(run: Engine) -> None:
    outcome, expected = run(_averaging()), memory.run(_averaging())
    assert by_way(outcome) == by_way(expected), (
        f"the ledger has {len(outcome.ledger)} messages and {outcome.ledger.bytes:,} bytes, "
        f"expected {len(expected.ledger)} and {expected.ledger.bytes:,}; or other tags or words"
    )


def replays(run: Engine) -> None:
    programs = _averaging()
    recorded = {name: Program(recording, {"program": p}) for name, p in programs.items()}
    for name, (_, record) in _all(run(recorded)).items():
        again = replay(programs[name], record.inbox)
        assert again == record.sent, f"{name} sends other bytes when its inbox is replayed"


LAWS: Mapping[str, Callable[[Engine], None]] = {
    "order": order,
    "tags": tags,
    "large payloads": large_payloads,
    "odd payloads": odd_payloads,
    "copies": copies,
    "arguments": arguments,
    "refused payloads": refused_payloads,
    "unknown receivers": unknown_receivers,
    "early finishers": early_finishers,
    "errors": errors,
    "losses": losses,
    "kept work": kept_work,
    "numerics": numerics,
    "ledger": ledger,
    "replay": replays,
}


# ---------------------------------------------------------------------- summations

SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (3, 0), (4, 5), (2, 3, 4))


def check_summation(
    make: trials.Make | Summation,
    run: Engine = memory.run,
    *,
    counts: Iterable[int] = range(1, 6),
    tolerance: float = 1e-6,
    rng: np.random.Generator | None = None,
) -> None:
    """Raise AssertionError unless every member obtains the sum, and agrees with the others.

    Parameters
    ----------
    make : Summation or callable
        A summation such as Tree("cycle"), or a function that makes the collective of one member:
        make("north", ("north", "south")).
    run : Engine, default=memory.run
    counts : iterable of int, default=range(1, 6)
        Numbers of parties to test.
    tolerance : float, default=1e-6
        The largest error of a sum of numbers around 100; 1e-3 if they are sent as float32.
    rng : numpy.random.Generator, optional
    """
    rng = np.random.default_rng(4) if rng is None else rng
    failures = []
    for count in counts:
        parties = tuple(f"member {i}" for i in range(count))
        values = {m: [rng.normal(scale=100.0, size=s) for s in SHAPES] for m in parties}
        if problem := _problem(lambda v=values: _sums(make, run, v, tolerance)):  # type: ignore[misc]
            failures.append(f"with {count} members: {problem}")
    if failures:
        raise AssertionError("the summation breaks its contract\n  " + "\n  ".join(failures))


def _sums(
    make: trials.Make | Summation,
    run: Engine,
    values: Mapping[str, list[Array]],
    tolerance: float,
) -> None:
    parties = tuple(values)
    members = make.members(parties) if isinstance(make, Summation) else parties
    given = {m: values.get(m, [np.zeros(s) for s in SHAPES]) for m in members}
    offers = {m: trials.offer(i) for i, m in enumerate(members)}
    common = {"members": members, "make": make.at if isinstance(make, Summation) else make}
    programs = {
        m: Program(
            trials.summation,
            common | {"me": m, "values": [np.array(v) for v in given[m]], "offer": offers[m]},
        )
        for m in members
    }
    results = {m: trials.SumsFound(**sums) for m, sums in _all(run(programs)).items()}
    for member, sums in results.items():
        _right(member, sums, given, tolerance)
    _all_agree({m: sums.agreed for m, sums in results.items()}, offers)


def _right(
    member: str, sums: trials.SumsFound, given: Mapping[str, list[Array]], tolerance: float
) -> None:
    for i, shape in enumerate(SHAPES):
        total = _total([v[i] for v in given.values()])
        single = _total([v[i].astype(np.float32) for v in given.values()])
        what = f"{member}, sum {i} of shape {shape}"
        assert np.array_equal(sums.after[i], given[member][i]), f"{what}: the own value was changed"
        _close(sums.totals[i], total, what, tolerance)
        _close(sums.then[i], trials.outlined(total), f"{what}, with then", tolerance)
        _close(sums.again[i], 2.0 * total, f"{what}, under a tag used before", tolerance)
        _close(sums.single[i], single, f"{what}, of float32", tolerance)


def _total(arrays: Sequence[npt.NDArray[np.floating]]) -> Array:
    return np.asarray(np.sum(arrays, axis=0, dtype=np.float64))


def _close(result: Array, expected: Array, what: str, tolerance: float) -> None:
    _same(np.shape(result), np.shape(expected), f"shape that {what} ends up with")
    _same(np.asarray(result).dtype, np.dtype(np.float64), f"type of numbers of {what}")
    off = float(np.max(np.abs(result - expected), initial=0.0))
    assert off <= tolerance, f"{what} is off by {off:.3g}, allowed is {tolerance:.3g}"


def _all_agree(results: Mapping[str, list[Array]], offers: Mapping[str, list[Array]]) -> None:
    first = next(iter(results.values()))
    known = {_bytes(offer[0]): offer for offer in offers.values()}
    leader = known.get(_bytes(first[0]))
    assert leader is not None, f"members agree on {first[0]!r}, which none of them had"
    for member, result in results.items():
        for one, expected in zip(result, leader, strict=True):
            _same_bytes(one, expected, f"what {member} agrees to, bit for bit the same for all")
