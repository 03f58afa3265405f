"""Private inference: the asker learns the likelihood of its points, and nobody else anything.

Parties hold shares of a model (model.py) and masks made ahead (masks.py). The asker is one of them,
or an outsider who knows the forest's graph.

    query/checks/…    party → party: the start of two checks (checks.py), while points are sent
    query/points      asker → party: shares of its points, (rows, codes of all variables)
    query/check/…     party → party: the check that these are points
    query/exponents   party → party: shares of masked exponents (evaluation.py), which reveal
                      nothing; 16 bytes per exponent and row
    query/level/k     party → party: shares dealt again, in deeper forests only
    query/product     party → party: the same, of the root times noise
    query/answer/…    party → party: the check of everything since the points
    query/root        party → asker: shares of the root, drowned below its first bits

Who learns what. The asker learns the likelihood of each point to 56 + ⌈log2(pairs)⌉ relative bits,
up to a statistical distance of 2^−39 per row, and what follows from likelihoods: V + 1 of them are
equations on the parameters, so parties should count queries. Parties learn the number of points and
nothing about them; any t of them together, with or without the asker, learn nothing about the model
and the points of others. A coordinator takes no part and receives nothing. A relay learns nothing
if messages are sealed.

**Points.** For every variable the asker deals one number per code: 1 for the code that the point
has, 0 for the others, all 0 where the value is left out. So messages are the same whatever the
values are. Shares that do not fit together, or numbers other than 0 and 1, would turn likelihoods
into equations on single parties' shares, and a few of them into the model. Therefore parties check,
before anything of the model is used, that over all x of a query, with s_v the sum of a variable's
numbers,

    Σ χ x(x − 1) + Σ χ' s_v(s_v − 1) = 0      (s_v − 1) if nothing may be left out

with coefficients that are drawn when all parties have their shares. A wrong point passes with a
chance of about 2^−122, for odd N too, and whatever t parties do, the asker among them.

**One party that deviates.** All that is opened among parties has degree t or is checked, and they
compare what they have seen. A single party that changes, swaps, repeats or invents shares in any
message therefore ends the query, except with probability 2^−50: no answer is silently wrong. The
same holds for up to t parties together if no two of them form a pair (privacy/sharing/dealing.py).
A party that sends nothing ends it, too. Nobody learns anything from that except that it ended.

The answer is off by less than 1.1·10⁻⁵ nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from math import log, log1p, log2

import numpy as np

from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.queryable import Queryable, Regions
from fedcircuits.circuits.questions.regions import EVERYTHING, Event
from fedcircuits.errors import ProtocolError, QueryError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import blaming
from fedcircuits.methods.private_forest.evaluation import answer_kinds, drowned_root
from fedcircuits.methods.private_forest.masks import MaskBatch
from fedcircuits.methods.private_forest.model import Forest, ForestView, ValueScale
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.checks import (
    ALIKE,
    CHECKED,
    COMMITTED,
    TOSSED,
    Claim,
    Kind,
    Made,
    checks_made,
    dot,
)
from fedcircuits.privacy.operations.products import MASKED
from fedcircuits.privacy.sharing.dealing import DIGEST, PAIR_KEY
from fedcircuits.privacy.sharing.group import SHARE, Group, opened_to, shared
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.tables.table import Table

LIKELIHOOD = "a share of the likelihood of each point, to the precision of a float64"
POINTS = "query/points"
NOTHING = {SHARE, MASKED, PAIR_KEY, DIGEST, COMMITTED, ALIKE, TOSSED, CHECKED}  # reveal nothing


# ---------------------------------------------------------------------- roles


def respond(
    view: ForestView,
    masks: Sequence[MaskBatch],
    asker: str,
    key: bytes,
    points: Array | Party | None = None,
) -> Flow[Array | None]:
    """A party's side: None, or log-likelihoods in nats (rows,) if it is the asker.

    masks    for the rows of this query, which no other query gets (``Once``)
    key      fresh, of this party for this query
    points   at an asker: codes (rows, variables), NaN where left out, or the party whose rows they
             are
    """
    me, forest, shares, batch = view.me, view.forest, view.shares, MaskBatch.joined(masks)
    shares.check(forest)
    batch.check(forest, shares.run, len(shares.members))
    if (points is None) == (me == asker):
        raise QueryError(f"{me} has {'no ' if points is None else ''}points and {asker} asks")
    coded, rows = None if points is None else one_hot(forest, _codes(forest, points)), len(batch)
    if coded is not None and len(coded) != rows:
        raise QueryError(f"{me} asks about {len(coded):,} points with masks for {rows:,}")
    group = Group.of(me, shares.members, key, f"query/{shares.run}")
    plans = [_point_kinds(forest, rows), answer_kinds(forest, len(shares.members), rows)]
    checks = yield from checks_made(group, "query/checks", plans, batch.name)
    bits = yield from _points_dealt(group, forest, asker, rows, coded)
    assert bits is not None, "a party gets shares"
    with blaming(asker, POINTS, "data"):  # a resumed run is about the same points
        for part in masks:
            yield from part.spend(sha256(FIELD.packed(bits).tobytes()).digest())
    wrong = f"the query of {asker} is not a point, or its shares are inconsistent"
    yield from checks.check("query/check", [_point_claim(forest, bits)], wrong)
    root = yield from drowned_root(group, forest, shares, batch, bits, checks)
    return (yield from _answer(group, forest, asker, rows, root))


def ask(
    me: str, members: tuple[str, ...], forest: Forest, points: Array | Party, key: bytes
) -> Flow[Array]:
    """An asker that is not a party: log-likelihoods in nats (rows,)."""
    group = Group.of(me, members, key, "query")
    if group.inside:
        raise QueryError(f"{me} is one of the parties: it must ask as a party that holds points")
    bits = one_hot(forest, _codes(forest, points))
    yield from _points_dealt(group, forest, me, len(bits), bits)
    answer = yield from _answer(group, forest, me, len(bits), None)
    assert answer is not None, "an asker gets an answer"
    return answer


# ---------------------------------------------------------------------- points


def _codes(forest: Forest, points: Array | Party) -> Array:
    """(rows, variables) in the forest's codes; of a party those of its rows."""
    if not isinstance(points, Party):
        return points
    schema, table = forest.circuit.schema, points.table
    return Table.of(table.select(n for n in table.names if n in schema), schema=schema).values


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
            "complete points, or train the forest with marginals=True"
        )
    known = np.where(missing, 0.0, plain)
    if ((known < 0) | (known >= codes) | (known != np.floor(known))).any():
        raise QueryError(
            "points must be codes of their variables, whole numbers from 0 to the number of codes "
            "minus one: encode them with the schema"
        )
    starts = np.cumsum(codes) - codes
    bits = FIELD.zeros((len(plain), int(codes.sum())))
    rows, columns = np.nonzero(~missing)
    bits[rows, starts[columns] + known[rows, columns].astype(np.int64), 0] = 1
    return bits


