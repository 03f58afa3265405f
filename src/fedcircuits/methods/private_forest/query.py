"""Private inference: whoever asks learns the likelihood of its points, and nobody else anything.

Parties hold shares of a model (model.py) and masks made ahead (masks.py). The asker is one of them,
or an outsider who knows the forest's graph.

    query/points      asker → party: shares of its points, (rows, codes of all variables), shares of
                      two numbers that hide them in the check, and commitments to what every party
                      was dealt
    query/check       party → party: shares of two sums that show whether these are points
    query/exponents   party → party: shares of masked exponents (evaluation.py), which say nothing;
                      16 bytes per exponent and row
    query/level/k     party → party: shares dealt anew, in deeper forests only
    query/root        party → asker: shares of the root, drowned below its first bits

Who learns what. The asker: the likelihood of each point to 56 + ⌈log2(t + 1)⌉ relative bits, up to
a statistical distance of 2^−39 per row, and so what follows from likelihoods: V + 1 of them are
equations on the parameters, so parties should count queries. Parties: how many points there are,
and nothing about them; any t together, the asker among them or not, nothing about the model and the
points of others. A coordinator has no part in it and receives nothing. Whoever carries messages
learns nothing if they are sealed.

**Points.** For every variable the asker deals one number per code: 1 for the code that the point
has, 0 for the others, all 0 where the value is left out. So messages are the same whatever the
values are. Shares that do not fit together, or numbers other than 0 and 1, would turn likelihoods
into equations on single parties' shares, and a few of them into the model. Therefore parties check:
over all x of a query, with s_v the sum of a variable's numbers, they open

    Σ χ x + mask                                 must be shares of degree t
    Σ χ'(x² − x) + Σ χ''(s_v² − s_v) + zero      must be 0; (s_v − 1) if nothing may be left out

mask and zero are the asker's own, dealt with the points: they hide the point from the parties. The
coefficients come from a hash of the commitments, so the asker has dealt before it can know them: a
wrong point passes with a chance of about 2^−126. A commitment covers the mask, a random number, and
so tells nothing. All parties compare what they hashed, and which masks they are about to use.

The answer is off by less than 1.1·10⁻⁵ nats. A lost party ends the query. A wrong share is found if
N is even, where sharings of degree 2t have one share to spare, and often if it is odd: the asker
sees a number that no likelihood has. Parties that mean to deceive can make answers wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from math import log, log1p, log2

import numpy as np

from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.distribution import Queryable, Regions
from fedcircuits.circuits.questions.regions import EVERYTHING, Event
from fedcircuits.errors import ProtocolError, QueryError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import require
from fedcircuits.methods.private_forest.evaluation import drowned_root
from fedcircuits.methods.private_forest.masks import MaskBatch
from fedcircuits.methods.private_forest.model import Forest, ModelShares, ValueScale
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Group, Lot, exchange
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, reconstruct
from fedcircuits.privacy.sharing.sharing import opened_to

CHECK = "shares of sums of the points' numbers, hidden by the asker: that they are points"
LIKELIHOOD = "a share of the likelihoods of its points, to the precision of a float64"
POINTS = "query/points"
HALF = 126  # bits of a digest that one element holds


# ---------------------------------------------------------------------- roles


def party(
    me: str,
    forest: Forest,
    shares: ModelShares,
    batch: MaskBatch,
    asker: str,
    key: bytes,
    points: Array | None = None,
) -> Flow[Array | None]:
    """A party's side: None, or log-likelihoods in nats (rows,) if it is the asker.

    batch    masks for as many rows as are asked about: ``store.take(rows)``
    key      fresh, of this party for this query (``fresh_key()``)
    points   of an asker: codes (rows, variables), NaN where left out
    """
    shares.check(forest)
    batch.check(forest, shares.run, len(shares.members))
    if (points is None) == (me == asker):
        raise QueryError(f"{me} has {'no ' if points is None else ''}points and {asker} asks")
    bits = None if points is None else one_hot(forest, points)
    group = Group.of(me, shares.members, key, f"query/{shares.run}")
    dealt = yield from _points_dealt(group, forest, asker, len(batch), bits)
    assert dealt is not None, "a party gets shares"
    batch.spend(dealt.digest)
    yield from _check_points(group, forest, asker, dealt, batch.name)
    root = yield from drowned_root(group, forest, shares, batch, dealt.bits)
    return (yield from _answer(group, forest, asker, len(batch), root))


def outsider(
    me: str, members: tuple[str, ...], forest: Forest, points: Array, key: bytes
) -> Flow[Array]:
    """Of an asker that is no party: log-likelihoods in nats (rows,)."""
    group = Group.of(me, members, key, "query")
    if group.inside:
        raise QueryError(f"{me} is one of the parties: it asks as a party that has points")
    bits = one_hot(forest, points)
    yield from _points_dealt(group, forest, me, len(bits), bits)
    answer = yield from _answer(group, forest, me, len(bits), None)
    assert answer is not None, "an asker gets an answer"
    return answer


# ---------------------------------------------------------------------- points


@dataclass(frozen=True, slots=True)
class PointShares:
    """A party's shares of the points."""

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
            "complete points, or ask for a forest with marginals=True"
        )
    known = np.where(missing, 0.0, plain)
    if ((known < 0) | (known >= codes) | (known != np.floor(known))).any():
        raise QueryError(
            "points must be codes of their variables, whole numbers from 0 to the number of codes "
            "less one: encode them by the schema"
        )
    starts = np.cumsum(codes) - codes
    bits = FIELD.zeros((len(plain), int(codes.sum())))
    rows, columns = np.nonzero(~missing)
    bits[rows, starts[columns] + known[rows, columns].astype(np.int64), 0] = 1
    return bits


