"""What a clinic hears of a laboratory's columns in training, read off the wire: nothing by default,
and with share_clusters nothing of categories, booleans, codes and the target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.fedpc.clusters import MOST_GROUPS, OthersClusters, _told, clusters_of
from fedcircuits.methods.meeting.tokens import tokens
from tests.federation.cases import QUICK
from tests.methods.watched import Watched, read

ROWS = 500
DIAGNOSES = ["asthma", "cancer", "diabetes", "none"]


def patients() -> dict[str, Any]:
    """Secret columns of a laboratory, by name."""
    rng = np.random.default_rng(3)
    hiv = rng.random(ROWS) < 0.3
    return {
        "hiv": hiv,
        "cd4": np.where(hiv, 250, 900) + 60 * rng.normal(size=ROWS),
        "diagnosis": np.array(DIAGNOSES)[rng.integers(4, size=ROWS)],
        "stage": rng.integers(4, size=ROWS) * 10.0,  # a code among numbers
        "weight": 70 + 12 * rng.normal(size=ROWS),
    }


def heard(columns: list[str], **settings: Any) -> tuple[list[tuple[str, Any]], Labels]:
    """All that the clinic receives, and by what it hears the groups of its rows, in the order of
    ids (rows, partitions): it has the key of tokens."""
    rng = np.random.default_rng(4)
    ids, known = np.arange(ROWS), patients()
    tables = {
        "clinic": fc.Table.of({"id": ids, "age": rng.normal(50, 9, ROWS)}, row_id="id"),
        "laboratory": fc.Table.of({"id": ids} | {c: known[c] for c in columns}, row_id="id"),
    }
    engine = Watched()
    fc.FedPC(QUICK, random_state=0, **settings).fit(fc.Federation(tables), engine=engine)
    told = [(m.tag, read(m.data)) for _, m in engine.messages if m.party == "clinic"]
    groups = [v for tag, f in told if tag == "clusters/others" for v in f["labels"].values()]
    if not groups:
        return told, np.zeros((ROWS, 0), np.int64)
    (key,) = (
        read(m.data)["key"] for s, m in engine.messages if (s, m.tag) == ("clinic", "key/tokens")
    )
    listed = np.concatenate(groups, axis=1)
    return told, listed[np.argsort(np.argsort(tokens(ids, key)))].astype(np.int64)


def guessed(groups: Labels, secret: np.ndarray) -> float:
    """The share of named rows that are right when every group is called what most of it are."""
    _, codes = np.unique(secret, return_inverse=True)
    every = np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)
    return sum(np.bincount(codes[every == k]).max() for k in range(every.max() + 1)) / len(codes)


@pytest.mark.parametrize("columns", [["hiv"], ["hiv", "cd4"], ["diagnosis"], ["stage", "hiv"]])
def test_nothing_of_a_laboratory_reaches_the_clinic(columns: list[str]) -> None:
    told, _ = heard(columns)
    assert {tag for tag, _ in told} <= {"agree/plan", "rows/plan", "key/tokens", "graph/leaves"}
    for tag, fields in told:
        arrays = [v for v in fields.values() if isinstance(v, np.ndarray)]
        assert not any(len(a) >= ROWS for a in arrays), tag


@pytest.mark.parametrize("columns", [["hiv"], ["diagnosis"], ["hiv", "diagnosis"], ["stage"]])
def test_groups_say_nothing_of_categories(columns: list[str]) -> None:
    told, groups = heard(columns, share_clusters=True)
    assert "clusters/others" in {tag for tag, _ in told}
    assert not groups.any()  # one group


def test_categories_do_not_move_groups_of_numbers() -> None:
    """The same groups whatever the diagnosis is: a guess is as good as one without them. Clusters
    by all columns, which were told before, follow it without error."""
    secret = patients()["diagnosis"]
    columns = ["weight", "diagnosis"]
    told = [heard(c, share_clusters=True)[1] for c in (["weight"], columns)]
    assert np.array_equal(*told) and told[0].max() < MOST_GROUPS
    blind = np.unique(secret, return_counts=True)[1].max() / ROWS
    assert guessed(told[1], secret) < blind + 0.08
    table = fc.Table.of({"diagnosis": secret})
    before = clusters_of(table, table.names, "auto", None, np.random.default_rng(0))
    assert guessed(before[:, None], secret) == 1.0


def test_numbers_come_back_coarsely() -> None:
    """As docs and ledger say: what falls into two heaps is told by groups."""
    _, groups = heard(["cd4", "weight"], share_clusters=True)
    assert guessed(groups, patients()["hiv"]) > 0.95
    assert "coarse view" in OthersClusters.reveals


@pytest.mark.parametrize("least", [5, 40])
def test_groups_have_the_least_count(least: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 200, p=[0.7, 0.25, 0.03, 0.02])
    sizes = np.bincount(_told(labels, least))
    assert sizes[sizes > 0].min() >= least
