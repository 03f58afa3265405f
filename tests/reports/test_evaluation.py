"""Evaluations: what is measured is what the library says, and leakage is not among it."""

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.reports.evaluation import INDEPENDENT, OWN_MARGINALS, THE_MODEL, TOGETHER
from fedcircuits.reports.rows import joined, rows_of, seen_before

RNG = np.random.default_rng(0)


def table(rows: int, seed: int) -> fc.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    frame = pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=rows)})
    frame["label"] = np.where(x + 0.5 * rng.normal(size=rows) > 0, "yes", "no")
    return fc.Table.of(frame)


TRAIN, TEST = table(300, 1), table(200, 2)
MODEL = fc.MixtureOfProducts(4, target="label", random_state=0).fit(TRAIN)


def test_likelihoods() -> None:
    found = fc.evaluate(MODEL, TEST, train=TRAIN).scores["log_likelihood"]
    alone = fc.MixtureOfProducts(1, random_state=0).fit(TRAIN)
    assert found[THE_MODEL] == pytest.approx(MODEL.score(TEST))
    assert found[INDEPENDENT] == pytest.approx(alone.score(TEST))
    assert found[THE_MODEL] > found[INDEPENDENT]
    own = fc.evaluate(MODEL, TEST).scores.loc[OWN_MARGINALS, "log_likelihood"]
    parts = sum(MODEL.score(TEST.select([n])) for n in TEST.names)
    assert own == pytest.approx(parts)


def test_the_target_is_not_read() -> None:
    """Other truths leave the predictions, and so the confidence of every bin, as they are."""
    turned = TEST.values.copy()
    turned[:, 2] = 1 - turned[:, 2]
    found = fc.evaluate(MODEL, TEST, train=TRAIN)
    other = fc.evaluate(MODEL, fc.Table(TEST.schema, turned), train=TRAIN)
    both = found.scores["accuracy"] + other.scores["accuracy"]
    for name in (THE_MODEL, "logistic regression", "gradient boosting", "most frequent class"):
        assert both[name] == pytest.approx(1)
    assert [b.confidence for b in found.reliability] == [b.confidence for b in other.reliability]


def test_a_model_of_the_truth_is_calibrated() -> None:
    rows = MODEL.sample(4000, random_state=1)
    found = fc.evaluate(MODEL, rows)
    assert found.scores.loc[THE_MODEL, "calibration_error"] < 0.03
    number = fc.evaluate(MODEL, rows, target="y")
    assert number.scores.loc[THE_MODEL, "calibration_error"] < 0.06


def test_parties_alone_and_together() -> None:
    ids = np.arange(300)
    parts = {
        "a": fc.Table.of({"id": ids, "x": TRAIN.column("x")}, row_id="id"),
        "b": fc.Table.of(
            {"id": ids, "y": TRAIN.column("y"), "label": TRAIN.column("label")}, row_id="id"
        ),
    }
    scores = fc.evaluate(MODEL, TEST, train=parts).scores
    assert "a alone" not in scores.index, "it has neither the target nor all columns"
    assert np.isnan(scores.loc["b alone", "log_likelihood"])
    assert 0.5 < scores.loc["b alone", "accuracy"] <= 1
    spn = fc.LearnSPN(target="label", random_state=0).fit(TRAIN)
    assert scores.loc[TOGETHER, "log_likelihood"] == pytest.approx(spn.score(TEST))


def test_rows_are_joined_by_their_ids() -> None:
    schema = fc.Table.of({"x": [1.0, 2.5], "y": [1.5, 2.0]}).schema
    a = rows_of({"id": [3, 1], "x": [30.0, 10.0]}, schema, "id")
    b = rows_of({"id": [1, 2], "y": [0.1, 0.2]}, schema, "id")
    found = joined({"a": a, "b": b})
    assert found.row_ids is not None and found.row_ids.tolist() == [3, 1, 2]
    np.testing.assert_array_equal(found.values, [[30, np.nan], [10, 0.1], [np.nan, 0.2]])


def test_impossible_rows_are_counted() -> None:
    rows = fc.Table.of({"wait": [0.5, 1.5, 2.5, 1.1, 0.7]})
    circuit = fc.structures.factorised(rows.schema, leaf_family=lambda _: "exponential")
    model = fc.CircuitModel(circuit).fit(rows, epochs=1, batch_size=None, random_state=0)
    found = fc.evaluate(model, pd.DataFrame({"wait": [-3.0, 1.0]}))
    assert found.impossible == 1
    assert np.isneginf(found.scores.loc[THE_MODEL, "log_likelihood"])
    json = found.to_json()["scores"]
    assert isinstance(json, dict) and json[THE_MODEL] == {"log_likelihood": None}


def test_training_rows_among_test_rows() -> None:
    """By their ids and values; without ids by values, where there are real columns."""
    both = fc.Table(TEST.schema, np.concatenate([TEST.values[:150], TRAIN.values[:50]]))
    with pytest.warns(UserWarning, match="50 of 200 test rows are training rows"):
        fc.evaluate(MODEL, both, train=TRAIN)
    ids = np.arange(300)
    named = fc.Table(TRAIN.schema, TRAIN.values, ids)
    assert seen_before(named.rows(ids[:9]), named) == 9
    assert seen_before(fc.Table(TRAIN.schema, TRAIN.values, ids + 300), named) == 0
    assert seen_before(TRAIN.select(["label"]), TRAIN) == 0
    gaps = fc.Table(TRAIN.schema, np.where(np.arange(3) == 1, np.nan, TRAIN.values))
    assert (
        seen_before(gaps, TRAIN) == 300 == seen_before(TRAIN, TRAIN)
        and seen_before(TRAIN, gaps) == 0
    )


def test_a_fusion_beside_others() -> None:
    """The same baselines as beside any model; of series alone there is nothing to compare."""
    parts = [fc.split(rows, ["a", "b"], by="columns", target="label") for rows in (TRAIN, TEST)]
    model = fc.FeatureFusion(target="label", share_target=True, epochs=2, random_state=0)
    model.fit(parts[0])
    found = fc.evaluate(model, parts[1], train=parts[0]).scores
    trees = fc.FedTrees(target="label", share_target=True, trees=2, random_state=0).fit(parts[0])
    beside = fc.evaluate(trees, TEST, train=parts[0]).scores
    assert list(found.index) == list(beside.index) and found.index[0] == THE_MODEL
    pd.testing.assert_frame_equal(found.iloc[1:], beside.iloc[1:], rtol=1e-6)
    series, wave = [], np.linspace(0, 6, 12)
    for rows in (TRAIN, TEST):
        x = rows.values[:, :1, None] * np.sin(wave)[None, :, None]
        labels = {"label": rows.column("label")}
        series.append(fc.Federation({"a": fc.Table.from_series({"x": x}, columns=labels)}))
    model.fit(series[0])
    assert list(fc.evaluate(model, series[1], train=series[0]).scores.index) == [THE_MODEL]


def test_what_cannot_be_evaluated() -> None:
    with pytest.raises(fc.errors.QueryError, match="give them as a Federation"):
        fc.evaluate(fc.FeatureFusion(target="y"), TEST)
    with pytest.raises(fc.errors.ParameterError, match="random_state"):
        fc.evaluate(MODEL, TEST, random_state=-1)
    only = fc.Table.of(TEST.to_pandas()[["x"]], schema=TEST.schema, partial=True)
    with pytest.raises(fc.errors.QueryError, match="no row has a value of 'label'"):
        fc.evaluate(MODEL, only)