def _points_dealt(
    group: Group, forest: Forest, asker: str, rows: int, bits: Elements | None
) -> Flow[Elements | None]:
    """One round: a member's shares of the asker's points, (rows, codes of all variables, 2)."""
    shape = (rows, sum(forest.codes))
    dealt = yield from shared(group, POINTS, bits, shape, dealers=[asker])
    return dealt[0] if group.inside else None


# ---------------------------------------------------------------------- the check of points


def _point_kinds(forest: Forest, rows: int) -> list[Kind]:
    sums = len(forest.codes) if forest.marginals else 0
    return [(FIELD, rows * (sum(forest.codes) + sums))]


def _point_claim(forest: Forest, bits: Elements) -> Claim:
    """Numbers are 0 or 1, and those of a variable add up to 1, or to 0 if it may be left out."""
    one, totals = FIELD.elements(1), _totals(forest, bits)
    x, s = bits.reshape(-1, FIELD.limbs), totals.reshape(-1, FIELD.limbs)

    def made(stream: Stream) -> Made:
        numbers = np.concatenate([x, s]) if forest.marginals else x
        left = FIELD.multiply(stream.elements(FIELD, (len(numbers),)), numbers)
        right, total = FIELD.subtract(numbers, one), FIELD.zeros(())
        if not forest.marginals:
            rest = FIELD.subtract(one, s)
            total = dot(FIELD, stream.elements(FIELD, (len(s),)), rest)
        return left, right, total

    return Claim(*_point_kinds(forest, len(bits))[0], made)


def _totals(forest: Forest, x: Elements) -> Elements:
    """The sum of every variable's numbers, (rows, variables, 2)."""
    codes = np.array(forest.codes)
    starts = np.cumsum(codes) - codes
    totals = x[:, starts]
    for k in range(1, int(codes.max())):
        has = np.flatnonzero(codes > k)
        totals[:, has] = FIELD.add(totals[:, has], x[:, starts[has] + k])
    return totals


# ---------------------------------------------------------------------- answers


def _answer(
    group: Group, forest: Forest, asker: str, rows: int, root: Elements | None
) -> Flow[Array | None]:
    scale = forest.scale(len(group.members))
    wide = group.over(scale.ring)
    values = yield from opened_to(wide, "query/root", asker, root, (rows,), LIKELIHOOD)
    return None if values is None else _log_likelihoods(scale, values, group.members)


def _log_likelihoods(scale: ValueScale, values: Elements, members: tuple[str, ...]) -> Array:
    """In nats; the mean of the noise is subtracted."""
    mean = scale.contributors << (scale.flood - 1)
    least = 1 << (scale.root - scale.low + scale.shift - 1)
    logs = np.empty(len(values))
    for i, result in enumerate(scale.ring.integers(values)):
        value = int(result) - mean
        if not least <= value < 1 << scale.top:
            raise ProtocolError(
                f"the answer for row {i} is not a likelihood: one of {', '.join(members)} has a "
                "wrong share of the model, of masks or of the result; nothing is returned: ask "
                "again with new masks"
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
        "all other queries its parties must open the parameters, open_parameters()"
    )
