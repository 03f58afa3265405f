"""One-pass training of a federated circuit (federated circuits, sections 3 and 4): one code path
for data split by rows, by columns, or both.

Roles: clients hold tables, a coordinator holds none.

    agree    client → coordinator: names, kinds, categories and units of its columns, its number of
             rows. coordinator → client: agreed kinds of its columns, its subspaces and clusters.
    key      first client → other clients, not the coordinator: a key for row tokens. Only where
             parties hold other columns and all have row ids.
    labels   holders of the target → clients without it: row tokens and classes. Only with
             share_target.
    learn    nothing crosses: every client clusters its rows and learns a circuit of every subspace
             it holds from every cluster.
    count    client → coordinator: rows of every cluster; with a key also row tokens (a number a
             row) with their clusters, in the order of tokens, which says nothing.
    graph    coordinator → client: which of its leaves are used. The graph stays.

The coordinator learns how many rows fall into which combination of clusters, and not which rows;
what circuits have learned stays with their parties. Clients learn who takes part and which
of their columns others hold too, and nothing of others' columns, clusters or rows. A coordinator
that gets the key from a client could try out row ids. Weights of the root:

    cooccurrence   how often clusters of different parties meet in a row (assembly.py)
    sizes          the paper's: sums of cluster sizes, whether they meet or not; needs no row ids
    em             co-occurrence, then EM on them by the likelihoods of shared rows (network_em.py)

A lost party ends the run; what others have computed is kept. Where the others hold all variables,
the run may be repeated without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np
from sklearn.base import clone

from fedcircuits.circuits.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.nodes import Leaf
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.federation.collectives import gather
from fedcircuits.federation.federation import COORDINATOR, Party, Subspace, kind_of, subspaces
from fedcircuits.federation.flow import Flow, compute, expect, recv, send
from fedcircuits.federation.placement import Joint, View, leaves_at
from fedcircuits.federation.tokens import Labels, matched, patterns, tokens
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.learning.table import Table
from fedcircuits.protocols import agreement, network_em
from fedcircuits.protocols.assembly import (
    POOLED,
    Assembled,
    Assembly,
    by_cooccurrence,
    by_rows,
    by_sizes,
    leaf_name,
)
from fedcircuits.protocols.clusters import clusters_of

Rule = Literal["cooccurrence", "sizes", "em"]
INDEPENDENT = (
    "parties are taken to be independent beyond their clusters' sizes, because {}: give row ids "
    "that they share, Federation(…, row_id='…')"
)


class Learner(Protocol):
    """What learns a leaf: any estimator of this library, or one that has its face. It may have
    ``fit_part(part, whole)``, for a cluster in the context of all rows."""

    circuit_: Circuit
    parameters_: Parameters

    def fit(self, X: Table) -> object: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What all parties of a run do alike."""

    clusters: int | Literal["auto"] = "auto"
    products: int | Literal["auto"] = "auto"
    weights: Rule = "cooccurrence"
    shared: Literal["cluster", "pooled"] = "cluster"
    target: str | None = None
    share_target: bool = False
    refine: int = 0  # rounds of EM over weights and leaves, across the parties
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """What the coordinator has at the end."""

    joint: Joint
    notes: tuple[str, ...] = ()  # what the user should know
    history: tuple[float, ...] = ()  # mean log-likelihood of shared rows before every round of EM


# ---------------------------------------------------------------------- clients


@dataclass(frozen=True, slots=True)
class _Task:
    """What the coordinator has asked of a client."""

    table: Table  # in the agreed kinds and codes
    members: tuple[str, ...]
    spaces: dict[int, list[str]]  # the subspaces it holds
    pooled: frozenset[int]  # those it learns from all rows at once
    clusters: int | Literal["auto"]
    tokens: bool
    receivers: tuple[str, ...]  # of the target's classes, if this client holds it
    senders: tuple[str, ...]  # of the classes, if it does not


def client(party: Party, plan: Plan, learner: Learner, secret: bytes) -> Flow[View]:
    task = yield from _agreed(party)
    key = None
    if task.tokens:
        key = yield from agreement.key_of(party.name, task.members, secret)
    classes = yield from _classes(task, plan.target, key)
    stamp = _stamp(task, f"{plan} {learner}", classes)
    me = zlib.crc32(party.name.encode())
    rng = np.random.default_rng([plan.seed, me])
    own = [n for i, names in task.spaces.items() if i not in task.pooled for n in names]
    label = yield from compute(
        f"clustering its rows ({stamp})",
        lambda: clusters_of(task.table, own or task.table.names, task.clusters, classes, rng),
    )
    learned: dict[str, tuple[Circuit, Parameters]] = {}
    for name, rows, columns in _parts(party.name, task, label):
        seed = int(np.random.default_rng([plan.seed, me, len(learned)]).integers(2**31))
        work = _Learning(learner, task.table.select(columns), rows, seed)
        learned[name] = yield from compute(f"learning {name} ({stamp})", work)
    return (yield from _joined(party, task, key, label, learned, stamp))


