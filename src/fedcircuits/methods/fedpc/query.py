"""Questions to a federated circuit: leaves stay where they were learned.

    query/evidence   coordinator → client: the values and regions of columns that its leaves read,
                     every different row once. A client whose leaves read none of them is not asked.
    query/values     client → coordinator: log-values of its leaves (leaves, rows); for moments also
                     mean and variance of the variable under each leaf that has it.
    query/choice     coordinator → client, to complete rows: which leaf completes which row.
    query/completed  client → coordinator: the values of its columns for these rows.

Clients learn the evidence on their own columns and, where rows are completed, which of their leaves
were chosen. The coordinator learns how likely each leaf finds the evidence. Only values at the
border between a leaf and the nodes above it cross.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.graph.nodes import Leaf
from fedcircuits.circuits.questions.queryable import Index, Regions
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.placement import Joint, View, leaves_at
from fedcircuits.federation.wire import AnyArray
from fedcircuits.tables.schema import Schema

Question = Literal["values", "moments", "best"]
LIKELY = "how likely each of its leaves finds the evidence"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question about rows and one box."""

    kind: Question
    x: Array  # (rows, variables)
    regions: Regions
    at: int = -1  # the column of moments
    region: Region = ()

    def columns(self) -> frozenset[int]:
        """Columns that say something."""
        seen = np.flatnonzero(~np.isnan(self.x).all(axis=0))
        return frozenset((*seen.tolist(), *self.regions, *([self.at] if self.at >= 0 else [])))


def asked_leaves(leaves: Sequence[Leaf], schema: Schema, asked: Asked) -> list[Leaf]:
    """Those of a party's leaves that a question is about; the best completion is about all."""
    known = {schema.names[c] for c in asked.columns()}
    return [leaf for leaf in leaves if asked.kind == "best" or known & set(leaf.scope)]


# ---------------------------------------------------------------------- clients


def respond(view: View, completes: bool, seed: int) -> Flow[None]:
    """Answer one question; ``completes``: and fill in rows afterwards."""
    tag = "query/evidence"
    told = expect((yield from recv_payload(COORDINATOR, tag)), dict, COORDINATOR, tag)
    asked = _read(view, told)
    leaves = asked_leaves(view.leaves, view.schema, asked)
    values = yield from compute("evaluating its leaves", lambda: _answer(view, leaves, asked))
    yield from send_payload(COORDINATOR, "query/values", values, LIKELY)
    if not completes:
        return
    tag = "query/choice"
    heard = expect((yield from recv_payload(COORDINATOR, tag)), dict, COORDINATOR, tag)
    rng = None if asked.kind == "best" else np.random.default_rng(seed)
    filled = _filled(view, asked, heard, rng)
    yield from send_payload(
        COORDINATOR, "query/completed", filled, "values of its columns, completed"
    )


def _read(view: View, told: Mapping[str, AnyArray]) -> Asked:
    """The evidence in the order of this party's columns."""
    values = np.asarray(told["x"], np.float64)
    x = np.full((len(values), len(view.schema)), np.nan)
    x[:, [view.schema.index(str(n)) for n in told["columns"]]] = values
    regions: dict[int, list[tuple[float, float]]] = {}
    for name, (lower, upper) in zip(told["restricted"], told["regions"].tolist(), strict=True):
        regions.setdefault(view.schema.index(str(name)), []).append((lower, upper))
    kind = ("values", "moments", "best")[int(told["kind"])]
    at = view.schema.index(str(told["at"])) if str(told["at"]) else -1
    region = tuple((float(a), float(b)) for a, b in told["region"])
    return Asked(kind, x, {c: tuple(r) for c, r in regions.items()}, at, region)  # type: ignore[arg-type]


def _answer(view: View, leaves: Sequence[Leaf], asked: Asked) -> dict[str, AnyArray]:
    rows = len(asked.x)
    found: dict[str, AnyArray] = {}
    values = np.zeros((len(leaves), rows))
    moments = np.zeros((2, len(leaves), rows))
    for i, leaf in enumerate(leaves):
        own = view.leaf(leaf.name)
        x, regions, places = _of_leaf(view, leaf, asked)
        if asked.kind == "best":
            values[i] = own.best_paths(x)
        else:
            values[i] = own.log_values_within(x, regions)
        if asked.at in places:
            moments[:, i] = own.moments_within(x, regions, places[asked.at], asked.region)
    found["values"] = values
    if asked.at >= 0:
        found["moments"] = moments
    return found


