"""A circuit whose parameters nobody sees: its public graph, and what each party holds of it.

The graph is public: a root sum of one unit over sums, products and leaves that are Bernoulli or
categorical. A *region* is a largest part without sums: a leaf, or leaves joined by elementwise
products. In a *flat* forest every child of the root is a region. Secret are

    a leaf              log2 of the probability of every code, (units, variables, codes), over the
                        field with 36 fractional bits; of a Bernoulli leaf log2(1 − p), log2 p
    the root, if flat   log2 of its weights (1, inputs), over the field with 36 fractional bits
    any other sum       its weights (units, inputs), over ``forest.ring(parties)`` with 40

as shares of degree t = ⌊(N − 1)/2⌋. How far a log-value may go down is public and follows from the
numbers of variables and codes alone; owners keep to it before anything is shared:

    region   Σ_v min log2 p_v ≥ −``bound``: 9.5 bits a variable, log2(codes) + 5 if that is more
    weight   log2 w ≥ −16

log and min are concave, so averages of parameters that keep to it do so too. Then values on shares
never vanish and never overflow: a node of the circuit is a whole number below 2^scale, and the root
at least 2^(scale − low) (``Scale``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.nodes import Fuse, Leaf, Node, Product, Sum
from fedcircuits.errors import ParameterError, StructureError
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_prime
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.exponents import FRACTION, MANTISSA
from fedcircuits.privacy.operations.truncation import HIDING
from fedcircuits.privacy.sharing.shares import threshold

FAMILIES = ("bernoulli", "categorical")
VARIABLE_BITS, CODE_BITS = 9.5, 5  # a variable's part of a bound; beyond log2 of its codes
LEAST_WEIGHT = 16  # bits below 1
WEIGHT_FRACTION = 40  # bits of a weight below the point
NOISE = 16  # relative bits of a likelihood that the asker sees undisturbed
SPARE = 40  # empty bits above the largest value: a wrong share most likely sets some


@dataclass(frozen=True, slots=True)
class Region:
    """Leaves of the same units under no sum of their own; ``first`` among all exponents."""

    name: str
    leaves: tuple[str, ...]
    units: int
    bound: int
    first: int


@dataclass(frozen=True, slots=True)
class Secret:
    """What is shared of one node: (*shape, limbs) over the ring, ``log``: log2 of the numbers."""

    shape: tuple[int, ...]
    ring: Ring
    fraction: int
    log: bool


@dataclass(frozen=True, slots=True)
class Forest:
    """The public part: ``Forest(mixture_of_products(schema, 100))``.

    marginals   whether an asker may leave values out. Likelihoods of single variables give their
                parameters away more quickly than those of whole points do, so it is for the
                parties to allow it.
    """

    circuit: Circuit
    marginals: bool = False
    regions: tuple[Region, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.circuit)
        object.__setattr__(self, "regions", _regions(self.circuit))

    @property
    def flat(self) -> bool:
        """Whether the root is the only sum: weights then add to the exponents."""
        names = {region.name for region in self.regions}
        return all(child in names for child in self.circuit.root.children)

    @property
    def exponents(self) -> int:
        """Powers of two that a row takes."""
        return sum(region.units for region in self.regions)

    @property
    def codes(self) -> tuple[int, ...]:
        """Of every variable: what the asker deals of a row are that many zeros and ones each."""
        return tuple(variable.size for variable in self.circuit.schema)

    def scope(self, leaf: str) -> tuple[str, ...]:
        """A leaf's variables, in the order of its parameters."""
        node = self.circuit[leaf]
        assert isinstance(node, Leaf), "regions are made of leaves"
        return node.scope

    def scale(self, members: int) -> Scale:
        return _scale(self, threshold(members))

    def ring(self, members: int) -> Ring:
        """Where values of the circuit live, and weights below or beside others."""
        return self.scale(members).ring

    def secrets(self, members: int) -> dict[str, Secret]:
        """Of every leaf and sum by name, in the order of the circuit."""
        log = (FIELD, FRACTION, True)
        weights = log if self.flat else (self.ring(members), WEIGHT_FRACTION, False)
        found: dict[str, Secret] = {}
        for node in self.circuit.nodes:
            if isinstance(node, Leaf):
                codes = self.circuit.schema[node.scope[0]].size
                found[node.name] = Secret((node.units, len(node.scope), codes), *log)
            elif isinstance(node, Sum):
                found[node.name] = Secret((node.units, self.circuit.inputs(node)), *weights)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """What a party holds of a model: shares (*shape, limbs) by node, as ``Forest.secrets`` says.

    ``run``: a name of the training that no other training of these parties has.
    """

    run: str
    me: str
    members: tuple[str, ...]
    arrays: Mapping[str, Elements] = field(repr=False)

    def check(self, forest: Forest) -> None:
        """ParameterError unless there is a share of everything that is secret."""
        secrets = forest.secrets(len(self.members))
        if self.arrays.keys() != secrets.keys():
            raise ParameterError(
                f"{self.me} holds shares of {len(self.arrays)} nodes, the forest has "
                f"{len(secrets)} leaves and sums: the model is another one"
            )
        for name, secret in secrets.items():
            expected, found = (*secret.shape, secret.ring.limbs), self.arrays[name]
            if found.shape != expected or found.dtype != np.uint64:
                raise ParameterError(
                    f"{self.me} holds {found.dtype} {found.shape} of {name!r}, expected uint64 "
                    f"{expected}: the model is another one, or shared among other parties"
                )


