"""A forest evaluated on shares: powers of two of its regions, and the circuit above them.

Masked-exponent opening: the log2 of a region, l, is an inner product of shares of parameters and of
the point. Parties open c = l + r with a mask r that nobody knows, and 2^c·[2^(−r)] is a share of
2^l without another round. The root of a flat forest is a sum of them. A deeper one is evaluated
above them, in exact whole numbers.

A node's values have a public scale, so nothing is cut off: products add the bits of their factors,
sums those of their weights, and children of a sum are rotated to the same scale. Every product of
shares takes a round in which parties deal theirs again (products.py); nodes that are ready at the
same time share a round.

Nothing of the root is opened before all products are checked (checks.py): that the exponents which
parties have seen are those of the point and the parameters, and every product above them.

A sum over outer products that nothing else reads first mixes the left factors and then multiplies
by the right ones, so that (units of the sum × right units) numbers cross instead of (left × right):
Σ_j (Σ_i w_kij a_i) b_j. Other products are made, elementwise ones by a tree, before they are mixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Product, Sum
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.masks import MaskBatch
from fedcircuits.methods.private_forest.model import Forest, ForestRegion, ModelShares, ValueScale
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.checks import Checks, Claim, Kind, Made, dot
from fedcircuits.privacy.operations.powers import FRACTION, power, weighted_powers
from fedcircuits.privacy.operations.products import MASKED, reduced
from fedcircuits.privacy.sharing.group import Group, opened
from fedcircuits.privacy.sharing.randomness import Stream

Values = Mapping[str, Elements]  # (rows, units, limbs) by node or intermediate product
Weights = Mapping[str, Elements]  # (units, inputs, limbs) by sum


def answer_kinds(forest: Forest, members: int, rows: int) -> list[Kind]:
    """The claims on which an answer rests."""
    ring = forest.ring(members)
    kinds = [(FIELD, sum(forest.codes))]
    if not forest.flat:
        units = {region.name: region.units for region in forest.regions}
        for steps in rounds_of(forest, members):
            kinds += [(ring, step.terms(rows, units)) for step in steps]
            units.update({step.name: step.width(units) for step in steps})
    return [*kinds, (ring, rows)]


def drowned_root(
    group: Group,
    forest: Forest,
    shares: ModelShares,
    batch: MaskBatch,
    bits: Elements,
    checks: Checks,
) -> Flow[Elements]:
    """Shares of the root under noise (rows, limbs), checked; ``bits``: of the points."""
    scale = forest.scale(len(group.members))
    ring, wide, level = scale.ring, group.over(scale.ring), 2 * group.threshold
    hidden = FIELD.add(_exponents(forest, scale, shares, bits), batch.covers)
    seen = yield from opened(group, "query/exponents", hidden, MASKED, level)
    sums = FIELD.subtract(FIELD.subtract(seen, batch.rests), _constants(forest, scale, shares))
    claims = [Claim.matrices(FIELD, bits, _parameters(forest, shares), sums)]
    if forest.flat:
        root = weighted_powers(ring, seen, batch.inverses)
    else:
        powers = power(ring, seen, batch.inverses)
        values = {r.name: powers[:, r.first : r.first + r.units] for r in forest.regions}
        rounds = rounds_of(forest, len(group.members))
        root = yield from _root(wide, "query/level", rounds, values, shares.arrays, claims)
    noisy = yield from reduced(wide, "query/product", ring.multiply(root, batch.factors))
    claims.append(Claim.of(ring, root, batch.factors, noisy))
    yield from checks.check("query/answer", claims, seen=FIELD.packed(seen).tobytes())
    return ring.add(noisy, batch.floods)


# ---------------------------------------------------------------------- regions


def _exponents(forest: Forest, scale: ValueScale, shares: ModelShares, bits: Elements) -> Elements:
    """Shares of l + offset (rows, exponents, 2), of degree 2t."""
    logs = [
        FIELD.inner(bits[:, _columns(forest, region)], _leaves(shares, region))
        for region in forest.regions
    ]
    return FIELD.add(np.concatenate(logs, axis=1), _constants(forest, scale, shares))


def _leaves(shares: ModelShares, region: ForestRegion) -> Elements:
    """Shares of a region's parameters, (units, codes of its variables, 2)."""
    leaves = [shares.arrays[n].reshape(region.units, -1, FIELD.limbs) for n in region.leaves]
    return np.concatenate(leaves, axis=1)


def _parameters(forest: Forest, shares: ModelShares) -> Elements:
    """For all regions, (exponents, codes of all variables, 2)."""
    matrix = FIELD.zeros((forest.exponents, sum(forest.codes)))
    for region in forest.regions:
        units = slice(region.first, region.first + region.units)
        matrix[units, _columns(forest, region)] = _leaves(shares, region)
    return matrix


def _constants(forest: Forest, scale: ValueScale, shares: ModelShares) -> Elements:
    """What is added to logs of regions: offsets, and in flat forests weights; (exponents, 2)."""
    offsets = [scale.offset[r.name] << FRACTION for r in forest.regions for _ in range(r.units)]
    offsets_shared = FIELD.elements(offsets)
    return (
        FIELD.add(offsets_shared, _log_weights(forest, shares)) if forest.flat else offsets_shared
    )


