"""What was sent in a training, and what it revealed, as lines of text.

Parties with the same part share a line: ``the other 29 parties`` instead of 29 names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.messages import Ledger
from fedcircuits.tables.notebook import MOST_NAMES, listed


def totals(ledger: Ledger) -> dict[str, tuple[int, int]]:
    """Messages and bytes of every phase."""
    by_phase: dict[str, tuple[int, int]] = {}
    for entry in ledger:
        messages, size = by_phase.get(entry.phase, (0, 0))
        by_phase[entry.phase] = (messages + 1, size + entry.bytes)
    return by_phase


def phases(ledger: Ledger) -> list[list[str]]:
    """Phase, messages, bytes; the last line is their total."""
    rows = [[phase, f"{m:,}", f"{b:,}"] for phase, (m, b) in totals(ledger).items()]
    return [*rows, ["all", f"{len(ledger):,}", f"{ledger.bytes:,}"]]


def revelations(ledger: Ledger) -> list[list[str]]:
    """Phase, to, from, what; the same information from or to several parties shares a line."""
    parties: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    everybody: set[str] = set()
    for _, to, sender, phase, what in ledger.revealed().itertuples():
        readers, writers = parties.setdefault((phase, what), ({}, {}))
        readers[to], writers[sender] = None, None
        everybody |= {to, sender}
    everybody -= {COORDINATOR}
    return [
        [
            phase,
            _who(list(readers), everybody, writers),
            _who(list(writers), everybody, readers),
            what,
        ]
        for (phase, what), (readers, writers) in parties.items()
    ]


def _who(names: Sequence[str], everybody: set[str], opposite: Collection[str]) -> str:
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    if set(names) == everybody:
        return f"all {len(names)} parties"
    if len(opposite) == 1 and set(names) == everybody - set(opposite):
        return f"the other {len(names)} parties"
    return listed(names)
