"""Questions about moderate dependence, against the data that was learned from."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.naive_bayes import GaussianNB

import fedcircuits as fc


def correlated(rows: int, correlation: float = 0.3) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(2, rows))
    return pd.DataFrame({"x": x, "y": correlation * x + np.sqrt(1 - correlation**2) * e})


def patients(rows: int, seed: int = 0) -> pd.DataFrame:
    """Readmission depends on age alone; there is a code of 500 levels."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 16, rows).clip(18, 99).round(1)
    often = 1 / np.arange(1, 501)
    return pd.DataFrame(
        {
            "age": age,
            "stay": rng.poisson(4, rows),
            "code": rng.choice([f"c{i}" for i in range(500)], rows, p=often / often.sum()),
            "readmitted": rng.random(rows) < 1 / (1 + np.exp(1.6 - 0.95 * (age - 60) / 16)),
        }
    )


def mean_of(model: fc.Model, column: str, given: str) -> float:
    return float(model.expect(column, given=given)["mean"][column])


def test_two_reals_of_correlation_three_tenths() -> None:
    rows = correlated(20_000)
    model = fc.LearnSPN(random_state=0).fit(rows)
    truth = rows["y"][rows["x"] > 1].mean()
    assert mean_of(model, "y", "x > 1") == pytest.approx(truth, abs=0.05)
    weak = correlated(20_000, 0.1)
    truth = weak["y"][weak["x"] > 1].mean()
    found = mean_of(fc.LearnSPN(random_state=0).fit(weak), "y", "x > 1")
    assert found == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_the_same_among_parties(by: str) -> None:
    rows = correlated(3000)
    table = fc.Table.of(rows)
    model = fc.FedPC(random_state=0).fit(fc.split(table, 2, by=by))  # type: ignore[arg-type]
    truth = rows["y"][rows["x"] > 1].mean()
    assert mean_of(model, "y", "x > 1") == pytest.approx(truth, abs=0.2)


def test_readmission_by_age_beside_a_code_of_many_levels() -> None:
    table = fc.Table.of(patients(3200))
    train, test = table.rows(slice(0, 1600)), table.rows(slice(1600, None))
    frame, truth = train.to_pandas(), test.column("readmitted").astype(bool)
    plain = LogisticRegression().fit(frame[["age"]], frame["readmitted"].astype(bool))
    goal = roc_auc_score(truth, plain.predict_proba(test.to_pandas()[["age"]])[:, 1])
    young, old = frame["age"] < 40, frame["age"] > 75
    models = {
        "alone": fc.LearnSPN(random_state=0).fit(train),
        "target": fc.LearnSPN(target="readmitted", random_state=0).fit(train),
        "by rows": fc.FedPC(target="readmitted", random_state=0).fit(fc.split(train, 2, by="rows")),
    }
    for name, model in models.items():
        for given, rows in (("age < 40", young), ("age > 75", old)):
            share = frame["readmitted"][rows].astype(bool).mean()
            assert model.probability("readmitted", given=given) == pytest.approx(share, abs=0.07)
        found = roc_auc_score(truth, model.predict_proba(test, "readmitted")[:, 1])
        assert found > goal - (0.03 if name == "alone" else 0.02), name


def test_notes_name_what_is_independent() -> None:
    model = fc.LearnSPN(target="readmitted", random_state=0).fit(patients(1600))
    apart, *_ = model.notes_
    assert "target 'readmitted'" in apart and "'stay' (p = " in apart and "'age'" not in apart
    assert fc.LearnSPN(random_state=0).fit(correlated(2000)).notes_ == ()
    alone = fc.LearnSPN(random_state=0).fit(correlated(2000, 0.0))
    assert "independent of every other column" in alone.notes_[0] and "'x' (p = " in alone.notes_[0]
    fixed = fc.LearnSPN(test="rdc", random_state=0).fit(correlated(200))
    assert fixed.notes_ == ()  # a threshold has no p-value


def test_linear_regression() -> None:
    frame = load_diabetes(as_frame=True).frame
    table, order = fc.Table.of(frame), np.random.default_rng(0).permutation(len(frame))
    train, test = order[:300], order[300:]
    x, y = frame.drop(columns="target").to_numpy(), frame["target"].to_numpy()
    goal = r2_score(y[test], LinearRegression().fit(x[train], y[train]).predict(x[test]))
    model = fc.LearnSPN(target="target", random_state=0).fit(table.rows(train))
    assert r2_score(y[test], model.predict(table.rows(test))) > goal - 0.05


def test_classes_that_are_rare_or_unknown() -> None:
    rows = patients(400)
    rows["ward"] = np.where(rows["age"] > 60, "old", "young")
    rows.loc[:3, "ward"] = "spare"
    rows.loc[10:30, "ward"] = None
    model = fc.LearnSPN(target="ward", random_state=0).fit(rows)
    share = model.predict_proba(rows)
    np.testing.assert_allclose(share.sum(axis=1), 1)
    known = rows["ward"].isin(["old", "young"]).to_numpy()
    assert (model.predict(rows)[known] == rows["ward"][known]).mean() > 0.9
    assert np.isfinite(model.score_samples(rows)).all() and (share > 0).all()


