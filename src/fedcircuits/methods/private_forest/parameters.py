"""Parameters of a forest on shares: dealt by their owner, averaged by all, opened by all.

    deal/model          owner → party: shares of the parameters of its leaves, and of the weights
                        of sums on them
    average/counts      party → party: shares of u_i p_i and u_i, all numbers in one message
    average/log/k/…     party → party: shares of logarithms of 8,192 numbers, under masks
    average/weights/…   party → party: the same for powers, in deeper forests only
    open/model          party → coordinator: its shares of all parameters

**Dealt.** The owner of a leaf also deals the weights on it, of every sum above. Parties that put
their components under one root therefore each deal their own, and nobody sees those of others.

**Averaged.** Every party has learned the same forest from the same start. A unit is averaged by how
often parties use it, which is far better than a plain mean where splits are uneven: with u_i the
expected count of a unit at party i (``usage``) and p_i a probability of it,

    p = Σ_i u_i p_i / Σ_i u_i,    log2 p = log2 Σ_i u_i p_i − log2 Σ_i u_i

Both sums are added up on shares, their logarithms are taken once (powers.py), and quotients are
differences: there is no division. Weights of deeper forests come back from their logarithms by one
power. Weights of structures are part of the counts, at a party's root. Everything is opened under
masks: any t parties learn nothing, not even those who learned the parameters. Sums are scaled by
the number of all rows where that is public, otherwise by 2^``row_bits``, and u_i is at least 2^−13
of a party's rows, so that they lie in a public range. A party whose numbers lie outside it ends the
run before it shares anything.

**Opened.** Afterwards the coordinator has the parameters permanently. A party that does not allow
it ends the run before it has sent anything. Inconsistent shares are detected, as N − t − 1 of them
are redundant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.circuit import Leaf, Node, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import ParameterError, SiteError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, gather, send
from fedcircuits.federation.messages import require_shape
from fedcircuits.methods.private_forest.model import (
    LEAST_WEIGHT,
    WEIGHT_FRACTION,
    Forest,
    ForestView,
    ModelShares,
    ShareLayout,
    as_leaf,
    bounded,
    check_bounds,
    probabilities,
)
from fedcircuits.methods.private_forest.structures import usage
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.powers import Logarithm, Power, logs_of, powers_of
from fedcircuits.privacy.sharing.group import (
    Group,
    Lot,
    Shares,
    exchange,
    packed,
    shape_of,
    summed,
    unpacked_lots,
)
from fedcircuits.privacy.sharing.shares import deal, reconstruct, threshold

USED = 13  # bits below 1: the least use of a unit
LEAF = 12  # bits below 1: the least probability of a code
BATCH = 1 << 13  # numbers whose logarithms are taken at once
Owners = str | Mapping[str, str]  # of all leaves, or by leaf
Piece = tuple[str, int, int]  # a node, and which part of its last axis


# ---------------------------------------------------------------------- dealt


def dealt(
    group: Group, forest: Forest, run: str, owners: Owners, parameters: Parameters | None = None
) -> Flow[ModelShares]:
    """A member's shares, one round after owners know theirs.

    owners       who deals each leaf; weights are dealt by the owner of the first leaf below
    parameters   at an owner: those of its leaves, and of every sum above them. Numbers that belong
                 to children of other owners are not read.
    """
    pieces = _pieces(forest, owners)
    layouts = forest.layouts(len(group.members))
    secrets: dict[str, Elements] = {}
    if group.me in pieces.values():
        if parameters is None:
            raise ParameterError(
                f"{group.me} must deal the parameters of the forest but was given none"
            )
        secrets = encoded(forest, _part_of(group.me, parameters, pieces), len(group.members))
    arrays = {n: layout.ring.zeros(layout.shape) for n, layout in layouts.items()}
    for dealer in sorted(set(pieces.values()), key=lambda name: name != group.me):  # mine go first
        of_dealer = [piece for piece, owner in pieces.items() if owner == dealer]
        yield from _from_one(group, dealer, of_dealer, layouts, secrets, arrays)
    return ModelShares(run, group.me, group.members, arrays)


def _from_one(
    group: Group,
    dealer: str,
    pieces: list[Piece],
    layouts: Mapping[str, ShareLayout],
    secrets: Mapping[str, Elements],
    arrays: Mapping[str, Elements],
) -> Flow[None]:
    """Shares of what one owner deals, written where they belong."""
    lots = [Lot(layouts[n].ring, (*layouts[n].shape[:-1], b - a)) for n, a, b in pieces]
    parts: dict[str, list[Elements]] = {}
    if group.me == dealer:
        count = len(group.members)
        rows = [
            deal(lot.ring, secrets[name][..., a:b, :], group.threshold, count, group.stream)
            for lot, (name, a, b) in zip(lots, pieces, strict=True)
        ]
        parts = {m: [r[i] for r in rows] for i, m in enumerate(group.members)}
    senders = (dealer,) if group.inside else ()
    received = yield from exchange(group, "deal/model", parts, senders, lots)
    for (name, a, b), shares in zip(pieces, received, strict=True):
        if group.inside:
            arrays[name][..., a:b, :] = shares[0]


def _part_of(me: str, parameters: Parameters, pieces: Mapping[Piece, str]) -> Parameters:
    """Without the leaves of others, and with weights of 1 on them."""
    values: dict[str, Arrays] = {}
    for (name, start, stop), owner in pieces.items():
        if owner == me and WEIGHT in parameters[name]:
            ones = {WEIGHT: np.ones_like(parameters[name][WEIGHT])}
            part = values.setdefault(name, ones)[WEIGHT]
            part[:, start:stop] = parameters[name][WEIGHT][:, start:stop]
        elif owner == me:
            values[name] = dict(parameters[name])
    return Parameters(values)


def _pieces(forest: Forest, owners: Owners) -> dict[Piece, str]:
    """Who deals what: all of a leaf, weights by child."""
    pieces: dict[Piece, str] = {}
    owner: dict[str, str] = {}
    for node in forest.circuit.nodes:
        if isinstance(node, Leaf):
            owner[node.name] = owners if isinstance(owners, str) else owners[node.name]
            pieces[node.name, 0, forest.circuit.schema[node.scope[0]].size] = owner[node.name]
            continue
        owner[node.name] = owner[node.children[0]]
        if isinstance(node, Sum):
            start = 0
            for child in node.children:
                stop = start + forest.circuit.units[child]
                pieces[node.name, start, stop] = owner[child]
                start = stop
    return pieces


def encoded(forest: Forest, parameters: Parameters, members: int) -> dict[str, Elements]:
    """The secrets of all nodes that have parameters, as elements to deal."""
    check_bounds(forest, parameters)
    secrets = {}
    for name, layout in forest.layouts(members).items():
        if name in parameters:
            plain = _plain(forest.circuit[name], parameters)
            if plain.shape != layout.shape:
                raise ParameterError(f"{name!r} has {plain.shape} numbers, expected {layout.shape}")
            numbers = np.log2(plain) if layout.log else plain
            point = FixedPoint(layout.fraction, 20, layout.ring)
            secrets[name] = point.encode(numbers, f"parameters of {name!r}")
    return secrets


def _plain(node: Node, learned: Parameters) -> Array:
    """Probabilities of a leaf, weights of a sum."""
    return probabilities(node, learned) if isinstance(node, Leaf) else learned[node.name][WEIGHT]


# ---------------------------------------------------------------------- averaged


def averaged(
    group: Group,
    forest: Forest,
    run: str,
    parameters: Parameters,
    rows: int,
    total: int | None,
    row_bits: int,
) -> Flow[ModelShares]:
    """A party's shares of the mean of all forests.

    rows       of this party
    total      of all parties, None where it is secret
    row_bits   where the number of rows is secret, all parties together have at most 2^row_bits
    """
    rule = logarithm(forest, len(group.members), 0 if total is not None else row_bits)
    counts = counts_of(forest, bounded(forest, parameters, 2.0**-LEAF))
    flat = np.concatenate([c.reshape(-1) for c in counts.values()])
    if total is None and rows > (most := (1 << row_bits) // len(group.members)):
        raise ParameterError(
            f"a secret number of rows needs at most {most:,} at each of {len(group.members)} "
            f"parties, {group.me} has more: use public_total=True, or fewer rows"
        )
    rule.check(flat if total is not None else flat * 2.0**-row_bits)
    share = rows / (1 << row_bits if total is None else total)
    secret = FixedPoint(rule.precision, 1, rule.ring).encode(flat * share, "expected counts")
    wide = group.over(rule.ring)
    sums = yield from summed(wide, "average/counts", secret)
    logs = []
    for k, start in enumerate(range(0, len(sums), BATCH)):
        part = sums[start : start + BATCH]
        logs.append((yield from logs_of(wide, f"average/log/{k}", part, rule)))
    arrays = {}
    layouts = forest.layouts(len(group.members))
    for name, part in _split(np.concatenate(logs), {n: c.shape for n, c in counts.items()}).items():
        quotients = FIELD.subtract(part[:, :-1], part[:, -1:])
        arrays[name] = quotients.reshape(*layouts[name].shape, FIELD.limbs)
    if not forest.flat:
        arrays.update((yield from _weights(group, forest, arrays)))
    return ModelShares(run, group.me, group.members, arrays)


def logarithm(forest: Forest, members: int, row_bits: int) -> Logarithm:
    """How logarithms are taken of a forest's sums; ``row_bits``: 0 if their number is public."""
    least = USED + (LEAF if forest.flat else LEAST_WEIGHT) + 1  # a bit for rounding
    return Logarithm(members, least + row_bits)


