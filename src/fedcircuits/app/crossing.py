"""The messages between parties, and what they reveal, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from fedcircuits.app.report import TextTable
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.messages import Ledger

MOST_PARTIES = 8  # that get a column of their own
MOST_NAMES = 4  # names of variables or parties in a cell


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} … ({len(names)})"


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun: 1 party, 2 parties."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def holdings(federation: Federation) -> TextTable:
    """Who holds what; variables held by the same parties share a line."""
    few = len(federation) <= MOST_PARTIES
    rows = []
    for space in federation.subspaces:
        marks = ["●" if name in space.holders else "·" for name in federation.names]
        held = marks if few else [f"{len(space.holders)} of {len(federation)}"]
        rows.append((listed(space.variables), *held))
    sizes = [f"{party.name} ({counted(len(party.table), 'row')})" for party in federation]
    return TextTable(("variables", *(sizes if few else ["parties"])), rows)


def totals(ledger: Ledger) -> dict[str, tuple[int, int]]:
    """Messages and bytes of every phase."""
    found: dict[str, tuple[int, int]] = {}
    for entry in ledger:
        messages, size = found.get(entry.phase, (0, 0))
        found[entry.phase] = (messages + 1, size + entry.bytes)
    return found


def by_phase(ledger: Ledger) -> TextTable:
    """Messages and bytes of every phase, and in total."""
    rows = [(phase, f"{m:,}", f"{b:,}") for phase, (m, b) in totals(ledger).items()]
    return TextTable(
        ("phase", "messages", "bytes"), [*rows, ("all", f"{len(ledger):,}", f"{ledger.bytes:,}")]
    )


def by_route(ledger: Ledger) -> TextTable:
    """Messages and bytes by sender and receiver, and what they revealed."""
    routes: dict[tuple[str, str], tuple[int, int, dict[str, None]]] = {}
    for e in ledger:
        messages, size, revealed = routes.get((e.sender, e.receiver), (0, 0, {}))
        revealed |= {e.reveals: None} if e.reveals else {}
        routes[e.sender, e.receiver] = (messages + 1, size + e.bytes, revealed)
    rows = [
        (sender, to, f"{m:,}", f"{b:,}", "; ".join(revealed))
        for (sender, to), (m, b, revealed) in routes.items()
    ]
    return TextTable(("from", "to", "messages", "bytes", "what it reveals"), rows, texts=2)


def revealed(ledger: Ledger) -> TextTable:
    """What was revealed to whom; the same information from or to several parties shares a line."""
    parties: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for _, to, sender, phase, what in ledger.revealed().itertuples():
        readers, writers = parties.setdefault((phase, what), ({}, {}))
        readers[to], writers[sender] = None, None
    rows = [
        (phase, listed(list(readers)), listed(list(writers)), what)
        for (phase, what), (readers, writers) in parties.items()
    ]
    return TextTable(("phase", "to", "from", "what"), rows, texts=4)
