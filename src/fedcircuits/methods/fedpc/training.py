"""One-pass training of a federated circuit (federated circuits, sections 3 and 4): one code path
for data split by rows, by columns, or both.

Roles: clients hold tables, a coordinator holds none.

    agree    client → coordinator: names, kinds, categories and units of its columns, its number of
             rows. coordinator → client: agreed kinds of its columns, its subspaces and clusters.
    key      first client → other clients, not the coordinator: a key for row tokens. Only where
             parties hold other columns and all have row ids.
    labels   holders of the target → clients without it: row tokens and classes. Only with
             share_target.
    rows     client → coordinator: row tokens (a number a row), in their order, which says nothing.
             coordinator → client: the divisions it is in (divisions.py). Only with a key.
    clusters client ↔ coordinator: clusters of shared rows (exchange.py). Only with a key and
             share_clusters.
    learn    nothing crosses: every client clusters its rows and learns a circuit of what it models
             from every cluster.
    count    client → coordinator: rows of every cluster; with a key also the clusters of its rows,
             in the order of tokens, or with secret sums shares of them (cooccurrence.py); with
             refine whether what it has learned may leave it.
    graph    coordinator → client: which of its leaves are used. The graph stays.
    em       with refine or weights="em": on shared rows, or, where parties hold different rows of
             the same columns and allow their circuits to leave them, on all rows
             (methods/refinement/training.py).

The coordinator learns how many rows fall into which combination of clusters, and not which rows;
what circuits have learned stays with their parties. Clients learn who takes part, which of their
columns others hold too and, with share_clusters, which of the shared rows are alike at
other parties; nothing else of others' columns or rows. A coordinator that gets the key from a
client could try out row ids. Weights of the root:

    cooccurrence   how often clusters of different parties meet in a row (assembly.py)
    sizes          the paper's: sums of cluster sizes, whether they meet or not; needs no row ids
    em             co-occurrence, then EM on them by the likelihoods of shared rows

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

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.federation.federation import COORDINATOR, Party, kind_of, subspaces
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.placement import Joint, View, leaves_at
from fedcircuits.federation.sums.collectives import gather_payloads
from fedcircuits.federation.sums.counting import Combinations
from fedcircuits.federation.tokens import Labels, matched, tokens
from fedcircuits.federation.wire import Json
from fedcircuits.methods.fedpc import cooccurrence, exchange
from fedcircuits.methods.fedpc.assembly import POOLED, Assembled, joined, leaf_name
from fedcircuits.methods.fedpc.cooccurrence import children
from fedcircuits.methods.fedpc.divisions import Division, by_party, numbered
from fedcircuits.methods.fedpc.planning import (
    Plan,
    Split,
    Work,
    divided,
    telling,
    way_of_em,
    work_of,
)
from fedcircuits.methods.meeting import hello as agreement
from fedcircuits.methods.refinement import training as refinement
from fedcircuits.methods.refinement.roles import EMSettings
from fedcircuits.methods.refinement.training import Refined, Way
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table


class Learner(Protocol):
    """What learns a leaf: any estimator of this library, or one that has its face. It may have
    ``fit_part(part, whole)``, for a cluster in the context of all rows."""

    circuit_: Circuit
    parameters_: Parameters

    def fit(self, X: Table) -> object: ...


@dataclass(frozen=True, slots=True)
class Trained:
    """What the coordinator has at the end."""

    joint: Joint
    notes: tuple[str, ...] = ()  # what the user should know
    history: tuple[float, ...] = ()  # mean log-likelihood of EM's rows before every round
    validation: tuple[float, ...] = ()  # of those held back, before EM and after every round


# ---------------------------------------------------------------------- clients


@dataclass(frozen=True, slots=True)
class _Task:
    """What the coordinator has asked of a client."""

    table: Table  # in the agreed kinds and codes
    members: tuple[str, ...]
    tokens: bool
    receivers: tuple[str, ...]  # of the target's classes, if this client holds it
    senders: tuple[str, ...]  # of the classes, if it does not
    work: Work | None  # known at once where rows need not be matched


def client(
    party: Party, plan: Plan, learner: Learner, secret: bytes, clusters: Labels | None = None
) -> Flow[View]:
    """``clusters``: of its rows, found with the other parties before (vertical_em.py)."""
    task = yield from _agreed(party)
    table, key = task.table, None
    if task.tokens:
        key = yield from agreement.key_of(party.name, task.members, secret)
    classes = yield from _classes(task, plan.target, key)
    work, order = task.work, None
    if key is not None and table.row_ids is not None:
        work, order = yield from _listed(table, key)
    assert work is not None
    stamp = _stamp(task, f"{plan} {learner}", classes)
    me = zlib.crc32(party.name.encode())
    labels = yield from exchange.client(
        work.pieces, table, order, classes, plan.target, [plan.seed, me], stamp, clusters
    )
    learned: dict[str, tuple[Circuit, Parameters]] = {}
    for name, rows, columns in _parts(party.name, work, labels, len(table)):
        seed = int(np.random.default_rng([plan.seed, me, len(learned)]).integers(2**31))
        learning = _Learning(learner, table.select(columns), rows, seed)
        step = f"learning {name.rpartition('/')[0]} ({stamp}, {learning.mark:08x})"
        learned[name] = yield from compute(step, learning)
    graph = yield from _counted(party, task.members, order, labels, plan)
    leaves = tuple(Leaf(n, CIRCUIT, learned[n][0].schema.names) for n in graph["used"])
    values = Parameters({}, {leaf.name: learned[leaf.name] for leaf in leaves})
    view = View(party.name, table.schema, leaves, values, party.allow_collect)
    if graph["em"]:
        how = _refining(plan)
        parts = (view, table, order, task.members, how, stamp)
        return (yield from refinement.client(graph["em"], *parts))
    return view


def _refining(plan: Plan) -> EMSettings:
    return EMSettings(plan.refine, plan.validation, plan.summation, plan.seed)


def _stamp(task: _Task, settings: str, classes: Array | None) -> str:
    """Of all that a client's work depends on: it is kept for the same rows and plan only."""
    about = json.dumps([task.table.schema.to_json(), settings])
    found = zlib.crc32(task.table.values.tobytes(), zlib.crc32(about.encode()))
    return f"plan {found if classes is None else zlib.crc32(classes.tobytes(), found):08x}"


