"""Decision trees of several parties (federated circuits, FC[DT]): every role, for data split by
rows, by columns, or both.

Roles: clients hold tables, a coordinator holds none.

    agree    client → coordinator: names, kinds, categories and units of its columns, its number of
             rows. coordinator → client: agreed kinds of its columns, who takes part.
    key      first client → other clients, not the coordinator: a key for row tokens. Only where
             rows are matched: with share_target where some lack the target, for a threshold from
             different columns; and if all have row ids.
    labels   holders of the target → clients without it: row tokens and the target's values. Only
             with share_target. Whoever has the key can try out ids of rows that it does not hold.
    count    client → coordinator: how many of its rows have which class (of a number: rows and
             sum). coordinator → client: overall shares of the classes (the mean).
    boost    only with grow="together", between parties that hold the same columns: sums that
             boosted trees are decided by (growing.py). Else nothing crosses while trees grow.
    learn    client → coordinator: the columns of every tree.
    graph    coordinator → client: the graph and where its nodes live.
    decide   only with a threshold: counts, or answers to rows without a name (threshold.py).
    query    evidence, and what trees say of it (ensemble.py).

Trees stay with their parties; the coordinator learns counts of classes, the columns of trees, and
answers. Clients learn who of them hold the same columns, overall shares of classes, the graph, and
evidence on their own columns. Trees that were grown together are known to all who took part, a
server that adds up included; the first of the group answers questions.

By default a party whose columns nobody else holds boosts, others bag (growing.py says why). Of a
class that a party has never seen it says nothing, that is its overall share. A lost party ends the
run; what others have grown is kept. The run may be repeated without it where somebody else holds
the target.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, broadcast, compute, gather, receive, send
from fedcircuits.federation.messages import FiniteVector, Message, blaming, require, require_shape
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.methods.meeting.hello import (
    Assignment,
    Hello,
    Method,
    hellos_of,
    introduce,
    target_routes,
)
from fedcircuits.methods.meeting.tokens import key_of, target_of
from fedcircuits.methods.trees import growing, threshold
from fedcircuits.methods.trees.decision_tree import Predictor, are_probabilities
from fedcircuits.methods.trees.ensemble import SEEN, PartyTrees, TreeEnsemble, fuse_of, graph_of
from fedcircuits.methods.trees.growing import GrownTrees, LabelledRows
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

METHOD = Method("trees", 1)
Weights: TypeAlias = Literal["rows", "equal"]
Join: TypeAlias = Literal["auto", "mean"]
Grow: TypeAlias = Literal["auto", "bagged", "together"]
BAGGED, BOOSTED = 20, 50  # trees, where nobody says how many
NOBODY = (
    "nobody can learn to predict {!r}: no party has it beside other columns; share_target=True "
    "lets its holders tell the others the values of shared rows"
)


@dataclass(frozen=True, slots=True)
class TreesPlan:
    """What all parties of a run do alike."""

    target: str
    share_target: bool = False
    trees: int | Literal["auto"] = "auto"
    columns: float | Literal["auto"] = "auto"  # share of a party's columns that a bagged tree reads
    weights: Weights = "rows"  # of parties in a mean
    fuse: Join = "auto"
    seed: int = 0
    grow: Grow = "bagged"
    threshold: bool = False
    summation: Summation = field(default_factory=Hub)  # of groups that grow together

    def boosts(self, group: Sequence[str], target: Variable) -> bool:
        """Whether these parties, which hold the same columns, have boosted trees."""
        alone = self.grow == "auto" and len(group) == 1
        return bool(target.size) and (alone or self.grow == "together")

    def growers(self, party: str, group: Sequence[str], target: Variable) -> tuple[str, ...]:
        """Whose rows a party's trees are of; the first of them keeps the trees."""
        return tuple(group) if self.boosts(group, target) else (party,)

    def number(self, boosted: bool) -> int:
        return self.trees if self.trees != "auto" else (BOOSTED if boosted else BAGGED)

    def share(self, target: Variable) -> float:
        """On held-back rows of adult and breast cancer no share from 0.5 to 1 was best for classes
        in all splits; numbers were predicted best from all columns."""
        return self.columns if self.columns != "auto" else (0.8 if target.size else 1.0)


# ---------------------------------------------------------------------- messages


class TreesAssignment(Assignment, frozen=True):
    target: Variable
    group: tuple[str, ...]  # who may learn and holds the same columns
    features: tuple[str, ...]  # the columns, in one order for all of the group
    by_rows: bool  # how a threshold is found


