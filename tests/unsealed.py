"""The process engine as it is when nobody asks for seals: its ledger is that of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcircuits.engines import process
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.flow import Program


def processes(programs: Mapping[str, Program[Any]], kept: Kept | None = None) -> Outcome[Any]:
    return process.run(programs, kept)