def _of_leaf(view: View, leaf: Leaf, asked: Asked) -> tuple[Array, Regions, dict[int, int]]:
    """Rows and regions in the columns of a leaf's own circuit, and where those columns are."""
    schema = view.leaf(leaf.name).circuit.schema
    columns = [view.schema.index(n) for n in schema.names]
    places = {c: i for i, c in enumerate(columns)}
    regions = {places[c]: r for c, r in asked.regions.items() if c in places}
    return asked.x[:, columns], regions, places


def _filled(
    view: View, asked: Asked, heard: Mapping[str, AnyArray], rng: np.random.Generator | None
) -> Array:
    """(rows, columns asked for) with NaN where this party was not chosen to fill in."""
    source = heard["source"].astype(np.int64)  # of every row to complete, among the evidence
    chosen = heard["chosen"]  # (leaves, rows) of this party's leaves: whether they complete a row
    out = np.full((len(source), len(view.schema)), np.nan)
    for i, leaf in enumerate(view.leaves):
        rows = np.flatnonzero(chosen[i])
        if not len(rows):
            continue
        x, regions, places = _of_leaf(view, leaf, asked)
        done = view.leaf(leaf.name).completed_within(x[source[rows]], regions, rng)
        out[rows[:, None], np.array(list(places))] = done
    return out[:, [view.schema.index(str(n)) for n in heard["columns"]]]


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, slots=True)
class _Heard:
    values: Array  # (leaf units of the whole circuit, rows)
    moments: Array  # (2, leaf units, rows)
    source: dict[str, Index]  # by client: where each row is among the rows it was sent


def evaluate(joint: Joint, network: UpperCircuit, packed: Packed, asked: Asked) -> Flow[Array]:
    """log p(x, regions), (rows,)."""
    heard = yield from _gathered(joint, asked, involved(joint, asked))
    return network.log_values(heard.values, packed)


def moments(
    joint: Joint, network: UpperCircuit, packed: Packed, asked: Asked
) -> Flow[tuple[Array, Array]]:
    """Mean and variance of a column (rows,): those of the leaves, mixed by their posteriors."""
    heard = yield from _gathered(joint, asked, involved(joint, asked))
    posterior, _ = network.posteriors(heard.values, packed)
    name = joint.circuit.schema.names[asked.at]
    has = [i for i, leaf in enumerate(joint.circuit.leaves()) if name in leaf.scope]
    weight, (mean, variance) = posterior[has], heard.moments[:, has]
    with np.errstate(invalid="ignore"):
        total = np.where(weight > 0, weight * mean, 0.0).sum(axis=0)
        spread = np.where(weight > 0, weight * (variance + np.square(mean - total)), 0.0)
    return total, spread.sum(axis=0)


def complete(
    joint: Joint, network: UpperCircuit, packed: Packed, asked: Asked, seed: int
) -> Flow[Array]:
    """x with NaN filled by draws, or by the best single path."""
    fillers = completing(joint, asked)
    heard = yield from _gathered(
        joint, asked, list(dict.fromkeys([*involved(joint, asked), *fillers]))
    )
    rng = None if asked.kind == "best" else np.random.default_rng(seed)
    chosen, _ = network.choices(heard.values, packed, rng)
    leaves = list(joint.circuit.leaves())
    filled = asked.x.copy()
    for party in fillers:
        own = [i for i, leaf in enumerate(leaves) if joint.placement[leaf.name] == party]
        columns = _columns(joint, party)
        told: dict[str, AnyArray] = {
            "source": heard.source[party],
            "chosen": chosen[own] >= 0,
            "columns": _names(joint, columns),
        }
        yield from send_payload(
            party, "query/choice", told, "which of its leaves were chosen for which row"
        )
    for party in fillers:
        tag = "query/completed"
        found = expect((yield from recv_payload(party, tag)), np.ndarray, party, tag)
        columns = _columns(joint, party)
        gaps = np.isnan(filled[:, columns])
        filled[:, columns] = np.where(gaps, found, filled[:, columns])
    return filled


