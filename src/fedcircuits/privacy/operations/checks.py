"""Products on shares, checked before anything that depends on them is opened.

A product of shares has degree 2t. With N = 2t + 1 members no share is to spare, and one member that
deals a wrong number makes a product wrong unnoticed. Of degree t there are N − t − 1 ≥ t shares to
spare, so a check may open numbers of degree t only (after Goyal, Song and Zhu 2020):

    claim     Σ_n a_n b_n = c, all shares of degree t: many products at once, each times a random
              coefficient that is drawn when all of them have been dealt
    values    the n terms are k = 16 groups of m. A_j(x), j = 1 to m, is the polynomial of degree k
              with a random number that nobody knows at x = 1 and the a_n of the groups at
              2 to k + 1; B_j likewise. h(x) = Σ_j A_j(x) B_j(x) at 1 to 2k + 1 is dealt again at
              degree t, except for one value: those of the groups add up to c
    opened    at a random x: A_j(x), B_j(x) and h(x), which must be Σ_j A_j(x) B_j(x)

If one product is wrong, whatever is dealt as values, the two polynomials of degree 2k differ: a
random x shows it but with a chance of 2(k + 1)/p, p the least prime factor of the ring's modulus.
The check is made so often that all of these fail with a chance below 2^−50. A_j(x) and B_j(x) are
uniform: nothing is learned.

**Random numbers that nobody chooses.** Each member commits to a number; members compare the
commitments and reveal the numbers once everything that must not depend on them has arrived. The
random number is the hash of all. A member that waits for the others' numbers learns nothing new and
cannot change its own. With its number each member sends a digest of everything it has seen opened,
so that nobody can have sent different things to different members.

    …/blinds   first t + 1 members → member: shares of random numbers
    …/commit   member → member: commitments, then a digest of all of them (…/same)
    …/toss     member → member: its random number
    …/values   first 2t + 1 members → member: shares of values
    …/opened   member → member: its shares of random numbers

Four rounds a check. A member that sends wrong shares or numbers ends the run, at every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import accumulate
from math import ceil, gcd, log2, prod

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import require
from fedcircuits.federation.recipes import KEY
from fedcircuits.privacy.arithmetic.field import Bytes, Ring, least_factor
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Group, Lot, exchange, passed
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, reconstruct, weights

GROUPS = 16
SOUND = 50  # bits: a wrong product passes with a chance below 2^−50
COMMITTED = "a commitment to random numbers, which reveals nothing"
ALIKE = "a digest of commitments and public names"
TOSSED = "a random number that everyone may know"
CHECKED = "random numbers that prove products of shares correct, and nothing else"
Made = tuple[Elements, Elements, Elements]
Kind = tuple[Ring, int]  # of a claim: where it is, and how many terms it has


@dataclass(frozen=True, slots=True)
class Claim:
    """Σ left·right = total: ``made`` draws coefficients, (terms, limbs) twice and (limbs,)."""

    ring: Ring
    terms: int
    made: Callable[[Stream], Made]

    @classmethod
    def of(cls, ring: Ring, left: Elements, right: Elements, product: Elements) -> Claim:
        """left·right = product, number by number."""

        def made(stream: Stream) -> Made:
            a, b, c = (v.reshape(-1, ring.limbs) for v in (left, right, product))
            chosen = stream.elements(ring, (len(c),))
            return ring.multiply(chosen, a), b, dot(ring, chosen, c)

        return cls(ring, product.size // ring.limbs, made)

    @classmethod
    def matrices(cls, ring: Ring, x: Elements, y: Elements, product: Elements) -> Claim:
        """Σ_k x[r, k] y[j, k] = product[r, j], with one term per k."""

        def made(stream: Stream) -> Made:
            rows, columns = (stream.elements(ring, (1, len(v))) for v in (x, y))
            left, right = (
                ring.inner(chosen, v.swapaxes(0, 1))[0] for chosen, v in ((rows, x), (columns, y))
            )
            return left, right, dot(ring, rows[0], ring.inner(product, columns)[:, 0])

        return cls(ring, x.shape[1], made)


def dot(ring: Ring, a: Elements, b: Elements) -> Elements:
    """Σ a·b over (n, limbs): (limbs,)."""
    product: Elements = ring.inner(a[None], b[None])[0, 0]
    return product


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a claim of this many terms is checked."""

    ring: Ring
    terms: int

    @property
    def groups(self) -> int:
        return min(GROUPS, max(1, self.terms))

    @property
    def size(self) -> int:
        """Terms of a group."""
        return -(-max(1, self.terms) // self.groups)

    @property
    def times(self) -> int:
        chance = log2(least_factor(self.ring.bits)) - log2(2 * (self.groups + 1))
        return ceil(SOUND / chance)

    @property
    def blinds(self) -> Lot:
        return Lot(self.ring, (self.times, 2, self.size))

    @property
    def values(self) -> Lot:
        return Lot(self.ring, (self.times, 2 * self.groups))

    @property
    def opened(self) -> Lot:
        return Lot(self.ring, (self.times, 2 * self.size + 1))

    def grouped(self, numbers: Elements, blind: Elements) -> Elements:
        """A_j at 1 to k + 1, (k + 1, m, limbs)."""
        full = self.ring.zeros((self.groups * self.size,))
        full[: len(numbers)] = numbers
        return np.concatenate([blind[None], full.reshape(self.groups, self.size, -1)])

    def products(self, a: Elements, b: Elements) -> Elements:
        """h at 1 to 2k + 1 but k + 1, of degree 2t: (2k, limbs)."""
        beyond = [weights(self.groups + 1, self.groups + 1 + x) for x in range(1, self.groups + 1)]
        both = [np.concatenate([v[:-1], self.ring.mix(beyond, v)]) for v in (a, b)]
        return self.ring.sum(np.moveaxis(self.ring.multiply(*both), 1, 0))

    def completed(self, values: Elements, total: Elements) -> Elements:
        """h at 1 to 2k + 1, (2k + 1, limbs): those of the groups add up to the total."""
        first, rest = values[: self.groups], values[self.groups :]
        last = self.ring.subtract(total, self.ring.sum(first[1:])) if self.groups > 1 else total
        return np.concatenate([first, last[None], rest])

    def drawn(self, stream: Stream) -> int:
        """An x at which blinds hide everything."""
        while True:
            x = int(self.ring.integers(stream.elements(self.ring, (1,)))[0])
            if gcd(prod(x - i for i in range(2, self.groups + 2)), self.ring.modulus) == 1:
                return x

    def at(self, x: int, rows: Elements) -> Elements:
        """Polynomials with values at 1, 2, …, (points, …, limbs), at x."""
        count, modulus = len(rows), self.ring.modulus
        before = list(accumulate(((x - j) for j in range(1, count)), _times(modulus), initial=1))
        after = list(accumulate(((x - j) for j in range(count, 1, -1)), _times(modulus), initial=1))
        below = _denominators(count, modulus)
        parts = [a * b * c for a, b, c in zip(before, reversed(after), below, strict=True)]
        flat = rows.reshape(len(rows), -1, self.ring.limbs).swapaxes(0, 1)
        evaluated = self.ring.inner(flat, self.ring.elements(parts)[None])
        return evaluated.reshape(rows.shape[1:])


def _times(modulus: int) -> Callable[[int, int], int]:
    return lambda a, b: a * b % modulus


@cache
def _denominators(points: int, modulus: int) -> tuple[int, ...]:
    """Inverse denominators of Lagrange's polynomials at 1 to ``points``."""
    every = range(1, points + 1)
    return tuple(pow(prod(i - j for j in every if j != i), -1, modulus) for i in every)


# ---------------------------------------------------------------------- random numbers for all


@dataclass(slots=True)
class Tosses:
    """One member's end: its own numbers, and what each has committed to."""

    group: Group
    tag: str
    keys: list[bytes] = field(repr=False)
    commitments: Sequence[Bytes] = field(repr=False)  # by member, (numbers · 32,)
    used: int = 0

    def toss(self, tag: str, seen: bytes = b"") -> Flow[bytes]:
        """The next one; ``seen``: what all members must have seen."""
        group, k, digest = self.group, self.used, sha256(seen).digest()
        self.used += 1
        said = _bytes(self.keys[k] + digest)
        parts = dict.fromkeys(group.members, said)
        data = yield from passed(group, tag, parts, group.members, said.shape, TOSSED)
        whole = sha256(b"toss")
        for member, theirs, all_of in zip(group.members, data, self.commitments, strict=True):
            number = theirs[:KEY].tobytes()
            kept = (
                _commitment(self.tag, member, k, number) == all_of[k * 32 : (k + 1) * 32].tobytes()
            )
            require(kept, member, tag, "data", "a different number from the one it committed to")
            _require_same(group, member, theirs[KEY:].tobytes() == digest, "has seen other numbers")
            whole.update(number)
        return whole.digest()


def tosses_made(group: Group, tag: str, count: int, agreed: bytes = b"") -> Flow[Tosses]:
    """Two rounds; ``agreed``: data that must be equal at all members."""
    keys = [group.stream.key() for _ in range(count)]
    mine = _bytes(b"".join(_commitment(tag, group.me, k, n) for k, n in enumerate(keys)))
    parts = dict.fromkeys(group.members, mine)
    every = yield from passed(group, f"{tag}/commit", parts, group.members, mine.shape, COMMITTED)
    digest = sha256(b"".join(row.tobytes() for row in every)).digest()
    said = _bytes(digest + sha256(agreed).digest())
    parts = dict.fromkeys(group.members, said)
    data = yield from passed(group, f"{tag}/same", parts, group.members, said.shape, ALIKE)
    for member, theirs in zip(group.members, data, strict=True):
        same = theirs[32:].tobytes() == said[32:].tobytes()
        _require_same(group, member, same, "is about to use other masks")
        same = theirs[:32].tobytes() == digest
        _require_same(group, member, same, "was sent other commitments")
    return Tosses(group, tag, keys, every)


def _require_same(group: Group, member: str, same: bool, words: str) -> None:
    if not same:
        raise ProtocolError(
            f"{member} {words} than {group.me}: one of {', '.join(group.members)} sent others "
            "different messages, or they are out of step; nothing is returned: prepare new masks"
        )


def _commitment(tag: str, member: str, k: int, number: bytes) -> bytes:
    return sha256(repr((tag, member, k)).encode() + number).digest()


def _bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


# ---------------------------------------------------------------------- checks


@dataclass(slots=True)
class Checks:
    """One member's end of checks that were begun, one after the other."""

    tosses: Tosses
    blinds: list[list[Elements]] = field(repr=False)  # by check and ring

    def check(
        self,
        tag: str,
        claims: Sequence[Claim],
        wrong: str = "a product of shares is wrong",
        seen: bytes = b"",
    ) -> Flow[None]:
        """ProtocolError unless all claims hold; ``wrong``: what it says then."""
        group, blinds = self.tosses.group, self.blinds.pop(0)
        stream = Stream((yield from self.tosses.toss(f"{tag}/toss/0", seen)), "coefficients")
        rules = _rules([(c.ring, c.terms) for c in claims])
        cases = [
            [_case(rule, claims, masks, stream) for masks in blind]
            for rule, blind in zip(rules, blinds, strict=True)
        ]
        products = [
            np.stack([r.products(a, b) for a, b, _ in c]) for r, c in zip(rules, cases, strict=True)
        ]
        values = yield from _reduced(group, f"{tag}/values", rules, products)
        stream = Stream((yield from self.tosses.toss(f"{tag}/toss/1")), "where")
        shares = []
        for rule, case, value in zip(rules, cases, values, strict=True):
            rows = []
            for (a, b, total), masks in zip(case, value, strict=True):
                x = rule.drawn(stream)
                h = rule.at(x, rule.completed(masks, total))
                rows.append(np.concatenate([rule.at(x, a), rule.at(x, b), h[None]]))
            shares.append(np.stack(rows))
        yield from _opened(group, f"{tag}/opened", rules, shares, wrong)


def checks_made(
    group: Group, tag: str, plans: Sequence[Sequence[Kind]], agreed: bytes = b""
) -> Flow[Checks]:
    """Three rounds ahead of checks, of which each has claims of these kinds."""
    rules = [_rules(plan) for plan in plans]
    lots = [rule.blinds for plan in rules for rule in plan]
    dealers, parts = group.members[: group.threshold + 1], {}
    if group.me in dealers:
        parts = _dealt(group, [group.stream.elements(lot.ring, lot.shape) for lot in lots], lots)
    received = yield from exchange(group, f"{tag}/blinds", parts, dealers, lots)
    sums = iter([lot.ring.sum(rows) for lot, rows in zip(lots, received, strict=True)])
    blinds = [[next(sums) for _ in plan] for plan in rules]
    tosses = yield from tosses_made(group, tag, 2 * len(plans), agreed)
    return Checks(tosses, blinds)


def _rules(kinds: Sequence[Kind]) -> list[_Rule]:
    """One for each ring: claims of one ring are added up."""
    terms: dict[Ring, int] = {}
    for ring, count in kinds:
        terms[ring] = terms.get(ring, 0) + count
    return [_Rule(ring, count) for ring, count in terms.items()]


def _case(rule: _Rule, claims: Sequence[Claim], blind: Elements, stream: Stream) -> Made:
    made = [claim.made(stream) for claim in claims if claim.ring == rule.ring]
    left, right, total = zip(*made, strict=True)
    a, b = (
        rule.grouped(np.concatenate(v), mask) for v, mask in zip((left, right), blind, strict=True)
    )
    return a, b, rule.ring.sum(np.stack(total))


def _dealt(
    group: Group, secrets: Sequence[Elements], lots: Sequence[Lot]
) -> dict[str, list[Elements]]:
    count = len(group.members)
    rows = [
        deal(lot.ring, part, group.threshold, count, group.stream)
        for lot, part in zip(lots, secrets, strict=True)
    ]
    return {m: [row[i] for row in rows] for i, m in enumerate(group.members)}


def _reduced(
    group: Group, tag: str, rules: Sequence[_Rule], products: Sequence[Elements]
) -> Flow[list[Elements]]:
    """One round for all rings: shares of degree 2t as shares of degree t."""
    needed, lots = 2 * group.threshold + 1, [rule.values for rule in rules]
    dealers = group.members[:needed]
    parts = _dealt(group, products, lots) if group.me in dealers else {}
    received = yield from exchange(group, tag, parts, dealers, lots)
    whole = [weights(needed, 0)]
    return [lot.ring.mix(whole, rows)[0] for lot, rows in zip(lots, received, strict=True)]


def _opened(
    group: Group, tag: str, rules: Sequence[_Rule], shares: Sequence[Elements], wrong: str
) -> Flow[None]:
    lots = [rule.opened for rule in rules]
    mine = list(shares)
    parts = dict.fromkeys(group.members, mine)
    received = yield from exchange(group, tag, parts, group.members, lots, CHECKED)
    try:
        for rule, rows in zip(rules, received, strict=True):
            for seen in reconstruct(rule.ring, rows, group.threshold, group.members):
                a, b = seen[: rule.size], seen[rule.size : 2 * rule.size]
                if (dot(rule.ring, a, b) != seen[-1]).any():
                    raise ProtocolError(f"one of {', '.join(group.members)} dealt wrong shares")
    except ProtocolError as error:
        raise ProtocolError(f"{wrong}: {error}; nothing is returned") from None
