"""What parties learn alone, mixed in: never below it, nor below independence, however few rows."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.methods.fedpc.leaves import (
    ALL_APART,
    MOST_APART,
    least_apart,
    mean_gain,
    share_apart,
)

BELOW = 0.1  # nats that a hundred test rows do not tell apart


def table(rows: int, seed: int, common: float) -> fc.Table:
    """Eight numbers that follow one cause, the more the larger ``common`` is."""
    rng = np.random.default_rng(seed)
    x = common * rng.normal(size=(rows, 1)) + rng.normal(size=(rows, 8))
    made = fc.Table.of({f"x{i}": x[:, i] for i in range(8)})
    return fc.Table(made.schema, made.values, np.arange(rows))


def partly_shared(train: fc.Table, parties: int, shared: float) -> fc.Federation:
    """Different columns; a share of the rows at all parties, each other row at one of them."""
    whole, rows = fc.split(train, parties, by="columns", seed=0), np.arange(len(train))
    held = {
        p.name: p.table.rows((rows < shared * len(train)) | (rows % parties == i))
        for i, p in enumerate(whole)
    }
    return fc.Federation(held)


@pytest.mark.filterwarnings("ignore:columns of different parties are assumed to be independent")
@pytest.mark.parametrize(
    ("parties", "shared", "common"), [(5, 1.0, 0.0), (5, 0.3, 0.6), (8, 0.1, 0.0), (8, 0.1, 2.0)]
)
def test_never_below_the_parties_alone(parties: int, shared: float, common: float) -> None:
    train, test = table(160, 1, common), table(200, 2, common)
    federation = partly_shared(train, parties, shared)
    model, alone, ours = fc.FedPC(random_state=0).fit(federation), [], []
    for party in federation:
        part = test.select(party.table.names)
        alone.append(fc.LearnSPN(random_state=0).fit(party.table).score(part))
        ours.append(model.score(part))
    assert model.score(test) > sum(alone) - BELOW
    assert np.mean(ours) > np.mean(alone) - BELOW


def everyday(rows: int, seed: int) -> fc.Table:
    """Columns as files have them: rare categories, many zeros, few far out; a class."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=rows)
    names = np.array(list("abcdefghijklmn"))
    made = fc.Table.of({
        "class": np.where(z + rng.normal(size=rows) > 1.2, "late", "paid"),
        "town": names[rng.geometric(0.25, rows).clip(1, 14) - 1],
        "trade": names[rng.geometric(0.15, rows).clip(1, 14) - 1],
        "debt": np.where(rng.random(rows) < 0.3, 0.0, np.exp(2 * rng.normal(size=rows) + 0.5 * z)),
        "income": np.exp(8 + 0.5 * rng.normal(size=rows)).round(-2),
        "age": rng.normal(45, 14, rows).clip(18, 90).round().astype(int),
        "delays": rng.poisson(rng.gamma(0.3, 2.0, rows)),
        "loans": rng.poisson(2.0, rows),
    })  # fmt: skip
    return fc.Table(made.schema, made.values, np.arange(rows))


@pytest.mark.filterwarnings("ignore:columns of different parties are assumed to be independent")
@pytest.mark.parametrize("shared", [0.3, 0.1])
def test_never_below_independent_columns(shared: float) -> None:
    gains = []
    for seed in range(2):
        every = everyday(1_400, seed)
        train, test = every.rows(np.arange(400)), every.rows(np.arange(400, 1_400))
        federation = partly_shared(train, 8, shared)
        model = fc.FedPC(target="class", random_state=0).fit(federation)
        alone = [
            fc.LearnSPN(random_state=0, least_count=5).fit(party.table) for party in federation
        ]
        apart = sum(one.score(test.select(one.circuit_.schema.names)) for one in alone)
        gains.append(model.score(test) - apart)
    assert np.mean(gains) > -0.05 and min(gains) > -BELOW


@pytest.mark.filterwarnings("ignore:columns of different parties are assumed to be")
@pytest.mark.parametrize(("parties", "common"), [(2, 0.0), (2, 0.3), (4, 0.3), (4, 1.5)])
def test_few_parties_are_never_below_either(parties: int, common: float) -> None:
    train, test = table(500, 1, common), table(400, 2, common)
    federation = fc.split(train, parties, by="columns", seed=0)
    model, alone = fc.FedPC(random_state=0).fit(federation), []
    for party in federation:
        part = test.select(party.table.names)
        alone.append(fc.LearnSPN(random_state=0).fit(party.table).score(part))
        assert model.score(part) > alone[-1] - BELOW
    assert model.score(test) > sum(alone) - 0.05


def test_weak_dependence_of_two_parties_is_kept() -> None:
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(2, 1500))
    y = 0.3 * x + np.sqrt(0.91) * e
    made = fc.Table.of({"x": x, "y": y})
    model = fc.FedPC(random_state=0).fit(fc.split(made, 2, by="columns"))
    mean = float(model.expect("y", given="x > 1")["mean"]["y"])
    assert mean == pytest.approx(y[x > 1].mean(), abs=0.2)


def test_where_joining_gains_nothing_it_is_said() -> None:
    rng = np.random.default_rng(0)
    federation = fc.split(fc.Table.of(rng.normal(size=(600, 4))), 2, by="columns")
    [note] = fc.FedPC(dependence="combinations", random_state=0).fit(federation).notes_
    assert "party 1 and party 2" in note and "learns alone" in note


def test_the_less_joins_parties_the_more_they_are_apart() -> None:
    def share(joint: float, rows: float) -> float:
        return share_apart(np.full(1, joint), np.zeros(1), np.full(1, rows), 0.01)

    assert share(1.0, 1000) == 0.01 and share(-1.0, 1000) == ALL_APART
    nothing, weak = np.full(1, 0.5), np.full(1, 0.01)
    assert share_apart(weak, nothing, np.full(1, 1000.0), 0.01) == MOST_APART
    assert 0.3 < share(0.1, 1) < 0.5  # a single row decides little
    assert share(0.05, 3000) < 0.1  # many rows decide, however weak dependence is


def test_parties_of_one_column_need_not_be_apart() -> None:
    assert least_apart([1, 1, 1], 0.2) < 0.01
    assert least_apart([3, 1], 0.2) == pytest.approx(0.075)
    assert least_apart([3, 1], -0.2) < 0.01


def test_one_row_has_no_great_say() -> None:
    alone, other = np.zeros(100), np.zeros(100)
    alone[0] = -1e6
    assert mean_gain(alone, other) == pytest.approx(-0.1)
