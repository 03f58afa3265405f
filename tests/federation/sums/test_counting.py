"""Counting where labels of parties meet, at a coordinator that reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.sums.counting import Contingency, Labels, RowLabels, compact, patterns
from fedcircuits.testing import check_messages, check_protocol

PARTIES = ("a", "b", "c")


def party(me: str, labels: dict[int, Labels]) -> Flow[None]:
    yield from fc.Hub().counts(me, PARTIES).contribute(labels)


def coordinator(tables: dict[int, Contingency], where: Labels) -> Flow[Any]:
    return (yield from fc.Hub().counts(COORDINATOR, PARTIES).collect(tables, where))


def programs(rows: int, seed: int) -> tuple[dict[str, Program[Any]], Labels]:
    """Three parties that hold most rows, each in an order of its own; table 1 is of two."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 3, size=(rows, 3))
    where, made = np.full(labels.shape, -1), {}
    for i, me in enumerate(PARTIES):
        held = rng.permutation(np.flatnonzero(labels[:, i] >= 0))
        where[held, i] = np.arange(len(held))
        own = dict.fromkeys((0, 1) if me != "b" else (0,), labels[held, i])
        made[me] = Program(party, {"me": me, "labels": own})
    groups = tuple((p,) for p in PARTIES)
    tables = {0: Contingency(PARTIES, (3, 3, 3), groups), 1: Contingency(("c", "a"), (3, 3), ())}
    made[COORDINATOR] = Program(coordinator, {"tables": tables, "where": where})
    return made, labels


@settings(max_examples=25)
@given(st.integers(0, 40), st.integers(0, 10**6))
def test_counts_are_those_of_the_joined_labels(rows: int, seed: int) -> None:
    made, labels = programs(rows, seed)
    outcome = memory.run(made)
    for table, columns in ((0, [0, 1, 2]), (1, [2, 0])):
        for found, expected in zip(
            outcome.results[COORDINATOR][table], patterns(labels[:, columns]), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    assert {e.reveals for e in outcome.ledger} == {RowLabels.reveals}


def test_labels_travel_in_few_bytes() -> None:
    assert compact(np.arange(100)).dtype == np.int8
    assert compact(np.array([-1, 300])).dtype == np.int16
    assert compact(np.zeros(0, np.int64)).dtype == np.int8


def test_laws_of_protocols_and_messages() -> None:
    check_protocol(programs(20, 1)[0], without=["processes"])
    assert check_messages(lambda: programs(20, 1)[0]) > 20
