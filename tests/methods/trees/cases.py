"""Small tables, and the programs of a run that grows trees."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Envelope, Program, Record, recording
from fedcircuits.methods.trees import training
from fedcircuits.methods.trees.growing import TreesPlan
from tests.methods.watched import read

SECRET = b"s" * 32


def table(rows: int = 60) -> fc.Table:
    """Four numbers and a class."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4))
    y = np.where(x[:, 0] + x[:, 3] > 0, "high", "low")
    return fc.Table.of({**{f"x{i}": x[:, i] for i in range(4)}, "risk": y})


def narrow(rows: int = 90) -> fc.Table:
    """Two numbers, of which one is often 0, and a class."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    x[rng.random(rows) < 0.5, 0] = 0.0
    y = np.where(x[:, 0] + x[:, 1] > 0, "high", "low")
    return fc.Table.of({"a": x[:, 0], "b": x[:, 1], "risk": y})


def programs(parties: fc.Federation, plan: TreesPlan) -> dict[str, Program[Any]]:
    roles: dict[str, Program[Any]] = {
        COORDINATOR: Program(training.coordinator, {"members": parties.names, "plan": plan})
    }
    for party in parties:
        arguments = {"party": party, "plan": plan, "leaf": fc.DecisionTreeLeaf(), "secret": SECRET}
        roles[party.name] = Program(training.client, arguments)
    return roles


def recorded(flows: dict[str, Program[Any]]) -> dict[str, Record]:
    outcome = memory.run({n: Program(recording, {"program": p}) for n, p in flows.items()})
    assert not outcome.lost, outcome.lost
    return {name: record for name, (_, record) in outcome.results.items()}


def fields(record: Record, party: str, tag: str) -> Any:
    """What a party has sent to whoever has the record, in its only message under the tag."""
    (message,) = [
        m for m in record.inbox if isinstance(m, Envelope) and (m.party, m.tag) == (party, tag)
    ]
    return read(message.data)
