"""Points that nobody sees but who asks: dealt as shares of zeros and ones, and checked to be that.

Of every variable the asker deals one number for each code: 1 for the code that the point has, 0 for
the others, all 0 where the value is left out. The messages are the same whatever the values are.

The check is for the parties. Shares that do not fit together, or numbers other than 0 and 1, would
turn likelihoods into equations on single parties' shares, and a few of them into the model. So over
all x of a query, with s_v the sum of a variable's numbers, parties open

    Σ χ x + mask                                 must be shares of degree t
    Σ χ'(x² − x) + Σ χ''(s_v² − s_v) + zero      must be 0; (s_v − 1) if nothing may be left out

mask and zero are the asker's own, dealt with the points: they hide the point from the parties. The
coefficients come from a hash of commitments to what every party was dealt, so the asker has dealt
before it can know them: a wrong point passes with a chance of about 2^−126. A commitment covers the
mask, a random number, and so tells nothing. All parties compare what they hashed, and which masks
they are about to use.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ProtocolError, QueryError
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Group, Lot, exchange
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, reconstruct

CHECK = "shares of sums of the points' numbers, hidden by the asker: that they are points"
HALF = 126  # bits of a digest that one element holds


@dataclass(frozen=True, slots=True)
class Points:
    """A party's shares of what was asked."""

    bits: Elements  # (rows, codes of all variables, 2)
    hidden: Elements  # (2, 2): mask and zero
    digest: bytes  # of the commitments


def one_hot(forest: Forest, points: Array) -> Elements:
    """(rows, variables), NaN where left out, as (rows, codes of all variables, 2); QueryError."""
    codes, plain = np.array(forest.codes), np.asarray(points, np.float64)
    if plain.ndim != 2 or plain.shape[1] != len(codes) or not len(plain):
        raise QueryError(
            f"points of shape {plain.shape}: expected (rows, {len(codes)}), at least one row"
        )
    missing = np.isnan(plain)
    if missing.any() and not forest.marginals:
        names = [forest.circuit.schema.names[i] for i in np.unique(np.nonzero(missing)[1])]
        raise QueryError(
            f"{int(missing.any(1).sum()):,} points have values of "
            f"{', '.join(map(repr, names[:4]))} left out, which the parties do not allow: give "
            "whole points, or ask for a forest with marginals=True"
        )
    known = np.where(missing, 0.0, plain)
    if ((known < 0) | (known >= codes) | (known != np.floor(known))).any():
        raise QueryError(
            "points must be codes of their variables, whole numbers from 0 to the number of codes "
            "less one: encode them by the schema"
        )
    starts = np.cumsum(codes) - codes
    found = FIELD.zeros((len(plain), int(codes.sum())))
    rows, columns = np.nonzero(~missing)
    found[rows, starts[columns] + known[rows, columns].astype(np.int64), 0] = 1
    return found


def points_dealt(
    group: Group, tag: str, forest: Forest, asker: str, rows: int, points: Elements | None
) -> Flow[Points | None]:
    """One round from the asker: a party's shares, None at an asker that is no party."""
    count, width = len(group.members), sum(forest.codes)
    lots = [Lot(FIELD, (rows, width)), Lot(FIELD, (2,)), Lot(FIELD, (count, 2))]
    parts = {}
    if group.me == asker:
        assert points is not None, "an asker has points"
        parts = _parts(group, points)
    senders = (asker,) if group.inside else ()
    found = yield from exchange(group, tag, parts, senders, lots)
    if not group.inside:
        return None
    bits, hidden, listed = (own[0] for own in found)
    place = group.members.index(group.me)
    if (_commitment(place, bits, hidden) != listed[place]).any():
        raise ProtocolError(
            f"{asker} has committed to other shares than {group.me} got under {tag!r}: the query "
            "is not answered"
        )
    return Points(bits, hidden, sha256(b"coefficients" + FIELD.packed(listed).tobytes()).digest())