class TargetTally(Message, frozen=True):
    """How many rows of a client have which class, or of a number the rows and their sum."""

    tag: ClassVar[str] = "count/target"

    tally: FiniteVector


class OverallTarget(Message, frozen=True):
    """Shares of the classes over all rows, or the mean."""

    tag: ClassVar[str] = "count/overall"

    overall: FiniteVector


class TreeScopes(Message, frozen=True):
    tag: ClassVar[str] = "learn/scopes"
    reveals: ClassVar[str] = "the columns of its trees"

    scopes: list[list[str]]


class TreesGraph(Message, frozen=True):
    tag: ClassVar[str] = "graph/circuit"
    reveals: ClassVar[str] = "the graph"

    circuit: str  # as JSON
    placement: dict[str, str]


# ---------------------------------------------------------------------- clients


def client(party: Party, plan: TreesPlan, leaf: Predictor, secret: bytes) -> Flow[TreeEnsemble]:
    task, table = yield from introduce(party, METHOD, TreesAssignment)
    _check_assignment(party, plan, task)
    target, key = task.target, None
    if task.tokens:
        key = yield from key_of(party.name, task.members, secret)
    routes = task.receivers, task.senders
    y = yield from target_of(table, target.name, key, *routes, target.size)
    tally = growing.tally_of(y, target)
    counted = "how many of its rows have which class" if target.size else "its rows and their sum"
    yield from send(COORDINATOR, TargetTally(tally), reveals=f"{counted} of {target.name}")
    overall = (yield from receive(COORDINATOR, OverallTarget)).overall
    _check_overall(overall, tally, target)

    has = ~np.isnan(y)
    stamp = f"plan {zlib.crc32(f'{task} {plan} {leaf} {overall.tolist()}'.encode()):08x}"
    x = table.select(task.features).rows(has)
    rows = LabelledRows(party.name, x, y[has], target, overall, stamp)
    grown = yield from _grow(party, task, plan, leaf, rows)
    keeps = party.name == plan.growers(party.name, task.group, target)[0]
    kept = grown if keeps else replace(grown, trees={}, scopes=[])
    yield from send(COORDINATOR, TreeScopes(kept.scopes))
    view = _view(rows, kept, task.members, (yield from receive(COORDINATOR, TreesGraph)))
    if plan.threshold:
        work = partial(threshold.RatedRows.of, rows, grown)
        rated = yield from compute(f"rating rows ({stamp})", work)
        if task.by_rows and key is not None:
            yield from threshold.send_rows(rated, table.rows(has), key)
        else:
            yield from threshold.by_counts(party.name, rated, task.members, plan.summation)
    return view


def _grow(
    party: Party, task: TreesAssignment, plan: TreesPlan, leaf: Predictor, rows: LabelledRows
) -> Flow[GrownTrees]:
    if not plan.boosts(task.group, task.target):
        return (
            yield from growing.bagged(
                rows, leaf, plan.number(False), plan.share(task.target), plan.seed
            )
        )
    if len(task.group) > 1 and not party.allow_collect:
        raise FederationError(
            f"{party.name} did not allow what it has learned to leave it, and trees that are grown "
            "together are known to all: Federation(…, allow_collect=True), or grow='auto'"
        )
    return (yield from growing.boosted(rows, plan.number(True), task.group, plan.summation))


def _view(
    rows: LabelledRows, kept: GrownTrees, members: Sequence[str], graph: TreesGraph
) -> TreeEnsemble:
    """What a client holds, once the graph is found to have its trees as they grew."""
    me, target, placement = rows.party, rows.target, graph.placement
    with blaming(COORDINATOR, TreesGraph, "circuit"):
        circuit = Circuit.loads(graph.circuit)
    own = PartyTrees(me, kept.scopes, 1.0, frozenset(), kept.boosted)
    nodes = own.nodes(target) if kept.trees else []
    columns = {name for scope in own.scopes for name in scope}
    fits = {*nodes} <= {*circuit.nodes} and all(
        name in circuit.schema and circuit.schema[name] == rows.x.schema[name] for name in columns
    )
    require(fits, COORDINATOR, TreesGraph, "circuit", f"expected the trees of {me} as they grew")
    fits = placement.keys() == circuit.by_name.keys() and {n.name for n in nodes} == {
        node for node, place in placement.items() if place == me
    }
    fits = fits and {*placement.values()} <= {*members, COORDINATOR}
    require(fits, COORDINATOR, TreesGraph, "placement", "expected every node at whoever has it")
    seen = kept.seen if target.size else np.ones(1)
    values: dict[str, Arrays] = {fuse_of(me): {SEEN: seen}} if kept.trees else {}
    return TreeEnsemble(
        me, circuit, placement, target, rows.overall, Parameters(values), kept.trees
    )


