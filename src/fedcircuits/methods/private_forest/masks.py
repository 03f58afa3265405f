"""What private inference needs and no data goes into: made ahead, used once.

For every row and every exponent of a forest a mask r and shares of 2^(−r) (masked_powers.py); for
every row a factor R = 2^shift + ρ and an addend that drown the root's lower bits, in which single
components could be read. Each of the first t + 1 parties contributes to all of them.

    prepare/masks/k      contributor → party: shares of its masks, powers, noise; its part of a name
    prepare/powers/k/…   party → party: shares of products of powers, ⌈log2(t + 1)⌉ rounds

Any t parties learn nothing. Rows are made in groups of a size that memory holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.model import Forest, Scale
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.masked_powers import (
    Dealt,
    contributed,
    contributors,
    multiplied,
    power_masks,
)
from fedcircuits.privacy.sharing.group import Group, Lot

ROOM = 1 << 26  # bytes that a contributor deals at once
Span = tuple[str, int, int]  # the name of a preparation, and which of its rows


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Masks of some rows, for one query: ``prepared.take(10)``."""

    run: str
    spans: tuple[Span, ...]
    covers: Elements = field(repr=False)  # (rows, exponents, 2), degree 2t
    inverses: Elements = field(repr=False)  # (rows, exponents, limbs)
    factors: Elements = field(repr=False)  # (rows, limbs)
    floods: Elements = field(repr=False)  # (rows, limbs), degree 2t
    used: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.factors)

    @property
    def name(self) -> bytes:
        """The same at all parties that hold masks of the same rows."""
        return sha256(repr((self.run, self.spans)).encode()).digest()

    def spend(self, query: bytes) -> None:
        """ProtocolError if another query has had these masks: the difference would show."""
        if self.used.setdefault("by", query) != query:
            raise ProtocolError(
                f"masks of {len(self)} rows have been used for another query: none is used twice, "
                "take others from what is prepared"
            )

    def rows(self, start: int, stop: int) -> Batch:
        """Some of them; of one preparation only."""
        [(name, first, _)] = self.spans
        own = slice(start, stop)
        return Batch(
            self.run,
            ((name, first + start, first + stop),),
            self.covers[own],
            self.inverses[own],
            self.factors[own],
            self.floods[own],
        )


@dataclass(slots=True, eq=False)
class Prepared:
    """A party's store of masks; those that are taken are gone, whatever becomes of the query."""

    lots: list[Batch]
    taken: int = field(default=0, compare=False)  # of the first lot

    def __len__(self) -> int:
        """Rows that are left."""
        return sum(map(len, self.lots)) - self.taken

    def add(self, more: Prepared) -> None:
        """What was prepared later, behind this."""
        self.lots += more.lots
        more.lots = []

    def take(self, rows: int) -> Batch:
        """Masks for one query; all parties must take as many, in the same order."""
        if not 0 < rows <= len(self):
            raise ProtocolError(
                f"masks for {rows:,} rows are asked for and {len(self):,} are left: prepare more "
                "of them, none is used twice"
            )
        found: list[Batch] = []
        while rows:
            lot = self.lots[0]
            stop = min(self.taken + rows, len(lot))
            found.append(lot.rows(self.taken, stop))
            rows, self.taken = rows - (stop - self.taken), stop
            if stop == len(lot):
                self.lots, self.taken = self.lots[1:], 0
        return _joined(found)


def _joined(batches: Sequence[Batch]) -> Batch:
    spans = tuple(span for b in batches for span in b.spans)
    return Batch(
        batches[0].run,
        spans,
        np.concatenate([b.covers for b in batches]),
        np.concatenate([b.inverses for b in batches]),
        np.concatenate([b.factors for b in batches]),
        np.concatenate([b.floods for b in batches]),
    )


# ---------------------------------------------------------------------- making them


def prepare(
    me: str, members: tuple[str, ...], forest: Forest, run: str, rows: int, key: bytes
) -> Flow[Prepared]:
    """Masks for so many rows of the model of a run; ``key``: fresh, of this party for this call."""
    group = Group.of(me, members, key, f"prepare/{run}")
    scale = forest.scale(len(members))
    size = forest.exponents * scale.ring.limbs * 8 * len(members)
    step = max(1, ROOM // size)
    lots = []
    for k, start in enumerate(range(0, rows, step)):
        count = min(step, rows - start)
        lots.append((yield from _made(group, str(k), forest, scale, run, count)))
    return Prepared(lots)


def _made(group: Group, tag: str, forest: Forest, scale: Scale, run: str, rows: int) -> Flow[Batch]:
    ring = scale.ring
    dealt = power_masks(group, ring, (rows, forest.exponents))
    dealt += _noise(group, scale, rows)
    found = yield from contributed(group, f"prepare/masks/{tag}", dealt)
    covers, powers, noise, floods, names = found
    inverses = yield from multiplied(group.over(ring), f"prepare/powers/{tag}", powers)
    factors = ring.add(ring.sum(noise), ring.elements(1 << scale.shift))
    name = f"{int(FIELD.integers(FIELD.sum(names))[0]):032x}"
    return Batch(run, ((name, 0, rows),), FIELD.sum(covers), inverses, factors, ring.sum(floods))


def _noise(group: Group, scale: Scale, rows: int) -> list[Dealt]:
    """ρ_i at degree t, the addend at 2t, and a public random number: parts of a name, degree 0."""
    ring, level = scale.ring, group.threshold
    drawn: dict[str, Elements] = {}
    if group.me in contributors(group):
        drawn["factor"] = ring.reduced(group.stream.bits((rows,), scale.noise))
        drawn["flood"] = ring.reduced(group.stream.bits((rows,), scale.flood))
        drawn["name"] = group.stream.elements(FIELD, (1,))
    each = Lot(ring, (rows,))
    return [
        (each, level, drawn.get("factor")),
        (each, 2 * level, drawn.get("flood")),
        (Lot(FIELD, (1,)), 0, drawn.get("name")),
    ]
