"""Decision trees of several parties (federated circuits, FC[DT]), for data split by rows, by
columns, or both.

**Who takes part.** Clients, which hold tables, and a coordinator without data.

**What crosses**, for C classes (of a numeric target, C = 2: rows and sum):

    agree    client → coordinator: names, kinds, categories and units of its columns, its number of
             rows. coordinator → client: agreed kinds of its columns, who takes part. Before that,
             where kinds do not say whether the target is a class, its distinct numbers
             (methods/meeting/task.py).
    key      first client → other clients, not the coordinator: a key for row tokens. Only if all
             have row ids, with share_target or for a threshold from different columns.
    labels   only with share_target: holders of the target send clients without it its values in the
             rows that both hold, (shared rows,); the coordinator matches rows
             (methods/meeting/tokens.py).
    count    client → coordinator: its rows of each class (C,). coordinator → client: overall shares
             of the classes, or the mean (C,).
    boost    only with grow="together", between parties that hold the same columns: the sums that
             decide splits of boosted trees (growing.py), with differential privacy other, noisy
             sums (noisy.py). Otherwise nothing crosses while trees grow.
    learn    client → coordinator: the columns of every tree.
    graph    coordinator → client: the graph and the placement of its nodes.
    decide   only with a threshold: counts, or answers for unidentified rows (threshold.py).
    query    evidence, and the outputs of trees for it (ensemble.py).

**What each party learns.** Trees stay with their parties. The coordinator learns counts of classes,
the columns of trees, and answers. Clients learn which of them hold the same columns, overall shares
of classes, the graph, and evidence on their own columns. Trees that were grown together are known
to all who took part, including a server that adds up; the first of the group answers queries.

By default a party whose columns nobody else holds boosts, and the others bag (growing.py explains
why). For a class that a party has never seen, its trees return the overall share. A lost party ends
the run; what others have grown is kept. The run can be repeated without it if somebody else holds
the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.federation import COORDINATOR, Party, row_ids
from fedcircuits.federation.flow import Flow, broadcast, compute, digest, gather, receive, send
from fedcircuits.federation.messages import (
    Count,
    FiniteVector,
    Message,
    blaming,
    encode_message,
    require,
    require_shape,
)
from fedcircuits.federation.sums.checked import MOST_ROWS, counts_problem
from fedcircuits.methods.meeting import hello
from fedcircuits.methods.meeting.task import agree_on_task, with_task
from fedcircuits.methods.meeting.tokens import hidden_rows, match_tokens, send_tokens, target_of
from fedcircuits.methods.trees import growing, noisy, threshold
from fedcircuits.methods.trees.decision_tree import Predictor, are_probabilities
from fedcircuits.methods.trees.ensemble import SEEN, PartyTrees, TreeEnsemble, fuse_of, graph_of
from fedcircuits.methods.trees.growing import GrownTrees, LabelledRows, TreesPlan
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

METHOD = hello.Method("trees", 2)
NOBODY = (
    "no party can learn to predict {!r}: no party holds it together with other columns; with "
    "share_target=True its holders send its values in shared rows to the others"
)


# ---------------------------------------------------------------------- messages


class TreesAssignment(hello.Assignment, frozen=True):
    target: Variable
    groups: dict[str, Count]  # by member: those who may learn and hold the same columns have one
    features: tuple[str, ...]  # the columns, in one order for all of a group
    by_rows: bool  # how a threshold is found

    @property
    def holds(self) -> bool:
        return self.target in self.variables

    @property
    def learns(self) -> bool:
        return bool(self.features) and (self.holds or bool(self.holders))

    def group(self, party: str) -> tuple[str, ...]:
        return tuple(p for p in self.members if self.groups[p] == self.groups[party])

    def growers(self, party: str, plan: TreesPlan) -> tuple[str, ...]:
        """Whose rows a party's trees are of; the first of them keeps the trees."""
        group = self.group(party)
        return group if plan.boosts(group, self.target) else (party,)


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
    reveals: ClassVar[str] = "the columns that each of its trees reads"

    scopes: list[list[str]]
    drowned: bool = False  # with noise: whether none of its trees asks anything


class TreesGraph(Message, frozen=True):
    tag: ClassVar[str] = "graph/circuit"
    reveals: ClassVar[str] = "the graph"

    circuit: str  # as JSON
    placement: dict[str, str]


# ---------------------------------------------------------------------- clients