def _check_assignment(party: Party, plan: TreesPlan, task: TreesAssignment) -> None:
    """MessageError unless the plan is one for this party."""
    names, group = party.table.names, task.group
    held = [v for v in task.variables if v.name == plan.target]
    for name, holds, problem in (
        ("target", task.target.name == plan.target, f"expected {plan.target!r}"),
        ("target", not held or held == [task.target], "expected what 'variables' say"),
        ("target", not plan.threshold or task.target.size == 2, "expected two classes"),
        ("group", party.name in group and set(group) <= set(task.members), "expected members"),
        ("group", len(set(group)) == len(group), "a party is named twice"),
        ("features", sorted({*names} - {plan.target}) == sorted(task.features), "expected columns"),
        ("by_rows", not task.by_rows or (plan.threshold and task.tokens), "there are no tokens"),
    ):
        require(holds, COORDINATOR, TreesAssignment, name, problem)


def _check_overall(overall: Array, tally: Array, target: Variable) -> None:
    """MessageError unless it is what can be said overall of these rows and others."""
    require_shape(overall, (target.size or 1,), COORDINATOR, OverallTarget, "overall")
    if target.size:
        fits = are_probabilities(overall[None]) and bool((overall > 0)[tally > 0].all())
        problem = "expected shares of classes, above 0 for those that rows have"
        require(fits, COORDINATOR, OverallTarget, "overall", problem)


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, slots=True)
class TrainedTrees:
    """What the coordinator has at the end."""

    view: TreeEnsemble
    schema: Schema  # of all parties
    notes: tuple[str, ...] = ()  # what the user should know


def coordinator(members: Sequence[str], plan: TreesPlan) -> Flow[TrainedTrees]:
    hellos = yield from hellos_of(members, METHOD)
    parties = _Holdings.of(hellos, plan)
    target = parties.target
    for party in members:
        yield from send(party, parties.assignment(party))
    tallies: dict[str, Array] = {}
    for party, message in (yield from gather(members, TargetTally)).items():
        _check_tally(message.tally, target, party, hellos[party].rows)
        tallies[party] = message.tally
    overall = _overall([t for p, t in tallies.items() if plan.target in parties.schemas[p]], target)
    reveals = f"overall {'shares of the classes' if target.size else 'mean'} of {target.name}"
    yield from broadcast(members, OverallTarget(overall), reveals=reveals)

    for group in parties.groups:
        together = plan.boosts(group, target) and len(group) > 1
        if together and COORDINATOR in plan.summation.members(group):  # the server has no rows
            schema = parties.schema.select(parties.features(group[0]))
            none = Table(schema, np.zeros((0, len(schema))))
            server = LabelledRows(COORDINATOR, none, np.zeros(0), target, overall, "")
            yield from growing.boost_together(server, plan.number(True), group, plan.summation)
    scopes = yield from gather(members, TreeScopes)
    trees = parties.trees(scopes, {p: t[: target.size or 1].sum() for p, t in tallies.items()})
    if not trees:
        raise FederationError(NOBODY.format(plan.target))
    average = plan.fuse == "mean"
    circuit, placement, weights = graph_of(trees, parties.schema, target, average=average)
    yield from broadcast(members, TreesGraph(circuit.dumps(), placement))
    view = TreeEnsemble(COORDINATOR, circuit, placement, target, overall, weights)
    if plan.threshold and parties.by_rows:
        view = replace(view, threshold=(yield from threshold.by_rows(view, tallies)))
    elif plan.threshold:
        best = yield from threshold.by_counts(COORDINATOR, None, members, plan.summation)
        view = replace(view, threshold=best)
    busy = {p for own in trees for p in parties.growers(own.party)}
    idle = [p for p in members if p not in busy and parties.features(p)]
    return TrainedTrees(view, parties.schema, (_note(idle, plan, parties.shared),) if idle else ())


