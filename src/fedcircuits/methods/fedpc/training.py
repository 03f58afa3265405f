"""One-pass training of a federated circuit (federated circuits, sections 3 and 4): one code path
for data split by rows, by columns, or both.

**Who takes part.** Clients, which hold tables, and a coordinator without data. **What crosses:**

    agree    client → coordinator: names, kinds, categories and units of its columns, its number of
             rows. coordinator → client: agreed kinds of its columns, what it clusters and learns.
    key      first client → other clients, not the coordinator: a key for row tokens. Only if
             parties hold different columns and all have row ids.
    rows     client → coordinator: row tokens (one number per row), sorted, so that their order
             reveals nothing (methods/meeting/tokens.py). Only with a key.
    labels   coordinator → holders of the target and clients without it: which of its rows the
             other holds. holder → client: the classes of these rows. Only with share_target.
    rows     coordinator → client: what it clusters and learns. Only with a key.
    clusters client ↔ coordinator: coarse groups of shared rows (clusters.py). Only with a key and
             with share_clusters, which is off by default.
    learn    nothing: every client clusters its rows and learns one circuit per cluster or, if a
             latent tree joins columns, from the cells of each column (cells.py).
    count    client → coordinator: the size of every cluster, the gain of a single circuit over
             those of the clusters and, with refine, whether its circuits may leave it. With a key,
             unless weights="sizes": how often clusters occur together, from the clusters of rows
             in the order of tokens (federation/sums/counting.py), or with secret sums from shares
             of them. For the tree: cells of columns, a pair at a time, for rows under other
             tokens (cells.py).
    graph    coordinator → client: which of its leaves are used. The graph stays.
    shared   if parties have few rows each of the same columns: one circuit by sums, mixed with the
             circuits that parties have learned alone (methods/shared/mixing.py).
    em       with refine or weights="em": EM across parties, on shared rows or, if parties hold
             different rows of the same columns and allow their circuits to leave them, on all rows
             (methods/refinement/training.py).

**What each party learns.** The coordinator learns how many rows fall into which combination of
clusters and, without secret sums, which rows fall together, but not which rows they are. For the
tree it learns a table for every pair of columns: how many rows, of which class, lie in which cells
of both, at least ``least_count`` rows of a party alike. Learned circuits stay with their parties.
Clients learn who takes part, which of their columns others hold too and, with share_clusters, which
of the shared rows are similar in other parties' numbers: a coarse view of these. They learn nothing
else about others' columns or rows. A coordinator that obtains the key from a client could try out
row ids, and see which rows of all tables are the same; with rows="private" there is nothing to try
out.

**Joining different columns** (dependence). Parties are joined by a latent tree over the cells of
all columns (latent.py), learned from tables of pairs, also from rows that some parties lack; or by
combinations of their clusters (assembly.py), which are few if there are few parties, and which may
be counted on secret shares.

**Weights of the root:**

    cooccurrence   how often clusters of different parties occur in the same row (assembly.py)
    sizes          the paper's: sums of cluster sizes, whether clusters occur together or not; needs
                   no row ids, and invents dependence between parties that no row has shown
    em             co-occurrence, then EM on the weights with the likelihoods of shared rows

A lost party ends the run; what the others have computed is kept. If the others hold all variables,
the run may be repeated without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.circuit import CIRCUIT, Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError, SiteError
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.federation import COORDINATOR, Party, kind_of, row_ids, subspaces
from fedcircuits.federation.flow import Flow, digest, gather, receive, send
from fedcircuits.federation.messages import Message, require
from fedcircuits.federation.placement import QuestionBudget, View, leaves_at
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.least_counts import rare_mixed
from fedcircuits.methods.fedpc import latent
from fedcircuits.methods.fedpc.assembly import ClusterSizes, children_of, combination_counts, joined
from fedcircuits.methods.fedpc.cells import chosen_rows, learn_cells, send_cells
from fedcircuits.methods.fedpc.clusters import RowClustering, check_tasks, exchange_clusters
from fedcircuits.methods.fedpc.leaves import (
    LeafLearner,
    LearnedLeaf,
    fitted_leaf,
    learn_alone,
    learn_judged,
    with_apart,
)
from fedcircuits.methods.fedpc.planning import (
    INDEPENDENT,
    MADE_UP,
    NO_CELLS,
    NOT_ALLOWED,
    ClientWork,
    Division,
    FedPCAssignment,
    FedPCPlan,
    VariableSplit,
    by_completed_party,
    by_party,
    divisions_of,
    numbered,
    work_of,
)
from fedcircuits.methods.fedpc.views import cell_plans
from fedcircuits.methods.meeting.hello import Hello, Method, hellos_of, introduce
from fedcircuits.methods.meeting.tokens import hidden_rows, match_tokens, send_tokens, target_of
from fedcircuits.methods.refinement import training as refinement
from fedcircuits.methods.refinement.roles import LARGEST
from fedcircuits.methods.refinement.training import Refined, Way
from fedcircuits.methods.shared import mixing
from fedcircuits.methods.shared.alone import FEW_ROWS, MixedAlone
from fedcircuits.methods.shared.training import SharedLearner, check_least
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

METHOD = Method("fedpc", 1)


class UsedLeaves(Message, frozen=True):
    """Which of a client's leaves are in the graph, and whether EM follows."""

    tag: ClassVar[str] = "graph/leaves"
    reveals: ClassVar[str] = "which of the reader's clusters are used"

    used: tuple[str, ...]
    refine: bool


