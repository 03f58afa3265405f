"""Parameters that owners know, as shares: bounds kept, logarithms taken, one round of dealing.

    deal/model   owner → party: shares of the parameters of its leaves and of weights on them; any
                 t parties learn nothing together

Who deals a leaf deals the weights on it, of every sum above. So parties that lay their components
side by side under one root each deal their own, and nobody sees the others'. Where all parties know
the parameters, none is dealt (``known``): each takes them for its share, a polynomial of degree 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.nodes import Leaf, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.leaves.bernoulli import LEAST
from fedcircuits.methods.private_forest.model import LEAST_WEIGHT, Forest, Region, Secret, Shares
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Group, Lot, exchange
from fedcircuits.privacy.sharing.shares import deal

PROBABILITY = "probability"
HALVINGS = 60  # of the interval in which smoothing is sought
SLACK = 1e-6  # bits: rounding of what stands at the bound
Owners = str | Mapping[str, str]  # of all leaves, or by leaf


# ---------------------------------------------------------------------- bounds


def bounded(forest: Forest, parameters: Parameters, least: float = 0.0) -> Parameters:
    """The nearest parameters that keep to the bounds: distributions mixed with even ones.

    As little as is needed, and none where bounds are kept. ``least``: of every probability of a
    leaf, for ``logs_of``. Nodes that the parameters have not are left out.
    """
    values: dict[str, Arrays] = {}
    tables = {}
    for node in forest.circuit.nodes:
        if node.name not in parameters:
            continue
        if isinstance(node, Sum):
            weight = _raised(parameters[node.name][WEIGHT], 2.0**-LEAST_WEIGHT)
            values[node.name] = {WEIGHT: weight}
        elif isinstance(node, Leaf):
            tables[node.name] = _raised(table(node, parameters), least)
    for region in forest.regions:
        if region.leaves[0] in tables:
            _smooth(region, tables)
    for name, probability in tables.items():
        bernoulli = _is_bernoulli(forest.circuit, name)
        values[name] = {PROBABILITY: probability[..., 1] if bernoulli else probability}
    return Parameters(values)


def table(leaf: Leaf, parameters: Parameters) -> Array:
    """Probabilities of a leaf's codes, (units, variables, codes)."""
    own = parameters[leaf.name][PROBABILITY]
    if leaf.family != "bernoulli":
        return own
    one = np.clip(own, LEAST, 1 - LEAST)
    return np.stack([1 - one, one], -1)


def _is_bernoulli(circuit: Circuit, name: str) -> bool:
    node = circuit[name]
    return isinstance(node, Leaf) and node.family == "bernoulli"


