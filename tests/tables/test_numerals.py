"""Numbers as people write them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.tables import numerals


@pytest.mark.parametrize(
    ("texts", "values", "unit"),
    [
        (["1", "2.5", "-3e2"], [1, 2.5, -300], None),
        (["0,8", "1,25", "12"], [0.8, 1.25, 12], None),
        (["1.234,5", "0,5"], [1234.5, 0.5], None),
        (["1,234.5", "2"], [1234.5, 2], None),
        (["1,234", "5,678"], [1234, 5678], None),  # thousands, as nothing says otherwise
        (["1,234", "5,6"], [1.234, 5.6], None),
        (["1'234.50", "12"], [1234.5, 12], None),
        (["1 234,5", "2"], [1234.5, 2], None),
        (["1\u00a0234", "12"], [1234, 12], None),
        (["12 %", "7%"], [12, 7], "%"),
        (["€ 3,50", "€ 1.200,00"], [3.5, 1200], "€"),
        (["$1,200.50", "$3"], [1200.5, 3], "$"),
        (["12 EUR", "3,5 EUR"], [12, 3.5], "EUR"),
        (["3.2 mg/l", "10 mg/l"], [3.2, 10], "mg/l"),
        (["<5", "7", "12", "0.5", "> 100"], [5, 7, 12, 0.5, 100], None),
        (["(3.5)", "2"], [-3.5, 2], None),
        (["−3", "2"], [-3, 2], None),
        (["3.50-", "2.00"], [-3.5, 2], None),  # as some ledgers write it
        (["-€3", "€2"], [-3, 2], "€"),
        (["1.234.567", "12"], [1234567, 12], None),
        (["1,23,456", "12"], [123456, 12], None),
        (["3,25", "4.5", "7.75"], [3.25, 4.5, 7.75], None),  # of two programs in one column
        (["0,123", "1,234"], [0.123, 1.234], None),
        (["5 mg/dl", "7 mg/dL"], [5, 7], "mg/dl"),
        (["80 mm Hg", "90 mmHg"], [80, 90], "mm Hg"),
        (["3 kg", "4"], [3, 4], "kg"),
        (["53 H", "12*", "40 (L)", "7"], [53, 12, 40, 7], None),
        (["ca. 40", "~ 12", "etwa 3", *"1245"], [40, 12, 3, 1, 2, 4, 5], None),
        (["3k", "1.2M", "900"], [3000, 1.2e6, 900], None),
        (["'12", '="13"'], [12, 13], None),
        (["１２", "13"], [12, 13], None),
    ],
)
def test_numbers(texts: list[str], values: list[float], unit: str | None) -> None:
    found = numerals.numbers(texts)
    assert found is not None
    np.testing.assert_allclose(found.values, values)
    assert found.unit == unit


@pytest.mark.parametrize(
    "texts",
    [
        ["01234", "10115"],  # postcodes
        ["low", "high"],
        ["3 mg", "2 g"],  # not to be added
        ["3 mW", "2 MW"],
        ['="01067"', '="10115"'],
        ["120/80", "130/90"],
        ["<=50K", ">50K"],  # classes
        ["<18", "18", ">65"],
        ["1.2.3", "4.5.6"],
        ["12:30", "8:15"],
        [],
    ],
)
def test_what_is_no_column_of_numbers(texts: list[str]) -> None:
    assert numerals.numbers(texts) is None


def test_few_odd_texts_are_missing() -> None:
    found = numerals.numbers([*map(str, range(20)), "haemolysed"])
    assert found is not None
    assert np.isnan(found.values).tolist() == [False] * 20 + [True]


def test_the_decimal_sign_can_be_said() -> None:
    found = numerals.numbers(["1,234"], decimal=",")
    assert found is not None
    assert found.values.tolist() == [1.234]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_german_numbers_are_those_of_programs(numbers: list[float]) -> None:
    swap = str.maketrans(",.", ".,")
    texts = [f"{number:,.3f}".translate(swap) for number in numbers]
    found = numerals.numbers(texts, decimal=",")
    assert found is not None
    np.testing.assert_allclose(found.values, [float(f"{n:.3f}") for n in numbers], atol=1e-9)


@pytest.mark.parametrize(
    ("texts", "hint", "values", "doubt"),
    [
        (["1.234", "5.678"], None, [1.234, 5.678], "1.234 as 1.234, else decimal=','"),
        (["1.234", "5.678"], ",", [1234, 5678], "1.234 as 1234, else decimal='.'"),
        (["1,234"], None, [1234], "1,234 as 1234, else decimal=','"),
        (["1,234"], ",", [1.234], "1,234 as 1.234, else decimal='.'"),
        (["1.234", "0.5"], ",", [1.234, 0.5], ""),  # its own numbers say so
        (["1234", "0"], None, [1234, 0], ""),
    ],
)
def test_what_could_be_two_numbers_is_told(
    texts: list[str], hint: numerals.Point | None, values: list[float], doubt: str
) -> None:
    found = numerals.numbers(texts, hint=hint)
    assert found is not None
    assert (found.values.tolist(), found.doubtful) == (values, doubt)
