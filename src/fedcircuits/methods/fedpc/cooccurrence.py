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
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.counting import Combinations, Contingency
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.fedpc.assembly import (
    Assembly,
    Children,
    by_cooccurrence,
    by_rows,
    by_sizes,
)
from fedcircuits.methods.fedpc.divisions import Division
from fedcircuits.methods.fedpc.planning import Plan

Told = Mapping[str, Mapping[str, Sequence[int]]]  # by party and division: rows of every cluster


def client(
    me: str, members: Sequence[str], order: Labels, labels: Mapping[int, Labels], plan: Plan
) -> Flow[None]:
    """``order``: of its rows by tokens."""
    if plan.weights != "sizes":
        counts = plan.summation.counts(me, members)
        yield from counts.contribute({d: own[order] for d, own in labels.items()})


def coordinator(
    members: Sequence[str], divisions: Sequence[Division], where: Labels, sizes: Told, plan: Plan
) -> Flow[Mapping[int, Combinations]]:
    """By division: combinations of its parties' clusters, and how many rows have each."""
    if plan.weights == "sizes":
        return {}
    tables = {
        i: Contingency(
            d.parties,
            tuple(len(sizes[p][str(i)]) for p in d.parties),
            tuple(s.holders for s in d.spaces),
        )
        for i, d in enumerate(divisions)
    }
    return (yield from plan.summation.counts(COORDINATOR, members).collect(tables, where))


def children(
    number: int,
    division: Division,
    sizes: Mapping[str, list[int]],
    met: Mapping[int, Combinations],
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