def client(party: Party, plan: TreesPlan, leaf: Predictor, secret: bytes) -> Flow[TreeEnsemble]:
    if plan.noise is not None and plan.task != "given":
        raise SiteError("classes read from rows have no noise: with privacy, declare the classes")
    party = yield from with_task(party, plan.target, plan.task)
    shared = plan.target if plan.share_target else None
    task, table = yield from hello.introduce(party, METHOD, TreesAssignment, shared)
    _check_assignment(party, plan, task)
    target, routes = task.target, task.routes(party.name)
    hidden = order = None
    if task.tokens:
        hidden = yield from hidden_rows(party.name, row_ids(party), task.members, secret, plan.rows)
        order = (yield from send_tokens(hidden)) if task.holders else None
    y = yield from target_of(table, target.name, order, *routes, target.size)
    tally = growing.tally_of(y, target)
    counted = "its number of rows" + (" of each class" if target.size else ", and the sum")
    if plan.noise is not None:
        tally, counted = noisy.noisy_tally(tally, plan.noise), f"noisily {counted}"
    yield from send(COORDINATOR, TargetTally(tally), reveals=f"{counted} of {target.name}")
    sent = yield from receive(COORDINATOR, OverallTarget)
    overall = _checked_overall(sent.overall, tally, target)
    has = ~np.isnan(y)
    x = table.select(task.features).rows(has)
    stamp = digest(encode_message(task), f"{plan} {leaf}", overall, x.values, y[has])
    rows = LabelledRows(party.name, x, y[has], target, overall, stamp, plan.least)
    grown = yield from _grow(party, task, plan, leaf, rows)
    keeps = party.name == task.growers(party.name, plan)[0]
    kept = grown if keeps else replace(grown, trees={}, scopes=[])
    drowned = plan.noise is not None and noisy.are_empty(kept.trees.values())
    yield from send(COORDINATOR, TreeScopes(kept.scopes, drowned))
    view = _view(rows, kept, task.members, (yield from receive(COORDINATOR, TreesGraph)))
    if plan.threshold:
        work = partial(threshold.RatedRows.of, rows, grown)
        rated = yield from compute("rating rows", work, key=stamp)
        if task.by_rows and hidden is not None:
            yield from threshold.send_rows(rated, hidden.tokens[has])
        else:
            yield from threshold.by_counts(party.name, rated, task.members, plan.summation)
    return view


def _grow(
    party: Party, task: TreesAssignment, plan: TreesPlan, leaf: Predictor, rows: LabelledRows
) -> Flow[GrownTrees]:
    group = task.group(party.name)
    if not plan.boosts(group, task.target):
        trees, share = plan.number(False), plan.share(task.target)
        return (yield from growing.bagged(rows, leaf, trees, share, plan.seed))
    if plan.adds_up(group) and not party.allow_collect:
        raise FederationError(
            f"{party.name} does not allow learned parameters to leave it, but trees that are "
            "grown together are known to all: use Federation(…, allow_collect=True), or grow='auto'"
        )
    if plan.adds_up(group) and party.least_count > plan.least:
        raise FederationError(
            f"{party.name} has least_count={party.least_count}, but nodes of trees that are grown "
            f"together may hold {plan.least} rows of all parties: plan with the largest"
        )
    if plan.noise is None:
        return (yield from growing.boosted(rows, plan.number(True), group, plan.summation))
    grown = yield from noisy.boost_noisily(rows, group, plan, plan.noise)
    return growing.boosted_leaves(rows, grown, group[0], rows.overall)


def _view(
    rows: LabelledRows, kept: GrownTrees, members: Sequence[str], graph: TreesGraph
) -> TreeEnsemble:
    """What a client holds, once the graph is found to have its trees as they grew."""
    me, target, placement = rows.party, rows.target, graph.placement
    with blaming(COORDINATOR, TreesGraph, "circuit"):
        circuit = Circuit.loads(graph.circuit)
    trees = PartyTrees(me, kept.scopes, 1.0, frozenset(), kept.boosted)
    nodes = trees.nodes(target) if kept.trees else []
    columns = {name for scope in kept.scopes for name in scope}
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
    learned = Parameters(values), kept.trees
    return TreeEnsemble(me, circuit, placement, target, rows.overall, *learned)


