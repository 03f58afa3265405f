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
    graph    coordinator → client: the graph and where its nodes live; weights stay.

The coordinator learns how many rows fall into which combination of clusters, and not which rows;
what circuits have learned stays with their parties. Clients learn the graph, hence how many
clusters others have and which ever meet, and nothing of single rows. A coordinator that gets the
key from a client could try out row ids. Weights of the root:

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

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema
from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.federation.collectives import broadcast, gather
from fedcircuits.federation.federation import COORDINATOR, Party, Subspace, kind_of, subspaces
from fedcircuits.federation.flow import Flow, compute, expect, recv, send
from fedcircuits.federation.placement import View
from fedcircuits.federation.tokens import Labels, matched, patterns, tokens
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.learning.table import Table
from fedcircuits.protocols import network_em
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

VERSION = 1  # of this protocol: parties with another one are refused
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

    view: View
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
    stamp: str  # of the plan: work is kept for the same one only


def client(party: Party, plan: Plan, learner: Learner, secret: bytes) -> Flow[View]:
    task = yield from _agreed(party, f"{plan} {learner}")
    key = None
    if task.tokens:
        key = yield from _key(party.name, task.members, secret)
    classes = yield from _classes(task, plan, key)
    me = zlib.crc32(party.name.encode())
    rng = np.random.default_rng([plan.seed, me])
    own = [n for i, names in task.spaces.items() if i not in task.pooled for n in names]
    label = yield from compute(
        f"clustering its rows ({task.stamp})",
        lambda: clusters_of(task.table, own or task.table.names, task.clusters, classes, rng),
    )
    learned: dict[str, tuple[Circuit, Parameters]] = {}
    for name, rows, columns in _parts(party.name, task, label):
        seed = int(np.random.default_rng([plan.seed, me, len(learned)]).integers(2**31))
        work = _Learning(learner, task.table.select(columns), rows, seed)
        learned[name] = yield from compute(f"learning {name} ({task.stamp})", work)
    return (yield from _joined(party, task, key, label, learned))


def _agreed(party: Party, settings: str) -> Flow[_Task]:
    hello: Json = {
        "version": VERSION,
        "schema": cast(Json, party.table.schema.to_json()),
        "rows": len(party.table),
        "ids": party.table.row_ids is not None,
    }
    told = "names, kinds and categories of its columns; number of rows"
    yield from send(COORDINATOR, "agree/schema", hello, told)
    asked = expect((yield from recv(COORDINATOR, "agree/plan")), dict, COORDINATOR, "agree/plan")
    stamp = f"plan {zlib.crc32(json.dumps([asked, settings]).encode()):08x}"
    return _Task(
        in_agreed(party.table, Schema.from_json(asked["schema"])),
        tuple(asked["members"]),
        {int(i): names for i, names in asked["spaces"]},
        frozenset(asked["pooled"]),
        asked["clusters"],
        asked["tokens"],
        tuple(asked["receivers"]),
        tuple(asked["senders"]),
        stamp,
    )


def _key(me: str, members: Sequence[str], secret: bytes) -> Flow[bytes]:
    first, others = members[0], members[1:]
    if me != first:
        found = expect((yield from recv(first, "key/tokens")), str, first, "key/tokens")
        return bytes.fromhex(found)
    yield from broadcast(others, "key/tokens", secret.hex(), "a key that hides row ids")
    return secret


def _classes(task: _Task, plan: Plan, key: bytes | None) -> Flow[Array | None]:
    """The class of every row where it is known here, or told by those who know it."""
    if plan.target is not None and plan.target in task.table.schema:
        codes = task.table.values[:, task.table.schema.index(plan.target)]
        if task.receivers and key is not None and task.table.row_ids is not None:
            told: dict[str, AnyArray] = {
                "tokens": tokens(task.table.row_ids, key),
                "classes": codes,
            }
            yield from broadcast(
                task.receivers, "labels/target", told, f"{plan.target} of its rows"
            )
        return codes if task.table.schema[plan.target].size else None
    if not task.senders or key is None or task.table.row_ids is None:
        return None
    own = tokens(task.table.row_ids, key)
    found = np.full(len(own), np.nan)
    for sender in task.senders:
        heard = expect((yield from recv(sender, "labels/target")), dict, sender, "labels/target")
        where = matched([own, np.asarray(heard["tokens"], np.uint64)])
        both = where[(where >= 0).all(axis=1)]
        found[both[:, 0]] = heard["classes"][both[:, 1]]
    return None if np.isnan(found).all() else found


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
    shown = yield from recv(COORDINATOR, "graph/circuit")
    graph = expect(shown, dict, COORDINATOR, "graph/circuit")
    circuit = Circuit.from_json(graph["circuit"])
    used = {n: c for n, c in learned.items() if n in circuit.by_name}
    view = View(party.name, circuit, graph["placement"], Parameters({}, used), party.allow_collect)
    if graph["em"]:
        view = yield from network_em.client(view, rows)
    return view


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
    graph: Json = {
        "circuit": cast(Json, joined.circuit.to_json()),
        "placement": cast(Json, dict(joined.placement)),
        "em": em,
    }
    yield from broadcast(members, "graph/circuit", graph, "the graph without its weights")
    view = View(COORDINATOR, joined.circuit, joined.placement, joined.parameters)
    if not em or shared is None:
        return Trained(view, notes)
    positions = {p: shared[:, i] for i, p in enumerate(members)}
    view, history = yield from network_em.coordinator(view, positions, plan.refine)
    return Trained(view, notes, history)


def _plans(members: Sequence[str], plan: Plan) -> Flow[tuple[Schema, list[Subspace], bool]]:
    found = yield from gather(members, "agree/schema")
    told = {p: expect(found[p], dict, p, "agree/schema") for p in members}
    for party, hello in told.items():
        if hello.get("version") != VERSION:
            raise FederationError(
                f"{party} speaks version {hello.get('version')} of this protocol, expected "
                f"{VERSION}: install the same fedcircuits at all parties"
            )
    schemas = {p: Schema.from_json(hello["schema"]) for p, hello in told.items()}
    schema = agree(schemas)
    if plan.target is not None:
        schema.index(plan.target)  # an error that names it
    spaces = subspaces({p: s.names for p, s in schemas.items()}, schema.names)
    apart = kind_of(spaces, len(members)) != "horizontal"
    sealed = apart and plan.weights != "sizes" and all(h["ids"] for h in told.values())
    sealed = sealed or (plan.refine > 0 and all(h["ids"] for h in told.values()))
    for party in members:
        held = [(i, list(s.variables)) for i, s in enumerate(spaces) if party in s.holders]
        target = plan.target if plan.share_target and sealed else None
        knows = target in schemas[party]
        asked = {
            "schema": schema.select(schemas[party].names).to_json(),
            "members": list(members),
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
            party, "agree/plan", cast(Json, asked), "who takes part, who shares columns"
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
