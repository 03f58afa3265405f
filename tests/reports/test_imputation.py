"""Imputed values against brute force, and against the laws of draws."""

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc

RNG = np.random.default_rng(0)
X = RNG.normal(size=500)
FRAME = pd.DataFrame({
    "x": X, "n": RNG.poisson(np.exp(0.5 * X)), "c": np.where(X > 0, "up", "down"),
})  # fmt: skip
TABLE = fc.Table.of(FRAME)
MODEL = fc.MixtureOfProducts(3, random_state=0).fit(TABLE)
GAPS = FRAME.head(40).mask(RNG.random((40, 3)) < 0.4)


def test_modes_of_classes_and_means_of_numbers() -> None:
    mode, mean = (fc.impute(MODEL, GAPS, by, random_state=0)[0] for by in ("mode", "mean"))  # type: ignore[arg-type]
    for row in np.flatnonzero(GAPS["c"].isna())[:5]:
        rest = GAPS.drop(columns="c").iloc[[row]]
        best = MODEL.classes("c")[int(MODEL.predict_proba(rest, "c")[0].argmax())]
        assert mode.column("c")[row] == mean.column("c")[row] == best
    row = int(np.flatnonzero(GAPS["x"].isna())[0])
    expected = MODEL.expect("x", given=GAPS.drop(columns="x").iloc[[row]])
    assert mean.column("x")[row] == pytest.approx(expected.iloc[0, 0])


def test_the_mode_of_a_number_is_dense() -> None:
    """No point of a grid is much denser than the value that is filled in."""
    filled = fc.impute(MODEL, pd.DataFrame({"c": ["up"]}), "mode", random_state=0)[0]
    grid = pd.DataFrame({"x": np.linspace(-4, 4, 400), "c": "up"})
    here = pd.DataFrame({"x": filled.column("x"), "c": "up"})
    assert MODEL.score_samples(grid).max() - MODEL.score_samples(here)[0] < 0.1


def test_draws_have_the_conditional_mean() -> None:
    row = pd.DataFrame({"c": ["up"]})
    tables = fc.impute(MODEL, row, "sample", imputations=400, random_state=0)
    drawn = np.array([t.column("x")[0] for t in tables], dtype=float)
    mean, variance = MODEL.expect("x", given=row).iloc[0]
    assert drawn.mean() == pytest.approx(mean, abs=4 * (variance / 400) ** 0.5)


def test_impossible_rows_are_filled_as_if_nothing_was_known() -> None:
    rows = fc.Table.of({"wait": [0.5, 1.5, 2.5, 1.1], "x": [1.5, 2.0, 0.1, 3.0]})
    circuit = fc.structures.factorised(rows.schema, leaf_family=lambda _: "exponential")
    model = fc.CircuitModel(circuit).fit(rows, epochs=1, batch_size=None, random_state=0)
    with pytest.warns(UserWarning, match="1 of 2 rows have probability zero"):
        filled = fc.impute(model, pd.DataFrame({"wait": [-3.0, 1.0]}), "mean")[0]
    assert filled.column("x")[0] == pytest.approx(filled.column("x")[1])
    assert filled.column("wait").tolist() == [-3, 1]


@pytest.mark.parametrize(("by", "number"), [("magic", 1), ("mpe", 2), ("sample", 0)])
def test_what_cannot_be(by: str, number: int) -> None:
    with pytest.raises(fc.errors.ParameterError):
        fc.impute(MODEL, GAPS, by, imputations=number)  # type: ignore[arg-type]