def counts_of(forest: Forest, parameters: Parameters) -> dict[str, Array]:
    """What one row of a party adds, by leaf and sum: all u_i p_i and then u_i, (units, n + 1)."""
    counts = {}
    for name, uses in usage(forest.circuit, parameters).items():
        node = forest.circuit[name]
        if isinstance(node, Leaf | Sum):
            plain = _plain(node, parameters).reshape(len(uses), -1)
            used = np.maximum(uses, 2.0**-USED)[:, None]
            counts[name] = np.minimum(np.hstack([used * plain, used]), 1.0)
    return counts


def _weights(
    group: Group, forest: Forest, logs: Mapping[str, Elements]
) -> Flow[dict[str, Elements]]:
    """Weights of all sums, over the ring of the circuit, from their logarithms."""
    shapes = {n.name: logs[n.name].shape[:-1] for n in forest.circuit.nodes if isinstance(n, Sum)}
    rule = Power(len(group.members), LEAST_WEIGHT, WEIGHT_FRACTION, forest.ring(len(group.members)))
    flat = np.concatenate([logs[n].reshape(-1, FIELD.limbs) for n in shapes])
    return _split((yield from powers_of(group, "average/weights", flat, rule)), shapes)


def _split(elements: Elements, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Elements]:
    """Elements end to end (n, limbs), as arrays of these shapes."""
    ends = np.cumsum([prod(shape) for shape in shapes.values()])[:-1]
    parts = zip(shapes.items(), np.split(elements, ends), strict=True)
    return {name: part.reshape(*shape, elements.shape[-1]) for (name, shape), part in parts}