def _agreed(party: Party) -> Flow[_Task]:
    told = yield from agreement.introduced(party)
    return _Task(
        in_agreed(party.table, Schema.from_json(told["schema"])),
        tuple(told["members"]),
        told["tokens"],
        tuple(told["receivers"]),
        tuple(told["senders"]),
        None if told["tokens"] else Work.of(told),
    )


def _classes(task: _Task, target: str | None, key: bytes | None) -> Flow[Array | None]:
    """The class of every row where it is known here, or told by those who know it."""
    if target is None:
        return None
    y = yield from agreement.target_of(task.table, target, key, task.receivers, task.senders)
    number = target in task.table.schema and not task.table.schema[target].size
    return None if number or np.isnan(y).all() else y


def _listed(table: Table, key: bytes) -> Flow[tuple[Work, Labels]]:
    """The client lists its rows as tokens, and hears what to do with them."""
    assert table.row_ids is not None
    sealed = tokens(table.row_ids, key)
    order = np.argsort(sealed)
    yield from send_payload(COORDINATOR, "rows/tokens", sealed[order], "sealed tokens of its rows")
    heard = yield from recv_payload(COORDINATOR, "rows/plan")
    return Work.of(expect(heard, dict, COORDINATOR, "rows/plan")), order


def _parts(
    me: str, work: Work, labels: Mapping[int, Labels], rows: int
) -> list[tuple[str, Labels, list[str]]]:
    """Name, rows and columns of every leaf of this client."""
    found = []
    for group, (division, names) in work.groups.items():
        if group in work.pooled:
            found.append((leaf_name(me, POOLED, group), np.arange(rows), names))
            continue
        label = labels[division]
        for cluster in range(int(label.max()) + 1):
            found.append((leaf_name(me, cluster, group), np.flatnonzero(label == cluster), names))
    return found


@dataclass(frozen=True, slots=True)
class _Learning:
    """A leaf from a cluster of the party's rows, in the context of all of them."""

    learner: Learner
    table: Table
    rows: Labels
    seed: int

    @property
    def mark(self) -> int:
        """Of the rows and columns, so that kept work is found whatever its leaf is called."""
        return zlib.crc32(
            self.rows.tobytes(), zlib.crc32(f"{self.seed} {self.table.names}".encode())
        )

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


def _counted(
    party: Party,
    members: Sequence[str],
    order: Labels | None,
    labels: Mapping[int, Labels],
    plan: Plan,
) -> Flow[agreement.Told]:
    """The client tells its clusters, and hears what the graph makes of them."""
    sizes: dict[str, Json] = {str(d): np.bincount(own).tolist() for d, own in labels.items()}
    if plan.refine:
        sizes["collect"] = party.allow_collect
    yield from send_payload(COORDINATOR, "count/sizes", sizes, "rows of every cluster")
    if order is not None:
        yield from cooccurrence.client(party.name, members, order, labels, plan)
    return expect(
        (yield from recv_payload(COORDINATOR, "graph/leaves")), dict, COORDINATOR, "graph/leaves"
    )


