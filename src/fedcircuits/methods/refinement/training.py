"""EM across parties: a federated circuit is refined on rows that stay where they are. One loop for
all roles, and an E-step for each way in which the rows lie.

    rows      Parties hold different rows of the same columns: statistics add up (rows.py).
    network   Different columns of the same rows: log-likelihoods go up to the coordinator,
              posteriors come down (network.py).
    sums      The same, but log-likelihoods are added up, and nobody sees one party's (sums.py).
    shares    Expected counts of forests are added up on shares (private_forest/structures.py).

Clients hold tables and leaves, the coordinator the graph above the leaves. A round is one iteration
of EM of the whole circuit on the rows that are not held back: their likelihood never falls, but for
what the rows behind every leaf take from it (learning/leaf_em.py). Rows held back are judged before
the first round and after every one, and EM ends with the parameters that were best on them
(learning/stopping.py). The leaves it begins with were learned from these rows, too, so that it
rather stops early; leaves that do not see them are worse by more than that
(docs/results/federated.md). Which rows are held back follows from lots of rows in the order of the
table, not from the key of tokens: one seed gives one model.

What crosses, n rows shared by all, in round t. By rows:

    em/graph        coordinator → client: the graph above the leaves, share of rows to hold back
    em/leaves       client → every other client: its leaves, mean and deviation of its columns
    em/size         first client → coordinator, where it takes part in sums: how many numbers
    em/counts/t     client → sum: expected statistics of its rows for every sum and leaf (size,)
    em/judged/t     one member → all others: the best round on rows held back, whether EM ends
    em/learned      first client → coordinator: weights above the leaves, likelihoods of all rounds

Leaves leave their parties, so every party must have allowed it (``allow_collect``). Clients learn
each other's circuits, and the mean and deviation of each other's columns, which circuits tell
nearly as well. Whoever sees one party's array of em/counts learns weighted sums of its rows for
every node: a node that few rows reach tells these rows. A hub sees every party's array, neighbours
in gossip each other's, with secret sums nobody does. All clients learn the totals; of two each
works out the other's. The coordinator learns no leaf.

Through the network:

    em/rows         coordinator → client: which of its rows all parties hold (n,)
    em/held         first client → coordinator: which of these are held back (n,)
    em/values/t     client → coordinator: log-likelihoods under each of its leaves (leaves, n)
    em/posterior/t  coordinator → client: posteriors of its leaves (leaves, n), nothing for rows
                    held back; at the end the round whose leaves stay

Each client learns which of its rows all others hold, how probable the others find each of its
clusters for a row, and which rows are held back. The coordinator learns how likely every client
finds each row, without knowing which row it is.

By sums, beside em/rows, em/held (among clients), em/judged/t and em/learned:

    em/graph        coordinator → client: combinations, their weights, and its leaves in each
    em/values/t     client → sum: log-values of combinations (combinations, n)
    em/mixtures/t   client → sum: the same of those with mixtures, when weights alone change
    em/settled/t    first client → other clients: whether weights alone gain no more

Clients learn how often each combination occurs and how likely every shared row is in each. The
coordinator learns no number of a row, and of rows held back the mean log-likelihood per round.
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
from fedcircuits.federation.tokens import Labels
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
    validation: tuple[float, ...] = ()  # of rows held back, before the first round and after each


def rounds_of_em(
    role: Role[A], rounds: int, stopping: EarlyStopping = STOPPING
) -> Flow[tuple[int, list[float]]]:
    """The loop. A role ends with the parameters of the best round. Returns this round, and how
    likely rows held back were in all rounds."""
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
) -> Flow[View]:
    """A client's part. ``order``: of its rows in the list of tokens that it has sent, if there is
    one; ``stamp``: of what its leaves were learned from."""
    seed = [settings.seed, zlib.crc32(view.me.encode()), LOTS]
    lots, listed = np.random.default_rng(seed).random(len(table)), table
    if order is not None:
        lots, listed = lots[order], table.rows(order)
    site = EMSite(view, table, listed, lots, tuple(members), settings, stamp)
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