def _check_assignment(party: Party, plan: TreesPlan, task: TreesAssignment) -> None:
    """MessageError unless the plan is one for this party."""
    me, names, groups = party.name, {*party.table.names}, task.groups
    known = groups.keys() == {*task.members} and max(groups.values()) < len(task.members)
    for name, holds, problem in (
        ("target", task.target.name == plan.target, f"expected {plan.target!r}"),
        ("target", task.holds == (plan.target in names), "expected what 'variables' say"),
        ("target", plan.noise is None or task.target.size > 0, "noise is for classes"),
        ("target", not plan.threshold or task.target.size == 2, "expected two classes"),
        ("groups", known, "expected a number below that of members for each of them"),
        ("groups", known and (task.learns or len(task.group(me)) == 1), f"{me} cannot learn"),
        ("groups", plan.noise is None or {*groups.values()} == {0}, "expected one, of all"),
        ("features", sorted(names - {plan.target}) == sorted(task.features), "expected columns"),
        ("by_rows", not task.by_rows or (plan.threshold and task.tokens), "there are no tokens"),
    ):
        require(holds, COORDINATOR, TreesAssignment, name, problem)


def _checked_overall(overall: Array, tally: Array, target: Variable) -> Array:
    """MessageError unless it is what can be said overall of these rows and others."""
    require_shape(overall, (target.size or 1,), COORDINATOR, OverallTarget, "overall")
    if target.size:
        fits = are_probabilities(overall[None]) and bool((overall > 0)[tally > 0].all())
        problem = "expected shares of classes, above 0 for those that rows have"
        require(fits, COORDINATOR, OverallTarget, "overall", problem)
    return np.asarray(overall, np.float64)


# ---------------------------------------------------------------------- the coordinator


@dataclass(frozen=True, slots=True)
class TrainedTrees:
    """What the coordinator has at the end."""

    view: TreeEnsemble
    schema: Schema  # of all parties
    notes: tuple[str, ...] = ()  # what the user should know


def coordinator(members: Sequence[str], plan: TreesPlan) -> Flow[TrainedTrees]:
    yield from agree_on_task(members, plan.task)
    hellos = yield from hello.hellos_of(members, METHOD)
    schema, tasks = _assignments(hellos, plan)
    target, first = schema[plan.target], tasks[members[0]]
    for party, task in tasks.items():
        yield from send(party, task)
    if first.holders:
        yield from match_tokens({p: said.rows for p, said in hellos.items()}, first.holders)
    tallies: dict[str, Array] = {}
    for party, message in (yield from gather(members, TargetTally)).items():
        _check_tally(message.tally, target, party, hellos[party].rows, plan.noise is not None)
        least = -np.inf if plan.noise is None else 1.0  # noise may leave nothing of a class
        tallies[party] = np.maximum(np.asarray(message.tally, np.float64), least)
    overall = growing.overall_of(tallies, [p for p in tallies if tasks[p].holds], target)
    reveals = f"overall {'shares of the classes' if target.size else 'mean'} of {target.name}"
    yield from broadcast(members, OverallTarget(overall), reveals=reveals)

    for group in dict.fromkeys(task.growers(party, plan) for party, task in tasks.items()):
        if plan.adds_up(group) and COORDINATOR in plan.summation.members(group):
            columns = schema.select(tasks[group[0]].features)  # of a server, which has no rows
            x = Table(columns, np.zeros((0, len(columns))))
            rows = LabelledRows(COORDINATOR, x, np.zeros(0), target, overall, "", plan.least)
            if plan.noise is not None:
                yield from noisy.boost_noisily(rows, group, plan, plan.noise)
                continue
            yield from growing.boost_together(rows, plan.number(True), group, plan.summation)
    scopes = yield from gather(members, TreeScopes)
    trees = _party_trees(tasks, plan, scopes, tallies)
    if not trees:
        raise FederationError(NOBODY.format(plan.target))
    graph = graph_of(trees, schema, target, average=plan.fuse == "mean")
    yield from broadcast(members, TreesGraph(graph[0].dumps(), graph[1]))
    view = TreeEnsemble(COORDINATOR, *graph[:2], target, overall, graph[2])
    if plan.threshold:
        by_counts = threshold.by_counts(COORDINATOR, None, members, plan.summation)
        finding = threshold.by_rows(view, tallies) if first.by_rows else by_counts
        view = replace(view, threshold=(yield from finding))
    busy = {p for t in trees for p in tasks[t.party].growers(t.party, plan)}
    idle = [p for p, task in tasks.items() if p not in busy and task.features]
    notes = [_note(idle, plan, bool(first.holders))] if idle else []
    notes += [noisy.DROWNED] if all(scopes[t.party].drowned for t in trees) else []
    return TrainedTrees(view, schema, tuple(notes))


