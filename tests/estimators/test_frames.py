"""Answers come in the kind of frame that was asked with."""

import warnings

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc

polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({
    "a": RNG.normal(size=80), "n": RNG.poisson(3, 80), "c": RNG.choice(["x", "y"], 80),
})  # fmt: skip
MODEL = fc.MixtureOfProducts(2, random_state=0).fit(TABLE)
GAPS = TABLE.head(4).assign(a=[0.5, np.nan, 1.5, np.nan], remark=["p", "q", "r", "s"])
KINDS = {"polars": polars.from_pandas, "pyarrow": pyarrow.Table.from_pandas}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_of_the_callers_kind(kind: str) -> None:
    frame = KINDS[kind](GAPS)
    completed = MODEL.mpe(frame)
    drawn = MODEL.sample(2, given=frame.select(["a", "c"]), random_state=0)
    means = MODEL.expect(["a"], given=frame.select(["c"]))
    filled = fc.CircuitImputer(MODEL).fit(frame.select(["a", "n", "c"])).transform(
        frame.select(["a", "n", "c"])
    )  # fmt: skip
    for answer in (completed, drawn, means, filled):
        assert type(answer) is type(frame)
    wanted = MODEL.mpe(GAPS), MODEL.sample(2, given=GAPS[["a", "c"]], random_state=0)
    for answer, table in zip((completed, drawn), wanted, strict=True):
        pair = [fc.Table.of(t, schema=MODEL.schema_).values for t in (answer, table)]
        np.testing.assert_allclose(*pair)
    assert "remark" in (completed.columns if kind == "polars" else completed.column_names)
    assert [str(name) for name in fc.Table.of(means).names] == ["a mean", "a variance"]
    assert not np.isnan(fc.Table.of(filled).values).any()


@pytest.mark.parametrize("library", ["duckdb", "modin"])
def test_frames_of_other_libraries(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By narwhals; neither library is one of ours: skipped where it is absent."""
    pytest.importorskip("narwhals")
    other = pytest.importorskip(library)
    if library == "modin":
        monkeypatch.setenv("MODIN_ENGINE", "python")
        frame = __import__("modin.pandas").pandas.DataFrame(GAPS[["a", "c"]])
    else:
        frame = other.from_arrow(pyarrow.Table.from_pandas(GAPS[["a", "c"]]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # modin tells what it leaves to pandas
        answers = MODEL.mpe(frame), MODEL.expect(["a"], given=frame), fc.Table.of(frame).like(frame)
    for answer in answers:
        assert type(answer) is type(frame)
    wanted = MODEL.mpe(GAPS[["a", "c"]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = [fc.Table.of(t, schema=MODEL.schema_).values for t in (answers[0], wanted)]
    np.testing.assert_allclose(*both)


def test_classifiers_take_them() -> None:
    frame = polars.from_pandas(TABLE)
    classifier = fc.CircuitClassifier(MODEL).fit(frame.select(["a", "n"]), TABLE["c"])
    assert set(classifier.predict(frame.select(["a", "n"]))) <= {"x", "y"}
