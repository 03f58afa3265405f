"""A circuit with secret parameters: its public graph, and what each party holds of it.

The graph is public: a root sum of one unit over sums, products and leaves that are Bernoulli or
categorical. A *region* is a largest part without sums: a leaf, or leaves joined by elementwise
products. In a *flat* forest every child of the root is a region. Secret are

    a leaf              log2 of the probability of every code, (units, variables, codes), over the
                        field with 36 fractional bits; of a Bernoulli leaf log2(1 − p), log2 p
    the root, if flat   log2 of its weights (1, inputs), over the field with 36 fractional bits
    any other sum       its weights (units, inputs), over ``forest.ring(parties)`` with 40

as shares of degree t = ⌊(N − 1)/2⌋. The smallest value is public and follows from the numbers of
variables and codes; owners enforce it before anything is shared (``bounded``):

    region   Σ_v min log2 p_v ≥ −``bound``: 9.5 bits per variable, log2(codes) + 5 if that is more
    weight   log2 w ≥ −16

log and min are concave, so averages of parameters within the bounds are within them, too. Values on
shares therefore never vanish and never overflow: the value of a node is a whole number below
2^scale, and the root is at least 2^(scale − low) (``ValueScale``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, log2
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Fuse, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.leaves.bernoulli import LEAST
from fedcircuits.errors import ParameterError, StructureError
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.powers import FRACTION, MANTISSA
from fedcircuits.privacy.operations.products import HIDING
from fedcircuits.privacy.sharing.dealing import pair_places
from fedcircuits.privacy.sharing.shares import threshold

FAMILIES = ("bernoulli", "categorical")
PROBABILITY = "probability"  # the parameter of both families
VARIABLE_BITS, CODE_BITS = 9.5, 5  # a variable's part of a bound; beyond log2 of its codes
LEAST_WEIGHT = 16  # bits below 1
WEIGHT_FRACTION = 40  # bits of a weight below the point
NOISE = 16  # relative bits of a likelihood that the asker sees undisturbed
SPARE = 40  # empty bits above the largest value: a wrong share most likely sets some
HALVINGS = 60  # of the interval in which the smoothing is sought
SLACK = 1e-6  # bits: rounding of parameters that lie at a bound


@dataclass(frozen=True, slots=True)
class ForestRegion:
    """Leaves of the same units with no sum between them; ``first`` among all exponents."""

    name: str
    leaves: tuple[str, ...]
    variables: tuple[str, ...]  # of all leaves, in the order of their parameters
    units: int
    bound: int
    first: int


@dataclass(frozen=True, slots=True)
class ShareLayout:
    """How one node is shared: (*shape, limbs) over the ring; ``log``: log2 of the numbers."""

    shape: tuple[int, ...]
    ring: Ring
    fraction: int
    log: bool


@dataclass(frozen=True, slots=True)
class Forest:
    """The public part: ``Forest(mixture_of_products(schema, 100))``.

    Parameters
    ----------
    circuit : Circuit
        A root sum of one unit over sums, products, Bernoulli and categorical leaves.
    marginals : bool, default=False
        Whether an asker may leave values out. Likelihoods of single variables give parameters
        away more quickly than those of complete points do, so the parties must allow it.
    """

    circuit: Circuit
    marginals: bool = False
    regions: tuple[ForestRegion, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_graph(self.circuit)
        object.__setattr__(self, "regions", _regions(self.circuit))

    @property
    def flat(self) -> bool:
        """Whether the root is the only sum: its weights are then added to the exponents."""
        names = {region.name for region in self.regions}
        return all(child in names for child in self.circuit.root.children)

    @property
    def exponents(self) -> int:
        """How many powers of two are taken per row."""
        return sum(region.units for region in self.regions)

    @property
    def codes(self) -> tuple[int, ...]:
        """Codes of every variable: the asker deals that many zeros and ones for it per row."""
        return tuple(variable.size for variable in self.circuit.schema)

    def scale(self, members: int) -> ValueScale:
        threshold(members)
        return _scale(self, len(pair_places(members)))

    def ring(self, members: int) -> Ring:
        """Where values of the circuit live, and the weights of deeper forests."""
        return self.scale(members).ring

    def layouts(self, members: int) -> dict[str, ShareLayout]:
        """For every leaf and sum by name, in the order of the circuit."""
        log = (FIELD, FRACTION, True)
        weights = log if self.flat else (self.ring(members), WEIGHT_FRACTION, False)
        layouts: dict[str, ShareLayout] = {}
        for node in self.circuit.nodes:
            if isinstance(node, Leaf):
                codes = self.circuit.schema[node.scope[0]].size
                layouts[node.name] = ShareLayout((node.units, len(node.scope), codes), *log)
            elif isinstance(node, Sum):
                layouts[node.name] = ShareLayout((node.units, self.circuit.inputs(node)), *weights)
        return layouts


@dataclass(frozen=True, slots=True, eq=False)
class ModelShares:
    """What a party holds of a model: shares (*shape, limbs) by node, as ``Forest.layouts`` says.

    ``run``: a name of the training that no other training of these parties has.
    """

    run: str
    me: str
    members: tuple[str, ...]
    arrays: Mapping[str, Elements] = field(repr=False)

    def check(self, forest: Forest) -> None:
        """ParameterError unless there is a share of every parameter."""
        layouts = forest.layouts(len(self.members))
        if self.arrays.keys() != layouts.keys():
            raise ParameterError(
                f"{self.me} holds shares of {len(self.arrays)} nodes, the forest has "
                f"{len(layouts)} leaves and sums: it is a different model"
            )
        for name, layout in layouts.items():
            expected, shares = (*layout.shape, layout.ring.limbs), self.arrays[name]
            if shares.shape != expected or shares.dtype != np.uint64:
                raise ParameterError(
                    f"{self.me} holds {shares.dtype} {shares.shape} of {name!r}, expected uint64 "
                    f"{expected}: it is a different model, or shared among different parties"
                )


@dataclass(frozen=True, slots=True, eq=False)
class ForestView:
    """What a party keeps: the public graph and its shares, and whether they may be opened."""

    whole: ClassVar[bool] = True  # shares are used with the graph that was agreed on alone

    forest: Forest
    shares: ModelShares
    allow_collect: bool = False

    @property
    def me(self) -> str:
        return self.shares.me


# ---------------------------------------------------------------------- how large numbers get


@dataclass(frozen=True, slots=True)
class ValueScale:
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
    contributors: int  # pairs of parties that make masks

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
        """Bits of the number added to hide of what the result is a multiple."""
        return self.root + HIDING

    @property
    def top(self) -> int:
        """No result has more bits."""
        return self.root + self.shift + 1

    @property
    def ring(self) -> Ring:
        return next_ring(self.top + SPARE)


def _scale(forest: Forest, contributors: int) -> ValueScale:
    weight = LEAST_WEIGHT if forest.flat else 0
    low = {r.name: r.bound + weight for r in forest.regions}
    offset = {name: bits + contributors + 1 for name, bits in low.items()}
    nodes = {name: bits + MANTISSA * (contributors + 1) for name, bits in offset.items()}
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
    return ValueScale(nodes, offset, nodes[root], low[root], contributors)


# ---------------------------------------------------------------------- the public graph


def _check_graph(circuit: Circuit) -> None:
    root = circuit.root
    if not isinstance(root, Sum) or root.units != 1:
        raise StructureError(
            f"the root of a private forest must be a sum of one unit, {root.name!r} is a "
            f"{type(root).__name__.lower()} of {circuit.units[root.name]}: add one above it"
        )
    for node in circuit.nodes:
        if isinstance(node, Fuse) or (isinstance(node, Leaf) and node.family not in FAMILIES):
            kind = node.family if isinstance(node, Leaf) else "fuse"
            raise StructureError(
                f"{node.name!r} is of kind {kind!r}: a private forest has sums, products and "
                f"leaves of the families {' and '.join(FAMILIES)}; bin numbers into categories"
            )
        if isinstance(node, Sum) and len(set(node.children)) < len(node.children):
            raise StructureError(f"sum {node.name!r} reads a child twice: add up their weights")
        if isinstance(node, Product) and len(node.children) == 1:
            raise StructureError(f"product {node.name!r} has one child: leave the product out")


def _regions(circuit: Circuit) -> tuple[ForestRegion, ...]:
    leaves: dict[str, tuple[Leaf, ...]] = {}  # below every node without a sum
    for node in circuit.nodes:
        if isinstance(node, Leaf):
            leaves[node.name] = (node,)
        elif isinstance(node, Product) and not node.outer and leaves.keys() >= set(node.children):
            leaves[node.name] = tuple(leaf for c in node.children for leaf in leaves[c])
    read = {c for node in circuit.nodes if node.name not in leaves for c in node.children}
    regions: list[ForestRegion] = []
    for name in (node.name for node in circuit.nodes if node.name in leaves and node.name in read):
        first = regions[-1].first + regions[-1].units if regions else 0
        names = tuple(leaf.name for leaf in leaves[name])
        variables = tuple(v for leaf in leaves[name] for v in leaf.scope)
        bound = ceil(sum(variable_bits(circuit.schema[v].size) for v in sorted(variables)))
        units = circuit.units[name]
        regions.append(ForestRegion(name, names, variables, units, bound, first))
    return tuple(regions)


def variable_bits(codes: int) -> float:
    """How many bits a variable with this many codes adds to the bound of its region."""
    return max(VARIABLE_BITS, log2(codes) + CODE_BITS)


# ---------------------------------------------------------------------- bounds of parameters


def bounded(forest: Forest, parameters: Parameters, least: float = 0.0) -> Parameters:
    """The nearest parameters that keep to the bounds: distributions mixed with uniform ones.

    They are changed as little as needed, and not at all where they keep to the bounds. ``least``:
    of every probability of a leaf, for ``logs_of``. Nodes without parameters are left out.
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
            tables[node.name] = _raised(probabilities(node, parameters), least)
    for region in forest.regions:
        if region.leaves[0] in tables:
            _smooth(region, tables)
    for name, table in tables.items():
        values[name] = as_leaf(forest.circuit[name], table)
    return Parameters(values)


