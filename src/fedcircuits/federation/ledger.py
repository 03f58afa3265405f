"""What crossed between parties: every message with its size, and what its reader learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pandas as pd

from fedcircuits.tables.notebook import shown


@dataclass(frozen=True, slots=True)
class Entry:
    sender: str
    receiver: str
    tag: str
    bytes: int
    reveals: str = ""

    @property
    def phase(self) -> str:
        return self.tag.split("/", 1)[0]


@dataclass(frozen=True, slots=True)
class PrivacySpent:
    """The guarantee of the noise: (ε, δ) for neighbouring tables."""

    epsilon: float
    delta: float
    neighbours: str  # in which they differ


@dataclass(slots=True, repr=False)
class Ledger:
    """Messages and bytes by phase, and what was revealed to whom: ``model.ledger_.summary()``.

    >>> ledger = Ledger([Entry("north", "coordinator", "count/sizes", 12, "rows of clusters")])
    >>> ledger.bytes, ledger.revealed("coordinator")["what"].tolist()
    (12, ['rows of clusters'])
    """

    entries: list[Entry] = field(default_factory=list)
    privacy: PrivacySpent | None = None  # of all that crossed, if noise was added to it

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entries: Iterable[Entry]) -> None:
        self.entries.extend(entries)

    @property
    def bytes(self) -> int:
        return sum(e.bytes for e in self.entries)

    def summary(self) -> pd.DataFrame:
        """Messages and bytes of every phase, sender and receiver."""
        rows = [(e.phase, e.sender, e.receiver, 1, e.bytes) for e in self.entries]
        frame = pd.DataFrame(rows, columns=["phase", "sender", "receiver", "messages", "bytes"])
        return frame.groupby(["phase", "sender", "receiver"], sort=False).sum()

    def revealed(self, to: str | None = None) -> pd.DataFrame:
        """What every party learned, from whom and in which phase; of one party with ``to``."""
        rows: dict[tuple[str, str, str, str], None] = {}
        for e in self.entries:
            if e.reveals and to in (None, e.receiver):
                rows[e.receiver, e.sender, e.phase, e.reveals] = None
        return pd.DataFrame(list(rows), columns=["to", "from", "phase", "what"])

    def _repr_html_(self) -> str:
        """What crossed in each phase, and what was revealed to whom."""
        phases: dict[str, list[int]] = {}
        for e in self.entries:
            sums = phases.setdefault(e.phase, [0, 0])
            sums[0] += 1
            sums[1] += e.bytes
        crossed = shown(repr(self)[1:-1], ["phase", "messages", "bytes"],
                        [(phase, *sums) for phase, sums in phases.items()])  # fmt: skip
        revealed = self.revealed().itertuples(index=False, name=None)
        lines: dict[tuple[str, str, str], dict[str, None]] = {}
        for to, sender, phase, what in revealed:
            lines.setdefault((phase, to, what), {})[sender] = None
        rows = [(phase, to, ", ".join(who), what) for (phase, to, what), who in lines.items()]
        return crossed + (shown("Revealed", ["phase", "to", "from", "what"], rows) if rows else "")

    def __repr__(self) -> str:
        spent = f", ε = {self.privacy.epsilon:.3g}" if self.privacy else ""
        return f"<Ledger of {len(self):,} messages, {self.bytes:,} bytes{spent}>"