def _columns(forest: Forest, region: ForestRegion) -> list[int]:
    """Which of the points' numbers a region reads, in the order of its parameters."""
    codes, schema = forest.codes, forest.circuit.schema
    starts = np.cumsum([0, *codes])
    at = map(schema.index, region.variables)
    return [int(starts[v]) + k for v in at for k in range(codes[v])]


def _log_weights(forest: Forest, shares: ModelShares) -> Elements:
    """In the order of the exponents, (exponents, 2)."""
    root = forest.circuit.root
    first = {r.name: r.first for r in forest.regions}
    order = [
        first[child] + k for child in root.children for k in range(forest.circuit.units[child])
    ]
    weights = FIELD.zeros((forest.exponents,))
    weights[order] = shares.arrays[root.name][0]
    return weights


# ---------------------------------------------------------------------- steps above regions


@dataclass(frozen=True, slots=True)
class Multiply:
    """One round of ``products``, which are shares of degree 2t, (rows, units, limbs)."""

    name: str
    left: str
    right: str
    outer: bool

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        a, b = values[self.left], values[self.right]
        if not self.outer:
            return ring.multiply(a, b)
        return ring.multiply(a[:, :, None], b[:, None]).reshape(len(a), -1, ring.limbs)

    def width(self, units: Mapping[str, int]) -> int:
        return units[self.left] * (units[self.right] if self.outer else 1)

    def terms(self, rows: int, units: Mapping[str, int]) -> int:
        return rows * units[self.left]

    def claim(self, ring: Ring, values: Values, weights: Weights, product: Elements) -> Claim:
        a, b = values[self.left], values[self.right]
        if not self.outer:
            return Claim.of(ring, a, b, product)
        return _by_row(ring, a, b, product.reshape(*a.shape[:2], *b.shape[1:]), inner=False)


@dataclass(frozen=True, slots=True)
class Mix:
    """A sum over values that are there; ``turns`` rotate each child to the same scale."""

    name: str
    children: tuple[str, ...]
    turns: tuple[int, ...]
    units: int

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        return ring.inner(self._turned(ring, values), weights[self.name])

    def _turned(self, ring: Ring, values: Values) -> Elements:
        turned = [ring.rotate(values[c], k) for c, k in zip(self.children, self.turns, strict=True)]
        return np.concatenate(turned, axis=1)

    def width(self, units: Mapping[str, int]) -> int:
        return self.units

    def terms(self, rows: int, units: Mapping[str, int]) -> int:
        return sum(units[child] for child in self.children)

    def claim(self, ring: Ring, values: Values, weights: Weights, product: Elements) -> Claim:
        return Claim.matrices(ring, self._turned(ring, values), weights[self.name], product)


@dataclass(frozen=True, slots=True)
class MixLeft:
    """Σ_i w_kij a_i for one outer product below a sum: (rows, units · right units)."""

    name: str
    above: str
    left: str
    first: int  # of its inputs among those of the sum
    right_units: int
    turn: int

    units: int

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        return ring.inner(*self._factors(ring, values, weights))

    def _factors(self, ring: Ring, values: Values, weights: Weights) -> tuple[Elements, Elements]:
        a, weight = ring.rotate(values[self.left], self.turn), weights[self.above]
        inputs = slice(self.first, self.first + a.shape[1] * self.right_units)
        pairs = weight[:, inputs].reshape(len(weight), a.shape[1], self.right_units, ring.limbs)
        return a, pairs.swapaxes(1, 2).reshape(-1, a.shape[1], ring.limbs)

    def width(self, units: Mapping[str, int]) -> int:
        return self.units * self.right_units

    def terms(self, rows: int, units: Mapping[str, int]) -> int:
        return units[self.left]

    def claim(self, ring: Ring, values: Values, weights: Weights, product: Elements) -> Claim:
        return Claim.matrices(ring, *self._factors(ring, values, weights), product)


