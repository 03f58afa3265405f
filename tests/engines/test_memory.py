"""The engine in memory: the laws of engines, many parties, waiting that nobody can end."""

from __future__ import annotations

from typing import Any

import pytest

from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import failure
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError
from fedcircuits.estimators.engine_choice import SealedEngine, engine_of
from fedcircuits.federation.flow import Program
from fedcircuits.testing import check_engine
from tests.engines import flows


def test_keeps_every_law() -> None:
    check_engine(memory.run)


def test_a_thousand_parties() -> None:
    names = [f"party {i}" for i in range(1000)]
    programs = {
        me: Program(
            flows.pass_on,
            {"before": names[i - 1], "after": names[(i + 1) % 1000], "first": i == 0},
        )
        for i, me in enumerate(names)
    }
    outcome = memory.run(programs)
    assert not outcome.lost and len(outcome.ledger) == 1000
    assert outcome.results == {me: i or 1000 for i, me in enumerate(names)}


def test_everybody_waits() -> None:
    programs = {
        me: Program(flows.hear_all, {"sender": other, "tags": [f"x/{me}"]})
        for me, other in (("a", "b"), ("b", "a"))
    }
    outcome = memory.run(programs)
    text = "deadlock, every party waits and none sends: a for 'x/a' from b; b for 'x/b' from a"
    assert outcome.results["a"] == [f"b|a waits for 'x/a' from b: {text}"]
    assert not outcome.lost and outcome.results["b"][0].startswith("a|b waits for 'x/b' from a")


def test_equal_work_of_several_parties_is_done_at_once() -> None:
    programs = {f"p{i}": Program(flows.work, {"job": flows.Doubling(i), "batch": flows.doubled})
                for i in range(3)}  # fmt: skip
    alone = {"q": Program(flows.work, {"job": flows.Doubling(5), "batch": None})}
    outcome = memory.run({**programs, **alone})
    assert outcome.results == {"p0": (0, 3), "p1": (2, 3), "p2": (4, 3), "q": (10, 1)}
    assert outcome.kept["p1", "doubling"] == (2, 3)
    again = memory.run(programs, {("p0", "doubling"): (7, 7)})  # kept work is not done again
    assert again.results == {"p0": (7, 7), "p1": (2, 2), "p2": (4, 2)}
    assert process.run(programs).results == {"p0": (0, 1), "p1": (2, 1), "p2": (4, 1)}


def test_whoever_fails_at_common_work_is_blamed_alone() -> None:
    programs = {f"p{i}": Program(flows.work, {"job": flows.Doubling(i - 1), "batch": flows.doubled})
                for i in range(3)}  # fmt: skip
    outcome = memory.run(programs)
    assert outcome.results == {"p1": (0, 1), "p2": (2, 1)}
    assert str(outcome.lost["p0"]) == "p0 failed while doubling: ValueError"


def test_a_sender_that_is_no_party() -> None:
    programs = {"a": Program(flows.hear_all, {"sender": "nobody", "tags": ["x/y"]})}
    for run in (memory.run, process.run):
        text = str(run(programs).lost["a"])
        assert "a waits for 'x/y' from 'nobody', which is not another party of this run" in text


def test_whoever_was_lost_first_is_blamed() -> None:
    first = PartyLostError("a", "a died")
    assert failure("b", "waiting", first) is first
    ours = failure("b", "adding", ProtocolError("c sent a text"))
    assert str(ours) == "b failed while adding: c sent a text" and ours.party == "b"
    assert str(failure("b", "adding", KeyError("Mrs Smith"))) == "b failed while adding: KeyError"


def test_engines_by_name() -> None:
    assert engine_of("memory") is engine_of(None) is memory.run
    assert engine_of("process") == SealedEngine(process.run)  # which relays messages
    assert engine_of("process", False) is process.run

    def own(programs: Any, kept: Any = None) -> Any:
        return memory.run(programs, kept)

    assert engine_of(own) is own
    with pytest.raises(
        FederationError, match="unknown engine 'dask': expected 'memory', 'process'"
    ):
        engine_of("dask")