@dataclass(frozen=True, slots=True)
class _Holdings:
    """Who holds what, and so who grows trees with whom."""

    plan: TreesPlan
    schemas: Mapping[str, Schema]
    schema: Schema  # of all
    target: Variable
    shared: bool  # whether the target is told to those who lack it
    groups: Sequence[tuple[str, ...]]  # parties that may learn, by columns
    by_rows: bool

    @classmethod
    def of(cls, hellos: Mapping[str, Hello], plan: TreesPlan) -> _Holdings:
        schemas = {p: h.schema for p, h in hellos.items()}
        schema, ids = agree(schemas), all(h.ids for h in hellos.values())
        target = schema[plan.target]  # or an error that names it
        if plan.threshold and target.size != 2:
            text = f"a threshold is for two classes, {plan.target!r} has {target.size}"
            raise FederationError(text)
        shared = plan.share_target and ids and any(plan.target not in s for s in schemas.values())
        groups: dict[frozenset[str], tuple[str, ...]] = {}
        for party, own in schemas.items():
            features = frozenset(own.names) - {plan.target}
            if features and (shared or plan.target in own):
                groups[features] = (*groups.get(features, ()), party)
        by_rows = plan.threshold and ids and len(groups) > 1
        return cls(plan, schemas, schema, target, shared, list(groups.values()), by_rows)

    def features(self, party: str) -> tuple[str, ...]:
        own = self.schemas[party]
        return tuple(n for n in self.schema.names if n in own and n != self.target.name)

    def group(self, party: str) -> tuple[str, ...]:
        return next((g for g in self.groups if party in g), (party,))

    def growers(self, party: str) -> tuple[str, ...]:
        return self.plan.growers(party, self.group(party), self.target)

    def assignment(self, party: str) -> TreesAssignment:
        routes = target_routes(self.schemas, self.target.name if self.shared else None)[party]
        return TreesAssignment(
            tuple(self.schemas),
            self.schema.select(self.schemas[party].names).variables,
            self.shared or self.by_rows,
            *routes,
            self.target,
            self.group(party),
            self.features(party),
            self.by_rows,
        )

    def trees(self, sent: Mapping[str, TreeScopes], rows: Mapping[str, float]) -> list[PartyTrees]:
        """The trees of all parties that have some; ``rows``: by party, those with the target."""
        trees = []
        for party, message in sent.items():
            growers, held = self.growers(party), frozenset(self.features(party))
            boosts, total = self.plan.boosts(self.group(party), self.target), 0.0
            if party == growers[0] and any(party in group for group in self.groups):
                total = sum(rows[p] for p in growers)
            number, scopes = self.plan.number(boosts) if total else 0, message.scopes
            fits = len(scopes) == number and all(
                scope and len({*scope}) == len(scope) and {*scope} <= held for scope in scopes
            )
            problem = f"expected columns of {number} trees, among those of {party}"
            require(fits, party, TreeScopes, "scopes", problem)
            if scopes:
                weight = total if self.plan.weights == "rows" else 1.0
                trees.append(PartyTrees(party, scopes, weight, held, boosts))
        return trees


def _check_tally(tally: Array, target: Variable, party: str, rows: int) -> None:
    """``rows``: how many the party has said to hold."""
    require_shape(tally, (target.size or 2,), party, TargetTally, "tally")
    counts = tally[: target.size or 1]
    fits = (counts >= 0).all() and (counts % 1 == 0).all() and counts.sum() <= rows
    fits = fits and (target.size > 0 or abs(tally[1]) < 1e300)
    problem = f"expected counts of at most {rows} rows{'' if target.size else ', and their sum'}"
    require(bool(fits), party, TargetTally, "tally", problem)


def _overall(tallies: Sequence[Array], target: Variable) -> Array:
    tally = np.sum(tallies, axis=0)
    total = tally.sum() if target.size else tally[0]
    if total == 0:
        raise FederationError(f"no row of any party has a value of the target {target.name!r}")
    return np.asarray(tally / total if target.size else tally[1:] / total)


def _note(idle: Sequence[str], plan: TreesPlan, shared: bool) -> str:
    names = ", ".join(idle[:4]) + (" …" if len(idle) > 4 else "")
    if shared:
        why = f"no row of theirs has a value of {plan.target!r}, here or at another party"
    elif plan.share_target:
        why = f"they lack {plan.target!r} and not all parties have row ids to be told it by"
    else:
        why = (
            f"they lack {plan.target!r}, or all its values; share_target=True lets its holders "
            "tell them the values of shared rows"
        )
    return f"{names} took no part in predicting: {why}"