@dataclass(frozen=True, slots=True)
class TrainedCircuit:
    """What the coordinator has at the end."""

    refined: Refined  # the graph above the leaves, after EM if there was any
    notes: tuple[str, ...]  # what the user should know
    choice: str = ""  # of a method, and why


# ---------------------------------------------------------------------- clients


def client(
    party: Party,
    plan: FedPCPlan,
    learner: LeafLearner,
    secret: bytes,
    given: Labels | None = None,
    sharers: Sequence[SharedLearner] = (),
    mixed: Sequence[SharedLearner] = (),
) -> Flow[View]:
    """``given``: clusters of its rows, found with the other parties before (methods/vertical);
    ``sharers``: circuits by sums in question, where parties have few rows (methods/shared);
    ``mixed``: circuits that it learns alone from few rows, if nothing is added up."""
    if sharers:
        check_least(party, plan.shares)
    run = (METHOD, FedPCAssignment, plan.target if plan.share_target else None, plan.members)
    assignment, table = yield from introduce(party, *run)
    _check(assignment, table, given)
    every, table = table if sharers else None, rare_mixed(table, party.least_count)
    members, work, order = plan.members, assignment.work, None
    if assignment.tokens:
        hidden = yield from hidden_rows(party.name, row_ids(party), members, secret, plan.rows)
        order = yield from send_tokens(hidden)
    classes = yield from _classes(table, plan.target, order, assignment.routes(party.name))
    if order is not None:
        work = yield from receive(COORDINATOR, ClientWork)
    assert work is not None, "it is sent at once, or after tokens were sent"
    tag = ClientWork.tag if order is not None else FedPCAssignment.tag
    _check_work(work, plan, table.names, tag)
    if mixed and len(table) < FEW_ROWS:  # of all classes
        learner, classes = MixedAlone.of(learner, mixed, plan.target), None
    stamp, seed = _stamp(table, plan, learner, classes), (plan.seed, _number(party.name))
    about = plan.clusters, classes, plan.target, seed, stamp, party.least_count
    labels = yield from RowClustering(table, *about).labels(work.tasks, order, given)
    how = learner, seed, stamp, plan.weights != "sizes"
    learned, gains = yield from learn_judged(party, table, work, labels, *how)
    learned |= yield from learn_cells(party, table, work.cells.tasks)
    collect = bool(plan.refine) and party.allow_collect
    yield from send(COORDINATOR, ClusterSizes.of(labels, collect, gains))
    if order is not None and work.cells:
        own, gain = yield from learn_alone(party, table, work.cells.tasks, learner, seed, stamp)
        chosen = chosen_rows(row_ids(party), work.cells.thinned, plan.seed)
        yield from send_cells(party, hidden, work.cells, table, chosen, gain)
        learned |= own
    elif order is not None and plan.weights != "sizes":
        counts = plan.summation.counts(party.name, members)
        yield from counts.contribute({d: label[order] for d, label in labels.items()})
    way, schema = plan.way_of_em(horizontal=order is None), table.schema
    rows = None if way is None else table
    del table  # others may learn for long, and rows take memory
    graph = yield from receive(COORDINATOR, UsedLeaves)
    _check_used(graph, learned, way)
    view = _view(party, plan, schema, {n: learned[n] for n in graph.used})
    if every is not None:  # sums are of all parties: no category is rare at one of them
        alone = partial(fitted_leaf, learner, seed=plan.seed, least=party.least_count)
        shared = plan.shares, sharers, plan.validation
        return (yield from mixing.client(view, every, shared, alone))
    if way is None or rows is None or not graph.refine:
        return view
    em = members, plan.em, stamp, party.least_count
    return (yield from refinement.client(way, view, rows, order, *em))


