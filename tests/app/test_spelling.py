"""Filled-in values look like the others of their column."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.app.spelling import spelled

WRITTEN = {  # texts of a column, a value, and how the column writes it
    "comma": (["0,8", "1.234,56", "3,1"], 2.0 / 3, "0,67"),
    "point": (["0.8", "1,234.5", "3.1"], 12345.678, "12345.7"),
    "whole": (["120", "95", "-3"], 101.4, "101"),
    "unit": (["3,50 €", "1.200,00 €"], 7.125, "7,12 €"),
    "currency": (["$3.50", "$4.25"], 7.125, "$7.12"),
    "some with a unit": (["3.5 kg", "4.25"], 7.125, "7.12"),
    "bounds": (["<5.5", "<6.5"], 7.125, "7.1"),
    "brackets": (["(3.50)", "(4.50)"], 7.125, "7.12"),
    "exponents": (["1.5e-9", "2.5e-8"], 1.25e-9, "1.25e-09"),
    "German dates": (["01.02.2023", "17.03.2024"], 19755.0, "02.02.2024"),
    "American dates": (["02/01/2023", "03/17/2024"], 19755.0, "02/02/2024"),
    "ISO dates": (["2023-02-01", "2024-03-17"], 19755.0, "2024-02-02"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_numbers_and_dates(name: str, tmp_path: Path) -> None:
    texts, value, expected = WRITTEN[name]
    pd.DataFrame({"x": texts * 3, "n": range(len(texts) * 3)}).to_csv(
        tmp_path / "x.csv", index=False, sep=";"
    )
    kinds = {} if "date" in name else {"x": "real"}
    table = fc.Table.read(tmp_path / "x.csv", kinds=kinds).select(["x"])
    variable, known = table.schema["x"], table.values[:, 0]
    assert spelled(variable, pd.Series(texts * 3), known, np.array([value])) == [expected]


def test_words() -> None:
    table = fc.Table.of({"ill": ["Ja", "Nein", "ja"]}, kinds={"ill": "category"})
    column = pd.Series(["Ja", "Nein", "Ja"])
    codes = np.array([0.0, 1.0, 0.0])
    assert spelled(table.schema["ill"], column, codes, np.array([1.0, 0.0])) == ["Nein", "Ja"]
