"""Categories of few rows are pooled, so that their names tell nobody who has them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.tables.rare import pool_rare

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "d", "other", None]), min_size=1, max_size=30)


@given(TEXTS.filter(lambda values: any(values)), st.integers(1, 6))
def test_what_is_kept_has_enough_rows(values: list[str | None], least: int) -> None:
    table = fc.Table.of({"x": values})
    pooled, columns = pool_rare(table, least)
    found = pooled.column("x").tolist()
    enough = {v for v in values if v is not None and values.count(v) >= least} | {"other"}
    assert found == [v if v is None or v in enough else "other" for v in values]
    kept = set(pooled.schema["x"].categories)
    assert kept - {"other"} == enough - {"other"}
    assert bool(columns) == (pooled.schema != table.schema)
    assert pool_rare(pooled, least)[0] is pooled


def test_categories_without_rows_are_pooled_too() -> None:
    """Else who is not named has few rows, and who is named has none."""
    town = pd.Categorical(["ash"] * 5 + ["elm"], categories=["ash", "elm", "oak"])
    pooled, _ = pool_rare(fc.Table.of(pd.DataFrame({"town": town})), 5)
    assert pooled.schema["town"].categories == ("ash", "other")


def test_numbers_are_missing_and_other_kinds_stay() -> None:
    grade = pd.Categorical([1] * 5 + [2, 3], categories=[1, 2, 3])
    frame = pd.DataFrame({"grade": grade, "ill": [True] + [False] * 6, "n": range(7)})
    table = fc.Table.of(frame)
    pooled, columns = pool_rare(table, 5)
    assert columns == ("grade",) and pooled.schema["grade"].categories == (1,)
    assert np.isnan(pooled.values[5:, 0]).all() and (pooled.values[:5, 0] == 0).all()
    assert np.array_equal(pooled.values[:, 1:], table.values[:, 1:])
    few, _ = pool_rare(table.rows([0, 5, 6]), 5)
    assert few.schema["grade"].categories == ("other",) and (few.values[:, 0] == 0).all()