def _view(
    party: Party,
    plan: FedPCPlan,
    schema: Schema,
    learned: dict[str, LearnedLeaf],
) -> View:
    leaves = tuple(Leaf(n, CIRCUIT, circuit.schema.names) for n, (circuit, _) in learned.items())
    allowed = party.allow_collect, QuestionBudget(party.most_questions), plan.answers
    return View(party.name, schema, leaves, Parameters({}, learned), *allowed)


def _classes(
    table: Table,
    target: str | None,
    order: Labels | None,
    routes: tuple[tuple[str, ...], tuple[str, ...]],
) -> Flow[Array | None]:
    """The class of every row where it is known here, or told by those who know it."""
    if target is None:
        return None
    y = yield from target_of(table, target, order, *routes)
    number = target in table.schema and not table.schema[target].size
    return None if number or np.isnan(y).all() else y


def _check_work(work: ClientWork, plan: FedPCPlan, names: Sequence[str], tag: str) -> None:
    work.check(names, tag, plan.share_clusters)
    plan.check_cells(work.cells, names)
    check_tasks(work.tasks, len(plan.members), tag)


def _check(assignment: FedPCAssignment, table: Table, labels: Labels | None) -> None:
    """MessageError unless work is sent when it is due; SiteError unless there is a cluster for each
    of its rows, where clusters are given; FederationError at the owner of numbers whose squares
    others would refuse."""
    fits = (assignment.work is None) == assignment.tokens
    problem = "it is sent at once, or with tokens when rows are matched"
    require(fits, COORDINATOR, FedPCAssignment, "work", problem)

    if labels is not None and len(labels) != len(table):
        raise SiteError(
            f"clusters must have a label for each of {len(table):,} rows, got {len(labels):,}: fit "
            "the mixture on the same federation"
        )
    most = np.sqrt(LARGEST)
    for name, column in zip(table.names, table.values.T, strict=True):
        if (np.abs(column) > most).any():
            raise FederationError(f"{name!r} has numbers beyond ±{most:g}: scale the column")


def _number(party: str) -> int:
    """By which the seeds of parties differ."""
    return zlib.crc32(party.encode())


def _stamp(table: Table, plan: FedPCPlan, learner: LeafLearner, classes: Array | None) -> str:
    """Of all that a client's work depends on: it is kept for the same rows and plan only."""
    about = json.dumps([table.schema.to_json(), f"{plan} {learner}"])
    return digest(about, table.values, "" if classes is None else classes)


def _check_used(graph: UsedLeaves, learned: Mapping[str, LearnedLeaf], way: Way | None) -> None:
    known = set(graph.used) <= set(learned) and len(set(graph.used)) == len(graph.used)
    problem = f"expected leaves that {ClientWork.tag!r} or {FedPCAssignment.tag!r} asked for"
    require(known, COORDINATOR, UsedLeaves, "used", problem)
    wanted = way is not None or not graph.refine
    require(wanted, COORDINATOR, UsedLeaves, "refine", "EM is not part of this party's plan")


# ---------------------------------------------------------------------- the coordinator


def coordinator(plan: FedPCPlan, sharers: Sequence[SharedLearner] = ()) -> Flow[TrainedCircuit]:
    """Who plans and joins: it holds no rows, and ends up with the graph above the leaves."""
    members = plan.members
    hellos = yield from hellos_of(members, METHOD)
    split = _split(hellos, plan)
    divisions, notes = _first_divisions(hellos, split)
    assignments = _assignments(hellos, split, divisions, plan)
    for party, assignment in assignments.items():
        yield from send(party, assignment)
    where = None
    pairs = split.tokens and plan.dependence == "pairs"
    cells = cell_plans(split.schema, hellos, plan.target) if pairs else {}
    held = {p: hello.rows for p, hello in hellos.items()}
    if split.tokens:
        where = yield from match_tokens(held, assignments[members[0]].holders)
        cells = {} if split.of_rows(where) else cells
        divisions, notes = ([], ()) if cells else divisions_of(split, members, where, plan)
        for party in members:
            work = work_of(party, divisions, split, plan, cells.get(party, NO_CELLS), where)
            yield from send(party, work)
        exchanging = {i: d for i, d in enumerate(divisions) if d.exchanges(split, plan)}
        if exchanging:
            yield from exchange_clusters(exchanging, members, where)
    sizes = yield from gather(members, ClusterSizes)
    for party, message in sizes.items():
        message.check(party, divisions, hellos[party].rows)
    rng, chosen = np.random.default_rng([plan.seed, 0]), tuple[str, ...]()
    if where is not None and cells:
        sent = yield from latent.collect_cells(cells, split.schema, held)
        part, notes = latent.by_forest(sent, cells, where, split.schema, rng)
        parts = [part]
    else:
        counts = yield from combination_counts(divisions, sizes, where, plan)
        parts = [
            children_of(d, {p: sizes[p].sizes[i] for p in d.parties}, counts.get(i), plan, rng)
            for i, d in enumerate(divisions)
        ]
        gains = {p: message.alone for p, message in sizes.items()}
        parts, chosen = with_apart(divisions, parts, gains, plan)
    joint = joined(parts, split.schema)
    shared = None if where is None else where[(where >= 0).all(axis=1)]  # rows that all hold
    way, more = _way_of_em(split, plan, shared, sizes)
    for party in members:
        used = (leaf.name for leaf in leaves_at(joint.circuit, joint.placement, party))
        yield from send(party, UsedLeaves(tuple(used), way is not None))
    refined, choice = Refined(joint), "; ".join(chosen)
    if way is not None:
        rows = sum(hello.rows for hello in hellos.values())
        refined = yield from refinement.coordinator(way, joint, members, plan.em, rows, shared)
    if sharers:
        about = (plan.shares, sharers, plan.validation), split.horizontal
        rows_of = [hello.rows for hello in hellos.values()]
        joint, choice, odd = yield from mixing.coordinator(joint, rows_of, *about)
        refined, more = Refined(joint), (*more, *odd)
    return TrainedCircuit(refined, (*notes, *more), choice)


