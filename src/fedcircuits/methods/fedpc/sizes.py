"""How large clusters are, and in how many rows they meet: messages of counting and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import Count, Message, require
from fedcircuits.federation.sums.counting import CombinationCounts
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.fedpc.cells import Nats
from fedcircuits.methods.fedpc.planning import Division, FedPCPlan


class ClusterSizes(Message, frozen=True):
    """By division how many rows each cluster has."""

    tag: ClassVar[str] = "count/sizes"
    reveals: ClassVar[str] = (
        "rows of every cluster; how much likelier its rows are by one circuit than by clusters"
    )

    sizes: dict[int, tuple[Count, ...]]
    collect: bool  # with refine: whether what it has learned may leave it
    alone: dict[int, Nats]  # a row held back gains by one circuit over those of clusters

    @classmethod
    def of(cls, labels: Mapping[int, Labels], collect: bool, alone: dict[int, float]) -> Self:
        """Of the cluster of every row, by division."""
        sizes = {d: tuple(np.bincount(label).tolist()) for d, label in labels.items()}
        return cls(sizes, collect, alone)

    def check(self, party: str, divisions: Sequence[Division], rows: int) -> None:
        """MessageError unless it has clusters of all of the party's rows, by its divisions."""
        expected = {i for i, d in enumerate(divisions) if party in d.parties}
        fits = self.sizes.keys() == expected
        problem = f"the {COORDINATOR} asked for clusters of divisions {sorted(expected)}"
        require(fits, party, ClusterSizes, "sizes", problem)
        sound = all(min(s, default=0) > 0 and sum(s) == rows for s in self.sizes.values())
        require(sound, party, ClusterSizes, "sizes", f"expected clusters of its {rows:,} rows")
        numbers = self.alone.keys() <= expected and bool(np.isfinite([*self.alone.values()]).all())
        require(numbers, party, ClusterSizes, "alone", "expected numbers of its divisions")


def combination_counts(
    divisions: Sequence[Division],
    sizes: Mapping[str, ClusterSizes],
    where: Labels | None,
    plan: FedPCPlan,
) -> Flow[Mapping[int, CombinationCounts]]:
    """In how many rows which clusters meet, by division; nothing where rows are not matched."""
    if where is None or plan.weights == "sizes":
        return {}
    counting = plan.summation.counts(COORDINATOR, plan.members)
    tables = {
        i: d.table([len(sizes[p].sizes[i]) for p in d.parties]) for i, d in enumerate(divisions)
    }
    counts = yield from counting.collect(tables, where)
    for i, (combinations, met) in counts.items():
        for party, labels in zip(divisions[i].parties, combinations.T, strict=True):
            _check_met(labels, met, party, sizes[party].sizes[i])
    return counts


def _check_met(labels: Labels, rows: Array, party: str, sizes: Sequence[int]) -> None:
    """``labels``: of a party in combinations of so many rows, −1 where it is not in them."""
    held = labels >= 0
    rows_of = np.bincount(labels[held], rows[held], len(sizes))
    fits = len(rows_of) == len(sizes) and bool((rows_of <= np.array(sizes)).all())
    require(fits, party, ClusterSizes, "sizes", "more rows were counted in a cluster")