def _stamp(task: _Task, settings: str, classes: Array | None) -> str:
    """Of all that a client's work depends on: it is kept for the same rows and plan only."""
    schema, spaces = task.table.schema.to_json(), sorted(task.spaces.items())
    about = json.dumps([schema, spaces, sorted(task.pooled), task.clusters, settings])
    found = zlib.crc32(task.table.values.tobytes(), zlib.crc32(about.encode()))
    return f"plan {found if classes is None else zlib.crc32(classes.tobytes(), found):08x}"


def _agreed(party: Party) -> Flow[_Task]:
    told = yield from agreement.introduced(party)
    return _Task(
        in_agreed(party.table, Schema.from_json(told["schema"])),
        tuple(told["members"]),
        {int(i): names for i, names in told["spaces"]},
        frozenset(told["pooled"]),
        told["clusters"],
        told["tokens"],
        tuple(told["receivers"]),
        tuple(told["senders"]),
    )


def _classes(task: _Task, target: str | None, key: bytes | None) -> Flow[Array | None]:
    """The class of every row where it is known here, or told by those who know it."""
    if target is None:
        return None
    y = yield from agreement.target_of(task.table, target, key, task.receivers, task.senders)
    number = target in task.table.schema and not task.table.schema[target].size
    return None if number or np.isnan(y).all() else y


def _parts(me: str, task: _Task, label: Labels) -> list[tuple[str, Labels, list[str]]]:
    """Name, rows and columns of every leaf of this client."""
    found = []
    for space, names in task.spaces.items():
        if space in task.pooled:
            found.append((leaf_name(me, POOLED, space), np.arange(len(label)), names))
            continue
        for cluster in range(int(label.max()) + 1):
            found.append((leaf_name(me, cluster, space), np.flatnonzero(label == cluster), names))
    return found


@dataclass(frozen=True, slots=True)
class _Learning:
    """A leaf from a cluster of the party's rows, in the context of all of them."""

    learner: Learner
    table: Table
    rows: Labels
    seed: int

    def __call__(self) -> tuple[Circuit, Parameters]:
        own = clone(self.learner)
        if "random_state" in own.get_params():
            own.set_params(random_state=self.seed)
        part = self.table.rows(self.rows)
        if np.isnan(part.values).all():
            part = self.table  # a cluster without any value says nothing of these columns
        if hasattr(own, "fit_part") and len(part) < len(self.table):
            own.fit_part(part, self.table)
        else:
            own.fit(part)
        return own.circuit_, own.parameters_


def _joined(
    party: Party,
    task: _Task,
    key: bytes | None,
    label: Labels,
    learned: Mapping[str, tuple[Circuit, Parameters]],
    stamp: str,
) -> Flow[View]:
    sizes = np.bincount(label).tolist()
    yield from send(COORDINATOR, "count/sizes", sizes, "rows of every cluster")
    rows = task.table
    if key is not None and rows.row_ids is not None:
        sealed = tokens(rows.row_ids, key)
        order = np.argsort(sealed)
        rows = rows.rows(order)
        told: dict[str, AnyArray] = {
            "tokens": sealed[order],
            "clusters": label[order].astype(np.int32),
        }
        reveals = "clusters of rows that it cannot name (sealed tokens)"
        yield from send(COORDINATOR, "count/tokens", told, reveals)
    heard = yield from recv(COORDINATOR, "graph/leaves")
    graph = expect(heard, dict, COORDINATOR, "graph/leaves")
    leaves = tuple(_leaf(name, *learned[name]) for name in graph["used"])
    values = Parameters({}, {leaf.name: learned[leaf.name] for leaf in leaves})
    view = View(party.name, task.table.schema, leaves, values, party.allow_collect)
    if graph["em"]:
        view = yield from network_em.client(view, rows, task.table, stamp)
    return view


def _leaf(name: str, circuit: Circuit, parameters: Parameters) -> Leaf:
    return Leaf(name, CIRCUIT, circuit.schema.names)


# ---------------------------------------------------------------------- the coordinator