def _assignments(
    hellos: Mapping[str, hello.Hello], plan: TreesPlan
) -> tuple[Schema, dict[str, TreesAssignment]]:
    """The columns of all parties, and what each of them is to do."""
    schemas = {party: said.schema for party, said in hellos.items()}
    schema, ids = agree(schemas), all(said.ids for said in hellos.values())
    if plan.target not in schema:
        raise FederationError(f"none of {', '.join(schemas)} holds the target {plan.target!r}")
    target = schema[plan.target]
    if plan.threshold and target.size != 2:
        raise FederationError(f"a threshold needs two classes, {plan.target!r} has {target.size}")
    shared = plan.share_target and ids and any(target.name not in held for held in schemas.values())
    holders = tuple(p for p, held in schemas.items() if target.name in held) if shared else None
    groups: dict[str, int] = {}
    numbers: dict[str | tuple[str, ...], int] = {}  # by columns, or by a party that cannot learn
    features: dict[str, tuple[str, ...]] = {}  # in the order of all columns
    for party, held in schemas.items():
        features[party] = tuple(n for n in schema.names if n in held and n != target.name)
        learns = features[party] and (shared or target.name in held)
        groups[party] = numbers.setdefault(features[party] if learns else party, len(numbers))
    if plan.noise is not None and len(numbers) > 1:
        name = next(n for n in schema.names if any(n not in held for held in schemas.values()))
        has, lacks = ([p for p, h in schemas.items() if (name in h) is it] for it in (True, False))
        raise FederationError(
            f"differential privacy needs parties with the same columns: column {name!r} is held "
            f"by {has[0]}, not by {lacks[0]}"
        )
    by_rows = plan.threshold and ids and sum(isinstance(k, tuple) for k in numbers) > 1
    return schema, {
        party: TreesAssignment(
            tuple(schemas), schema.select(held.names).variables, shared or by_rows, holders,
            target, groups, features[party], by_rows,
        )
        for party, held in schemas.items()
    }  # fmt: skip


def _party_trees(
    tasks: Mapping[str, TreesAssignment], plan: TreesPlan, sent: Mapping[str, TreeScopes],
    tallies: Mapping[str, Array],
) -> list[PartyTrees]:  # fmt: skip
    """The trees of all parties with any; limited by the number of rows with the target."""
    trees = []
    for party, task in tasks.items():
        scopes, held = sent[party].scopes, frozenset(task.features)
        growers, boosts = task.growers(party, plan), plan.boosts(task.group(party), task.target)
        rows = float(sum(tallies[p][: task.target.size or 1].sum() for p in growers))
        grows = task.learns and party == growers[0] and rows > 0
        number = plan.number(boosts) if grows else 0
        fits = len(scopes) == number and all(
            scope and len({*scope}) == len(scope) and {*scope} <= held for scope in scopes
        )
        problem = f"expected columns of {number} trees, among those of {party}"
        require(fits, party, TreeScopes, "scopes", problem)
        if scopes:
            weight = rows if plan.weights == "rows" else 1.0
            trees.append(PartyTrees(party, scopes, weight, held, boosts))
    return trees


def _check_tally(tally: Array, target: Variable, party: str, rows: int, noisy: bool) -> None:
    """``rows``: how many the party has said to hold."""
    require_shape(tally, (target.size or 2,), party, TargetTally, "tally")
    if noisy:
        sound = bool((np.abs(tally) < MOST_ROWS).all())
        return require(sound, party, TargetTally, "tally", "expected numbers of rows, and noise")
    counts = tally[: target.size or 1]
    problem = counts_problem(counts, np.full(len(counts), float(rows)))
    fits = not problem and counts.sum() <= rows and (target.size or abs(tally[1]) < 1e300)
    problem = problem or f"expected {rows} rows, or fewer, and a sum that is a number"
    require(bool(fits), party, TargetTally, "tally", problem)


def _note(idle: Sequence[str], plan: TreesPlan, shared: bool) -> str:
    names = ", ".join(idle[:4]) + (" …" if len(idle) > 4 else "")
    if shared:
        why = f"none of their rows has a value of {plan.target!r}, at any party"
    elif plan.share_target:
        why = f"they lack {plan.target!r}, and not all parties have row ids to match rows by"
    else:
        why = (
            f"they lack {plan.target!r} or all its values; with share_target=True its holders "
            "send them its values in shared rows"
        )
    return f"{names} did not contribute to predictions: {why}"