def involved(joint: Joint, asked: Asked) -> list[str]:
    """Clients that have to be asked: whose leaves read some of the evidence, or complete it."""
    return [p for p in _clients(joint) if _asked_of(joint, p, asked)]


def _asked_of(joint: Joint, party: str, asked: Asked) -> list[Leaf]:
    own = leaves_at(joint.circuit, joint.placement, party)
    return asked_leaves(own, joint.circuit.schema, asked)


def completing(joint: Joint, asked: Asked) -> list[str]:
    """Clients with a column to fill in."""
    gaps = np.asarray(np.isnan(asked.x).any(axis=0))
    return [p for p in _clients(joint) if gaps[_columns(joint, p)].any()]


def _clients(joint: Joint) -> list[str]:
    return list(dict.fromkeys(joint.placement[leaf.name] for leaf in joint.circuit.leaves()))


def _columns(joint: Joint, party: str) -> list[int]:
    own = leaves_at(joint.circuit, joint.placement, party)
    names = dict.fromkeys(n for leaf in own for n in leaf.scope)
    return sorted(joint.circuit.schema.index(n) for n in names)


def _gathered(joint: Joint, asked: Asked, parties: Sequence[str]) -> Flow[_Heard]:
    sources: dict[str, Index] = {}
    for party in parties:
        told, sources[party] = _evidence(joint, party, asked)
        names = list(dict.fromkeys([*told["columns"].tolist(), *told["restricted"].tolist()]))
        shown = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
        what = f"evidence on {shown}" if names else "what it is asked, without evidence"
        yield from send_payload(party, "query/evidence", told, what)
    leaves = list(joint.circuit.leaves())
    values = np.zeros((len(leaves), len(asked.x)))
    spread = np.zeros((2, len(leaves), len(asked.x))) if asked.at >= 0 else np.zeros((2, 0, 0))
    place = {leaf.name: i for i, leaf in enumerate(leaves)}
    for party in parties:
        found = expect(
            (yield from recv_payload(party, "query/values")), dict, party, "query/values"
        )
        own = [place[leaf.name] for leaf in _asked_of(joint, party, asked)]
        values[own] = found["values"][:, sources[party]]
        if "moments" in found:
            spread[:, own] = found["moments"][:, :, sources[party]]
    return _Heard(values, spread, sources)


def _evidence(joint: Joint, party: str, asked: Asked) -> tuple[dict[str, AnyArray], Index]:
    """What a client is told: every different row of its columns once, and which row is which."""
    columns = [c for c in _columns(joint, party) if c in asked.columns()]
    own = [c for c in columns if not np.isnan(asked.x[:, c]).all()]
    known = np.nan_to_num(asked.x[:, own], nan=np.inf)  # as NaN, gaps would never be equal
    rows, source = np.unique(known, axis=0, return_inverse=True)
    rows = np.where(np.isinf(rows), np.nan, rows)
    if not own:
        rows, source = np.zeros((1, 0)), np.zeros(len(asked.x), np.int64)
    regions = [(c, a, b) for c in columns for a, b in asked.regions.get(c, ())]
    at = joint.circuit.schema.names[asked.at] if asked.at in columns else ""
    kinds = ("values", "moments", "best")
    told: dict[str, AnyArray] = {
        "kind": np.asarray(kinds.index(asked.kind)),
        "columns": _names(joint, own),
        "x": rows,
        "restricted": _names(joint, [c for c, _, _ in regions]),
        "regions": np.asarray([r[1:] for r in regions], np.float64).reshape(-1, 2),
        "at": np.asarray(at),
        "region": np.asarray(asked.region, np.float64).reshape(-1, 2),
    }
    return told, source.reshape(-1)


def _names(joint: Joint, columns: Sequence[int]) -> AnyArray:
    return np.asarray([joint.circuit.schema.names[c] for c in columns], dtype=np.str_)
