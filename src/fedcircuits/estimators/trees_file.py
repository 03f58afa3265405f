"""Collected trees as one .fc file: the graph, all trees, and the parameters of fuse nodes.

    circuit.json            leaves "north/tree 1", …, and the fuse nodes above (ensemble.py)
    parameters.safetensors  arrays of trees under their leaves (decision_tree.py), classes that
                            a party has "seen" under its fuse node, "weight" of inputs under the
                            coordinator's, "overall" shares or mean of the target under the root
    fedcircuits.json        parties, the columns of all of them, the target, the threshold

Only ``DecisionTreeLeaf`` is supported: other predictors have no arrays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
import numpy as np

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import PREDICTOR, Circuit, Fuse, Leaf
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.files import require_estimator
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.graph.records import (
    AnyArray,
    Probability,
    SchemaJson,
    StoredArrays,
    fields_of,
    overall_of,
    read_from,
    record_of,
)
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.methods.trees.decision_tree import DecisionTreeLeaf, Predictor
from fedcircuits.methods.trees.ensemble import SEEN, TreeEnsemble, fuse_of, tree_names
from fedcircuits.tables.schema import Schema, Variable

ESTIMATOR: Final = "FedTrees"
KINDS = {np.dtype(kind) for kind in (np.float64, np.int64, np.bool_)}  # of a tree's arrays
OVERALL = "overall"


class StoredTrees(msgspec.Struct, frozen=True):
    """The metadata of a file of trees."""

    estimator: Literal["FedTrees"]
    target: str
    parties: list[str]
    schema: SchemaJson  # of all parties
    threshold: Probability


# ---------------------------------------------------------------------- to a file


def write(ensemble: TreeEnsemble, schema: Schema, path: str | os.PathLike[str]) -> None:
    """Write trees; ``schema``: the columns of all parties."""
    arrays: dict[str, dict[str, AnyArray]] = {}
    for name, values in ensemble.parameters.values.items():
        arrays[name] = dict(values)
    for leaf in ensemble.circuit.leaves():
        arrays[leaf.name] = _tree_stored(leaf, ensemble, path)
    arrays[ensemble.circuit.root.name][OVERALL] = ensemble.overall
    parties, columns = list(ensemble.clients), list(schema.to_json())
    about = StoredTrees(ESTIMATOR, ensemble.target.name, parties, columns, ensemble.threshold)
    parameters = Parameters(arrays)  # type: ignore[arg-type]
    try:
        _ensemble(ensemble.circuit, parameters, about, schema)
    except FedcircuitsError as error:
        raise FileError(f"cannot write {path}: {error}") from error
    files.write(path, ensemble.circuit, parameters, fields_of(about))


def _tree_stored(leaf: Leaf, ensemble: TreeEnsemble, path: object) -> dict[str, AnyArray]:
    tree = ensemble.predictors[leaf.name]
    ours = type(tree).predict_vector is DecisionTreeLeaf.predict_vector
    if not isinstance(tree, DecisionTreeLeaf) or not ours:
        raise FileError(
            f"cannot write {path}: {leaf.name!r} is your own {type(tree).__name__}, but files "
            "hold DecisionTreeLeaf only; query the trees in place, or train with that leaf"
        )
    if tree.schema_ != ensemble.circuit.schema.select(leaf.scope):
        raise FileError(f"cannot write {path}: {leaf.name!r} does not read the columns of its leaf")
    return tree.to_arrays()


# ---------------------------------------------------------------------- from a file


def read(path: str | os.PathLike[str]) -> tuple[TreeEnsemble, Schema]:
    """The trees with their graph, and the columns of all parties."""
    circuit, parameters, metadata = files.read(path)
    require_estimator(path, metadata, ESTIMATOR)
    with read_from(path):
        about = record_of(StoredTrees, metadata, "the file")
        schema = Schema.from_json(about.schema)
        return _ensemble(circuit, parameters, about, schema), schema


def _ensemble(
    circuit: Circuit, parameters: Parameters, about: StoredTrees, schema: Schema
) -> TreeEnsemble:
    target = schema[about.target]
    if target.name in circuit.schema or schema.select(circuit.schema.names) != circuit.schema:
        raise FileError("the columns of its graph are not columns of parties beside the target")
    placement = _placement(circuit, about.parties)
    threshold = about.threshold
    if threshold != 0.5 and target.size == 1:
        raise FileError(f"a threshold is for two classes, {target.name!r} has one")
    root = StoredArrays("the root", parameters.values.get(circuit.root.name, {}))
    overall = overall_of(root, target)
    values: dict[str, Arrays] = {}
    for node in circuit.nodes:
        if circuit.units[node.name] != (target.size or 1):
            raise FileError(f"node {node.name!r} must have a unit for each output of the trees")
        if isinstance(node, Fuse):
            arrays = StoredArrays(f"node {node.name!r}", parameters.values.get(node.name, {}))
            if node is circuit.root:
                arrays.left.pop(OVERALL)
            at_party = placement[node.name] != COORDINATOR
            values[node.name] = _fuse_arrays(node, arrays, overall, target, at_party)
            arrays.end()
    trees = _trees(circuit, parameters, target)
    return TreeEnsemble(
        COORDINATOR, circuit, placement, target, overall, Parameters(values), trees, threshold
    )  # fmt: skip


def _placement(circuit: Circuit, parties: list[str]) -> dict[str, str]:
    """The placement: trees and their fuse node at their party, others at the coordinator."""
    placement: dict[str, str] = {}
    for party in parties:
        fuse = circuit[fuse_of(party)]
        trees = tuple(tree_names(party, len(fuse.children)))
        if fuse.children != trees or fuse.name in placement:
            raise FileError(f"node {fuse.name!r} must read the trees of one party alone")
        placement |= dict.fromkeys((fuse.name, *trees), party)
    for node in circuit.nodes:
        leaf = isinstance(node, Leaf) and node.family == PREDICTOR
        if not isinstance(node, Fuse) and not (leaf and node.name in placement):
            raise FileError(f"node {node.name!r} is no tree of a party and no fuse node")
        below = (circuit[c] for c in node.children)
        if node.name not in placement and any(isinstance(c, Leaf) for c in below):
            raise FileError(f"node {node.name!r} reads trees, and is no fuse node of a party")
        placement.setdefault(node.name, COORDINATOR)
    return placement


def _fuse_arrays(
    node: Fuse, arrays: StoredArrays, overall: Array, target: Variable, at_party: bool
) -> Arrays:
    known = ("mean", "product") if target.size else ("mean",)
    if node.operation not in known:
        raise FileError(f"node {node.name!r} must be a {' or '.join(known)}, not {node.operation}")
    name, size = (SEEN, len(overall)) if at_party else (WEIGHT, len(node.children))
    values = arrays.take(name, (size,), "float64").astype(float)
    if (values < 0).any() or not values.any():
        raise FileError(f"node {node.name!r}: {name!r} must be numbers from 0, not all of them 0")
    if at_party and target.size and not (overall[values > 0] > 0).any():
        raise FileError(f"node {node.name!r}: some class must be seen that there is overall")
    return {name: values}


def _trees(circuit: Circuit, parameters: Parameters, target: Variable) -> Mapping[str, Predictor]:
    trees: dict[str, Predictor] = {}
    for leaf in circuit.leaves():
        arrays = parameters.values.get(leaf.name, {})
        if not {a.dtype for a in arrays.values()} <= KINDS:
            raise FileError(f"{leaf.name!r} has arrays of other kinds than float64, int64 and bool")
        try:
            columns = circuit.schema.select(leaf.scope)
            trees[leaf.name] = DecisionTreeLeaf.from_arrays(arrays, columns, target)
        except FedcircuitsError as error:
            raise FileError(f"{leaf.name!r}: {error}") from error
    return trees