def _parts(group: Group, points: Elements) -> dict[str, list[Elements]]:
    count, level, stream = len(group.members), group.threshold, group.stream
    bits = deal(FIELD, points, level, count, stream)
    mask = deal(FIELD, stream.elements(FIELD, (1,)), level, count, stream)
    zero = deal(FIELD, FIELD.zeros((1,)), 2 * level, count, stream)
    hidden = np.concatenate([mask, zero], axis=1)  # (members, 2, 2)
    listed = np.stack([_commitment(i, bits[i], hidden[i]) for i in range(count)])
    return {m: [bits[i], hidden[i], listed] for i, m in enumerate(group.members)}


def _commitment(place: int, bits: Elements, hidden: Elements) -> Elements:
    """Of what one party is dealt, (2, 2)."""
    data = FIELD.packed(hidden).tobytes() + FIELD.packed(bits).tobytes()
    return _as_elements(sha256(b"commitment %d " % place + data).digest())


def _as_elements(digest: bytes) -> Elements:
    """252 bits of a digest as two elements of the field."""
    whole = int.from_bytes(digest, "little")
    return FIELD.elements([whole % (1 << HALF), (whole >> HALF) % (1 << HALF)])


# ---------------------------------------------------------------------- the check


def points_checked(
    group: Group, tag: str, forest: Forest, asker: str, points: Points, masks: bytes
) -> Flow[None]:
    """One round among the parties; ProtocolError unless all that was dealt are points."""
    sums = _sums(forest, points)
    own = np.concatenate([sums, _as_elements(points.digest), _as_elements(masks)])
    parts = {member: [own] for member in group.members}
    lots = [Lot(FIELD, own.shape[:-1])]
    [found] = yield from exchange(group, tag, parts, group.members, lots, CHECK)
    for member, told in zip(group.members, found, strict=True):
        if (told[2:4] != own[2:4]).any():
            raise ProtocolError(
                f"{asker} has sent {member} other commitments than {group.me}: the query is not "
                "answered"
            )
        if (told[4:] != own[4:]).any():
            raise ProtocolError(
                f"{member} is about to use other masks than {group.me}: parties must take what is "
                "prepared in the same order; prepare anew"
            )
    _require_points(group, asker, found)


def _require_points(group: Group, asker: str, found: Elements) -> None:
    try:
        reconstruct(FIELD, found[:, 0], group.threshold, group.members)
        total = reconstruct(FIELD, found[:, 1], 2 * group.threshold, group.members)
    except ProtocolError as error:
        raise ProtocolError(
            f"shares of the points do not fit together, so the query is not answered: {asker} has "
            f"dealt them wrongly, or a party has changed its own ({error})"
        ) from None
    if total.any():
        raise ProtocolError(
            f"what {asker} asks about is no point: expected one code of every variable, or none "
            "where it may be left out; the query is not answered"
        )


def _sums(forest: Forest, points: Points) -> Elements:
    """Shares of both sums, (2, 2)."""
    x = points.bits
    stream = Stream(points.digest, "coefficients of the check")
    one = FIELD.elements(1)
    totals = _totals(forest, x)
    ways = FIELD.subtract(totals, one)
    if forest.marginals:
        ways = FIELD.multiply(ways, totals)
    squares = FIELD.multiply(x, FIELD.subtract(x, one))
    linear = _combined(stream, x)
    both = FIELD.add(_combined(stream, squares), _combined(stream, ways))
    return FIELD.add(np.stack([linear, both]), points.hidden)


def _totals(forest: Forest, x: Elements) -> Elements:
    """Of every variable's numbers, (rows, variables, 2)."""
    codes = np.array(forest.codes)
    starts = np.cumsum(codes) - codes
    found = x[:, starts]
    for k in range(1, int(codes.max())):
        has = np.flatnonzero(codes > k)
        found[:, has] = FIELD.add(found[:, has], x[:, starts[has] + k])
    return found


def _combined(stream: Stream, x: Elements) -> Elements:
    flat = x.reshape(1, -1, FIELD.limbs)
    found: Elements = FIELD.inner(flat, stream.elements(FIELD, flat.shape[:-1]))[0, 0]
    return found
