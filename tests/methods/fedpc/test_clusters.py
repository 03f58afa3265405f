"""Clusters of a party's rows: enough rows in each, classes apart, the same for one seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.fedpc.clusters import (
    FEWEST_ROWS,
    clusters_by_others,
    clusters_of,
)
from fedcircuits.methods.fedpc.planning import MOST_CLUSTERS
from fedcircuits.tables.table import Table
from tests.federation.cases import NAMES, mixed_table
from tests.methods.watched import Watched


def labels(
    table: Table, clusters: object = "auto", classes: Array | None = None, seed: int = 0
) -> Labels:
    rng = np.random.default_rng(seed)
    return clusters_of(table, table.names, clusters, classes, rng)  # type: ignore[arg-type]


@pytest.mark.parametrize("clusters", [2, 5, 40, "auto"])
@pytest.mark.parametrize("target", [None, "risk", "colour"])
def test_every_cluster_has_rows(clusters: object, target: str | None) -> None:
    table = mixed_table()
    classes = None if target is None else table.values[:, NAMES.index(target)]
    found = labels(table, clusters, classes)
    sizes = np.bincount(found)
    assert found.shape == (150,) and found.min() == 0 and sizes.min() >= FEWEST_ROWS
    if isinstance(clusters, int) and target is None:
        assert len(sizes) <= clusters


def test_classes_are_kept_apart() -> None:
    table = mixed_table()
    classes = table.values[:, NAMES.index("colour")]
    found = labels(table, 9, classes)
    known = ~np.isnan(classes)
    for cluster in range(found.max() + 1):
        inside = classes[known & (found == cluster)]
        assert len(np.unique(inside)) == 1
    assert len(np.unique(found)) >= 3 and (found[~known] >= 0).all()


def test_one_cluster_and_few_rows() -> None:
    table = mixed_table()
    assert not labels(table, 1).any()
    assert not labels(table.rows(slice(0, 2 * FEWEST_ROWS - 1)), 4).any()
    classes = table.values[:, NAMES.index("risk")]
    assert labels(table, 1, classes).max() == 1  # one a class


def test_rows_of_rare_classes_join_others() -> None:
    table = mixed_table()
    classes = np.zeros(150)
    classes[:3] = 1.0
    found = labels(table, 4, classes)
    assert np.bincount(found).min() >= FEWEST_ROWS


def test_the_number_grows_slowly() -> None:
    rng = np.random.default_rng(0)
    numbers = []
    for rows in (40, 400, 4000):
        table = Table.of(rng.normal(size=(rows, 2)))
        numbers.append(labels(table).max() + 1)
    assert numbers[0] >= 2 and numbers[0] < numbers[1] < numbers[2] <= MOST_CLUSTERS


def test_seeds() -> None:
    table = mixed_table()
    assert np.array_equal(labels(table, 5), labels(table, 5))
    found = {labels(table, 5, seed=s).tobytes() for s in range(5)}
    assert len(found) > 1


# ---------------------------------------------------------------------- by what others say


def function_of_two(rows: int = 600) -> tuple[Table, Labels]:
    """One column that others know, four that they do not and that lie farther apart."""
    rng = np.random.default_rng(2)
    known = rng.integers(4, size=rows)
    loud = rng.integers(2, size=(rows, 4)) * 30.0
    table = Table.of(np.hstack([known[:, None] + 0.0, loud]) + 0.05 * rng.normal(size=(rows, 5)))
    return table, known


def purity(found: Labels, known: Labels) -> float:
    return sum(np.bincount(known[found == k]).max() for k in range(found.max() + 1)) / len(known)


def test_clusters_say_what_others_say() -> None:
    table, known = function_of_two()
    others = np.stack([known, np.zeros_like(known)], axis=1)
    own = labels(table, 4)
    told = clusters_by_others(table, table.names, others, 4, None, np.random.default_rng(0))
    assert purity(told, known) == 1 and purity(own, known) < 0.5


def test_rows_that_are_not_shared_have_clusters_too() -> None:
    table, known = function_of_two()
    others = np.where(np.arange(len(known)) % 3 == 0, -1, known)[:, None]
    told = clusters_by_others(table, table.names, others, 4, None, np.random.default_rng(0))
    assert purity(told, known) == 1 and told.shape == known.shape


@pytest.mark.parametrize("shared", [0, 5])
def test_too_few_shared_rows(shared: int) -> None:
    """Own clusters, where others say too little."""
    table, known = function_of_two()
    others = np.where(np.arange(len(known)) < shared, known, -1)[:, None]
    told = clusters_by_others(table, table.names, others, 4, None, np.random.default_rng(0))
    assert np.array_equal(told, labels(table, 4))


def test_told_clusters_keep_classes_apart() -> None:
    table, known = function_of_two()
    classes = (np.arange(len(known)) % 2).astype(float)
    classes[:20] = np.nan
    told = clusters_by_others(
        table, table.names, known[:, None], 8, classes, np.random.default_rng(0)
    )
    for k in range(told.max() + 1):
        inside = classes[told == k]
        assert len(np.unique(inside[~np.isnan(inside)])) == 1
    assert np.bincount(told).min() >= FEWEST_ROWS


# ---------------------------------------------------------------------- what is asked for


def column_by_column(work: Any) -> Any:
    """Clusters of a row by one column after the other, all in the order of its token."""
    names = work["tasks"][0]["columns"]
    tasks = [{**work["tasks"][0], "division": i, "columns": [n]} for i, n in enumerate(names)]
    groups = [{"number": i, "division": i, "variables": [n], "pooled": False}
              for i, n in enumerate(names)]  # fmt: skip
    return {**work, "tasks": tasks, "groups": groups}


def many_times(work: Any) -> Any:
    tasks = [{**work["tasks"][0], "division": i} for i in range(100)]
    groups = [{**work["groups"][0], "number": i, "division": i} for i in range(100)]
    return {**work, "tasks": tasks, "groups": groups}


@pytest.mark.parametrize("change", [column_by_column, many_times])
def test_rows_are_not_clustered_by_one_column_after_the_other(change: Any) -> None:
    """A coordinator would have the cells of all columns of a row together."""
    table = fc.Table.of(np.random.default_rng(0).normal(size=(90, 8)))
    parties = fc.split(table, 2, by="columns")
    engine = Watched({(COORDINATOR, "rows/plan"): change})
    with pytest.raises(PartyLostError, match="expected at most 2 sets of columns, 16 times each"):
        fc.FedPC(ensemble=1, random_state=0).fit(parties, engine=engine)
