"""The short version of ``python -m benchmarks.fuzz``: hostile inputs of every kind."""

from __future__ import annotations

from benchmarks.fuzz.__main__ import divided, run
from benchmarks.fuzz.worker import KINDS


def test_hostile_inputs_are_answered_or_refused() -> None:
    """1,000 inputs under limits of memory and time: no crash, hang, raw error or wrong answer."""
    tally = run(divided(1_000, KINDS, processes=1), seed=0)
    assert not tally.failures
    assert tally.tried.total() >= 1_000 and set(tally.tried) == set(KINDS)
    assert all(tally.answered[kind] and tally.refused[kind] for kind in KINDS)