def _points_dealt(
    group: Group, forest: Forest, asker: str, rows: int, bits: Elements | None
) -> Flow[PointShares | None]:
    """One round: a member's shares of the asker's points, checked against its commitment."""
    shapes = (rows, sum(forest.codes)), (2,), (len(group.members), 2)
    parts: dict[str, list[Elements]] = {}
    if group.me == asker:
        assert bits is not None, "an asker has points"
        parts = point_parts(group, bits)
    senders = (asker,) if group.inside else ()
    lots = [Lot(FIELD, shape) for shape in shapes]
    received = yield from exchange(group, POINTS, parts, senders, lots)
    if not group.inside:
        return None
    shares, hidden, commitments = (part[0] for part in received)
    place = group.members.index(group.me)
    kept = bool((commitment(place, shares, hidden) == commitments[place]).all())
    problem = f"they are not to the shares that {group.me} got, so the query is not answered"
    require(kept, asker, POINTS, "commitments", problem)
    digest = sha256(b"coefficients" + FIELD.packed(commitments).tobytes()).digest()
    return PointShares(shares, hidden, digest)


def point_parts(group: Group, points: Elements) -> dict[str, list[Elements]]:
    """What the asker deals to every member: shares of bits, of mask and zero; all commitments."""
    count, level, stream = len(group.members), group.threshold, group.stream
    bits = deal(FIELD, points, level, count, stream)
    mask = deal(FIELD, stream.elements(FIELD, (1,)), level, count, stream)
    zero = deal(FIELD, FIELD.zeros((1,)), 2 * level, count, stream)
    hidden = np.concatenate([mask, zero], axis=1)  # (members, 2, 2)
    commitments = np.stack([commitment(i, bits[i], hidden[i]) for i in range(count)])
    return {m: [bits[i], hidden[i], commitments] for i, m in enumerate(group.members)}


def commitment(place: int, bits: Elements, hidden: Elements) -> Elements:
    """To what one party is dealt, (2, 2)."""
    data = FIELD.packed(hidden).tobytes() + FIELD.packed(bits).tobytes()
    return _as_elements(sha256(b"commitment %d " % place + data).digest())


def _as_elements(digest: bytes) -> Elements:
    """252 bits of a digest as two elements of the field."""
    number = int.from_bytes(digest, "little")
    return FIELD.elements([number % (1 << HALF), (number >> HALF) % (1 << HALF)])


# ---------------------------------------------------------------------- the check of points