@dataclass(frozen=True, slots=True)
class MultiplyRight:
    """Σ_j u_kj b_j, over all outer products below a sum."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    units: int

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        u, b = self._factors(values)
        return ring.sum(np.moveaxis(ring.multiply(u, b[:, None]), 2, 0))

    def _factors(self, values: Values) -> tuple[Elements, Elements]:
        """(rows, units, right units, limbs) and (rows, right units, limbs), over all pairs."""
        mixed = [values[left] for left, _ in self.pairs]
        right = np.concatenate([values[name] for _, name in self.pairs], axis=1)
        parts = [u.reshape(len(u), self.units, -1, u.shape[-1]) for u in mixed]
        return np.concatenate(parts, axis=2), right

    def width(self, units: Mapping[str, int]) -> int:
        return self.units

    def terms(self, rows: int, units: Mapping[str, int]) -> int:
        return rows * sum(units[right] for _, right in self.pairs)

    def claim(self, ring: Ring, values: Values, weights: Weights, product: Elements) -> Claim:
        u, b = self._factors(values)
        return _by_row(ring, b, u.swapaxes(1, 2), product, inner=True)


def _by_row(ring: Ring, a: Elements, b: Elements, product: Elements, *, inner: bool) -> Claim:
    """In every row Σ_i a_i b_ij = product_j, or a_i b_j = product_ij if not ``inner``."""

    def made(stream: Stream) -> Made:
        chosen = stream.elements(ring, product.shape[:-1])
        spread = chosen[:, None] if inner else chosen
        terms = ring.multiply(spread, b if inner else b[:, None])  # (rows, i, j, limbs)
        right = ring.sum(np.moveaxis(terms, 2, 0))
        flat = (v.reshape(-1, ring.limbs) for v in (a, right, chosen, product))
        left, mixed, coefficients, whole = flat
        return left, mixed, dot(ring, coefficients, whole)

    return Claim(ring, a.size // ring.limbs, made)


RoundStep = Multiply | Mix | MixLeft | MultiplyRight
Rounds = tuple[tuple[RoundStep, ...], ...]


def _root(
    group: Group,
    tag: str,
    rounds: Rounds,
    regions: Values,
    weights: Weights,
    claims: list[Claim],
) -> Flow[Elements]:
    """Shares of the root (rows, limbs), of degree t; ``group`` is over the forest's ring."""
    values, ring = dict(regions), group.ring
    for k, steps in enumerate(rounds):
        products = [step.products(ring, values, weights) for step in steps]
        flat = np.concatenate([p.reshape(-1, ring.limbs) for p in products])
        fresh = yield from reduced(group, f"{tag}/{k}", flat)
        ends = np.cumsum([p.size // ring.limbs for p in products])[:-1]
        for step, product, shares in zip(steps, products, np.split(fresh, ends), strict=True):
            values[step.name] = result = shares.reshape(product.shape)
            claims.append(step.claim(ring, values, weights, result))
    root: Elements = values[rounds[-1][-1].name][:, 0]
    return root


# ---------------------------------------------------------------------- which steps in which round


def rounds_of(forest: Forest, members: int) -> Rounds:
    """What is done in each round, from the regions to the root."""
    planner = _RoundPlanner(forest, forest.scale(members).nodes)
    for node in forest.circuit.nodes:
        known = planner.ready.keys() | planner.mixed
        if node.name not in planner.ready and all(c in known for c in node.children):
            planner.add(node)
    return tuple(tuple(planner.steps[k]) for k in sorted(planner.steps))


class _RoundPlanner:
    def __init__(self, forest: Forest, scale: Mapping[str, int]) -> None:
        self.circuit, self.scale = forest.circuit, scale
        self.ready = {region.name: 0 for region in forest.regions}  # after how many rounds
        self.steps: dict[int, list[RoundStep]] = {}
        self.mixed = _mixed_first(forest.circuit, self.ready)

    def add(self, node: object) -> None:
        if isinstance(node, Product) and node.name not in self.mixed:
            self._multiply(node)
        elif isinstance(node, Sum) and node.children[0] in self.mixed:
            self._mix_left(node)
        elif isinstance(node, Sum):
            self._do(Mix(node.name, node.children, self._turns(node), node.units), *node.children)

    def _do(self, step: RoundStep, *reads: str) -> None:
        at = max(self.ready[name] for name in reads)
        self.steps.setdefault(at, []).append(step)
        self.ready[step.name] = at + 1

    def _multiply(self, node: Product) -> None:
        """A tree; the last product takes the node's name."""
        left, count = list(node.children), 0
        while len(left) > 2:
            left.sort(key=lambda name: self.ready[name])
            name = f"{node.name}*{count}"
            self._do(Multiply(name, left[0], left[1], False), *left[:2])
            left, count = [*left[2:], name], count + 1
        self._do(Multiply(node.name, left[0], left[1], node.outer), *left)

    def _mix_left(self, node: Sum) -> None:
        first, pairs = 0, []
        for child, turn in zip(node.children, self._turns(node), strict=True):
            left, right = self.circuit[child].children
            name = f"{node.name}<{child}"
            width = self.circuit.units[right]
            self._do(MixLeft(name, node.name, left, first, width, turn, node.units), left)
            pairs.append((name, right))
            first += self.circuit.units[child]
        reads = [name for pair in pairs for name in pair]
        self._do(MultiplyRight(node.name, tuple(pairs), node.units), *reads)

    def _turns(self, node: Sum) -> tuple[int, ...]:
        most = max(self.scale[c] for c in node.children)
        return tuple(most - self.scale[c] for c in node.children)


def _mixed_first(circuit: Circuit, regions: Mapping[str, int]) -> set[str]:
    """Outer products that are not made, because a single sum of few units reads them."""
    reads = Counter(child for node in circuit.nodes for child in node.children)
    mixed: set[str] = set()
    for node in circuit.nodes:
        if isinstance(node, Sum) and all(
            isinstance(p, Product)
            and p.outer
            and reads[p.name] == 1
            and node.units <= circuit.units[p.children[0]]
            for p in map(circuit.__getitem__, node.children)
        ):
            mixed.update(node.children)
    return mixed - regions.keys()
