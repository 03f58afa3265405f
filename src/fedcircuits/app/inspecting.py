"""``fedcircuits inspect``: the content of a model file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedcircuits.app import screen
from fedcircuits.app.report import TextTable
from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Fuse, Leaf
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.records import read_from
from fedcircuits.tables.notebook import listed
from fedcircuits.tables.schema import Schema

if TYPE_CHECKING:
    from fedcircuits.estimators.federated import FederatedEstimator

MOST_CATEGORIES = 8


def describe(path: Path) -> None:
    if files.is_part(path):
        _describe_part(path)
        return
    circuit, parameters, metadata = files.read(path)
    target = metadata.get("target")
    screen.say(f"{path}: {path.stat().st_size:,} bytes, {metadata.get('estimator', 'a circuit')}")
    screen.say(f"target: {target if target else 'none'}\n")
    screen.show(variables(circuit.schema))
    screen.say()
    screen.show(nodes(circuit, parameters))
    what = "parameters" if circuit.is_density else "numbers learned"
    screen.say(f"\n{parameters.count():,} {what}")
    if not circuit.is_density:
        screen.say("It is a predictor, not a distribution:\n")
        screen.show(fuses(circuit))
    if metadata.get("estimator") == "FeatureFusion":
        screen.say()
        screen.show(encoders(path, circuit, metadata))
    if isinstance(about := metadata.get("learned"), dict):
        screen.say("\nHow it was trained:")
        for name, value in about.items():
            screen.say(f"  {name}: {_value(value)}")


def data(path: Path) -> dict[str, object]:
    """The same as JSON; for a model at sites, the coordinator's part."""
    size: dict[str, object] = {"file": str(path), "bytes": path.stat().st_size}
    if files.is_part(path):
        model = _part(path)
        schema, where = getattr(model, "schema_", None), model.where_
        assert where is not None
        about = {"estimator": type(model).__name__, "target": getattr(model, "target", None)}
        parts = {"model": model.name_, "consortium": where.consortium, "kit": str(where.kit)}
        crossed = {"messages": len(model.ledger_), "bytes crossed": model.ledger_.bytes}
        columns = {"variables": _variables(schema) if isinstance(schema, Schema) else []}
        return size | about | parts | {"parts at": list(model._allow_collect)} | columns | crossed
    circuit, parameters, metadata = files.read(path)
    return size | {
        "estimator": metadata.get("estimator"),
        "target": metadata.get("target"),
        "variables": _variables(circuit.schema),
        "nodes": dict(_counts(circuit, parameters)),
        "parameters": parameters.count(),
        "learned": metadata.get("learned"),
    }


def _variables(schema: Schema) -> list[dict[str, object]]:
    return [
        {"name": v.name, "kind": v.kind, "values": [str(c) for c in v.categories], "unit": v.unit}
        for v in schema
    ]


def _part(path: Path) -> FederatedEstimator[object]:
    from fedcircuits.estimators.federated import FederatedEstimator
    from fedcircuits.estimators.loading import load

    model = load(path)
    assert isinstance(model, FederatedEstimator) and model.where_ is not None
    return model


def _describe_part(path: Path) -> None:
    """Show the coordinator's part of a model at sites, and where the others are."""
    model = _part(path)
    size, where = path.stat().st_size, model.where_
    assert where is not None
    screen.say(f"{path}: {size:,} bytes, the coordinator's part of {type(model).__name__}")
    screen.say(f"model: {model.name_}")
    screen.say(f"consortium: {where.consortium or 'without a name'}, by the kit {where.kit}")
    screen.say(f"parts at: {', '.join(model._allow_collect)}")
    screen.say(f"target: {getattr(model, 'target', None) or 'none'}\n")
    schema, circuit = getattr(model, "schema_", None), getattr(model, "circuit_", None)
    if isinstance(schema, Schema):
        screen.show(variables(schema))
    placement = getattr(model, "placement_", None)
    if isinstance(circuit, Circuit) and isinstance(placement, Mapping):
        screen.say()
        screen.show(places(circuit, placement))
    screen.say(f"\nsplit: {model.kind_}; sent in training: {len(model.ledger_):,} messages, "
               f"{model.ledger_.bytes:,} bytes")  # fmt: skip


def places(circuit: Circuit, placement: Mapping[str, str]) -> TextTable:
    """The numbers of nodes and leaves by party."""
    nodes: Counter[str] = Counter(placement[node.name] for node in circuit.nodes)
    leaves: Counter[str] = Counter(placement[leaf.name] for leaf in circuit.leaves())
    rows = [(party, f"{n:,}", f"{leaves[party]:,}") for party, n in sorted(nodes.items())]
    return TextTable(("party", "nodes", "of them leaves"), rows)


def variables(schema: Schema) -> TextTable:
    rows = []
    for v in schema:
        values = listed([str(c) for c in v.categories], MOST_CATEGORIES)
        rows.append((v.name, v.kind, values or v.unit or ""))
    return TextTable(("variable", "kind", "values"), rows, texts=3)


def nodes(circuit: Circuit, parameters: Parameters) -> TextTable:
    """The number of nodes of each kind, including those of nested circuits."""
    counts = _counts(circuit, parameters)
    rows = [(kind, f"{number:,}") for kind, number in counts.most_common()]
    return TextTable(("node", "number"), [*rows, ("all", f"{counts.total():,}")])


def fuses(circuit: Circuit) -> TextTable:
    """The nodes that combine predictions or representations, and how."""
    rows = []
    for node in circuit.nodes:
        if isinstance(node, Fuse):
            sizes = len(node.children), len(circuit.scopes[node.name]), node.units
            rows.append((node.name, node.operation, *(f"{size:,}" for size in sizes)))
    return TextTable(("fuse node", "by", "inputs", "variables", "outputs"), rows, texts=2)


def encoders(path: Path, circuit: Circuit, metadata: files.Metadata) -> TextTable:
    """For each owner of a fusion: its encoder, the columns it reads, and the width of its
    output."""
    from fedcircuits.estimators.fusion_file import encoder_names

    rows = []
    with read_from(path):
        for owner, encoder in encoder_names(metadata).items():
            if encoder == "LabelsOnly":
                rows.append((owner, "none: it holds the target alone", "", "0"))
                continue
            leaf = circuit[f"{owner}/encoder"].name
            names = sorted(n.removeprefix(f"{owner}/") for n in circuit.scopes[leaf])
            rows.append((owner, encoder, listed(names), str(circuit.units[leaf])))
    return TextTable(("owner", "encoder", "reads", "numbers"), rows, texts=3)


def _counts(circuit: Circuit, parameters: Parameters) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in circuit.nodes:
        if isinstance(node, Leaf) and node.family == CIRCUIT:
            counts += _counts(*parameters.circuits[node.name])
        elif isinstance(node, Leaf):
            counts[f"{node.family} leaf"] += 1
        else:
            counts[type(node).__name__.lower()] += 1
    return counts


def _value(value: object) -> str:
    """Parties with their rows and columns; other values as JSON."""
    if isinstance(value, dict):
        return "; ".join(f"{name} {_value(size)}" for name, size in value.items())
    if isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) for n in value):
        return f"{value[0]:,} rows × {value[1]:,} variables"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