def test_correlated_reals_with_gaps() -> None:
    rows = correlated(4000, 0.8)
    rows.loc[::5, "y"] = np.nan
    model = fc.LearnSPN(random_state=0).fit(rows)
    assert np.isfinite(model.score_samples(rows)).all()
    truth = rows["y"][rows["x"] > 1].mean()
    assert mean_of(model, "y", "x > 1") == pytest.approx(truth, abs=0.1)


def test_a_federated_model_names_columns_that_it_holds_unrelated() -> None:
    rows = correlated(600, 0.6).assign(noise=np.random.default_rng(1).random(600) < 0.5)
    model = fc.FedPC(method="one_pass", random_state=0).fit(fc.split(fc.Table.of(rows), 2))
    found = model.unrelated("x", below=0.01)
    assert list(found) == ["noise"] and 0 <= found["noise"] < 0.01
    alone = fc.LearnSPN(target="y", random_state=0).fit(rows)
    assert list(alone.unrelated()) == ["noise"]


def test_reals_with_many_ties_are_named_and_answered_between_values() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, 2000).astype(float)
    rows = pd.DataFrame({"x": x, "y": 0.5 * x + rng.normal(size=2000), "z": rng.random(2000)})
    model = fc.LearnSPN(random_state=0).fit(rows)
    [note] = [n for n in model.notes_ if "same value" in n]
    assert "'x'" in note and "'y'" not in note and "'z'" not in note
    assert mean_of(model, "y", "x > 2.5") == pytest.approx(rows.y[x > 2.5].mean(), abs=0.1)
    assert model.probability("x > 2.5") == pytest.approx((x > 2.5).mean(), abs=0.02)
    whole = fc.LearnSPN(random_state=0).fit(fc.Table.of(rows, kinds={"x": "count"}))
    assert not any("same value" in n for n in whole.notes_)
    assert mean_of(whole, "y", "x > 2") == pytest.approx(rows.y[x > 2].mean(), abs=0.1)


@pytest.mark.parametrize(("rows", "seed"), [(800, 9), (3000, 7)])
def test_a_class_is_told_as_well_as_by_naive_bayes(rows: int, seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    weight = 0.5 * rng.normal(size=6)

    def patients(number: int) -> pd.DataFrame:
        a, k = rng.normal(size=(number, 3)), rng.poisson(2, size=number)
        c, b = rng.integers(0, 4, number), rng.random(number) < 0.3
        z = a @ weight[:3] + weight[3] * (k - 2) + weight[4] * (c == 1) * 2 + weight[5] * b - 0.7
        frame = pd.DataFrame(a, columns=["a0", "a1", "a2"])
        ward, ill = np.array(list("wxyz"))[c], rng.random(number) < 1 / (1 + np.exp(-z))
        return frame.assign(k=k, ward=ward, b=b, ill=ill)

    train, test = patients(rows), patients(3000)
    model = fc.LearnSPN(target="ill", random_state=0).fit(train)
    score = roc_auc_score(test.ill, model.predict_proba(test.drop(columns="ill"))[:, 1])
    x, new = (pd.get_dummies(f.drop(columns="ill"), dtype=float) for f in (train, test))
    naive = GaussianNB().fit(x, train.ill).predict_proba(new)[:, 1]
    linear = LogisticRegression(max_iter=500).fit(x, train.ill).predict_proba(new)[:, 1]
    assert score > roc_auc_score(test.ill, naive) - 0.005
    assert score > roc_auc_score(test.ill, linear) - 0.02


def inflamed(rows: int, seed: int) -> pd.DataFrame:
    """Illness depends on a skewed number and on age, stay on that number, smoking on sex."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 15, rows).clip(18, 99)
    sex = rng.choice(["f", "m"], rows)
    smokes = rng.random(rows) < 0.15 + 0.2 * (sex == "m")
    marker = np.exp(rng.normal(1 + 0.6 * smokes + 0.02 * (age - 60), 0.8))
    risk = -4 + 0.05 * (age - 60) + 0.25 * np.minimum(marker, 20) + smokes
    return pd.DataFrame(
        {
            "age": age,
            "sex": sex,
            "smokes": smokes,
            "marker": marker,
            "stay": rng.poisson(3 + 4 * (marker > 8) + 0.03 * (age - 18)),
            "ill": np.where(rng.random(rows) < 1 / (1 + np.exp(-risk)), "yes", "no"),
        }
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_categories_follow_numbers_in_parts_without_clusters(seed: int) -> None:
    """Trees tie categories and normals tie reals; neither ties a category to a real."""
    model = fc.LearnSPN(random_state=0).fit(inflamed(2000, seed))
    truth = inflamed(100_000, 100)
    for given, rows in (
        ("marker > 15", truth["marker"] > 15),
        ("age > 75", truth["age"] > 75),
        ("smokes = true and age > 70", truth["smokes"] & (truth["age"] > 70)),
    ):
        expected = (truth["ill"][rows] == "yes").mean()
        assert model.probability("ill = yes", given=given) == pytest.approx(expected, abs=0.13)
