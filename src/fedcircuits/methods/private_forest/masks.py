"""Masks for private inference, which no data goes into: made ahead, used once.

For every row and every exponent of a forest a mask r and shares of 2^(−r) (powers.py); for
every row a factor R = 2^shift + ρ and an addend that drown the root's lower bits, in which single
components could be read. Each of the first t + 1 parties contributes to all of them.

    prepare/masks/k      contributor → party: shares of its masks, powers, noise; its part of a name
    prepare/powers/k/…   party → party: shares of products of powers, ⌈log2(t + 1)⌉ rounds

Any t parties learn nothing. Rows are made in groups of a size that fits into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.model import Forest, ValueScale
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.powers import (
    Dealt,
    contributed,
    contributors,
    multiplied,
    power_masks,
)
from fedcircuits.privacy.sharing.group import Group, Lot

ROOM = 1 << 26
ARRAYS = ("covers", "inverses", "factors", "floods")
Span = tuple[str, int, int]  # the name of a preparation, and which of its rows


@dataclass(frozen=True, slots=True, eq=False)
class MaskBatch:
    """Masks of some rows, for one query: ``store.take(10)``."""

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

    def check(self, forest: Forest, run: str, members: int) -> None:
        """ProtocolError unless these masks were made for this model."""
        expected = (len(self), forest.exponents, forest.ring(members).limbs)
        if self.run != run or self.inverses.shape != expected:
            raise ProtocolError(
                f"masks {self.inverses.shape} were made for the model of {self.run!r}, that of "
                f"{run!r} takes {expected}: prepare for this model"
            )

    def spend(self, query: bytes) -> None:
        """ProtocolError if another query has had these masks: the difference would show."""
        if self.used.setdefault("by", query) != query:
            raise ProtocolError(
                f"masks of {len(self)} rows have been used for another query: none is used twice, "
                "take others from what is prepared"
            )

    def rows(self, start: int, stop: int) -> MaskBatch:
        """Some of its rows; the batch must come from one preparation."""
        [(name, first, _)] = self.spans
        arrays = {a: getattr(self, a)[start:stop] for a in ARRAYS}
        return MaskBatch(self.run, ((name, first + start, first + stop),), **arrays)

    @classmethod
    def joined(cls, batches: Sequence[MaskBatch]) -> MaskBatch:
        spans = tuple(span for b in batches for span in b.spans)
        arrays: dict[str, Any] = {
            a: np.concatenate([getattr(b, a) for b in batches]) for a in ARRAYS
        }
        return cls(batches[0].run, spans, **arrays)


@dataclass(slots=True, eq=False)
class MaskStore:
    """A party's masks; those that are taken are gone, whatever becomes of the query."""

    lots: list[MaskBatch]
    taken: int = field(default=0, compare=False)  # of the first lot

    def __len__(self) -> int:
        """How many rows are left."""
        return sum(map(len, self.lots)) - self.taken

    def add(self, more: MaskStore) -> None:
        """Append what was prepared later."""
        self.lots += more.lots
        more.lots = []

    def take(self, rows: int) -> MaskBatch:
        """Masks for one query; all parties must take as many, in the same order."""
        if not 0 < rows <= len(self):
            raise ProtocolError(
                f"masks for {rows:,} rows are asked for and {len(self):,} are left: prepare more "
                "of them, none is used twice"
            )
        batches: list[MaskBatch] = []
        while rows:
            lot = self.lots[0]
            stop = min(self.taken + rows, len(lot))
            batches.append(lot.rows(self.taken, stop))
            rows, self.taken = rows - (stop - self.taken), stop
            if stop == len(lot):
                self.lots, self.taken = self.lots[1:], 0
        return MaskBatch.joined(batches)


# ---------------------------------------------------------------------- making them


def prepare(
    me: str,
    members: tuple[str, ...],
    forest: Forest,
    run: str,
    rows: int,
    key: bytes,
    room: int = ROOM,  # bytes that a contributor deals at once
) -> Flow[MaskStore]:
    """Masks for so many rows of the model of a run; ``key``: fresh, of this party for this call."""
    group = Group.of(me, members, key, f"prepare/{run}")
    scale = forest.scale(len(members))
    step = max(1, room // (forest.exponents * scale.ring.limbs * 8 * len(members)))
    lots = []
    for k, start in enumerate(range(0, rows, step)):
        count = min(step, rows - start)
        lots.append((yield from _batch(group, str(k), forest, scale, run, count)))
    return MaskStore(lots)


def _batch(
    group: Group, tag: str, forest: Forest, scale: ValueScale, run: str, rows: int
) -> Flow[MaskBatch]:
    ring = scale.ring
    parts = [*power_masks(group, ring, (rows, forest.exponents)), *_noise(group, scale, rows)]
    shares = yield from contributed(group, f"prepare/masks/{tag}", parts)
    covers, powers, noise, floods, names = shares
    inverses = yield from multiplied(group.over(ring), f"prepare/powers/{tag}", powers)
    factors = ring.add(ring.sum(noise), ring.elements(1 << scale.shift))
    span = (f"{int(FIELD.integers(FIELD.sum(names))[0]):032x}", 0, rows)
    return MaskBatch(run, (span,), FIELD.sum(covers), inverses, factors, ring.sum(floods))


def _noise(group: Group, scale: ValueScale, rows: int) -> list[Dealt]:
    """ρ_i at degree t, the addend at 2t, and a public random number: parts of a name, degree 0."""
    ring, level = scale.ring, group.threshold
    factor = flood = name = None
    if group.me in contributors(group):
        factor = ring.reduced(group.stream.bits((rows,), scale.noise))
        flood = ring.reduced(group.stream.bits((rows,), scale.flood))
        name = group.stream.elements(FIELD, (1,))
    per_row = Lot(ring, (rows,))
    return [(per_row, level, factor), (per_row, 2 * level, flood), (Lot(FIELD, (1,)), 0, name)]
