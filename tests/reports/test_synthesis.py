"""The report on synthetic rows tells copies from new rows, and good from useless ones."""

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import QueryError
from fedcircuits.reports.synthesis import nearest, nearness, usefulness


def table(rows: int, seed: int) -> fc.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    frame = pd.DataFrame({"x": x, "y": rng.normal(x, 1), "c": np.where(x > 0, "up", "down")})
    return fc.Table.of(frame)


TRAIN, TEST = table(300, 1), table(200, 2)


def test_distances_by_hand() -> None:
    train = fc.Table.of({"x": [0.0, 1.0, 2.0, 3.5], "c": ["a", "b", "a", "b"]})
    spread = np.subtract(*np.quantile([0.0, 1.0, 2.0, 3.5], [0.75, 0.25]))
    rows = fc.Table.of({"x": [0.5, 2.0], "c": ["a", "a"]}, schema=train.schema)
    assert nearest(rows, train) == pytest.approx([0.5 / spread / 2, 0])


def test_copies_are_found() -> None:
    rng = np.random.default_rng(0)
    copied = nearness(TRAIN, TRAIN, TEST, rng)
    assert (copied.copies, copied.closer) == (300, 1.0)
    fresh = nearness(table(300, 3), TRAIN, TEST, rng)
    assert fresh.copies == 0 and fresh.closer is not None and fresh.closer < 0.15


def test_shuffled_rows_are_useless() -> None:
    values = np.random.default_rng(0).permuted(TRAIN.values, axis=0)
    target = TRAIN.schema["c"]
    found = usefulness(fc.Table(TRAIN.schema, values), TRAIN, TEST, target)
    assert found is not None
    assert found.loc["synthetic rows", "accuracy"] < 0.7 < found.loc["real rows", "accuracy"]


def test_draws_are_the_models() -> None:
    model = fc.MixtureOfProducts(3, target="c", random_state=0).fit(TRAIN)
    made = fc.synthesise(model, 50, random_state=4)
    assert made.columns is None and made.nearness is None
    pd.testing.assert_frame_equal(made.table.to_pandas(), model.sample(50, random_state=4))


def test_test_rows_without_the_target_give_a_report_of_the_rest() -> None:
    model = fc.MixtureOfProducts(2, target="c", random_state=0).fit(TRAIN)
    made = fc.synthesise(model, 20, real=TRAIN, test=TEST.select(["x"]).to_pandas())
    assert made.usefulness is None and made.nearness is not None


def test_columns_that_real_rows_lack_are_left_out() -> None:
    model = fc.MixtureOfProducts(4, random_state=0).fit(TRAIN)
    found = fc.synthesise(model, 100, real=TRAIN.select(["x", "c"]), test=TEST)
    assert found.columns is not None and found.nearness is not None
    assert list(found.columns.index) == ["x", "c"] and found.columns.max() < 0.3
    assert found.nearness.synthetic[1] < 0.3 and len(found.table.names) == 3
    with pytest.raises(QueryError, match="no value of any column"):
        fc.synthesise(model, 100, real=pd.DataFrame({"x": [np.nan, np.nan]}))


def test_distances_by_chance() -> None:
    """Few rows of many classes lie far from the real ones, whatever the model is."""
    rng = np.random.default_rng(0)
    many = pd.DataFrame({"c": rng.integers(0, 200, 2000).astype(str), "x": rng.normal(size=2000)})
    real = fc.Table.of(many, kinds={"c": "category"})
    found = fc.synthesise(fc.MixtureOfProducts(1, random_state=0).fit(real), 300, real=real)
    assert found.columns is not None and found.chance is not None
    assert found.columns["c"] > 0.2 and found.columns["c"] < found.chance["c"] + 0.05
    assert found.chance["x"] < 0.1