# ---------------------------------------------------------------------- the coordinator


def coordinator(members: Sequence[str], plan: Plan) -> Flow[Trained]:
    split, divisions = yield from _plans(members, plan)
    where, notes = None, split.notes(plan)
    if split.sealed:
        where = yield from _matched(members)
        divisions, notes = divided(split, members, where, plan)
        yield from _tell(divisions, members, split, plan)
        told = {i: d for i, d in enumerate(divisions) if telling(d, split, plan)}
        if told:
            yield from exchange.coordinator(told, members, where)
    found = yield from gather_payloads(members, "count/sizes")
    sizes = {p: expect(found[p], dict, p, "count/sizes") for p in members}
    met: Mapping[int, Combinations] = {}
    if where is not None:
        met = yield from cooccurrence.coordinator(members, divisions, where, sizes, plan)
    rng = np.random.default_rng([plan.seed, 0])
    parts = [
        children(i, d, {p: sizes[p][str(i)] for p in d.parties}, met, plan, rng)
        for i, d in enumerate(divisions)
    ]
    made = joined(parts, split.schema)
    shared = None if where is None else where[(where >= 0).all(axis=1)]  # rows that all hold
    allowed = all(own.get("collect") for own in sizes.values())
    em, more = way_of_em(split, plan, shared, allowed)
    rows = sum(sum(own) for told in sizes.values() for k, own in told.items() if k != "collect")
    after = yield from _placed(made, members, shared, em, plan, rows)
    return Trained(after.joint, (*notes, *more), after.history, after.validation)


def _placed(
    made: Assembled,
    members: Sequence[str],
    shared: Labels | None,
    em: Way | Literal[""],
    plan: Plan,
    rows: int,
) -> Flow[Refined]:
    """Everybody hears which of its leaves are used; then EM, if there is any, on ``rows`` of all
    parties together or on ``shared`` ones."""
    for party in members:
        used = [leaf.name for leaf in leaves_at(made.circuit, made.placement, party)]
        told: Json = {"used": cast(Json, used), "em": em}
        yield from send_payload(party, "graph/leaves", told, "which of its clusters are used")
    whole = Joint(made.circuit, made.placement, made.parameters)
    if em:
        parts = (whole, members, _refining(plan), rows, shared)
        return (yield from refinement.coordinator(em, *parts))
    return Refined(whole)


# ---------------------------------------------------------------------- who does what


def _plans(members: Sequence[str], plan: Plan) -> Flow[tuple[Split, list[Division]]]:
    schemas, ids = yield from agreement.schemas_of(members)
    schema = agree(schemas)
    if plan.target is not None:
        schema.index(plan.target)  # an error that names it
    spaces = subspaces({p: s.names for p, s in schemas.items()}, schema.names)
    horizontal = kind_of(spaces, len(members)) == "horizontal"
    sealed = ids and not horizontal and (plan.weights != "sizes" or plan.refine > 0)
    split = Split(schema, spaces, horizontal, sealed)
    divisions = numbered(by_party(spaces, members) if horizontal else [spaces])
    for party in members:
        told = plan.share_target and sealed and plan.target is not None
        target = plan.target if told and schema[str(plan.target)].size else None
        knows = target in schemas[party]
        asked = agreement.asked(party, members, schemas, schema) | {
            "tokens": sealed,
            "receivers": cast(Json, _with(schemas, target, knows, holding=False)),
            "senders": cast(Json, _with(schemas, target, not knows, holding=True)),
        }
        if not sealed:
            asked |= work_of(party, divisions, split, plan)
        reveals = "who takes part, which of its columns others hold"
        yield from send_payload(party, "agree/plan", cast(Json, asked), reveals)
    return split, divisions


def _with(
    schemas: Mapping[str, Schema], target: str | None, asked: bool, *, holding: bool
) -> list[str]:
    if target is None or not asked:
        return []
    return [p for p, s in schemas.items() if (target in s) == holding]


def _matched(members: Sequence[str]) -> Flow[Labels]:
    """Where each party lists a row (rows, parties), −1 where it does not hold it."""
    found = yield from gather_payloads(members, "rows/tokens")
    told = [expect(found[p], np.ndarray, p, "rows/tokens") for p in members]
    return matched([np.asarray(t, np.uint64) for t in told])


def _tell(
    divisions: Sequence[Division], members: Sequence[str], split: Split, plan: Plan
) -> Flow[None]:
    for party in members:
        work = work_of(party, divisions, split, plan)
        reveals = "which of its columns it models, with how many others"
        yield from send_payload(party, "rows/plan", work, reveals)