def probabilities(leaf: Leaf, parameters: Parameters) -> Array:
    """Probabilities of a leaf's codes, (units, variables, codes)."""
    stored = parameters[leaf.name][PROBABILITY]
    if leaf.family != "bernoulli":
        return stored
    one = np.clip(stored, LEAST, 1 - LEAST)
    return np.stack([1 - one, one], -1)


def as_leaf(leaf: object, table: Array) -> Arrays:
    """A leaf's parameters, from the probabilities of its codes."""
    bernoulli = isinstance(leaf, Leaf) and leaf.family == "bernoulli"
    return {PROBABILITY: table[..., 1] if bernoulli else table}


def _raised(p: Array, least: float) -> Array:
    """Every distribution (last axis) mixed with the uniform one until no number is below least."""
    even, lowest = 1 / p.shape[-1], p.min(-1, keepdims=True)
    if least > even:
        raise ParameterError(
            f"{p.shape[-1]} numbers that add up to 1 cannot all be at least {least:.3g}: use "
            "fewer categories or components"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(lowest < least, (least - lowest) / (even - lowest), 0.0)
    return np.asarray((1 - part) * p + part * even)


def _smooth(region: ForestRegion, tables: dict[str, Array]) -> None:
    """In each unit beyond the bound, all leaves are mixed with uniform ones by the same part."""
    leaves = [tables[name] for name in region.leaves]
    low, high = np.zeros(region.units), np.ones(region.units)
    far = _depth(leaves, low) > region.bound
    if not far.any():
        return
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = _depth(leaves, middle) > region.bound
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    for name, p in zip(region.leaves, leaves, strict=True):
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
    for node in forest.circuit.nodes:
        if isinstance(node, Sum) and node.name in parameters:
            lowest = parameters[node.name][WEIGHT].min()
            if not lowest >= 2.0 ** -(LEAST_WEIGHT + SLACK):
                raise _beyond(f"a weight of {node.name!r}", LEAST_WEIGHT)
    leaves = {leaf.name: leaf for leaf in forest.circuit.leaves() if leaf.name in parameters}
    for region in forest.regions:
        known = [leaves[name] for name in region.leaves if name in leaves]
        depth = _depth([probabilities(leaf, parameters) for leaf in known], np.zeros(region.units))
        if not (depth <= region.bound + SLACK).all():
            raise _beyond(f"the least likelihood of {region.name!r}", region.bound)


def _beyond(what: str, bits: int) -> ParameterError:
    return ParameterError(
        f"{what} is below 2^−{bits}, which shares cannot represent: smooth the parameters with "
        "bounded(forest, parameters)"
    )