def _raised(p: Array, least: float) -> Array:
    """Every distribution (last axis) mixed with the even one until no number is below least."""
    even, lowest = 1 / p.shape[-1], p.min(-1, keepdims=True)
    if least > even:
        raise ParameterError(
            f"{p.shape[-1]} numbers that add up to 1 cannot all be {least:.3g} or more: take fewer "
            "categories or components"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(lowest < least, (least - lowest) / (even - lowest), 0.0)
    return np.asarray((1 - part) * p + part * even)


def _smooth(region: Region, tables: dict[str, Array]) -> None:
    """Of each unit beyond the bound all leaves are mixed with even ones, by one part."""
    own = [tables[name] for name in region.leaves]
    low, high = np.zeros(region.units), np.ones(region.units)
    far = _depth(own, low) > region.bound
    if not far.any():
        return
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = _depth(own, middle) > region.bound
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    for name, p in zip(region.leaves, own, strict=True):
        tables[name] = _mixed(p, np.where(far, high, 0.0))


def _depth(leaves: list[Array], part: Array) -> Array:
    """How many bits below 0 the least log2-likelihood of each unit is."""
    with np.errstate(divide="ignore"):
        return -sum((np.log2(_mixed(p, part).min(-1)).sum(1) for p in leaves), np.zeros(len(part)))


def _mixed(p: Array, part: Array) -> Array:
    share = part[:, None, None]
    return np.asarray((1 - share) * p + share / p.shape[-1])


def check_bounds(forest: Forest, parameters: Parameters) -> None:
    """ParameterError where parameters go beyond what the forest has room for."""
    tables: dict[str, Array] = {}
    for node in forest.circuit.nodes:
        if node.name not in parameters:
            continue
        if isinstance(node, Leaf):
            tables[node.name] = table(node, parameters)
        elif isinstance(node, Sum):
            lowest = parameters[node.name][WEIGHT].min()
            if not lowest >= 2.0 ** -(LEAST_WEIGHT + SLACK):
                raise _beyond(f"a weight of {node.name!r}", LEAST_WEIGHT)
    for region in forest.regions:
        own = [tables[name] for name in region.leaves if name in tables]
        if own and not (_depth(own, np.zeros(region.units)) <= region.bound + SLACK).all():
            raise _beyond(f"the least likelihood of {region.name!r}", region.bound)


def _beyond(what: str, bits: int) -> ParameterError:
    return ParameterError(
        f"{what} is below 2^−{bits}, for which shares have no room: smooth the parameters with "
        "bounded(forest, parameters)"
    )


# ---------------------------------------------------------------------- numbers to share


def encoded(forest: Forest, parameters: Parameters, members: int) -> dict[str, Elements]:
    """What is secret of the nodes that the parameters have, as elements to deal."""
    check_bounds(forest, parameters)
    found = {}
    for name, secret in forest.secrets(members).items():
        if name in parameters:
            node, plain = forest.circuit[name], parameters[name].get(WEIGHT)
            if isinstance(node, Leaf):
                plain = table(node, parameters)
            assert plain is not None, "secret are leaves and sums"
            found[name] = numbers(secret, plain, name)
    return found


def numbers(secret: Secret, plain: Array, name: str) -> Elements:
    """Probabilities or weights as elements."""
    if plain.shape != secret.shape:
        raise ParameterError(f"{name!r} has {plain.shape} numbers, expected {secret.shape}")
    point = FixedPoint(secret.fraction, 20, secret.ring)
    return point.encode(np.log2(plain) if secret.log else plain, f"parameters of {name!r}")


def known(
    forest: Forest, parameters: Parameters, run: str, me: str, members: tuple[str, ...]
) -> Shares:
    """Shares of parameters that all parties know."""
    return Shares(run, me, members, encoded(forest, parameters, len(members)))


# ---------------------------------------------------------------------- dealing


def dealt(
    group: Group,
    tag: str,
    forest: Forest,
    run: str,
    owners: Owners,
    parameters: Parameters | None = None,
) -> Flow[Shares]:
    """A member's shares, one round after owners know theirs.

    owners       who deals each leaf; weights are dealt by whoever deals the first leaf below
    parameters   of an owner: of its leaves, and of every sum on them. The numbers of other
                 owners' children are not read.
    """
    pieces = _pieces(forest, owners)
    secrets = forest.secrets(len(group.members))
    own: dict[str, Elements] = {}
    if group.me in pieces.values():
        if parameters is None:
            raise ParameterError(f"{group.me} deals parameters of the forest and was given none")
        own = encoded(forest, _own_part(parameters, pieces, group.me), len(group.members))
    arrays = {n: s.ring.zeros(s.shape) for n, s in secrets.items()}
    for dealer in sorted(set(pieces.values()), key=lambda name: name != group.me):  # mine go first
        mine = [piece for piece, who in pieces.items() if who == dealer]
        yield from _from_one(group, tag, dealer, mine, secrets, own, arrays)
    return Shares(run, group.me, group.members, arrays)


Piece = tuple[str, int, int]  # a node, and which of its last axis


def _from_one(
    group: Group,
    tag: str,
    dealer: str,
    pieces: list[Piece],
    secrets: Mapping[str, Secret],
    own: Mapping[str, Elements],
    arrays: Mapping[str, Elements],
) -> Flow[None]:
    """Shares of what one owner deals, written where they belong."""
    lots = [
        Lot(secrets[name].ring, (*secrets[name].shape[:-1], stop - start))
        for name, start, stop in pieces
    ]
    parts: dict[str, list[Elements]] = {}
    if group.me == dealer:
        count = len(group.members)
        rows = [
            deal(lot.ring, own[name][..., a:b, :], group.threshold, count, group.stream)
            for lot, (name, a, b) in zip(lots, pieces, strict=True)
        ]
        parts = {m: [r[i] for r in rows] for i, m in enumerate(group.members)}
    senders = (dealer,) if group.inside else ()
    found = yield from exchange(group, tag, parts, senders, lots)
    for (name, start, stop), elements in zip(pieces, found, strict=True):
        if group.inside:
            arrays[name][..., start:stop, :] = elements[0]


def _own_part(parameters: Parameters, pieces: Mapping[Piece, str], me: str) -> Parameters:
    """Without the leaves of others, and with weights of 1 on them."""
    values: dict[str, dict[str, Array]] = {}
    for (name, start, stop), who in pieces.items():
        if who == me and WEIGHT in parameters[name]:
            found = values.setdefault(name, {WEIGHT: np.ones_like(parameters[name][WEIGHT])})
            found[WEIGHT][:, start:stop] = parameters[name][WEIGHT][:, start:stop]
        elif who == me:
            values[name] = dict(parameters[name])
    return Parameters(values)


def _pieces(forest: Forest, owners: Owners) -> dict[Piece, str]:
    """Who deals what: leaves whole, weights by child."""
    found: dict[Piece, str] = {}
    who: dict[str, str] = {}
    for node in forest.circuit.nodes:
        if isinstance(node, Leaf):
            who[node.name] = owners if isinstance(owners, str) else owners[node.name]
            found[node.name, 0, forest.circuit.schema[node.scope[0]].size] = who[node.name]
            continue
        who[node.name] = who[node.children[0]]
        if isinstance(node, Sum):
            start = 0
            for child in node.children:
                stop = start + forest.circuit.units[child]
                found[node.name, start, stop] = who[child]
                start = stop
    return found
