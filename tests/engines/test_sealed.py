"""Messages that pass somebody they are not for are sealed, in every method, without asking."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import fedcircuits as fc
from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.estimators.engine_choice import SealedEngine, engine_of
from fedcircuits.federation.flow import Effect, Flow, Program, Send, through
from fedcircuits.federation.messages import fields_of

BOOLEANS = fc.Table.of(np.random.default_rng(0).random((60, 4)) < 0.4)
NUMBERS = fc.Table.of({c: np.random.default_rng(ord(c)).normal(size=40) for c in "abc"})


class Relay:
    """The memory engine as somebody sees it through whose hands all messages go."""

    relays = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        heard = {n: Program(passing, {"program": p, "relay": self}) for n, p in programs.items()}
        return memory.run(heard, kept)

    def names(self) -> set[str]:
        """Of all fields that it can read."""
        return {name for tag, data in self.seen for name in fields_of(data)}


def passing(program: Program[Any], relay: Relay) -> Flow[Any]:
    def note(effect: Effect) -> Flow[object]:
        if isinstance(effect, Send):
            relay.seen.append((effect.tag, bytes(effect.data)))
        return (yield effect)

    return (yield from through(program.start(), note))


MODELS: dict[str, tuple[Any, Any]] = {
    "FedPC": (fc.FedPC(method="one_pass", random_state=0), fc.split(BOOLEANS, 3, seed=0)),
    "FedTrees": (
        fc.FedTrees(target=BOOLEANS.names[0], random_state=0),
        fc.split(BOOLEANS, 2, seed=0, target=BOOLEANS.names[0]),
    ),
    "ChowLiuTree": (fc.ChowLiuTree(), fc.split(BOOLEANS, 3, seed=0)),
    "VerticalKMeans": (
        fc.VerticalKMeans(2, random_state=0),
        fc.split(NUMBERS, 3, by="columns", seed=0),
    ),
    "PrivateForest": (
        fc.PrivateForest(1, units=2, combine="em", max_iter=1, random_state=0),
        fc.split(BOOLEANS, 3, seed=0),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_relay_reads_no_message(name: str) -> None:
    """Of training and of a question; unsealed it reads all of them."""
    model, federation = MODELS[name]
    relay = Relay()
    model.fit(federation, engine=relay)
    assert isinstance(model._engine, SealedEngine)
    trained = len(relay.seen)
    if name in ("FedPC", "PrivateForest"):
        model.score_samples(BOOLEANS.rows(np.arange(2)))
        assert len(relay.seen) > trained
    assert relay.names() == {"public", "signature", "number", "body"}
    assert {"public", "signature"} == {
        field for tag, data in relay.seen if tag == "seal/hello" for field in fields_of(data)
    }
    relay.relays = False
    relay.seen.clear()
    model.fit(federation, engine=relay)
    assert "seal/hello" not in {tag for tag, _ in relay.seen}
    assert not relay.names() & {"number", "body"}


def test_which_engines_seal() -> None:
    assert engine_of("memory") is memory.run
    assert engine_of("process") == SealedEngine(process.run)
    assert engine_of("process", False) is process.run
    assert engine_of("memory", True) == engine_of(SealedEngine(memory.run), True)
    assert pickle.loads(pickle.dumps(engine_of("process"))) == SealedEngine(process.run)


def test_sealing_changes_sizes_only() -> None:
    """24 bytes and the names of two fields more for every message, and one hello each way; the same
    model."""
    plain, hidden = (
        clone(MODELS["FedPC"][0]).fit(MODELS["FedPC"][1], engine=engine)
        for engine in (memory.run, SealedEngine(memory.run))
    )
    np.testing.assert_array_equal(plain.score_samples(BOOLEANS), hidden.score_samples(BOOLEANS))
    before = [(e.sender, e.receiver, e.tag, e.reveals, e.bytes) for e in plain.ledger_]
    after = [
        (e.sender, e.receiver, e.tag, e.reveals, e.bytes)
        for e in hidden.ledger_
        if e.tag != "seal/hello"
    ]
    assert [row[:4] for row in before] == [row[:4] for row in after]
    more = [a[4] - b[4] for a, b in zip(after, before, strict=True)]
    assert len(hidden.ledger_) - len(plain.ledger_) == 12 and 24 < min(more) <= max(more) < 64


def test_in_processes_messages_are_sealed() -> None:
    model = fc.ChowLiuTree().fit(MODELS["ChowLiuTree"][1], engine="process")
    assert "seal/hello" in {e.tag for e in model.ledger_}
