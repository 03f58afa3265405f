"""Decision trees that equal scikit-learn's without being them, as leaves and as arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import fedcircuits as fc
from fedcircuits.errors import ParameterError, TableError
from fedcircuits.methods.trees.decision_tree import (
    MOST_CODES,
    DecisionTreeLeaf,
    Predictor,
    _layout,
    single,
)

COLOURS = ("red", "green", "blue", "grey")


def mixed(seed: int, rows: int = 300, missing: float = 0.1) -> fc.Table:
    """Every kind of column, three classes and a real that depend on them, with gaps."""
    rng = np.random.default_rng(seed)
    x, n = rng.normal(size=rows), rng.poisson(3, rows).astype(float)
    colour, flag = rng.integers(4, size=rows), rng.integers(2, size=rows)
    many = rng.integers(MOST_CODES + 9, size=rows)
    kind = (x + (colour == 2) > 0.3).astype(int) + ((n > 3) & (flag == 1))
    height = x * 2 + colour + rng.normal(size=rows) * 0.1
    schema = fc.Schema(
        (
            fc.Variable("x"),
            fc.Variable("n", "count"),
            fc.Variable("colour", "category", COLOURS),
            fc.Variable("flag", "boolean"),
            fc.Variable("many", "category", tuple(f"m{i}" for i in range(MOST_CODES + 9))),
            fc.Variable("kind", "category", ("a", "b", "c", "never")),
            fc.Variable("height"),
        )
    )
    values = np.stack([x, n, colour, flag, many, kind, height], axis=1)
    values[:, :5][rng.random((rows, 5)) < missing] = np.nan
    return fc.Table(schema, values)


@given(st.integers(0, 10_000), st.sampled_from([None, 3]), st.sampled_from([0.0, 0.2]))
def test_classes_equal_those_of_scikit_learn(seed: int, depth: int | None, gaps: float) -> None:
    table, other = mixed(seed, missing=gaps), mixed(seed + 1, missing=0.3)
    leaf = DecisionTreeLeaf(max_depth=depth, min_rows=2, random_state=3).fit(table, "kind")
    layout, columns = _layout(leaf.schema_), [0, 1, 2, 3, 4, 6]
    peer = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=2, random_state=3)
    peer.fit(single(layout.values(table.values[:, columns])), table.values[:, 5])
    found = leaf.predict_vector(other)
    right = peer.predict_proba(single(layout.values(other.values[:, columns])))
    assert np.array_equal(found[:, peer.classes_.astype(int)], right)
    assert (found[:, 3] == 0).all(), "a class that was never seen"


@given(st.integers(0, 10_000), st.booleans())
def test_means_equal_those_of_scikit_learn(seed: int, weighted: bool) -> None:
    table, other = mixed(seed), mixed(seed + 1, missing=0.3)
    weight = np.random.default_rng(seed).uniform(0.5, 2, len(table)) if weighted else None
    leaf = DecisionTreeLeaf(random_state=0).fit(table, "height", weight)
    layout, columns = _layout(leaf.schema_), [0, 1, 2, 3, 4, 5]
    peer = DecisionTreeRegressor(max_depth=10, min_samples_leaf=5, random_state=0)
    peer.fit(single(layout.values(table.values[:, columns])), table.values[:, 6], weight)
    right = peer.predict(single(layout.values(other.values[:, columns])))
    assert np.array_equal(leaf.predict_vector(other), right[:, None])


def test_numbers_that_single_precision_rounds_go_where_scikit_learn_sends_them() -> None:
    x = np.random.default_rng(0).normal(size=200) * 1e-3 + 1e5
    table = fc.Table.of({"x": x, "y": x > np.median(x)})
    leaf = DecisionTreeLeaf(min_rows=1, max_depth=None).fit(table, "y")
    peer = DecisionTreeClassifier().fit(x[:, None].astype(np.float32), table.values[:, 1])
    assert np.array_equal(leaf.predict_vector(table), peer.predict_proba(x[:, None]))


def test_numbers_beyond_single_precision() -> None:
    table = fc.Table.of({"x": [1e300, -1e300, 1.5, 2.5], "y": ["u", "v", "v", "v"]})
    leaf = DecisionTreeLeaf(min_rows=1).fit(table, "y")
    assert leaf.predict_vector(table).argmax(axis=1).tolist() == [0, 1, 1, 1]


def test_one_hot_asks_for_categories_and_leaves_gaps() -> None:
    table = mixed(0)
    layout = _layout(table.schema)
    assert layout.codes[layout.columns == 2].tolist() == [0, 1, 2, 3]
    assert layout.codes[np.isin(layout.columns, (0, 1, 3, 4))].tolist() == [-1, -1, -1, -1]
    found = single(layout.values(np.array([[0.5, 1, 2, 1, 9, 0, 0], [np.nan] * 7])))
    assert found[0, 2:6].tolist() == [0, 0, 1, 0] and np.isnan(found[1]).all()


def test_a_gap_can_be_what_tells_the_classes_apart() -> None:
    rng = np.random.default_rng(0)
    gap = rng.random(200) < 0.5
    table = fc.Table.of({"x": np.where(gap, np.nan, rng.normal(size=200)), "y": gap})
    leaf = DecisionTreeLeaf().fit(table, "y")
    assert (leaf.predict_vector(table)[:, 1] == gap).all()
    again = DecisionTreeLeaf.from_arrays(leaf.to_arrays(), leaf.schema_, leaf.target_)
    assert np.array_equal(again.predict_vector(table), leaf.predict_vector(table))


def test_arrays_travel_and_come_back() -> None:
    table = mixed(5)
    leaf: Predictor = DecisionTreeLeaf(random_state=0).fit(table, "kind")
    assert isinstance(leaf, Predictor) and isinstance(leaf, DecisionTreeLeaf)
    arrays = load_arrays(save_arrays(leaf.to_arrays()))
    again = DecisionTreeLeaf.from_arrays(arrays, leaf.schema_, leaf.target_)
    assert np.array_equal(again.predict_vector(mixed(6)), leaf.predict_vector(mixed(6)))


def _without(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: a for n, a in arrays.items() if n != name}


def _with(name: str, at: object, value: float, arrays: dict[str, np.ndarray]) -> None:
    arrays[name] = arrays[name].copy()
    arrays[name][at] = value


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [
        ("children", (0, 0), 0, "one node before it"),
        ("children", (0, 0), 10_000, "one node before it"),
        ("children", (0, 1), 1, "one node before it"),
        ("children", (0, 1), -1, "two children"),
        ("children", (-1, 0), -2, "two children"),
        ("column", 0, 6, "columns must be from 0 to 5"),
        ("column", 0, -1, "columns must be"),
        ("category", 0, 900, "a category that"),
        ("threshold", 0, np.nan, "must be numbers"),
        ("value", (0, 0), np.inf, "must be numbers"),
        ("value", (0, 0), -0.5, "probabilities of the 4 classes"),
        ("value", (0, 0), 7.0, "probabilities of the 4 classes"),
    ],
)
def test_damaged_arrays_are_refused(name: str, at: object, value: float, words: str) -> None:
    leaf = DecisionTreeLeaf(random_state=0).fit(mixed(5), "kind")
    arrays = leaf.to_arrays()
    _with(name, at, value, arrays)
    with pytest.raises(ParameterError, match=words):
        DecisionTreeLeaf.from_arrays(arrays, leaf.schema_, leaf.target_)


def test_arrays_of_another_form_are_refused() -> None:
    leaf = DecisionTreeLeaf(random_state=0).fit(mixed(5), "kind")
    arrays = leaf.to_arrays()
    for wrong in (
        _without("column", arrays),
        arrays | {"more": arrays["column"]},
        arrays | {"column": arrays["column"][:-1]},
        arrays | {"column": arrays["column"].astype(float)},
        arrays | {"value": arrays["value"][:, :2]},
        {n: a[:0] for n, a in arrays.items()},
        arrays | {"column": np.array(3)},
    ):
        with pytest.raises(ParameterError, match="a decision tree: expected"):
            DecisionTreeLeaf.from_arrays(wrong, leaf.schema_, leaf.target_)


def test_weights_equal_repetition_and_a_seed_repeats() -> None:
    table = mixed(1, missing=0.0)
    times = np.random.default_rng(0).integers(0, 3, len(table))
    twice = table.rows(np.repeat(np.arange(len(table)), times))
    settings = {"max_depth": 2, "min_rows": 1, "random_state": 0}
    weighted = DecisionTreeLeaf(**settings).fit(table, "height", times)
    repeated = DecisionTreeLeaf(**settings).fit(twice, "height")
    assert weighted.predict_vector(table) == pytest.approx(repeated.predict_vector(table))
    again = clone(weighted).fit(table, "height", times)
    assert all(
        np.array_equal(again.to_arrays()[n], a, equal_nan=True)
        for n, a in weighted.to_arrays().items()
    )


def test_rows_and_columns_that_are_not_there() -> None:
    table = mixed(2)
    gaps = table.values.copy()
    gaps[50:, 5] = np.nan
    leaf = DecisionTreeLeaf(random_state=0).fit(fc.Table(table.schema, gaps), "kind")
    alone = DecisionTreeLeaf(random_state=0).fit(table.rows(slice(0, 50)), "kind")
    assert np.array_equal(leaf.predict_vector(table), alone.predict_vector(table))
    found = leaf.predict_vector({"x": [0.5, None], "stranger": [1, 2]})
    assert found.shape == (2, 4) and found.sum(axis=1) == pytest.approx(1)
    with pytest.raises(TableError, match="none of the columns"):
        leaf.predict_vector({"stranger": [1, 2]})
    frame = table.to_pandas()
    assert np.array_equal(leaf.predict_vector(frame), leaf.predict_vector(table))


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_and_one_class(rows: int) -> None:
    table = mixed(3).rows(slice(0, rows))
    one = fc.Table(table.schema, np.where(np.arange(7) == 5, 1.0, table.values))
    found = DecisionTreeLeaf().fit(one, "kind").predict_vector(mixed(4))
    assert (found == [0, 1, 0, 0]).all()


def test_what_cannot_be_learned() -> None:
    table = mixed(0)
    with pytest.raises(fc.errors.QueryError, match=r"unknown variable 'kin'.*'kind'"):
        DecisionTreeLeaf().fit(table, "kin")
    with pytest.raises(TableError, match="'kind' is the only column"):
        DecisionTreeLeaf().fit(table.select(["kind"]), "kind")
    with pytest.raises(TableError, match="no row with positive weight"):
        DecisionTreeLeaf().fit(table, "kind", np.zeros(len(table)))
    with pytest.raises(TableError, match="sample_weight must be 300"):
        DecisionTreeLeaf().fit(table, "kind", [1.0])
    with pytest.raises(ParameterError, match="min_rows"):
        DecisionTreeLeaf(min_rows=0).fit(table, "kind")
    with pytest.raises(ParameterError, match="max_depth"):
        DecisionTreeLeaf(max_depth=0).fit(table, "kind")
    with pytest.raises(NotFittedError):
        DecisionTreeLeaf().predict_vector(table)
    with pytest.raises(NotFittedError):
        DecisionTreeLeaf().to_arrays()
