"""What parties may have written differently and meant alike is told to whoever holds all tables."""

import warnings

import pytest

import fedcircuits as fc


def test_categories_without_a_common_word() -> None:
    words = "'sex' is 'f', 'm' at a and 'female', 'male' at c, none in common"
    with pytest.warns(UserWarning, match=words) as caught:
        fc.Federation({
            "a": {"sex": ["m", "f"]}, "b": {"sex": ["M", "F"]}, "c": {"sex": ["male", "female"]},
        })  # fmt: skip
    assert len(caught) == 1


def test_a_unit_that_one_party_writes() -> None:
    with_unit = fc.Table.of({"weight": [70.5, 80.5]}, units={"weight": "kg"})
    with pytest.warns(UserWarning, match="'weight' is in 'kg' at a and has no unit at b"):
        fc.Federation({"a": with_unit, "b": {"weight": [70.5, 81.5]}})


def test_nothing_where_all_is_alike() -> None:
    with_unit = fc.Table.of({"weight kg": [70.5, 80.5]}, units={"weight kg": "kg"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fc.Federation({"a": with_unit, "b": {"weight kg": [70.5, 81.5]}})
        fc.Federation({"a": {"x": ["p", "q"]}, "b": {"x": ["q", "r"]}, "c": {"x": ["r", "p"]}})