def _check_points(
    group: Group, forest: Forest, asker: str, points: PointShares, masks: bytes
) -> Flow[None]:
    """One round among the parties; ProtocolError unless the asker has dealt points."""
    mine = np.concatenate([_sums(forest, points), _as_elements(points.digest), _as_elements(masks)])
    lots, to_all = [Lot(FIELD, mine.shape[:-1])], [mine]
    parts = dict.fromkeys(group.members, to_all)
    [received] = yield from exchange(group, "query/check", parts, group.members, lots, CHECK)
    for member, theirs in zip(group.members, received, strict=True):
        if (theirs[2:4] != mine[2:4]).any():
            raise ProtocolError(
                f"{asker} has sent {member} other commitments than {group.me}: the query is not "
                "answered"
            )
        if (theirs[4:] != mine[4:]).any():
            raise ProtocolError(
                f"{member} is about to use other masks than {group.me}: parties must take what is "
                "prepared in the same order; prepare anew"
            )
    try:
        reconstruct(FIELD, received[:, 0], group.threshold, group.members)
        total = reconstruct(FIELD, received[:, 1], 2 * group.threshold, group.members)
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


def _sums(forest: Forest, points: PointShares) -> Elements:
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
    """The sum of every variable's numbers, (rows, variables, 2)."""
    codes = np.array(forest.codes)
    starts = np.cumsum(codes) - codes
    totals = x[:, starts]
    for k in range(1, int(codes.max())):
        has = np.flatnonzero(codes > k)
        totals[:, has] = FIELD.add(totals[:, has], x[:, starts[has] + k])
    return totals


def _combined(stream: Stream, x: Elements) -> Elements:
    """Σ of all numbers, each times the next coefficient of the stream."""
    flat = x.reshape(1, -1, FIELD.limbs)
    total: Elements = FIELD.inner(flat, stream.elements(FIELD, flat.shape[:-1]))[0, 0]
    return total


# ---------------------------------------------------------------------- answers


def _answer(
    group: Group, forest: Forest, asker: str, rows: int, root: Elements | None
) -> Flow[Array | None]:
    scale = forest.scale(len(group.members))
    wide, level = group.over(scale.ring), 2 * group.threshold
    values = yield from opened_to(wide, "query/root", asker, root, (rows,), LIKELIHOOD, level)
    return None if values is None else _log_likelihoods(scale, values, group.members)


def _log_likelihoods(scale: ValueScale, values: Elements, members: tuple[str, ...]) -> Array:
    """In nats; the mean of the noise is taken off."""
    mean = scale.contributors << (scale.flood - 1)
    least = 1 << (scale.root - scale.low + scale.shift - 1)
    logs = np.empty(len(values))
    for i, result in enumerate(scale.ring.integers(values)):
        value = int(result) - mean
        if not least <= value < 1 << scale.top:
            raise ProtocolError(
                f"the answer for row {i} is no likelihood: one of {', '.join(members)} has a wrong "
                "share of the model, of masks or of the result; nothing is returned, ask again "
                "with other masks"
            )
        beyond = value.bit_length() - 64
        logs[i] = log2(value >> beyond) + beyond - scale.root - scale.shift
    centre = log1p(scale.contributors * 2.0 ** -(scale.undisturbed + 1))
    return np.asarray(logs * log(2) - centre)


# ---------------------------------------------------------------------- what can be asked


class PrivateDistribution(Queryable):
    """Likelihoods and posteriors of classes; all other questions would show parameters.

    ``likelihoods``: log-likelihoods (rows,) of points, by a run of the parties.
    """

    deterministic = False

    def __init__(self, forest: Forest, likelihoods: Callable[[Array], Array]) -> None:
        self.forest, self.circuit, self.likelihoods = forest, forest.circuit, likelihoods

    def log_values_within(self, x: Array, regions: Regions) -> Array:
        if regions:
            raise _unanswered("the probability of a range or of several values")
        return self.likelihoods(x)

    def posterior(self, x: Array, variable: str, given: Event = EVERYTHING) -> Array:
        """Every point once per class, in one question: the asker also learns p(rest, class)."""
        at = self.circuit.schema.index(variable)
        self._check(x, ignored=at)
        if given != EVERYTHING:
            raise _unanswered("a posterior given a range or several values")
        classes = self.forest.codes[at]
        joint = np.repeat(x, classes, axis=0)
        joint[:, at] = np.tile(np.arange(float(classes)), len(x))
        logs = self.likelihoods(joint).reshape(-1, classes)
        odds = np.exp(logs - logs.max(1, keepdims=True))
        return np.asarray(odds / odds.sum(1, keepdims=True))

    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        raise _unanswered("means and variances")

    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        raise _unanswered("draws and completions")


def _unanswered(what: str) -> QueryError:
    return QueryError(
        f"{what}: a private forest answers likelihoods of points and posteriors of classes; for "
        "all other questions its parties must open it, open_parameters()"
    )
