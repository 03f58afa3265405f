"""A circuit above its regions, on shares: exact whole numbers, products by dealing anew.

A node's values have a public scale, so nothing is cut off: products add the bits of their factors,
sums those of their weights, and children of a sum are turned to the same scale. Every product of
shares takes a round in which parties deal theirs anew (products.py); nodes that are ready at the
same time share it.

A sum over outer products that nothing else reads mixes the left factors first and multiplies by
the right ones then, so that (units of the sum × right units) numbers cross and not (left × right):
Σ_j (Σ_i w_kij a_i) b_j. Other products are made, elementwise ones by a tree, before they are mixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.nodes import Product, Sum
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.products import reduced
from fedcircuits.privacy.sharing.group import Group

Values = Mapping[str, Elements]  # (rows, units, limbs) by what they are of
Weights = Mapping[str, Elements]  # (units, inputs, limbs) by sum


class Step(Protocol):
    """Something that takes one round."""

    @property
    def name(self) -> str: ...
    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        """Shares of degree 2t, (rows, units, limbs)."""
        ...


@dataclass(frozen=True, slots=True)
class Multiply:
    name: str
    left: str
    right: str
    outer: bool

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        a, b = values[self.left], values[self.right]
        if not self.outer:
            return ring.multiply(a, b)
        found = ring.multiply(a[:, :, None], b[:, None])
        return found.reshape(len(a), -1, ring.limbs)


@dataclass(frozen=True, slots=True)
class Mix:
    """A sum of values that are there; ``turns``: what brings each child to the same scale."""

    name: str
    children: tuple[str, ...]
    turns: tuple[int, ...]

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        turned = [ring.rotate(values[c], k) for c, k in zip(self.children, self.turns, strict=True)]
        return ring.inner(np.concatenate(turned, axis=1), weights[self.name])


@dataclass(frozen=True, slots=True)
class MixLeft:
    """Σ_i w_kij a_i for one outer product below a sum: (rows, units · right units)."""

    name: str
    above: str
    left: str
    first: int  # of its inputs among those of the sum
    right_units: int
    turn: int

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        a, weight = ring.rotate(values[self.left], self.turn), weights[self.above]
        inputs = slice(self.first, self.first + a.shape[1] * self.right_units)
        own = weight[:, inputs].reshape(len(weight), a.shape[1], self.right_units, ring.limbs)
        by_left = own.swapaxes(1, 2).reshape(-1, a.shape[1], ring.limbs)
        return ring.inner(a, by_left)


@dataclass(frozen=True, slots=True)
class MultiplyRight:
    """Σ_j u_kj b_j, over all outer products below a sum."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    units: int

    def products(self, ring: Ring, values: Values, weights: Weights) -> Elements:
        terms = []
        for mixed, right in self.pairs:
            u, b = values[mixed], values[right]
            shape = (len(u), self.units, b.shape[1], ring.limbs)
            each = ring.multiply(u.reshape(shape), b[:, None])  # (rows, units, right units, limbs)
            terms.append(np.moveaxis(each, 2, 0))
        return ring.sum(np.concatenate(terms))


Rounds = tuple[tuple[Step, ...], ...]


def rounds_of(forest: Forest, members: int) -> Rounds:
    """What is done in each round, from the regions to the root."""
    plan = _Plan(forest, forest.scale(members).nodes)
    for node in forest.circuit.nodes:
        if node.name not in plan.ready and all(c in plan.known for c in node.children):
            plan.add(node)
    return tuple(tuple(plan.steps[k]) for k in sorted(plan.steps))


class _Plan:
    def __init__(self, forest: Forest, scale: Mapping[str, int]) -> None:
        self.circuit, self.scale = forest.circuit, scale
        self.ready = {region.name: 0 for region in forest.regions}  # after how many rounds
        self.steps: dict[int, list[Step]] = {}
        self.mixed = _mixed_first(forest.circuit, self.ready)

    @property
    def known(self) -> set[str]:
        return self.ready.keys() | self.mixed

    def add(self, node: object) -> None:
        if isinstance(node, Product) and node.name not in self.mixed:
            self._product(node)
        elif isinstance(node, Sum) and node.children[0] in self.mixed:
            self._mix_left(node)
        elif isinstance(node, Sum):
            children, turns = node.children, self._turns(node)
            self._do(Mix(node.name, children, turns), *children)

    def _do(self, step: Step, *reads: str) -> None:
        at = max(self.ready[name] for name in reads)
        self.steps.setdefault(at, []).append(step)
        self.ready[step.name] = at + 1

    def _product(self, node: Product) -> None:
        """A tree; the last factor takes the product's name."""
        left, made = list(node.children), 0
        while len(left) > 2:
            left.sort(key=lambda name: self.ready[name])
            name = f"{node.name}*{made}"
            self._do(Multiply(name, left[0], left[1], False), *left[:2])
            left, made = [*left[2:], name], made + 1
        self._do(Multiply(node.name, left[0], left[1], node.outer), *left)

    def _mix_left(self, node: Sum) -> None:
        first, pairs = 0, []
        for child, turn in zip(node.children, self._turns(node), strict=True):
            left, right = self.circuit[child].children
            name = f"{node.name}<{child}"
            width = self.circuit.units[right]
            self._do(MixLeft(name, node.name, left, first, width, turn), left)
            pairs.append((name, right))
            first += self.circuit.units[child]
        reads = [name for pair in pairs for name in pair]
        self._do(MultiplyRight(node.name, tuple(pairs), node.units), *reads)

    def _turns(self, node: Sum) -> tuple[int, ...]:
        most = max(self.scale[c] for c in node.children)
        return tuple(most - self.scale[c] for c in node.children)


def _mixed_first(circuit: Circuit, regions: Mapping[str, int]) -> set[str]:
    """Outer products that are not made, as one sum alone reads them and has few units."""
    read = Counter(child for node in circuit.nodes for child in node.children)
    found: set[str] = set()
    for node in circuit.nodes:
        if not isinstance(node, Sum):
            continue
        below = [circuit[c] for c in node.children]
        if all(
            isinstance(p, Product)
            and p.outer
            and read[p.name] == 1
            and node.units <= circuit.units[p.children[0]]
            for p in below
        ):
            found.update(node.children)
    return found - regions.keys()


def root_value(
    group: Group, tag: str, rounds: Rounds, regions: Values, weights: Weights
) -> Flow[Elements]:
    """Shares of the root (rows, limbs), of degree t; ``group`` is over the forest's ring."""
    values, ring = dict(regions), group.ring
    for k, steps in enumerate(rounds):
        made = [step.products(ring, values, weights) for step in steps]
        flat = np.concatenate([m.reshape(-1, ring.limbs) for m in made])
        done = yield from reduced(group, f"{tag}/{k}", flat)
        ends = np.cumsum([m.size // ring.limbs for m in made])[:-1]
        for step, own, shares in zip(steps, made, np.split(done, ends), strict=True):
            values[step.name] = shares.reshape(own.shape)
    found: Elements = values[rounds[-1][-1].name][:, 0]
    return found
