"""All learners on the same terms: mixed columns, gaps, weights, seeds, nonsense."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedcircuits as fc
from fedcircuits.errors import StructureError, TableError
from fedcircuits.learning.batches import InMemory, ParquetRows


def mixed(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    frame = pd.DataFrame(
        {
            "height": rng.normal(160 + 20 * group, 5),
            "visits": rng.poisson(2 + 6 * group),
            "town": np.where(rng.random(rows) < 0.8, np.array(["a", "b"])[group], "c"),
            "smokes": rng.random(rows) < 0.2 + 0.5 * group,
        }
    )
    frame.loc[rng.random(rows) < 0.1, "height"] = np.nan
    return frame


LEARNERS = [
    fc.MixtureOfProducts(components=3, random_state=0),
    fc.LearnSPN(min_rows=80, random_state=0),
    fc.LearnSPN(min_rows=80, ensemble=2, refine=3, random_state=0),
    fc.EinsumNetwork(units=3, repetitions=2, epochs=4, random_state=0),
    fc.EinsumNetwork(units=3, repetitions=2, epochs=2, training="gradient", random_state=0),
    fc.EinsumNetwork(units=3, repetitions=2, epochs=4, target="smokes", random_state=0),
    fc.HiddenChowLiuTree(units=3, epochs=4, random_state=0),
]
each = pytest.mark.parametrize("learner", LEARNERS, ids=lambda m: type(m).__name__)


@each
def test_mixed_columns_with_gaps(learner: fc.Model) -> None:
    train, test = mixed(), mixed(seed=1)
    alone = fc.MixtureOfProducts(components=1, random_state=0).fit(train).score(test)
    model = learner.fit(train)
    assert model.score(test) > alone  # it has found the two groups
    assert (model.predict(test, "smokes") == test["smokes"]).mean() > 0.6
    assert model.probability("smokes", given="height > 175") > model.probability("smokes")
    assert not model.mpe(test).isna().any().any()


@each
def test_one_seed_one_model(learner: fc.Model) -> None:
    frame = mixed(150)
    first = learner.fit(frame).score_samples(frame)
    np.testing.assert_array_equal(first, learner.fit(frame).score_samples(frame))


@each
def test_rows_without_a_value_change_nothing(learner: fc.Model) -> None:
    table = fc.Table.of(mixed(150))
    padded = fc.Table(table.schema, np.vstack([table.values, np.full((3, 4), np.nan)]))
    expected = learner.fit(table).score_samples(table)
    np.testing.assert_array_equal(learner.fit(padded).score_samples(table), expected)


@each
@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"x": [1.5], "y": ["a"]}),
        pd.DataFrame({"x": np.arange(30.0), "same": np.ones(30) * 7.5}),
        pd.DataFrame({"x": [0.5] * 20, "y": ["a"] * 19 + ["b"]}),
    ],
    ids=["one row", "a constant", "a class with one example"],
)
def test_little_to_learn_from(learner: fc.Model, frame: pd.DataFrame) -> None:
    if learner.target is not None:
        learner = type(learner)(**{**learner.get_params(), "target": None})
    model = learner.fit(frame)
    assert np.isfinite(model.score_samples(frame)).all()


@each
def test_one_column(learner: fc.Model) -> None:
    learner = type(learner)(**{**learner.get_params(), "target": None})
    frame = mixed(200)[["visits"]]
    assert np.isfinite(learner.fit(frame).score(frame))


@each
def test_nothing_to_learn_from(learner: fc.Model) -> None:
    nothing = fc.Table(fc.Schema.real(2), np.full((4, 2), np.nan))
    with pytest.raises(TableError, match="all values of the table are missing"):
        learner.fit(nothing)
    with pytest.raises(TableError, match="sample_weight must be"):
        learner.fit(mixed(20), sample_weight=np.ones(3))


def test_weights_are_repetitions() -> None:
    table = fc.Table.of(mixed(60))
    weight = np.random.default_rng(0).integers(1, 4, 60)
    again = table.rows(np.repeat(np.arange(60), weight))
    model = fc.MixtureOfProducts(components=1, random_state=0)
    expected = model.fit(again).score_samples(table)
    found = model.fit(table, sample_weight=weight).score_samples(table)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_chow_liu_trees_are_for_discrete_columns() -> None:
    frame = mixed()[["town", "smokes"]]
    model = fc.ChowLiuTree().fit(frame)
    assert model.explain(frame).exact
    together = ((frame["town"] == "b") & frame["smokes"]).mean()
    assert abs(model.probability("town = b and smokes") - together) < 1e-3
    with pytest.raises(StructureError, match="'height' is a real: use HiddenChowLiuTree"):
        fc.ChowLiuTree().fit(mixed())


def test_a_file_is_learned_like_the_table(tmp_path: Path) -> None:
    frame = mixed(500)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=90)
    table = fc.Table.of(frame)
    source = ParquetRows(tmp_path / "rows.parquet", table.schema)
    assert len(source) == 500 and source.weight == 500
    rows = np.vstack([x for x, _ in source.batches(64, None)])
    np.testing.assert_array_equal(rows, table.values)
    shuffled = np.vstack([x for x, _ in source.batches(64, np.random.default_rng(0))])
    assert not np.array_equal(shuffled, rows, equal_nan=True)
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), np.sort(rows, axis=0))
    for learner in (
        fc.MixtureOfProducts(components=3, random_state=0),
        fc.HiddenChowLiuTree(units=3, epochs=4, random_state=0),
    ):
        expected = learner.fit(table).score(table)
        assert abs(learner.fit(source).score(table) - expected) < 0.3
    whole = fc.LearnSPN(random_state=0)
    np.testing.assert_array_equal(
        whole.fit(source).score_samples(table), whole.fit(table).score_samples(table)
    )
    with pytest.raises(TableError, match="sample_weight works for tables in memory only"):
        fc.MixtureOfProducts().fit(source, sample_weight=np.ones(500))


@pytest.mark.parametrize("suffix", ["parquet", "pq", "csv"])
@pytest.mark.parametrize(
    "learner",
    [fc.MixtureOfProducts(2, random_state=0), fc.LearnSPN(random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_a_path_is_enough(tmp_path: Path, learner: fc.Model, suffix: str) -> None:
    frame, path = mixed(300), tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, row_group_size=100)
    expected = learner.fit(frame).score(frame)
    for given in (path, str(path)):
        assert learner.fit(given).score(frame) == pytest.approx(expected, abs=1e-6)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(TableError, match=r"cannot read .*text\.parquet as parquet"):
        ParquetRows(tmp_path / "text.parquet")
    with pytest.raises(TableError, match="no such file"):
        ParquetRows(tmp_path / "absent.parquet")
    with pytest.raises(TableError, match="expected a file ending in"):
        fc.MixtureOfProducts().fit("rows.xlsx")


def test_in_memory_batches() -> None:
    x = np.arange(10.0)[:, None]
    source = InMemory(x, np.arange(10.0))
    assert source.weight == 45
    parts = list(source.batches(4, None))
    assert [len(a) for a, _ in parts] == [4, 4, 2]
    for rows, weight in source.batches(3, np.random.default_rng(0)):
        np.testing.assert_array_equal(rows[:, 0], weight)
    assert len(source.some(3, np.random.default_rng(0))) == 3


def test_single_precision_is_close() -> None:
    from fedcircuits.circuits.evaluation.program import CircuitProgram

    frame = fc.Table.of(mixed(300))
    model = fc.HiddenChowLiuTree(units=4, epochs=3, random_state=0).fit(frame)
    x = torch.from_numpy(frame.values)
    values = []
    for dtype in (torch.float32, torch.float64):
        program = CircuitProgram(model.circuit_, dtype)
        values.append(program.log_values(x, program.pack(model.parameters_)).double())
    assert float((values[0] - values[1]).abs().max()) < 1e-4
