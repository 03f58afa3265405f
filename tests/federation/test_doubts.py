"""What parties may have written differently and meant alike is told to whoever holds all tables."""

import warnings

import numpy as np
import pytest

import fedcircuits as fc


def test_categories_without_a_common_word() -> None:
    words = "'sex' is 'f', 'm' at a and 'female', 'male' at c, with no category in common"
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


def test_a_column_that_one_party_has_no_value_of_is_learned_from_the_others() -> None:
    rng, nothing = np.random.default_rng(0), np.full(200, np.nan)
    dose, pain = rng.normal(50.0, 2.0, 200), rng.normal(size=200)
    full = fc.Table.of({"dose": dose, "pain": pain + dose})
    empty = fc.Table.of({"dose": nothing, "pain": pain + 50}, kinds={"dose": "real"})
    federation = fc.Federation({"a": full, "b": empty})
    assert federation.without_empty()["b"].table.names == ("pain",)
    with pytest.warns(UserWarning, match="b lacks 'dose'"):
        model = fc.FedPC(random_state=0).fit(federation)
    told = model.expect("dose").loc["dose"]
    assert abs(told["mean"] - 50) < 1 and told["variance"] < 16


def test_a_column_that_nobody_has_a_value_of_stays() -> None:
    empty = fc.Table.of({"x": [np.nan, np.nan], "y": [1.5, 2.5]}, kinds={"x": "real"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = fc.Federation({"a": empty, "b": empty}).without_empty()
        assert both.schema.names == ("x", "y")


def test_words_for_yes_and_no_of_few_rows_are_truth_values_beside_others() -> None:
    few = {"a": {"ill": ["yes"]}, "b": {"ill": ["no"]}, "c": {"ill": [True, False, True]}}
    assert fc.Federation(few).pooled().schema["ill"].kind == "boolean"


IDS = np.arange(40)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ({"a": IDS, "b": IDS, "c": IDS + 100}, "no row id of c is at any other party"),
        ({"a": IDS, "b": IDS, "c": IDS + 100, "d": IDS + 100}, "no row id of c and d is at any"),
    ],
)
def test_parties_whose_rows_are_at_no_other(ids: dict[str, np.ndarray], words: str) -> None:
    tables = {n: {"id": own, f"x{n}": np.linspace(0, 1, 40)} for n, own in ids.items()}
    with pytest.warns(UserWarning, match=words):
        fc.Federation(tables, row_id="id")


@pytest.mark.parametrize("other", ["xa", "xd"])
def test_no_warning_where_parties_hang_together(other: str) -> None:
    """By rows that two of them hold, or by a column; c shares its rows with b, and b with a."""
    tables = {
        "a": {"id": IDS, "xa": np.linspace(0, 1, 40)},
        "b": {"id": IDS + 30, "xb": np.linspace(0, 1, 40)},
        "c": {"id": IDS + 60, "xc": np.linspace(0, 1, 40)},
        "d": {"id": IDS + (1000 if other == "xa" else 60), other: np.linspace(0, 1, 40)},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fc.Federation(tables, row_id="id")
