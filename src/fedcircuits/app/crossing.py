"""The messages between parties, and what they reveal, as tables."""

from __future__ import annotations

from fedcircuits.app.report import TextTable
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.messages import Ledger
from fedcircuits.federation.sent import phases, revelations
from fedcircuits.tables.notebook import listed

MOST_PARTIES = 8  # that get a column of their own


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


def by_phase(ledger: Ledger) -> TextTable:
    """Messages and bytes of every phase, and in total."""
    return TextTable(("phase", "messages", "bytes"), phases(ledger))


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
    return TextTable(("phase", "to", "from", "what"), revelations(ledger), texts=4)
