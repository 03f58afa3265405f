"""best_density: judged on rows held back, within a budget told by a clock that the test owns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FedcircuitsError, ParameterError, QueryError, TableError
from fedcircuits.estimators.best_density import _Search, best_weights
from fedcircuits.estimators.density_candidates import candidates
from fedcircuits.tables.table import Table


def two_clusters(rows: int = 300, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 2)) * 0.3 + 3 * rng.integers(0, 2, rows)[:, None]


def ticking(step: float) -> Callable[[], float]:
    """A clock that goes on by a step whenever it is read."""
    now = [0.0]

    def read() -> float:
        now[0] += step
        return now[0]

    return read


def test_the_best_on_held_back_rows_is_returned() -> None:
    train, test = two_clusters(), two_clusters(seed=1)
    model = fc.best_density(train, budget=20.0, random_state=0, clock=ticking(1.0))
    tried = [t for t in model.tried_ if t.score is not None]
    assert len(tried) > 2 and tried[0].name == "mixture of products 1"
    plain = fc.MixtureOfProducts(1, random_state=0).fit(train)
    assert model.score(test) > plain.score(test) + 0.5
    best = max(tried, key=lambda t: t.score)
    assert best.name in (model.chosen_, f"mixture of the best {model.chosen_.count('+') + 1}")


def test_without_time_only_the_cheapest_is_tried() -> None:
    model = fc.best_density(two_clusters(80), budget=1.0, random_state=0, clock=ticking(10.0))
    assert [t.name for t in model.tried_ if t.score is not None] == ["mixture of products 1"]
    assert not model.refitted_ and any(t.score is None for t in model.tried_)


def test_binary_tables_and_saving(tmp_path: object) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.random((300, 1)) < 0.5
    x = (rng.random((300, 5)) < np.where(hidden, 0.8, 0.2)).astype(int)
    model = fc.best_density(x, 25.0, target="x0", random_state=0, clock=ticking(1.0))
    assert set(np.unique(model.predict(x))) <= {0, 1}
    names = {t.name for t in model.tried_}
    assert "Chow–Liu tree" in names and "hidden Chow–Liu tree 8" in names
    model.save(f"{tmp_path}/m.fc")
    assert fc.load(f"{tmp_path}/m.fc").score(x) == pytest.approx(model.score(x))


def test_notes_say_what_was_tried_and_what_was_not() -> None:
    late = fc.best_density(two_clusters(80), budget=1.0, random_state=0, clock=ticking(10.0))
    said = " ".join(late.notes_)
    assert "80 held-out rows, a fifth at a time" in said and "mixture of products 1" in said
    assert "lack of time (budget 1 CPU s): LearnSPN" in said and "not refitted" in said


def test_weights_of_a_mixture_follow_the_rows() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(4000) < 0.7
    logs = np.log(
        np.stack([np.where(first, 0.9, 0.1), np.where(first, 0.1, 0.9), 0 * first + 1e-9])
    )
    weights = best_weights(logs)
    grid = np.linspace(0.01, 0.99, 99)
    exact = grid[np.argmax([np.log(g * np.exp(logs[0]) + (1 - g) * np.exp(logs[1])).sum()
                            for g in grid])]  # fmt: skip
    assert weights[2] == 0 and weights.sum() == pytest.approx(1)
    assert weights[0] == pytest.approx(exact, abs=0.02)


def test_of_a_table_too_long_for_the_budget_learners_see_a_part() -> None:
    model = fc.best_density(two_clusters(6000), 18.0, random_state=0, clock=ticking(1.0))
    parts = [t for t in model.tried_ if t.rows]
    assert parts and all(2000 <= t.rows < 5100 and t.epochs is None for t in parts)
    assert any("the most that the budget allowed" in note for note in model.notes_)


def test_what_is_compiled_at_its_first_use_is_no_cost_of_a_learner() -> None:
    """A trial that takes 50 seconds is repeated, and the cost is that of the second time."""
    reads = iter([0.0, 0.0, 50.0, 50.0, 50.0, 50.1])
    search = _Search(Table.of(two_clusters(6000)), 60.0, 0.15, 0, lambda: next(reads))
    spn = next(c for c in candidates(search.whole.schema, 0) if c.kind == "LearnSPN")
    assert search._trial_cost(spn) * len(search.train) < 1.0
    assert next(reads, None) is None


@pytest.mark.parametrize(
    ("settings", "error", "word"),
    [
        ({"budget": 0}, ParameterError, "budget"),
        ({"validation": 1.0}, ParameterError, "validation"),
        ({"random_state": -1}, ParameterError, "random_state"),
        ({"target": "nobody"}, QueryError, "nobody"),
    ],
)
def test_bad_settings(
    settings: dict[str, object], error: type[FedcircuitsError], word: str
) -> None:
    with pytest.raises(error, match=word):
        fc.best_density(two_clusters(40), **settings)  # type: ignore[arg-type]


def test_too_few_rows() -> None:
    with pytest.raises(TableError, match="two rows"):
        fc.best_density(np.array([[1.5, 2.5]]))