# ---------------------------------------------------------------------- opened


class AllShares(Shares, frozen=True):
    """A party's shares of all parameters, node by node."""

    tag: ClassVar[str] = "open/model"
    reveals: ClassVar[str] = "its share of every parameter, which completes the forest"
    needs: ClassVar[str] = "collect"


def opening(view: ForestView) -> Flow[None]:
    """A party's side: it sends the coordinator its shares, if its owner allows that."""
    view.shares.check(view.forest)
    if not view.allow_collect:
        raise SiteError(
            f"{view.me} does not allow the parameters to be opened: Federation(…, "
            "allow_collect=True)"
        )
    lots = _lots_of(view.forest, len(view.shares.members))
    everything = [view.shares.arrays[name] for name in lots]
    data = packed({COORDINATOR: everything}, list(lots.values()))[COORDINATOR]
    yield from send(COORDINATOR, AllShares(data))


def opened(members: Sequence[str], forest: Forest) -> Flow[Parameters]:
    """At the coordinator: the parameters that all parties' shares are of."""
    lots, rows = list(_lots_of(forest, len(members)).values()), []
    for sender, message in (yield from gather(members, AllShares)).items():
        require_shape(message.data, shape_of(lots), sender, AllShares, "data")
        rows.append(unpacked_lots(message.data.reshape(-1), lots, sender, AllShares.tag))
    values: dict[str, Arrays] = {}
    layouts = forest.layouts(len(members)).items()
    for (name, layout), shares in zip(layouts, zip(*rows, strict=True), strict=True):
        number = reconstruct(layout.ring, np.stack(shares), threshold(len(members)), tuple(members))
        plain = FixedPoint(layout.fraction, 20, layout.ring).decode(number)
        numbers = np.exp2(plain) if layout.log else plain
        even = numbers / numbers.sum(axis=-1, keepdims=True)  # rounding left some off 1
        node = forest.circuit[name]
        values[name] = as_leaf(node, even) if isinstance(node, Leaf) else {WEIGHT: even}
    return Parameters(values)


def _lots_of(forest: Forest, members: int) -> dict[str, Lot]:
    return {n: Lot(each.ring, each.shape) for n, each in forest.layouts(members).items()}
