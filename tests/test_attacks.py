"""The attack on tables of pairs has teeth: what these tables determine, it finds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.attacks import reconstruct
from benchmarks.attacks.annealing import compiled, cost_of, started
from benchmarks.attacks.received import Bounds, bounds
from benchmarks.attacks.reconstruct import (
    MIXED,
    NUMBERS,
    Case,
    Truth,
    fitted,
    reconstructed,
)
from fedcircuits.methods.fedpc import views

pytestmark = pytest.mark.filterwarnings("ignore:columns of different parties are assumed to be")


def attacked(case: Case) -> tuple[Truth, Bounds]:
    """The rows, and what the coordinator received of them."""
    _, federation, role, target = fitted(case, seed=0)
    return Truth.of(federation, target), bounds(role, federation.schema)


def test_a_table_that_its_pairs_determine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of 30 columns, of which the model itself draws none, by a coordinator that deviates:
    it asks for as many cells as parties cut at most."""
    monkeypatch.setattr(views, "undetermined", lambda *_: views.MOST_CELLS)
    monkeypatch.setattr(views, "_cells_of_pair", lambda rows, most: most)
    case = Case("breast cancer", 60, 30, 10)
    truth, received = attacked(case)
    tables, cost = reconstructed(received, seed=0, steps=300_000_000)
    assert cost == 0
    assert [truth.found(rows) for rows in tables] == [1.0] * len(tables)
    assert truth.surest(tables, np.random.default_rng(0)) == 1.0
    drawn = fitted(case, seed=0)[0].sample(case.rows, random_state=0)
    assert truth.found(truth.in_cells(drawn)) < 0.1


@pytest.mark.parametrize("classes", [0, 8])
def test_a_table_of_many_columns_is_not_found_by_default(classes: int) -> None:
    """Its tables of pairs hold fewer bits than its rows."""
    truth, received = attacked(Case(NUMBERS, 80, 20, 20, classes))
    tables, _ = reconstructed(received, seed=0, steps=100_000_000)
    assert max(truth.found(rows) for rows in tables) < 0.1


def test_a_table_is_found_if_its_pairs_are_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same rows, by a coordinator that asks for two cells of numbers, too."""
    monkeypatch.setattr(views, "undetermined", lambda *_: 2)
    truth, received = attacked(Case(NUMBERS, 80, 20, 20, 8))
    tables, cost = reconstructed(received, seed=0, steps=100_000_000)
    assert cost == 0
    assert np.mean([truth.found(rows) for rows in tables]) > 0.6


def test_what_agrees_need_not_be_true() -> None:
    """Few columns leave several tables possible, and the attack does not say otherwise."""
    truth, received = attacked(Case(MIXED, 60, 4, 2))
    tables, cost = reconstructed(received, seed=0, steps=20_000_000)
    assert cost == 0
    assert 0 < np.mean([truth.found(rows) for rows in tables]) < 0.95


@pytest.mark.parametrize(
    "case",
    [
        Case(MIXED, 60, 8, 2, 2),
        Case(MIXED, 120, 6, 2, least=20),
        Case("wine", 90, 13, 2, 3),
        Case(NUMBERS, 80, 8, 3, 4),
        Case("wine", 178, 13, 4),
        Case(MIXED, 200, 16, 2, least=10),
    ],
    ids=str,
)
def test_the_true_rows_are_within_all_bounds(case: Case) -> None:
    """Also where small cells of one party have joined others, and where classes are known."""
    truth, received = attacked(case)
    rules = compiled(received)
    assert cost_of(rules, *received.parted(truth.rows)) == 0
    classes, other = started(received, np.random.default_rng(0))
    assert cost_of(rules, classes, other) > 0


def test_cells_that_are_drawn_are_those_of_the_rows() -> None:
    truth, _ = attacked(Case("wine", 90, 13, 2, 3))
    values = dict(zip(truth.names, truth.values.T, strict=True))
    frame = {name: values[name] for name in truth.names if name != reconstruct.TARGET}
    classes = np.array(truth.schema[reconstruct.TARGET].categories)
    frame[reconstruct.TARGET] = classes[values[reconstruct.TARGET].astype(int)]
    assert (truth.in_cells(frame) == truth.rows).all()
    assert truth.found(truth.rows) == 1 and truth.found(truth.rows[:30]) == pytest.approx(1 / 3)
