"""How often clusters of different parties meet in a row, which the coordinator counts.

    count/clusters   client → coordinator: the clusters of its rows in the order of tokens
    count/…          with secret sums: shares of them (secret_counts.py)

The coordinator learns how many rows fall into which combination of clusters; without secret sums
also which rows, that it cannot name, fall together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, expect, send_payload
from fedcircuits.federation.sums.collectives import gather_payloads
from fedcircuits.federation.tokens import Labels, patterns
from fedcircuits.federation.wire import AnyArray
from fedcircuits.methods.fedpc import secret_counts
from fedcircuits.methods.fedpc.assembly import (
    Assembly,
    Children,
    by_cooccurrence,
    by_rows,
    by_sizes,
)
from fedcircuits.methods.fedpc.divisions import Division
from fedcircuits.methods.fedpc.exchange import compact
from fedcircuits.methods.fedpc.planning import Plan
from fedcircuits.methods.fedpc.secret_counts import Met
from fedcircuits.privacy.secure_sum import Secret

Told = Mapping[str, Mapping[str, Sequence[int]]]  # by party and division: rows of every cluster


def client(
    me: str, members: Sequence[str], order: Labels, labels: Mapping[int, Labels], plan: Plan
) -> Flow[None]:
    """``order``: of its rows by tokens."""
    listed = {d: own[order] for d, own in labels.items()}
    if isinstance(plan.summation, Secret):
        if plan.weights != "sizes":
            yield from secret_counts.client(me, members, plan.summation.key, listed)
        return
    told: dict[str, AnyArray] = {str(d): compact(own) for d, own in listed.items()}
    reveals = "clusters of rows that it cannot name (sealed tokens)"
    yield from send_payload(COORDINATOR, "count/clusters", told, reveals)


def coordinator(
    members: Sequence[str], divisions: Sequence[Division], where: Labels, sizes: Told, plan: Plan
) -> Flow[Mapping[int, Met]]:
    """By division: combinations of its parties' clusters, and how many rows have each."""
    if isinstance(plan.summation, Secret):
        if plan.weights == "sizes":
            return {}
        key = plan.summation.key
        return (yield from secret_counts.coordinator(members, divisions, where, sizes, key))
    found = yield from gather_payloads(members, "count/clusters")
    told = {p: expect(found[p], dict, p, "count/clusters") for p in members}
    met = {}
    for number, division in enumerate(divisions):
        at = where[:, [members.index(p) for p in division.parties]]
        own = np.full(at.shape, -1, dtype=np.int64)
        for i, party in enumerate(division.parties):
            held = at[:, i] >= 0
            own[held, i] = told[party][str(number)][at[held, i]]
        met[number] = patterns(own)
    return met


def children(
    number: int,
    division: Division,
    sizes: Mapping[str, list[int]],
    met: Mapping[int, Met],
    plan: Plan,
    rng: np.random.Generator,
) -> tuple[Assembly, Children]:
    """Products of one division: by counts, or by sizes where nothing was counted."""
    made = Assembly(division.spaces, sizes, division.first, plan.shared == "pooled")
    parties = division.parties
    if len(parties) == 1:
        return made, by_rows(made, parties[0])
    if plan.weights != "sizes" and number in met:
        most = None if plan.products == "auto" else plan.products
        found = by_cooccurrence(made, parties, *met[number], most)
        if found is not None:
            return made, found
    return made, by_sizes(made, plan.products, rng)
