"""Whether few whole numbers are classes: labels as users have them."""

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError

ROWS = 90
ENCODER = fc.TabularEncoder(hidden=(), width=3, epochs=3)


def clinics(labels):
    """Two owners that see the label; the second has not all of them."""
    rng = np.random.default_rng(0)
    tables = {}
    for name in ("a", "b"):
        own = np.array(labels, dtype=float)
        own[:5] = np.nan if name == "b" else own[:5]
        columns = {"id": np.arange(ROWS), "x": own + rng.normal(size=ROWS), "label": own}
        tables[name] = fc.Table.of(columns, row_id="id")
    return fc.Federation(tables)


def fitted(labels, **options):
    model = fc.FeatureFusion(ENCODER, epochs=3, random_state=0, **options)
    return model.fit(clinics(labels), target="label")


LABELS = np.arange(ROWS) % 3 + 1


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(LABELS, (1, 2, 3)), (2 * (LABELS > 1) - 1, (-1, 1)), (LABELS > 1, (0, 1))],
)
def test_few_whole_numbers_are_classes(labels, classes):
    model = fitted(labels)
    assert model.classes() == classes
    assert model.predict_proba(clinics(labels)).shape == (ROWS, len(classes))
    assert set(model.predict(clinics(labels)).tolist()) <= set(classes)
    truth = np.asarray(labels, dtype=int)
    assert model.score(clinics(labels)) == model.score(clinics(labels), truth)


@pytest.mark.parametrize("labels", [LABELS + 0.5, np.arange(ROWS)])
def test_others_are_numbers(labels):
    model = fitted(labels)
    assert model.predict(clinics(labels)).dtype == np.float64
    with pytest.raises(QueryError, match=r"no classes.*kinds="):
        model.classes()


def test_the_task_can_be_said():
    assert fitted(LABELS, task="number").predict(clinics(LABELS)).dtype == np.float64
    assert fitted(LABELS > 1, task="number").fusion_.target.kind == "real"
    assert fitted(LABELS + 0.5, task="classes").classes() == (1.5, 2.5, 3.5)
    with pytest.raises(FederationError, match="task must be one of 'auto', 'classes', 'number'"):
        fitted(LABELS, task="both")
    named = {"id": np.arange(4), "x": np.arange(4.0), "label": ["no", "yes", "no", "yes"]}
    text = fc.Federation({"a": fc.Table.of(named, row_id="id")})
    with pytest.raises(FederationError, match="text is no number"):
        fc.FeatureFusion(ENCODER, task="number").fit(text, target="label")


def test_truth_must_fit_the_rows():
    with pytest.raises(QueryError, match=r"each of 90 rows, got an array of the shape \(3,\)"):
        fitted(LABELS).score(clinics(LABELS), LABELS[:3])


def test_trees_go_by_the_same_rule():
    federation = clinics(LABELS)
    rows = federation["a"].table
    trees = fc.FedTrees(target="label", trees=2, random_state=0).fit(federation)
    assert trees.classes() == (1, 2, 3) and set(trees.predict(rows).tolist()) <= {1, 2, 3}
    assert 0 < trees.score(rows) <= 1
    number = fc.FedTrees(target="label", task="number", trees=2, random_state=0).fit(federation)
    assert number.predict(rows).dtype == np.float64
