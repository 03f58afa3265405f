"""The short version of ``python -m benchmarks.fuzz``: hostile inputs of every kind."""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from benchmarks.fuzz.__main__ import divided, run
from benchmarks.fuzz.messages import recording
from benchmarks.fuzz.worker import KINDS
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import fields_of
from fedcircuits.testing.protocols.malformed import Change, changing


def test_hostile_inputs_are_answered_or_refused() -> None:
    """400 inputs under limits of memory and time: no crash, hang, raw error or wrong answer."""
    tally = run(divided(400, KINDS, processes=1), seed=0)
    assert not tally.failures
    assert tally.tried.total() >= 400 and set(tally.tried) == set(KINDS)
    assert all(tally.answered[kind] and tally.refused[kind] for kind in KINDS)


def test_totals_of_which_no_circuit_can_be_made_blame_the_members() -> None:
    """Instead of the reader's own column, which is sound."""
    recorded = recording("FedPC with a mixture by sums")
    sent = next(m for m in recorded.messages if m[2] == "shared/totals/total")
    sender, receiver, tag, number, data = sent
    fields = fields_of(data)
    values = np.array(fields["values"])
    values[0] = 1e11
    about = sender, receiver, tag, number, "values", "is far off", {**fields, "values": values}
    programs = deepcopy(dict(recorded.programs))
    spoiling = {"program": programs[sender], "change": Change(*about, False)}
    outcome = memory.run({**programs, sender: Program(changing, spoiling)})
    said = str(outcome.lost[receiver].__cause__ or outcome.lost[receiver])
    assert "one of" in said and sender in said and "sent wrong numbers" in said
