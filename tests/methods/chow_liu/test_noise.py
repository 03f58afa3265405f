"""Noisy pairwise counts: how far one row moves them, what crosses, and who can tell a row."""

from __future__ import annotations

from itertools import product
from math import exp
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Program, replay
from fedcircuits.learning.independence import OneHot, pair_tables
from fedcircuits.methods.chow_liu import training
from fedcircuits.privacy.differential import Noise
from fedcircuits.testing import check_protocol
from tests.drawn import drawn
from tests.estimators.tables import related
from tests.methods.watched import Watched, read

SIZES = 2, 3, 2
KINDS = ("boolean", ()), ("category", ("x", "y", "z")), ("boolean", ())
SCHEMA = fc.Schema(tuple(fc.Variable(n, k, v) for n, (k, v) in zip("abc", KINDS, strict=True)))  # type: ignore[arg-type]


def counts(values: Array) -> Array:
    return training._above(pair_tables(OneHot.of(values, SCHEMA.variables).matrix))


def test_one_row_moves_the_counts_by_the_sensitivity_and_no_row_by_more() -> None:
    """All pairs of neighbouring tables of two rows."""
    options = [[np.nan, *range(size)] for size in SIZES]
    rows = [np.array(r, float) for r in product(*options)]
    empty, farthest = np.full(3, np.nan), 0.0
    for other in rows:
        without = counts(np.stack([other, empty]))
        for row in rows:
            farthest = max(
                farthest, float(np.linalg.norm(counts(np.stack([other, row])) - without))
            )
    assert farthest == pytest.approx(training.sensitivity(3))


def test_impossible_counts_are_known_to_be_0() -> None:
    starts = OneHot.of(np.zeros((1, 3)), SCHEMA.variables).starts
    every = counts(np.array(list(product(*map(range, SIZES))), float))
    assert np.array_equal(training._possible(starts), every > 0)


# ---------------------------------------------------------------------- runs


def programs(rows: fc.Table, noise: Noise | None) -> dict[str, Program[Any]]:
    """One party and a hub that wants to know."""
    arguments: dict[str, Any] = {"members": ("north",), "summation": fc.Hub()}
    own = {
        "party": Party("north", rows),
        "smoothing": 0.1,
        "noise": noise and drawn(noise.for_party()),
    }
    return {
        COORDINATOR: Program(
            training.coordinator, {**arguments, "smoothing": 0.1, "noisy": noise is not None}
        ),
        "north": Program(training.member, {**arguments, **own}),
    }


def heard(rows: fc.Table, noise: Noise | None) -> Array:
    """The counts as the hub reads them off the wire."""
    engine = Watched()
    assert not engine(programs(rows, noise)).lost
    [data] = [
        m.data for sender, m in engine.messages if (sender, m.tag) == ("north", "count/pairs")
    ]
    return np.asarray(read(data)["values"])


def advantage(noise: Noise | None, runs: int) -> float:
    """Of whoever knows all other rows and decides by the likelihood ratio if a row is there."""
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [rng.integers(2, size=30), rng.integers(3, size=30), rng.integers(2, size=30)]
    )
    table = fc.Table(SCHEMA, values.astype(float))
    gone = np.where(np.arange(30)[:, None] == 7, np.nan, table.values)
    tables = {True: table, False: fc.Table(SCHEMA, gone)}
    base = counts(gone)
    row = counts(table.values) - base
    middle = row @ row / 2
    right = {
        there: np.mean([((heard(t, noise) - base) @ row > middle) == there for _ in range(runs)])
        for there, t in tables.items()
    }
    return float(right[True] + right[False] - 1)


def test_a_row_cannot_be_told_from_noisy_counts() -> None:
    """The gain over guessing is at most (exp(ε) − 1 + 2δ) / (exp(ε) + 1); without noise it is 1."""
    runs, epsilon, delta = 250, 0.5, 1e-5
    noise = fc.DifferentialPrivacy(epsilon, delta).noise(fc.Hub(), ("north",))
    bound = (exp(epsilon) - 1 + 2 * delta) / (exp(epsilon) + 1)
    error = (0.5 / runs) ** 0.5
    assert advantage(noise, runs) < bound + 2 * error < 0.4
    assert advantage(None, 2) == 1.0


def test_with_little_noise_the_same_attack_succeeds() -> None:
    noise = fc.DifferentialPrivacy(40.0, 1e-5).noise(fc.Hub(), ("north",))
    assert advantage(noise, 60) > 0.9


def test_laws_and_a_replay_sends_the_same_noise() -> None:
    noise = fc.DifferentialPrivacy(1.0).noise(fc.Hub(), ("north",))
    flows = programs(related(60), noise)
    check_protocol(flows)
    engine = Watched()
    engine(flows)
    for name, record in engine.records[0].items():
        assert replay(flows[name], record.inbox) == record.sent


# ---------------------------------------------------------------------- the estimator


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Secret(), fc.Tree("path")])
def test_the_budget_stands_in_the_ledger(summation: Any) -> None:
    privacy = fc.DifferentialPrivacy(2.0, 1e-5)
    model = fc.ChowLiuTree(summation=summation, privacy=privacy).fit(fc.split(related(400), 3))
    spent = model.ledger_.privacy
    assert spent is not None and 1.9 < spent.epsilon == model.epsilon_ <= 2.0
    assert spent.delta == 1e-5 and "one row of one party" in spent.neighbours
    assert "ε = 2" in repr(model.ledger_)
    told = model.ledger_.revealed()["what"].tolist()
    assert any("noisy counts" in what for what in told)
    assert not any(
        "counts" in what and "noisy" not in what and "how many" not in what for what in told
    )
    again = model.set_params(privacy=None).fit(fc.split(related(400), 3))
    assert again.ledger_.privacy is None and not hasattr(again, "epsilon_")


def test_much_data_gives_the_same_tree_and_less_noise_a_better_one() -> None:
    rows = related(6000)
    parties = fc.split(rows, 3)
    plain = fc.ChowLiuTree().fit(parties)
    weak, strong = (
        fc.ChowLiuTree(privacy=fc.DifferentialPrivacy(e, 1e-5)).fit(parties) for e in (20.0, 0.05)
    )
    best = plain.score(rows)
    assert best - 0.01 < weak.score(rows) <= best
    assert strong.score(rows) < weak.score(rows)


def test_what_would_spend_more_or_guarantee_nothing_is_refused() -> None:
    privacy = fc.DifferentialPrivacy(1.0)
    with pytest.raises(FederationError, match="privacy needs a federation"):
        fc.ChowLiuTree(privacy=privacy).fit(related(50))
    with pytest.raises(FederationError, match="resume=True would release sums of the same rows"):
        fc.ChowLiuTree(privacy=privacy).fit(fc.split(related(50), 3), resume=True)
    with pytest.raises(FederationError, match="privacy must be None or a guarantee"):
        fc.ChowLiuTree(privacy=1.0).fit(fc.split(related(50), 3))  # type: ignore[arg-type]
