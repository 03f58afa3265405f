"""Private inference: whoever asks learns the likelihood of its points, and nobody else anything.

Parties hold shares of a model (private_model.py) and masks made ahead (private_masks.py). The asker
is one of them, or an outsider who knows the forest's graph. Masked-exponent opening: the log2 of a
region, l, is an inner product of shares of parameters and of the point. Parties open c = l + r with
a mask r that nobody knows, and 2^c·[2^(−r)] is a share of 2^l without another round. The root of a
flat forest is a sum of them; a deeper one is evaluated on them (private_circuit.py).

    query/points      asker → party: shares of its points, of what hides them in the check, and
                      commitments
    query/check       party → party: that they are points (private_points.py)
    query/exponents   party → party: shares of c, 16 bytes an exponent and row; c says nothing
    query/level/k     party → party: shares dealt anew, in deeper forests alone
    query/root        party → asker: shares of the root, drowned below its first bits

Who learns what. The asker: the likelihood of each point to 56 + ⌈log2(t + 1)⌉ relative bits, up to
a statistical distance of 2^−39 a row, and so what follows from likelihoods: V + 1 of them are
equations on the parameters, so parties should count queries. Parties: how many points, and nothing
of them; any t together, the asker among them or not, nothing of the model and of others' points. A
coordinator has no part in it and receives nothing. Whoever carries messages learns nothing if they
are sealed.

The answer is off by less than 1.1·10⁻⁵ nats. A lost party ends the query. A wrong share is found if
N is even, where sharings of degree 2t have one share to spare, and often if it is odd: the asker
sees a number that no likelihood has. Parties that mean to deceive can make answers wrong.
"""

from __future__ import annotations

from math import log, log1p, log2

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ProtocolError, QueryError
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.circuit import root_value, rounds_of
from fedcircuits.methods.private_forest.masks import Batch
from fedcircuits.methods.private_forest.model import Forest, Region, Scale, Shares
from fedcircuits.methods.private_forest.points import Points, one_hot, points_checked, points_dealt
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.exponents import FRACTION, weighted_powers
from fedcircuits.privacy.operations.masked_powers import power
from fedcircuits.privacy.operations.truncation import MASKED
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.sharing import opened, opened_to

LIKELIHOOD = "a share of the likelihoods of its points, to the precision of a float64"


# ---------------------------------------------------------------------- roles


def party(
    me: str,
    forest: Forest,
    shares: Shares,
    batch: Batch,
    asker: str,
    key: bytes,
    points: Array | None = None,
) -> Flow[Array | None]:
    """A party's side: None, or log-likelihoods in nats (rows,) if it is the asker.

    batch    masks for as many rows as are asked about: ``prepared.take(rows)``
    key      fresh, of this party for this query (``fresh_key()``)
    points   of an asker: codes (rows, variables), NaN where left out
    """
    shares.check(forest)
    _check_masks(forest, shares, batch)
    if (points is None) == (me == asker):
        raise QueryError(f"{me} has {'no ' if points is None else ''}points and {asker} asks")
    bits = None if points is None else one_hot(forest, points)
    group = Group.of(me, shares.members, key, f"query/{shares.run}")
    dealt = yield from points_dealt(group, "query/points", forest, asker, len(batch), bits)
    assert dealt is not None, "a party gets shares"
    batch.spend(dealt.digest)
    yield from points_checked(group, "query/check", forest, asker, dealt, batch.name)
    root = yield from _root(group, forest, shares, batch, dealt)
    return (yield from _answered(group, forest, asker, len(batch), root))


def outsider(
    me: str, members: tuple[str, ...], forest: Forest, points: Array, key: bytes
) -> Flow[Array]:
    """Of an asker that is no party: log-likelihoods in nats (rows,)."""
    group = Group.of(me, members, key, "query")
    if group.inside:
        raise QueryError(f"{me} is one of the parties: it asks as a party that has points")
    bits = one_hot(forest, points)
    yield from points_dealt(group, "query/points", forest, me, len(bits), bits)
    found = yield from _answered(group, forest, me, len(bits), None)
    assert found is not None, "an asker gets an answer"
    return found


def _check_masks(forest: Forest, shares: Shares, batch: Batch) -> None:
    ring = forest.ring(len(shares.members))
    expected = (len(batch), forest.exponents, ring.limbs)
    if batch.run != shares.run or batch.inverses.shape != expected:
        raise ProtocolError(
            f"masks {batch.inverses.shape} were made for the model of {batch.run!r}, that of "
            f"{shares.run!r} takes {expected}: prepare for this model"
        )


# ---------------------------------------------------------------------- on shares


