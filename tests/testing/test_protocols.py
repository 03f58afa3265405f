"""check_protocol must call every planted error by the law it breaks, and nothing else by it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from threading import Lock

import numpy as np
import pytest
import torch

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.testing import check_protocol
from fedcircuits.testing.protocols import LAWS
from tests.testing.planted import programs


@pytest.fixture(autouse=True)
def generators() -> Iterator[None]:
    """As they were, whatever a test has planted."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])


def broken(fault: str) -> tuple[set[str], str]:
    """The laws that fail, and the text."""
    with pytest.raises(AssertionError, match="the protocol breaks its contract") as caught:
        check_protocol(programs(fault))
    text = str(caught.value)
    return set(re.findall(r"law '([a-z ]+)' fails", text)), text


def test_the_right_one_passes() -> None:
    check_protocol(programs())
    check_protocol(programs)


@pytest.mark.parametrize(
    ("fault", "law", "words"),
    [
        ("waits", "completes", "hub waits for 'mean/other' from south"),
        ("process", "processes", "the result of south is another one in the other engine"),
        (
            "stream",
            "kept work",
            "south sends other bytes when all work is kept, .*'mean/sums'",
        ),
        ("numpy", "randomness", "the global generator of numpy.random was used"),
        ("python", "randomness", "the global generator of random was used"),
        ("torch", "randomness", "the global generator of torch was used"),
        ("in place", "arguments", r"south has changed an argument: arguments\['table'\]: other"),
        ("silent", "reveals", "'mean/sums' from south to hub holds data and reveals nothing"),
        ("tag", "tags", "south sends 'sums': expected phase/what"),
        ("number", "tags", "south sends '3/sums'"),
        ("empty", "tags", "south sends 'mean//sums'"),
        ("kinds", "kinds", r"south sends hub \(value: a number\), then \(value: an array of"),
        ("late", "unread messages", "hub leaves 1 messages 'mean/more/1' from south"),
        ("spare", "losses", "north fails at message 1 of 2: hub ends with the full result"),
        ("goes on", "losses", "hub ends with a result although it never heard 'mean/sums'"),
        ("blames", "losses", "hub does not blame it: hub failed while .*somebody is not there"),
        ("for ever", "losses", "hub failed while .*it still goes on after 160 messages"),
    ],
)
def test_a_planted_error_is_named(fault: str, law: str, words: str) -> None:
    laws, text = broken(fault)
    assert laws == {law} and re.search(words, text), text


@pytest.mark.parametrize(
    ("fault", "law", "words"),
    [
        ("counter", "determinism", "south sends other bytes when run again"),
        ("counter", "replay", "south sends other bytes when replayed"),
        ("side", "replay", "south sends other bytes when replayed"),
        ("side", "processes", "is another one in the other engine"),
    ],
)
def test_an_error_that_breaks_several_laws_is_found_by_each(
    fault: str, law: str, words: str
) -> None:
    with pytest.raises(AssertionError, match=f"law '{law}' fails: .*{words}"):
        check_protocol(programs(fault), without=[other for other in LAWS if other != law])


@pytest.mark.parametrize(
    ("fault", "law"), [("silent", "reveals"), ("goes on", "losses"), ("in place", "arguments")]
)
def test_laws_can_be_left_out(fault: str, law: str) -> None:
    check_protocol(programs(fault), without=[law])


def test_laws_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown laws \['speed'\]: expected some of processes"):
        check_protocol(programs(), without=["speed"])


def test_what_a_protocol_says_of_itself() -> None:
    check_protocol(programs("silent"), silent=["mean/sums"])
    check_protocol(programs("late"), unread=["mean/more"])
    check_protocol(programs("late"), unread=["mean/more/1"])
    with pytest.raises(AssertionError, match="law 'unread messages' fails"):
        check_protocol(programs("late"), unread=["mean/mo"])
    check_protocol(programs("goes on"), goes_on=True)
    with pytest.raises(AssertionError, match="message 1 of 2: hub ends with the full result"):
        check_protocol(programs("spare"), goes_on=True)


def test_results_may_be_compared_otherwise() -> None:
    def shapes(a: Array, b: Array) -> bool:
        return a.shape == b.shape

    check_protocol(programs("process"), equal=shapes)
    with pytest.raises(AssertionError, match="the result of hub is another one when run again"):
        check_protocol(programs(), equal=lambda a, b: False)


def test_another_engine() -> None:
    check_protocol(programs("process"), run=memory.run)


def test_programs_that_cannot_be_copied() -> None:
    with pytest.raises(ValueError, match=r"cannot be copied .*give a function that makes equal"):
        check_protocol(programs(lock=Lock()))
    with pytest.raises(AssertionError) as caught:
        check_protocol(lambda: programs(lock=Lock()))
    laws = re.findall(r"law '([a-z ]+)' fails", str(caught.value))
    assert laws == ["processes", "arguments"], "neither can be sent nor compared"