def coordinator(members: Sequence[str], plan: Plan) -> Flow[Trained]:
    schema, spaces, sealed = yield from _plans(members, plan)
    found = yield from gather(members, "count/sizes")
    sizes = {p: expect(found[p], list, p, "count/sizes") for p in members}
    where, labels = None, None
    if sealed:
        where, labels = yield from _rows(members)
    rng = np.random.default_rng([plan.seed, 0])
    made = Assembly(spaces, sizes, pooled=plan.shared == "pooled")
    joined, notes = _join(made, schema, spaces, members, labels, plan, rng)
    shared = None if where is None else where[(where >= 0).all(axis=1)]  # rows that all hold
    em = plan.refine > 0 or (plan.weights == "em" and len(spaces) > 1)
    if em and (shared is None or not len(shared)):
        notes = (*notes, "no row is held by all parties: EM across them was left out")
        em = False
    for party in members:
        used = [leaf.name for leaf in leaves_at(joined.circuit, joined.placement, party)]
        told: Json = {"used": cast(Json, used), "em": em}
        yield from send(party, "graph/leaves", told, "which of its clusters are used")
    whole = Joint(joined.circuit, joined.placement, joined.parameters)
    if not em or shared is None:
        return Trained(whole, notes)
    positions = {p: shared[:, i] for i, p in enumerate(members)}
    whole, history = yield from network_em.coordinator(whole, positions, plan.refine)
    return Trained(whole, notes, history)


def _plans(members: Sequence[str], plan: Plan) -> Flow[tuple[Schema, list[Subspace], bool]]:
    schemas, ids = yield from agreement.schemas_of(members)
    schema = agree(schemas)
    if plan.target is not None:
        schema.index(plan.target)  # an error that names it
    spaces = subspaces({p: s.names for p, s in schemas.items()}, schema.names)
    apart = kind_of(spaces, len(members)) != "horizontal"
    sealed = ids and ((apart and plan.weights != "sizes") or plan.refine > 0)
    for party in members:
        held = [(i, list(s.variables)) for i, s in enumerate(spaces) if party in s.holders]
        told = plan.share_target and sealed and plan.target is not None
        target = plan.target if told and schema[str(plan.target)].size else None
        knows = target in schemas[party]
        asked = agreement.asked(party, members, schemas, schema) | {
            "spaces": [[i, names] for i, names in held],
            "pooled": [
                i for i, _ in held if plan.shared == "pooled" and len(spaces[i].holders) > 1
            ],
            "clusters": plan.clusters if apart else 1,
            "tokens": sealed,
            "receivers": _with(schemas, target, knows, holding=False),
            "senders": _with(schemas, target, not knows, holding=True),
        }
        yield from send(
            party,
            "agree/plan",
            cast(Json, asked),
            "who takes part, which of its columns others hold",
        )
    return schema, spaces, sealed


def _with(
    schemas: Mapping[str, Schema], target: str | None, asked: bool, *, holding: bool
) -> list[str]:
    if target is None or not asked:
        return []
    return [p for p, s in schemas.items() if (target in s) == holding]


def _rows(members: Sequence[str]) -> Flow[tuple[Labels, Labels]]:
    """Where each party lists a row (rows, parties), and the row's cluster there, −1 if nowhere."""
    found = yield from gather(members, "count/tokens")
    told = [expect(found[p], dict, p, "count/tokens") for p in members]
    where = matched([np.asarray(t["tokens"], np.uint64) for t in told])
    labels = np.full(where.shape, -1, dtype=np.int64)
    for i, own in enumerate(told):
        held = where[:, i] >= 0
        labels[held, i] = own["clusters"][where[held, i]]
    return where, labels


def _join(
    made: Assembly,
    schema: Schema,
    spaces: Sequence[Subspace],
    members: Sequence[str],
    labels: Labels | None,
    plan: Plan,
    rng: np.random.Generator,
) -> tuple[Assembled, tuple[str, ...]]:
    if kind_of(spaces, len(members)) == "horizontal":
        return by_rows(made, schema), ()
    if plan.weights == "sizes":
        return by_sizes(made, schema, plan.products, rng), ()
    if labels is None:
        why = "not all of them have row ids"
    else:
        most = None if plan.products == "auto" else plan.products
        found = by_cooccurrence(made, schema, members, *patterns(labels), most)
        if found is not None:
            return found, ()
        why = "no row is held by parties that have all variables together"
    return by_sizes(made, schema, plan.products, rng), (INDEPENDENT.format(why),)