def _root(
    group: Group, forest: Forest, shares: Shares, batch: Batch, points: Points
) -> Flow[Elements]:
    """Shares of the drowned root (rows, limbs), of degree 2t."""
    scale = forest.scale(len(group.members))
    ring, level = scale.ring, 2 * group.threshold
    hidden = FIELD.add(_exponents(forest, scale, shares, points.bits), batch.covers)
    seen = yield from opened(group, "query/exponents", hidden, MASKED, level)
    if forest.flat:
        root = weighted_powers(ring, seen, batch.inverses)
    else:
        every = power(ring, seen, batch.inverses)
        values = {r.name: every[:, r.first : r.first + r.units] for r in forest.regions}
        rounds = rounds_of(forest, len(group.members))
        wide = group.over(ring)
        root = yield from root_value(wide, "query/level", rounds, values, shares.arrays)
    return ring.add(ring.multiply(root, batch.factors), batch.floods)


def _exponents(forest: Forest, scale: Scale, shares: Shares, bits: Elements) -> Elements:
    """Shares of l + offset (rows, exponents, 2), of degree 2t."""
    found = [
        FIELD.add(
            FIELD.inner(bits[:, _columns(forest, region)], _parameters(region, shares)),
            FIELD.elements(scale.offset[region.name] << FRACTION),
        )
        for region in forest.regions
    ]
    every = np.concatenate(found, axis=1)
    return FIELD.add(every, _log_weights(forest, shares)) if forest.flat else every


def _columns(forest: Forest, region: Region) -> list[int]:
    """Of the points' numbers that a region reads, in the order of its parameters."""
    codes, schema = forest.codes, forest.circuit.schema
    starts = np.cumsum([0, *codes])
    at = [schema.index(v) for name in region.leaves for v in forest.scope(name)]
    return [int(starts[v]) + k for v in at for k in range(codes[v])]


def _parameters(region: Region, shares: Shares) -> Elements:
    """(units, numbers, 2)."""
    own = [shares.arrays[name] for name in region.leaves]
    return np.concatenate([a.reshape(region.units, -1, FIELD.limbs) for a in own], axis=1)


def _log_weights(forest: Forest, shares: Shares) -> Elements:
    """In the order of the exponents, (exponents, 2)."""
    root = forest.circuit.root
    first = {r.name: r.first for r in forest.regions}
    order = [
        first[child] + k for child in root.children for k in range(forest.circuit.units[child])
    ]
    found = FIELD.zeros((forest.exponents,))
    found[order] = shares.arrays[root.name][0]
    return found


# ---------------------------------------------------------------------- answers


def _answered(
    group: Group, forest: Forest, asker: str, rows: int, root: Elements | None
) -> Flow[Array | None]:
    scale = forest.scale(len(group.members))
    wide, level = group.over(scale.ring), 2 * group.threshold
    found = yield from opened_to(wide, "query/root", asker, root, (rows,), LIKELIHOOD, level)
    return None if found is None else _log_likelihoods(scale, scale.ring.integers(found))


def _log_likelihoods(scale: Scale, results: np.typing.NDArray[np.object_]) -> Array:
    """In nats; noise is taken off at its mean."""
    mean = scale.contributors << (scale.flood - 1)
    least = 1 << (scale.root - scale.low + scale.shift - 1)
    found = np.empty(len(results))
    for i, result in enumerate(results):
        value = int(result) - mean
        if not least <= value < 1 << scale.top:
            raise ProtocolError(
                f"the answer for row {i} is no likelihood: a party has a wrong share of the model, "
                "of masks or of the result; nothing is returned, ask again with other masks"
            )
        beyond = value.bit_length() - 64
        found[i] = log2(value >> beyond) + beyond - scale.root - scale.shift
    centre = log1p(scale.contributors * 2.0 ** -(scale.undisturbed + 1))
    return np.asarray(found * log(2) - centre)


# ---------------------------------------------------------------------- posteriors


def joint_points(forest: Forest, points: Array, target: str) -> Array:
    """Every point once for each class of the target, (rows · classes, variables).

    Their likelihoods, ``posterior`` and the same rounds give P(class | rest). The asker then also
    learns p(rest, class) of every class, and p(rest).
    """
    at = forest.circuit.schema.index(target)
    classes = forest.codes[at]
    found = np.repeat(np.asarray(points, np.float64), classes, axis=0)
    found[:, at] = np.tile(np.arange(float(classes)), len(points))
    return found


def posterior(log_likelihoods: Array, classes: int) -> Array:
    """(rows, classes) from likelihoods of ``joint_points``."""
    each = np.asarray(log_likelihoods).reshape(-1, classes)
    odds = np.exp(each - each.max(1, keepdims=True))
    return np.asarray(odds / odds.sum(1, keepdims=True))
