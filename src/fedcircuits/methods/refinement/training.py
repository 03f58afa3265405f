"""EM across parties: a federated circuit is refined on rows that stay where they are. There is one
loop for all roles, and one E-step for each way in which the rows are distributed.

    rows      Parties hold different rows of the same columns: statistics are summed (rows.py).
    network   Parties hold different columns of the same rows: log-likelihoods go up to the
              coordinator, posteriors come down (network.py).
    sums      The same, but log-likelihoods are summed, and nobody sees one party's (sums.py).
    shares    Expected counts of forests are summed on shares (private_forest/structures.py).

**Who takes part.** Clients, which hold tables and leaves, and a coordinator, which holds the graph
above the leaves.

**Idea.** A round is one EM iteration of the whole circuit on the rows that are not held out. Their
likelihood never decreases, apart from the effect of the rows that support every leaf
(learning/leaf_em.py). Held-out rows are scored before the first round and after every round, and EM
returns the parameters that were best on them (learning/stopping.py). The initial leaves were
learned from these rows too, so EM tends to stop early; leaves that do not see them are worse by
more than that (docs/results/federated.md). Which rows are held out depends on random numbers in the
order of the table, not on the key of tokens: one seed gives one model.

**What crosses by rows**, in round t:

    em/graph        coordinator → client: the graph above the leaves, fraction of rows to hold out
    em/leaves       client → every other client: its leaves, mean and deviation of its columns
    em/size         first client → coordinator, if it takes part in sums: how many numbers
    em/counts/t     client → sum: expected statistics of its rows for every sum and leaf (size,)
    em/judged/t     one member → all others: the best round on held-out rows, whether EM ends
    em/learned      first client → coordinator: weights above the leaves, likelihoods of all rounds

Leaves leave their parties, so every party must have allowed it (``allow_collect``). Clients learn
each other's circuits, and the mean and standard deviation of each other's columns, which circuits
reveal nearly as well. Whoever sees one party's array of em/counts learns weighted sums of its rows
for every node: if few rows reach a node, this reveals these rows. A hub sees every party's array,
neighbours in gossip see each other's, and with secret sums nobody does. All clients learn the
totals; with two clients, each can compute the other's array. The coordinator learns no leaf.

**What crosses through the network**, for n rows that all parties hold, in round t:

    em/rows         coordinator → client: which of the reader's rows all parties hold (n,)
    em/held         first client → coordinator: which of these are held out (n,)
    em/values/t     client → coordinator: log-likelihoods under each of its leaves (leaves, n)
    em/posterior/t  coordinator → client: posteriors of its leaves (leaves, n), nothing for held-out
                    rows; at the end, the round whose leaves are kept

Each client learns which of its rows all others hold, how probable the others find each of its
clusters for a row, and which rows are held out. The coordinator learns how likely each row is for
every client, without knowing which row it is.

**What crosses by sums**, in addition to em/rows, em/held (among clients), em/judged/t and
em/learned:

    em/graph        coordinator → client: combinations, their weights, and its leaves in each
    em/values/t     client → sum: log-values of combinations (combinations, n)
    em/mixtures/t   client → sum: the same for those with mixtures, when only weights change
    em/settled/t    first client → other clients: whether the weights have converged

Clients learn how often each combination occurs, and how likely every shared row is in each. The
coordinator learns no number about a single row, and for held-out rows the mean log-likelihood per
round.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.federation.flow import Flow, tell
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.stopping import EarlyStopping, held_share
from fedcircuits.methods.refinement import network, rows, sums
from fedcircuits.methods.refinement.roles import STOPPING, A, EMSettings, EMSite, Role
from fedcircuits.tables.table import Table

Way = Literal["rows", "network", "sums"]
LOTS = 2**31  # beyond the numbers of leaves, whose seeds are drawn alike
CLIENTS: Mapping[Way, Callable[[EMSite], Flow[Role[Any]]]] = {
    "rows": rows.client,
    "network": network.client,
    "sums": sums.client,
}


@dataclass(frozen=True, slots=True)
class Refined:
    """What the coordinator has after EM."""

    joint: Joint
    history: tuple[float, ...] = ()  # of rows learned from, before every round
    validation: tuple[float, ...] = ()  # of held-out rows, before the first round and after each


def rounds_of_em(
    role: Role[A], rounds: int, stopping: EarlyStopping = STOPPING
) -> Flow[tuple[int, list[float]]]:
    """The loop. A role ends with the parameters of the best round. Returns this round, and how
    likely held-out rows were in all rounds."""
    scores: list[float] = []
    states: deque[tuple[A, list[Packed]]] = deque(maxlen=stopping.patience + 1)
    yield from tell("em", 0, rounds)
    for t in range(rounds + 1):
        states.append(role.state())
        score = yield from role.expect(t, last=t == rounds)
        if score is not None:
            scores.append(score)
        best = stopping.best(scores) if scores else t
        ends = t == rounds or stopping.ends(scores)
        best, ends = yield from role.agree(range(t + 1 - len(states), t + 1), best, ends)
        if ends:
            break
        role.maximise()
        yield from tell("em", t + 1, rounds, role.history[-1] if role.history else math.nan)
    role.restore(states[best - t - 1])
    return best, scores


def client(
    way: Way,
    view: View,
    table: Table,
    order: Labels | None,
    members: Sequence[str],
    settings: EMSettings,
    stamp: str = "",
    least: int = 1,
) -> Flow[View]:
    """A client's part. ``order``: of its rows in the list of tokens that it has sent, if there is
    one; ``stamp``: of what its leaves were learned from; ``least``: rows that EM goes over."""
    seed = [settings.seed, zlib.crc32(view.me.encode()), LOTS]
    lots, listed = np.random.default_rng(seed).random(len(table)), table
    if order is not None:
        lots, listed = lots[order], table.rows(order)
    site = EMSite(view, table, listed, lots, tuple(members), settings, stamp, least)
    return (yield from refined(way, site))


def refined(way: Way, site: EMSite) -> Flow[View]:
    """The party's view with new leaves."""
    role = yield from CLIENTS[way](site)
    best, scores = yield from rounds_of_em(role, site.settings.rounds, site.settings.stopping)
    yield from role.finish(scores)
    if best == 0:
        return site.view  # of what it began with
    learned = {leaf.name: role.leaves[leaf.name].learned() for leaf in site.view.leaves}
    return replace(site.view, parameters=Parameters({}, learned), _ready={})


def coordinator(
    way: Way,
    joint: Joint,
    members: Sequence[str],
    settings: EMSettings,
    number: int = 0,
    shared: Labels | None = None,
) -> Flow[Refined]:
    """The coordinator's part. ``number``: of all rows of all parties, with which EM by rows begins;
    ``shared``: where each of them lists the rows that all hold, (rows, parties)."""
    positions = {} if shared is None else {p: shared[:, i] for i, p in enumerate(members)}
    if way == "rows":
        share = held_share(number, settings.share)
        adding = yield from rows.coordinator(joint, members, settings.summation, share, number)
        if adding is not None:
            yield from rounds_of_em(adding, settings.rounds, settings.stopping)
        above = yield from rows.learned_weights(joint, members[0])
    elif way == "network":
        role = yield from network.coordinator(joint, positions, settings.share)
        _, scores = yield from rounds_of_em(role, settings.rounds, settings.stopping)
        above = role.weights(settings.weight_rounds), tuple(role.history), tuple(scores)
    else:  # it takes no part in rounds
        above = yield from sums.coordinator(joint, positions)
    weights, history, validation = above
    return Refined(replace(joint, parameters=Parameters(weights)), history, validation)
