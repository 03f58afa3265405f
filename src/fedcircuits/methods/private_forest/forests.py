"""Forests of random structures: what parties that never see each other's rows can have alike.

A structure is a mixture of ``repetitions · units`` products (depth 0) or a random binary one
(RAT, circuits/structures.py). A forest lays structures side by side under one root: the root of
each is folded into it, its weights times that of the structure. Structures and where EM begins
follow from a public seed, so component j of one party is component j of another.

usage      how often a draw from the circuit passes through each unit. Where the weights are
           normalised counts, as after every step of EM on a tree, it is the expected count a row.
weighting  of structures by the likelihood of rows that were held back: "rank" (1 for the worst),
           "uniform", "loglik" 1/|LL|, "loglik2" 1/LL²
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, random_weights, renamed
from fedcircuits.circuits.graph.structures import by_kind, mixture_of_products, random_binary
from fedcircuits.errors import StructureError
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule, maximise_likelihood, mean_log_likelihood
from fedcircuits.leaves.bernoulli import Bernoulli
from fedcircuits.leaves.categorical import Categorical
from fedcircuits.tables.schema import Schema, Variable

LeafChoice = Literal["auto", "categorical"]
Weighting = Literal["rank", "uniform", "loglik", "loglik2"]
WEIGHTINGS = get_args(Weighting)
PROBABILITY = "probability"
RULES = {"bernoulli": Bernoulli(0.1), "categorical": Categorical(0.1)}  # pseudo-counts of a code
ROOT = "root"


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the structures of a forest: ``Shape(structures=3, units=33)`` has 99 weights."""

    structures: int = 3
    depth: int = 0
    repetitions: int = 1
    units: int = 33
    leaf: LeafChoice = "auto"

    def __post_init__(self) -> None:
        for name, least in (("structures", 1), ("depth", 0), ("repetitions", 1), ("units", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise StructureError(f"{name} must be a whole number from {least}, got {value!r}")
        if self.leaf not in get_args(LeafChoice):
            raise StructureError(f"leaf must be 'auto' or 'categorical', got {self.leaf!r}")

    def divided(self, schema: Schema, parties: int) -> Shape:
        """One structure for each party, with as many weights together as these have at most."""
        one, budget = replace(self, structures=1), self.structures * _weights(self, schema)
        if not self.depth:
            units = budget // (parties * self.repetitions)
        else:
            units = 1
            while parties * _weights(replace(one, units=units + 1), schema) <= budget:
                units += 1
        if not units or parties * _weights(replace(one, units=units), schema) > budget:
            raise StructureError(
                f"{budget} weights cannot be divided between {parties} parties: take more units or "
                "structures, or fewer repetitions"
            )
        return replace(one, units=units)


def _weights(shape: Shape, schema: Schema) -> int:
    return sum_weights(structure(schema, shape, np.random.default_rng(0)))


def structure(schema: Schema, shape: Shape, rng: np.random.Generator) -> Circuit:
    """One of them."""
    rule = _categorical if shape.leaf == "categorical" else by_kind
    if shape.depth == 0:
        return mixture_of_products(schema, shape.repetitions * shape.units, leaf_family=rule)
    return random_binary(
        schema,
        depth=shape.depth,
        repetitions=shape.repetitions,
        units=shape.units,
        rng=rng,
        leaf_family=rule,
    )


def _categorical(variable: Variable) -> str:
    return "categorical" if variable.size else by_kind(variable)


def sum_weights(circuit: Circuit) -> int:
    """How many weights the sums have."""
    return sum(n.units * circuit.inputs(n) for n in circuit.nodes if isinstance(n, Sum))


def random_start(circuit: Circuit, rng: np.random.Generator) -> Parameters:
    """Where EM begins, without having seen a row."""
    values: dict[str, Arrays] = random_weights(circuit, rng, 10.0)
    for leaf in circuit.leaves():
        shape, size = (leaf.units, len(leaf.scope)), circuit.schema[leaf.scope[0]].size
        if leaf.family == "bernoulli":
            values[leaf.name] = {PROBABILITY: rng.uniform(0.25, 0.75, shape)}
        else:
            values[leaf.name] = {PROBABILITY: rng.dirichlet(np.full(size, 5.0), shape)}
    return Parameters(values)


# ---------------------------------------------------------------------- side by side


def joined(circuits: Sequence[Circuit]) -> Circuit:
    """A forest: structure i's nodes as ``i/…``, one root over what is below their roots."""
    nodes: list[Node] = []
    tops: list[str] = []
    for i, circuit in enumerate(circuits):
        names = {n.name: f"{i}/{n.name}" for n in circuit.nodes}
        nodes += [renamed(n, names) for n in circuit.nodes[:-1]]
        tops += [names[child] for child in circuit.root.children]
    return Circuit((*nodes, Sum(ROOT, tuple(tops))), circuits[0].schema)


def joined_parameters(
    circuits: Sequence[Circuit], learned: Sequence[Parameters], weights: Array
) -> Parameters:
    """Of ``joined(circuits)``, where structure i weighs ``weights[i]``."""
    values: dict[str, Arrays] = {}
    roots = []
    for i, (circuit, own) in enumerate(zip(circuits, learned, strict=True)):
        root = circuit.root.name
        values.update({f"{i}/{name}": own[name] for name in own if name != root})
        roots.append(weights[i] * own[root][WEIGHT])
    values[ROOT] = {WEIGHT: np.concatenate(roots, axis=1)}
    return Parameters(values)


def structure_weights(likelihoods: Array, rule: Weighting) -> Array:
    """(structures,) of mean log-likelihoods of rows that were held back; they add up to 1."""
    if rule == "rank":
        found = np.argsort(np.argsort(likelihoods, kind="stable"), kind="stable") + 1.0
    elif rule == "uniform":
        found = np.ones(len(likelihoods))
    else:
        size = np.maximum(np.abs(likelihoods), 1e-6)
        found = size ** (-1.0 if rule == "loglik" else -2.0)
    return np.asarray(found / found.sum())


def usage(circuit: Circuit, parameters: Parameters) -> dict[str, Array]:
    """How often a draw passes through the units of every node, (units,) by name."""
    found = {n.name: np.zeros(circuit.units[n.name]) for n in circuit.nodes}
    found[circuit.root.name] += 1
    for node in reversed(circuit.nodes):
        own = found[node.name]
        if isinstance(node, Sum):
            below, start = own @ parameters[node.name][WEIGHT], 0
            for child in node.children:
                stop = start + len(found[child])
                found[child] += below[start:stop]
                start = stop
        elif isinstance(node, Product) and node.outer:
            left, right = node.children
            pairs = own.reshape(len(found[left]), len(found[right]))
            found[left] += pairs.sum(1)
            found[right] += pairs.sum(0)
        elif not isinstance(node, Leaf):
            for child in node.children:
                found[child] += own
    return found


# ---------------------------------------------------------------------- one party's learning


def learned(
    circuit: Circuit, start: Parameters, rows: Array, held: Array, schedule: EMSchedule
) -> tuple[Parameters, float]:
    """EM from a start, stopped by rows held back; and their mean log-likelihood, or that of the
    rows where none are."""
    kept = InMemory(held) if len(held) else None
    found = maximise_likelihood(
        circuit, start, InMemory(rows), schedule=schedule, validation=kept, rules=RULES
    )
    program = CircuitProgram(circuit, torch.float64)
    judged = kept or InMemory(rows)
    return found.parameters, mean_log_likelihood(program, program.pack(found.parameters), judged)
