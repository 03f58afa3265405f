"""Masks for private inference: independent of data, prepared in advance, used once.

For every row and every exponent of a forest a mask r and shares of 2^(−r) (powers.py); for every
row a factor R = 2^shift + ρ and an addend that drown the root's lower bits, in which single
components could be read. Pairs of parties contribute to all of them (privacy/sharing/dealing.py):
the sum, or the product, of what all pairs have drawn is known to no t parties.

    prepare/masks/k/keys      first of a pair → second: a key for both
    prepare/masks/k           first of a pair → party: shares of masks, powers, noise; a public name
    prepare/masks/k/digests   second of a pair → party: a digest of that message
    prepare/powers/k/…        party → party: shares of products of powers, ⌈log2(pairs)⌉ rounds
    prepare/checks/k/…        party → party: the check of these products (checks.py), 7 rounds

Any t parties learn nothing. A single party that deviates in any message is noticed before the masks
are complete: what it deals as one of a pair is checked by the other, and products are checked. Rows
are processed in groups that fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from math import ceil, log2
from typing import Any, ClassVar

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow, compute
from fedcircuits.federation.recipes import with_span
from fedcircuits.methods.private_forest.model import Forest, ForestView, ValueScale
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.checks import Claim, checks_made
from fedcircuits.privacy.operations.powers import inverse_powers, multiplied
from fedcircuits.privacy.sharing.dealing import dealt_by_pairs
from fedcircuits.privacy.sharing.group import Group, Lot
from fedcircuits.privacy.sharing.randomness import Stream

ROOM = 1 << 26
ARRAYS = ("covers", "rests", "inverses", "factors", "floods")
Span = tuple[str, int, int]  # the name of a preparation, and which of its rows


@dataclass(frozen=True, slots=True, eq=False)
class MaskBatch:
    """Masks of some rows, for one query: ``store.hand_out(0, 10)``."""

    drawn: ClassVar[bool] = True  # by its holder: sites take none from others

    run: str
    spans: tuple[Span, ...]
    covers: Elements = field(repr=False)  # (rows, exponents, 2): r, degree 2t
    rests: Elements = field(repr=False)  # (rows, exponents, 2): r, degree t
    inverses: Elements = field(repr=False)  # (rows, exponents, limbs)
    factors: Elements = field(repr=False)  # (rows, limbs)
    floods: Elements = field(repr=False)  # (rows, limbs)
    used: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def __copy__(self) -> MaskBatch:
        """Itself: what it has been used for goes with it."""
        return self

    def __deepcopy__(self, memo: object) -> MaskBatch:
        return self

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
        spans = sorted(self.spans)
        for (name, _, stop), (other, start, _) in pairwise(spans):
            if name == other and start < stop:
                raise ProtocolError(
                    "the masks of one row occur twice in a query: a mask is used only once"
                )

    def spend(self, query: bytes) -> Flow[None]:
        """ProtocolError if another query has had these masks: the difference would show.

        What they are used for is kept as a result is, so that it stands before they are used, and
        holds for a run that is taken up again.
        """
        kept = yield from compute("spending masks", lambda: query)
        if kept != query or self.used.setdefault("by", query) != query:
            raise ProtocolError(
                f"masks of {len(self)} rows were used for another query: a mask is used only "
                "once, so take unused ones"
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
    """A party's masks of one preparation; used rows are gone, whether or not the query succeeds."""

    lots: list[MaskBatch] = field(repr=False)
    given: list[tuple[int, int]] = field(default_factory=list)  # rows that are gone

    def __copy__(self) -> MaskStore:
        """A copy has none of them."""
        return MaskStore([])

    def __deepcopy__(self, memo: object) -> MaskStore:
        return self.__copy__()

    def __len__(self) -> int:
        """How many rows are left."""
        return sum(map(len, self.lots)) - sum(stop - start for start, stop in self.given)

    def hand_out(self, start: int, stop: int) -> MaskBatch:
        """Masks for one query; all parties must take the same rows."""
        rows = sum(map(len, self.lots))
        if not 0 <= start < stop <= rows:
            raise ProtocolError(
                f"masks {start:,} to {stop:,} were requested, but {rows:,} were prepared: "
                "prepare more, since a mask is used only once"
            )
        if any(start < end and begin < stop for begin, end in self.given):
            raise ProtocolError(
                f"masks {start:,} to {stop:,} were handed out before: a mask is used only once, "
                "so prepare more"
            )
        self.given = with_span(self.given, start, stop)
        batches, first = [], 0
        for lot in self.lots:
            begin, end = max(start - first, 0), min(stop - first, len(lot))
            if begin < end:
                batches.append(lot.rows(begin, end))
            first += len(lot)
        return MaskBatch.joined(batches)


# ---------------------------------------------------------------------- making them


def prepare(
    view: ForestView,
    rows: int,
    key: bytes,
    room: int = ROOM,  # bytes that a contributor deals at once
) -> Flow[MaskStore]:
    """Masks for this many rows; ``key``: fresh, of this party for this call."""
    forest, run, members = view.forest, view.shares.run, view.shares.members
    group = Group.of(view.me, members, key, f"prepare/{run}")
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
    ring, claims = scale.ring, list[Claim]()
    lots, draw = _lots(scale, group.threshold, rows, forest.exponents), _drawn(scale, rows, forest)
    shares = yield from dealt_by_pairs(group, f"prepare/masks/{tag}", lots, draw)
    covers, rests, powers, noise, floods, names = shares
    wide, checks = group.over(ring), f"prepare/checks/{tag}"
    inverses = yield from multiplied(wide, f"prepare/powers/{tag}", powers, claims)
    name = f"{int(FIELD.integers(FIELD.sum(names))[0]):032x}"
    plan = [[(claim.ring, claim.terms) for claim in claims]]
    begun = yield from checks_made(group, checks, plan, name.encode())
    yield from begun.check(checks, claims, "a product of masks is wrong")
    factors = ring.add(ring.sum(noise), ring.elements(1 << scale.shift))
    sums = FIELD.sum(covers), FIELD.sum(rests), inverses, factors, ring.sum(floods)
    return MaskBatch(run, ((name, 0, rows),), *sums)


def _lots(scale: ValueScale, level: int, rows: int, exponents: int) -> list[tuple[Lot, int]]:
    """r twice, 2^(−r), ρ, the addend, and a part of a public name."""
    each, per_row = (rows, exponents), Lot(scale.ring, (rows,))
    return [
        (Lot(FIELD, each), 2 * level),
        (Lot(FIELD, each), level),
        (Lot(scale.ring, each), level),
        (per_row, level),
        (per_row, level),
        (Lot(FIELD, (1,)), 0),
    ]


def _drawn(scale: ValueScale, rows: int, forest: Forest) -> Callable[[Stream], list[Elements]]:
    """What a pair draws, in the order of the lots."""
    ring, bits = scale.ring, 126 - ceil(log2(scale.contributors))  # the sum stays below 2^126

    def drawn(stream: Stream) -> list[Elements]:
        mask = stream.bits((rows, forest.exponents), bits)
        factor, flood = (
            ring.reduced(stream.bits((rows,), size)) for size in (scale.noise, scale.flood)
        )
        inverse, name = inverse_powers(ring, mask), stream.elements(FIELD, (1,))
        return [mask, mask, inverse, factor, flood, name]

    return drawn