# ---------------------------------------------------------------------- how large numbers get


@dataclass(frozen=True, slots=True)
class Scale:
    """Bits of the numbers on shares, from public figures.

    nodes   by name: values are whole numbers up to 2^nodes[name]
    offset  by region: what is added to exponents, so that none falls below the guard bits
    root    of the root; its least value is 2^(root − low)
    shift   the root is multiplied by 2^shift and noise before the asker sees it
    noise   each contributor's factor of noise is below 2^noise
    """

    nodes: Mapping[str, int]
    offset: Mapping[str, int]
    root: int
    low: int
    contributors: int

    @property
    def undisturbed(self) -> int:
        """Relative bits above every contributor's noise."""
        return NOISE + ceil(log2(self.contributors))

    @property
    def shift(self) -> int:
        return self.low + HIDING + 2 + self.undisturbed

    @property
    def noise(self) -> int:
        return self.shift - self.undisturbed

    @property
    def flood(self) -> int:
        """Bits of what is added to hide whose multiple the result is."""
        return self.root + HIDING

    @property
    def top(self) -> int:
        """No result has more bits."""
        return self.root + self.shift + 1

    @property
    def ring(self) -> Ring:
        return Ring(next_prime(self.top + SPARE))


def _scale(forest: Forest, most: int) -> Scale:
    weight = LEAST_WEIGHT if forest.flat else 0
    low = {r.name: r.bound + weight for r in forest.regions}
    offset = {name: bits + most + 2 for name, bits in low.items()}
    nodes = {name: bits + MANTISSA * (most + 2) for name, bits in offset.items()}
    for node in forest.circuit.nodes:
        if node.name in nodes or not all(child in nodes for child in node.children):
            continue  # a region, or a part of one
        if isinstance(node, Sum):
            more = 0 if forest.flat else WEIGHT_FRACTION
            nodes[node.name] = max(nodes[c] for c in node.children) + more
            low[node.name] = max(low[c] for c in node.children)
        elif node.children:
            nodes[node.name] = sum(nodes[c] for c in node.children)
            low[node.name] = sum(low[c] for c in node.children)
    root = forest.circuit.root.name
    return Scale(nodes, offset, nodes[root], low[root], most + 1)


# ---------------------------------------------------------------------- the public graph


def _check(circuit: Circuit) -> None:
    root = circuit.root
    if not isinstance(root, Sum) or root.units != 1:
        raise StructureError(
            f"the root of a private forest must be a sum of one unit, {root.name!r} is a "
            f"{type(root).__name__.lower()} of {circuit.units[root.name]}: add one above it"
        )
    for node in circuit.nodes:
        if isinstance(node, Fuse) or (isinstance(node, Leaf) and node.family not in FAMILIES):
            what = node.family if isinstance(node, Leaf) else "fuse"
            raise StructureError(
                f"{node.name!r} is of kind {what!r}: a private forest has sums, products and "
                f"leaves of the families {' and '.join(FAMILIES)}; cut numbers into categories"
            )
        if isinstance(node, Sum) and len(set(node.children)) < len(node.children):
            raise StructureError(f"sum {node.name!r} reads a child twice: add up their weights")
        if isinstance(node, Product) and len(node.children) == 1:
            raise StructureError(f"product {node.name!r} has one child: leave the product out")


def _regions(circuit: Circuit) -> tuple[Region, ...]:
    leaves: dict[str, tuple[str, ...]] = {}  # below every node without a sum
    for node in circuit.nodes:
        if isinstance(node, Leaf):
            leaves[node.name] = (node.name,)
        elif _joins(node) and all(child in leaves for child in node.children):
            leaves[node.name] = tuple(leaf for c in node.children for leaf in leaves[c])
    read = {c for node in circuit.nodes if node.name not in leaves for c in node.children}
    found: list[Region] = []
    for name in (node.name for node in circuit.nodes if node.name in leaves):
        if name in read:
            first = found[-1].first + found[-1].units if found else 0
            bound = _bound(circuit, circuit.scopes[name])
            found.append(Region(name, leaves[name], circuit.units[name], bound, first))
    return tuple(found)


def _joins(node: Node) -> bool:
    return isinstance(node, Product) and not node.outer


def _bound(circuit: Circuit, scope: frozenset[str]) -> int:
    return ceil(sum(variable_bits(circuit.schema[name].size) for name in sorted(scope)))


def variable_bits(codes: int) -> float:
    """What a variable of so many codes adds to the bound of its region."""
    return max(VARIABLE_BITS, log2(codes) + CODE_BITS)