def _split(hellos: Mapping[str, Hello], plan: FedPCPlan) -> VariableSplit:
    schemas = {p: hello.schema for p, hello in hellos.items()}
    schema = agree(schemas)
    if plan.target is not None and plan.target not in schema:
        raise FederationError(f"none of {', '.join(hellos)} holds the target {plan.target!r}")
    spaces = subspaces({p: s.names for p, s in schemas.items()}, schema.names)
    horizontal = kind_of(spaces, len(hellos)) == "horizontal"
    ids = all(hello.ids for hello in hellos.values())
    tokens = ids and not horizontal and (plan.weights != "sizes" or plan.refine > 0)
    unmatched = not tokens and not horizontal and plan.weights != "sizes"
    notes = (INDEPENDENT.format("not all of them have row ids"),) if unmatched else ()
    if plan.weights == "sizes" and not horizontal:
        notes = (MADE_UP,)
    usual = plan.shared == "divided" and plan.weights == "cooccurrence" and not horizontal
    common = any(len(s.holders) > 1 for s in spaces)
    return VariableSplit(schema, spaces, horizontal, tokens, notes, usual and common)


def _first_divisions(
    hellos: Mapping[str, Hello], split: VariableSplit
) -> tuple[list[Division], tuple[str, ...]]:
    """Final where rows need not be matched."""
    if split.horizontal:
        return numbered(by_party(split.spaces, list(hellos))), split.notes
    if split.completed and not split.tokens:
        return by_completed_party(split.spaces, {p: hello.rows for p, hello in hellos.items()})
    return numbered([split.spaces]), split.notes


def _assignments(
    hellos: Mapping[str, Hello],
    split: VariableSplit,
    divisions: Sequence[Division],
    plan: FedPCPlan,
) -> dict[str, FedPCAssignment]:
    """What every client is asked to do; ``divisions`` are final where rows need not be matched."""
    schemas, target = {p: hello.schema for p, hello in hellos.items()}, plan.target
    holders = None
    if plan.share_target and split.tokens and target is not None and split.schema[target].size:
        holders = tuple(p for p, schema in schemas.items() if target in schema)
    assignments = {}
    for party, schema in schemas.items():
        variables = split.schema.select(schema.names).variables
        work = None if split.tokens else work_of(party, divisions, split, plan)
        assignments[party] = FedPCAssignment(tuple(schemas), variables, split.tokens, holders, work)
    return assignments


def _way_of_em(
    split: VariableSplit,
    plan: FedPCPlan,
    shared: Labels | None,
    sizes: Mapping[str, ClusterSizes],
) -> tuple[Way | None, tuple[str, ...]]:
    """How EM goes, if it does; and why not, where it was asked for."""
    way = plan.way_of_em(split.horizontal)
    if way == "rows":
        return (way, ()) if all(s.collect for s in sizes.values()) else (None, (NOT_ALLOWED,))
    if way is not None and (shared is None or len(shared) < plan.least):
        none = shared is None or not len(shared)
        number = "no row is" if none else f"fewer than {plan.least} rows are"
        return None, (f"{number} held by all parties: EM across them was skipped",)
    return way, ()
