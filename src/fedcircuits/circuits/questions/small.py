"""One question at a time to a small circuit, node by node in numpy: torch need not be imported.

A single question on the command line takes milliseconds, importing what evaluates millions of rows
takes seconds. Observed codes and counts are regions, too, so leaves return the mass of a region, or
the density of an observed real:

    upward    log P(regions) of every unit; a node without a restricted variable has log 1
    downward  posterior of every unit, for means and variances

Everything else, such as many rows, samples or densities of families without a numpy version, goes
to ``Distribution``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays, Family, JointFamily, Region, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.graph.properties import is_deterministic
from fedcircuits.circuits.questions.queryable import Queryable, Regions, around, askable
from fedcircuits.circuits.questions.regions import EVERYTHING, Event, of_codes

if TYPE_CHECKING:
    from fedcircuits.circuits.questions.distribution import Distribution

NODES = 20_000  # of a circuit that is walked
CODES = 50  # of a posterior, which walks once for each

Values = dict[str, Array]  # (units,) by node
Box = Mapping[str, Region | float]  # by variable where it falls, or what it is


class SmallDistribution(Queryable):
    """``SmallDistribution(circuit, parameters)`` answers as ``Distribution`` does."""

    def __init__(self, circuit: Circuit, parameters: Parameters) -> None:
        self.circuit, self.parameters = askable(circuit, parameters)

    @cached_property
    def large(self) -> Distribution:
        from fedcircuits.circuits.questions.distribution import Distribution

        return Distribution(self.circuit, self.parameters)

    @property
    def deterministic(self) -> bool:
        return is_deterministic(self.circuit, self.parameters)

    # ------------------------------------------------------------------ answers

    def log_values_within(self, x: Array, regions: Regions) -> Array:
        box = self._box(x, regions)
        if box is None:
            return self.large.log_values_within(x, regions)
        return upward(self.circuit, self.parameters, box)[self.circuit.root.name]

    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        box = self._box(x, regions)
        if box is None:
            return self.large.moments_within(x, regions, at, region)
        name = self.circuit.schema.names[at]
        values = upward(self.circuit, self.parameters, box)
        shares = downward(self.circuit, self.parameters, values, name)
        rough, _ = self._moments(shares, name, box, region, 0.0)
        one, two = self._moments(shares, name, box, region, rough if np.isfinite(rough) else 0.0)
        return np.array([one]), np.array([two])

    def _moments(
        self, shares: Values, name: str, box: Box, region: Region, centre: float
    ) -> tuple[float, float]:
        """Mean and variance, by moments about a centre: near the mean, squares do not cancel."""
        total = np.zeros(2)
        for leaf in self.circuit.leaves():
            if leaf.name in shares and name in leaf.scope:
                moments = _leaf_moments(leaf, self.parameters[leaf.name], name, box, region, centre)
                total += np.where(shares[leaf.name] > 0, shares[leaf.name] * moments, 0.0).sum(1)
        return float(total[0] + centre), float(np.maximum(total[1] - total[0] ** 2, 0.0))

    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        return self.large.completed_within(x, regions, rng)

    def posterior(self, x: Array, variable: str, given: Event = EVERYTHING) -> Array:
        if self.circuit.schema[variable].size > CODES:
            return self.large.posterior(x, variable, given)
        return super().posterior(x, variable, given)

    def _box(self, x: Array, regions: Regions) -> Box | None:
        """One row as regions and numbers by name, or None where that is not all there is to it."""
        if len(x) != 1 or len(self.circuit.nodes) > NODES:
            return None
        schema, places = self.circuit.schema, dict[int, Region | float](regions)
        for at in np.flatnonzero(~np.isnan(x[0])).tolist():
            value = float(x[0, at])
            if schema.variables[at].discrete and value == np.floor(value):
                places[at] = of_codes([int(value)])
            elif schema.variables[at].discrete or at in places:
                return None
            else:
                places[at] = value
        box = {schema.names[at]: where for at, where in places.items()}
        return box if self._tells({n for n, w in box.items() if isinstance(w, float)}) else None

    def _tells(self, names: set[str]) -> bool:
        """Whether all leaves over these reals have densities in numpy."""
        over = (leaf for leaf in self.circuit.leaves() if not names.isdisjoint(leaf.scope))
        return all(_in_numpy(type(family(name))) for name in {leaf.family for leaf in over})


# ---------------------------------------------------------------------- the two passes


def upward(circuit: Circuit, parameters: Parameters, box: Box) -> Values:
    """log P(box) of every unit of every node."""
    values: Values = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for node in circuit.nodes:
            if circuit.scopes[node.name].isdisjoint(box):
                values[node.name] = np.zeros(circuit.units[node.name])
            elif isinstance(node, Leaf):
                values[node.name] = _leaf(node, parameters[node.name], box)
            else:
                values[node.name] = _inner(node, parameters, [values[c] for c in node.children])
    return values


def _leaf(leaf: Leaf, arrays: Arrays, box: Box) -> Array:
    rule = family(leaf.family)
    known, inside = _parted(leaf, box)
    if isinstance(rule, JointFamily):
        if not known:
            return rule.log_mass(arrays, inside, len(leaf.scope))
        return _had(rule.log_density_at(known, arrays, inside))
    total = np.zeros(leaf.units)
    for i, region in inside.items():
        arrays_of_unit = {n: a[:, i] for n, a in arrays.items()}
        total += np.log(sum(rule.mass(arrays_of_unit, *interval) for interval in region))
    for i, value in known.items():
        total += _had(rule.log_density_at(value, {n: a[:, i] for n, a in arrays.items()}))
    return total


def _parted(leaf: Leaf, box: Box) -> tuple[dict[int, float], dict[int, Region]]:
    """By the number of its variable: exact values, and regions."""
    known: dict[int, float] = {}
    inside: dict[int, Region] = {}
    for i, name in enumerate(leaf.scope):
        where = box.get(name)
        if isinstance(where, float):
            known[i] = where
        elif where is not None:
            inside[i] = where
    return known, inside


def _in_numpy(rule: type[Family | JointFamily]) -> bool:
    """Whether a family has its density in numpy; not if a subclass has overridden it."""
    for kind in rule.__mro__:
        if "log_density_at" in vars(kind):
            return kind not in (Family, JointFamily)
        if "log_density" in vars(kind):
            return False
    return False


def _had(log: Array | None) -> Array:
    assert log is not None  # other leaves are not evaluated here
    return log


def _inner(node: Node, parameters: Parameters, children: list[Array]) -> Array:
    if isinstance(node, Sum):
        return _log_sum(parameters[node.name][WEIGHT], np.concatenate(children))
    if isinstance(node, Product) and node.outer:
        return np.add.outer(children[0], children[1]).ravel()
    return np.asarray(np.sum(children, axis=0))


def _log_sum(weight: Array, logs: Array) -> Array:
    """log Σ weight · exp(logs), (units,); what has no weight does not set the scale."""
    joint = np.log(weight) + logs
    top = joint.max(axis=1)
    top = np.where(np.isneginf(top), 0.0, top)
    return np.asarray(np.log(np.exp(joint - top[:, None]).sum(axis=1)) + top)


def downward(circuit: Circuit, parameters: Parameters, values: Values, name: str) -> Values:
    """Posterior of every unit above and at the leaves of one variable."""
    shares: Values = {circuit.root.name: np.ones(1)}
    with np.errstate(divide="ignore", invalid="ignore"):
        for node in reversed(circuit.nodes):
            share = shares.get(node.name)
            if share is None or isinstance(node, Leaf):
                continue
            handed = _handed(node, parameters, values, share)
            for child, part in zip(node.children, handed, strict=True):
                if name in circuit.scopes[child]:
                    shares[child] = shares[child] + part if child in shares else part
    return shares


def _handed(node: Node, parameters: Parameters, values: Values, share: Array) -> list[Array]:
    """What a node's posterior gives each of its children."""
    if isinstance(node, Sum):
        children = [values[c] for c in node.children]
        logs = np.log(parameters[node.name][WEIGHT]) + np.concatenate(children)
        parts = np.where(
            share[:, None] > 0, share[:, None] * np.exp(logs - values[node.name][:, None]), 0
        )
        return np.split(parts.sum(axis=0), np.cumsum([len(c) for c in children])[:-1])
    if isinstance(node, Product) and node.outer:
        square = share.reshape(len(values[node.children[0]]), -1)
        return [square.sum(axis=1), square.sum(axis=0)]
    return [share] * len(node.children)


def _leaf_moments(
    leaf: Leaf,
    arrays: Arrays,
    name: str,
    box: Box,
    region: Region,
    centre: float,
) -> Array:
    """E[x − centre] and E[(x − centre)²] of every unit, (2, units), inside the box."""
    rule, at = family(leaf.family), leaf.scope.index(name)
    if isinstance(rule, JointFamily):
        known, inside = _parted(leaf, box)
        row = np.full((1, len(leaf.scope)), np.nan)
        row[0, list(known)] = list(known.values())
        moments = rule.moments(row, arrays, inside)
        one, two = (m[:, 0, at] for m in moments)
        return np.stack([one - centre, two - 2 * centre * one + centre**2])
    mass, one, two = around(centre, rule, {n: a[:, at] for n, a in arrays.items()}, region)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mass > 0, np.stack([one, two]) / mass, 0.0)
