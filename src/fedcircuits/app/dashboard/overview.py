"""What the dashboard shows of a model and a site: parties, what was revealed, policy, audit."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from fedcircuits.app import crossing
from fedcircuits.app.analyst import audit_lines, audit_row
from fedcircuits.app.dashboard.desk import Plain
from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.engines.sites.files import SITE, Kit
from fedcircuits.estimators import record
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.estimators.model import Model
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.pictures.drawing import Drawing, figure_of
from fedcircuits.pictures.federation import placed_drawing
from fedcircuits.pictures.graph import unwrapped

AUDITED = 200  # lines of an audit, the latest


def describe(path: Path, model: Model) -> Plain:
    """The page of a model."""
    federated = isinstance(model, FederatedEstimator) and hasattr(model, "ledger_")  # else: a table
    training = None if federated else record.read(path)
    circuit, parties = model.circuit_, parties_of(model.circuit_, _placement(model, path))
    about: Plain = {
        "file": path.name,
        "estimator": type(model).__name__,
        "target": getattr(model, "target", None),
        "nodes": len(unwrapped(circuit, getattr(model, "parameters_", None))[0]),
        "parties": parties,
        "learned": {},
        "revealed": None,
        "crossed": None,
        "where": None,
    }
    if isinstance(model, FederatedEstimator) and federated:
        about["revealed"] = _rows(crossing.revealed(model.ledger_).rows)
        about["crossed"] = _rows(crossing.by_phase(model.ledger_).rows)
        about["where"] = None if model.where_ is None else asdict(model.where_)
    else:
        _, _, metadata = files.read(path)
        learned = metadata.get("learned")
        about["estimator"] = metadata.get("estimator") or about["estimator"]
        about["learned"] = learned if isinstance(learned, dict) else {}
    if training is not None:
        about["estimator"] = training.estimator
        about["learned"] = about["learned"] or _recorded(training)
        about["revealed"], about["crossed"] = training.revealed, training.crossed
    return about


def _recorded(training: record.TrainingRecord) -> Plain:
    """What is known of a training in Python."""
    sizes = {n: [held.rows, len(held.columns)] for n, held in training.parties.items()}
    facts: Plain = {"split": training.split, "notes": training.notes or ["none"]}
    return {"parties": sizes, **facts} if sizes else facts


def _rows(rows: object) -> list[list[str]]:
    return [list(row) for row in rows]  # type: ignore[attr-defined]


def _placement(model: Model, path: Path) -> Mapping[str, str]:
    """The party that holds each node or, for a collected circuit, held it in training."""
    placed = getattr(model, "placement_", None)
    if not isinstance(placed, Mapping):
        training = record.read(path)
        placed = {} if training is None else training.placement
    return {node.name: placed.get(node.name, COORDINATOR) for node in model.circuit_.nodes}


def parties_of(circuit: Circuit, placement: Mapping[str, str]) -> list[Plain]:
    """The leaves and columns by party; empty if one party holds all."""
    counts = Counter(placement[leaf.name] for leaf in circuit.leaves())
    if set(counts) <= {COORDINATOR} or len(circuit) == 1:  # of all parties, learned by sums
        return []
    columns: dict[str, dict[str, None]] = {}
    for leaf in circuit.leaves():
        columns.setdefault(placement[leaf.name], {}).update(dict.fromkeys(leaf.scope))
    parties: list[Plain] = []
    for party, number in sorted(counts.items()):
        held = [n for n in circuit.schema.names if n in columns[party]]
        parties.append({"name": party, "circuits": number, "columns": held})
    return parties


def picture(path: Path, model: Model) -> bytes:
    """The circuit as SVG, by party if it is federated."""
    text = io.BytesIO()
    figure_of(_drawing(path, model)).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _drawing(path: Path, model: Model) -> Drawing:
    parameters = getattr(model, "parameters_", None)
    if parameters is None:
        parameters = getattr(getattr(model, "joint_", None), "parameters", None)
    return placed_drawing(model.circuit_, _placement(model, path), parameters)


# ---------------------------------------------------------------------- a site


def of_site(folder: Path) -> Plain:
    """A kit: its owner, the policy of its site, and recent audit lines."""
    kit = Kit(folder)
    summary: Plain = {
        "name": kit.name,
        "consortium": kit.consortium.name,
        "members": sorted(kit.consortium.known),
        "policy": None,
        "audit": None,
    }
    if (kit.folder / SITE).is_file():
        summary["policy"] = {n: _word(v) for n, v in asdict(kit.site_file().policy).items()}
        store = kit.folder / kit.site_file().store
        there = (store / "audit.jsonl").is_file()
        lines = audit_lines(folder)[-AUDITED:] if there else []
        summary["audit"] = [audit_row(line) for line in lines]
    return summary


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
