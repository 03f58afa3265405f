"""Cross entropy and Kullback–Leibler divergence of two circuits over the same variables.

    H(p, q) = −E_p[log q],        KL(p ‖ q) = H(p, q) − H(p)

log q of a sum is a sum of logarithms only where one input is positive: q must be deterministic.
Then for every unit n of p and m of q over the same variables,

    S(n, m) = mass of n where m is positive         T(n, m) = E_n[log m] over that part
    sum in p      both are means of those of its inputs
    sum in q      S = Σ S_i,  T = Σ log θ_i · S_i + T_i       over the inputs i with weight
    products      S = Π S_i,  T = Σ T_i · Π of the other S    over parts of the same variables
    leaves        information.py

which requires that both circuits decompose variables in compatible ways (Vergari et al., 2021).
H(p) also needs a deterministic p (information.py). Anything else is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays, Family, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.graph.properties import is_deterministic
from fedcircuits.circuits.questions.information import Expected, entropy_bounds, expected_log
from fedcircuits.errors import QueryError

Learned = tuple[Circuit, Parameters]
Units = tuple[int, ...]
Part = tuple[
    str, str, Units
]  # node; the variable of a leaf's slice or ""; unit of it for each unit
Factors = tuple[Part, ...]  # an elementwise product
MISSING = 1e-9  # mass of p outside of q beyond rounding


def cross_entropy(p: Learned, q: Learned) -> float:
    """−E_p[log q], infinite where p has mass that q has not; QueryError where it is intractable."""
    p, q = inline(*p), inline(*q)
    if p[0].schema != q[0].schema:
        raise QueryError("both models must have the same columns, of the same kinds and categories")
    if not is_deterministic(*q):
        raise QueryError(
            "the cross entropy is exact only where the second model is deterministic, as a "
            "Chow–Liu tree is: a mixture's logarithm is no sum. Average score_samples over drawn "
            "rows instead, -other.score(model.sample(10_000))"
        )
    mass, logs = _Pairs(p, q).of(((p[0].root.name, "", (0,)),), ((q[0].root.name, "", (0,)),))
    return float("inf") if mass[0, 0] < 1 - MISSING else -float(logs[0, 0])


def divergence(p: Learned, q: Learned) -> float:
    """KL(p ‖ q) in nats."""
    least, most = entropy_bounds(*p)
    if most - least > 0 and not is_deterministic(*inline(*p)):
        raise QueryError(
            "the divergence is exact only where both models are deterministic, as Chow–Liu trees "
            "are: of a mixture the entropy is known within bounds alone, entropy_bounds()"
        )
    return cross_entropy(p, q) - most


class _Pairs:
    """S and T of pairs of nodes; p and q are sides 0 and 1."""

    def __init__(self, p: Learned, q: Learned) -> None:
        self.sides = (p, q)
        self.known: dict[tuple[Factors, Factors], Expected] = {}

    def of(self, n: Factors, m: Factors) -> Expected:
        if (n, m) not in self.known:
            self.known[n, m] = self._pair(n, m)
        return self.known[n, m]

    def _pair(self, n: Factors, m: Factors) -> Expected:
        for side, factors in enumerate((n, m)):
            if len(factors) == 1 and isinstance(self._node(side, factors[0]), Sum):
                return self._sum(side, factors[0], n, m)
        parts, other = list(self._expanded(0, n)), list(self._expanded(1, m))
        if len(parts) == len(other) == 1:
            return self._leaves(parts[0], other[0])
        groups = list(self._groups(parts, other))
        for mine, theirs in groups:
            if (mine, theirs) == (n, m) or min(len(mine), len(theirs)) > 1:
                raise self._incompatible(mine)
        return _product([self.of(mine, theirs) for mine, theirs in groups])

    # ------------------------------------------------------------------ sums

    def _sum(self, side: int, part: Part, n: Factors, m: Factors) -> Expected:
        circuit, parameters = self.sides[side]
        node = circuit[part[0]]
        children: list[Factors] = [
            ((c, "", tuple(range(circuit.units[c]))),) for c in node.children
        ]
        weight = parameters[node.name][WEIGHT][list(part[2])]
        answers = [self.of(c, m) if side == 0 else self.of(n, c) for c in children]
        mass, logs = (np.concatenate(parts, axis=side) for parts in zip(*answers, strict=True))
        if side == 0:
            return weight @ mass, weight @ logs
        positive = (weight > 0).astype(np.float64)
        by_weight = np.log(np.where(weight > 0, weight, 1.0))
        return mass @ positive.T, logs @ positive.T + mass @ by_weight.T

    # ------------------------------------------------------------------ products

    def _node(self, side: int, part: Part) -> object:
        return self.sides[side][0][part[0]]

    def _expanded(self, side: int, factors: Factors) -> Iterator[Part]:
        """The factors without products: sums, and leaves of one variable."""
        circuit = self.sides[side][0]
        for name, variable, units in factors:
            node = circuit[name]
            if isinstance(node, Product):
                yield from self._expanded(side, _children(node, units, circuit))
            elif (
                isinstance(node, Leaf) and not variable and isinstance(family(node.family), Family)
            ):
                yield from ((name, v, units) for v in node.scope)
            else:
                yield name, variable, units

    def _scope(self, side: int, part: Part) -> frozenset[str]:
        return frozenset({part[1]}) if part[1] else self.sides[side][0].scopes[part[0]]

    def _groups(self, first: list[Part], other: list[Part]) -> Iterator[tuple[Factors, Factors]]:
        """The finest parts of both sides that are over the same variables."""
        parts = [(0, p, self._scope(0, p)) for p in first] + [
            (1, p, self._scope(1, p)) for p in other
        ]
        while parts:
            group, scope = [parts[0]], parts[0][2]
            while more := [p for p in parts if p not in group and p[2] & scope]:
                group += more
                scope = scope.union(*(p[2] for p in more))
            parts = [p for p in parts if p not in group]
            mine = tuple(p for side, p, _ in group if side == 0)
            yield mine, tuple(p for side, p, _ in group if side == 1)

    def _incompatible(self, mine: Factors) -> QueryError:
        names = sorted(set().union(*(self._scope(0, part) for part in mine)))
        listed = ", ".join(repr(n) for n in names[:5])
        return QueryError(
            f"the two circuits take {listed}{' …' if len(names) > 5 else ''} apart in different "
            "ways: an exact comparison needs compatible structures, such as one graph learned twice"
        )

    # ------------------------------------------------------------------ leaves

    def _leaves(self, first: Part, other: Part) -> Expected:
        (p, mine), (q, theirs) = (
            self._slice(side, part) for side, part in enumerate((first, other))
        )
        variable = self.sides[0][0].schema[first[1]]
        return expected_log(p, mine, q, theirs, variable)

    def _slice(self, side: int, part: Part) -> tuple[Family, Arrays]:
        circuit, parameters = self.sides[side]
        name, variable, units = part
        node = circuit[name]
        assert isinstance(node, Leaf)
        rule = family(node.family)
        if not isinstance(rule, Family):
            raise QueryError(
                f"leaf {name!r} ({rule.name}) is over several columns at once: an exact comparison "
                "needs leaves of one column each"
            )
        at = node.scope.index(variable)
        return rule, {n: a[list(units), at] for n, a in parameters[name].items()}


def _children(node: Product, units: Units, circuit: Circuit) -> Factors:
    if not node.outer:
        return tuple((c, "", units) for c in node.children)
    left, right = node.children
    width = circuit.units[right]
    return (left, "", tuple(u // width for u in units)), (
        right,
        "",
        tuple(u % width for u in units),
    )


def _product(parts: list[Expected]) -> Expected:
    def joined(a: Expected, b: Expected) -> Expected:
        mass: Array = a[0] * b[0]
        return mass, a[1] * b[0] + a[0] * b[1]

    return reduce(joined, parts)
