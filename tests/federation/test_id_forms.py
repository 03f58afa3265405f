"""Row ids and columns that parties spell differently are reported, and can be made to meet."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from fedcircuits.errors import FederationError
from fedcircuits.federation.doubts import nearly_met
from fedcircuits.federation.federation import Federation
from fedcircuits.tables.declared import DeclaredReading, DeclaredTable

LOOSE = DeclaredTable(DeclaredReading(ids="loose"))


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (
            ["01", "02", "3"],
            ["1", "2", "3"],
            "1 of 3 ids match; 2 more would after stripping zeros",
        ),
        (
            ["AB", "cd "],
            ["ab", "cd"],
            "2 more would after stripping spaces and case",
        ),
        (["é"], ["e\u0301"], "1 more would after stripping Unicode forms"),
        (["1.0", "2.0"], ["1", "2"], "2 more would after stripping decimals"),
        (["A-1", "A-2"], ["A1", "A3"], "1 more would after stripping signs"),
    ],
)
def test_ids_that_would_meet(own: list[str], others: list[str], words: str) -> None:
    (found,) = nearly_met({"bank": own, "telco": others})
    assert found.startswith("bank and telco: ") and found.endswith(words)


@pytest.mark.parametrize(
    ("own", "others"),
    [(["1", "2"], ["2", "1"]), (["1", "2"], ["3"]), (["01", "1"], ["1", "2"])],
)
def test_ids_that_are_as_they_should_be(own: list[str], others: list[str]) -> None:
    """They meet, or would not in other spellings either, or would no longer tell rows apart."""
    assert nearly_met({"bank": own, "telco": others}) == []


def files(folder: Path) -> dict[str, Path]:
    (folder / "bank.csv").write_text("id,loan\n0001,3\n0002,5\n0003,4\n")
    (folder / "telco.csv").write_text("id,calls\n3,12\n1,40\n7,8\n")
    return {"bank": folder / "bank.csv", "telco": folder / "telco.csv"}


def test_a_federation_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="0 of 3 ids match; 2 more would after stripping zeros"):
        Federation(files(tmp_path), "id")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federation = Federation(files(tmp_path), "id", declared=LOOSE)
    ids = [party.table.row_ids for party in federation]
    assert [own.tolist() for own in ids if own is not None] == [["1", "2", "3"], ["3", "1", "7"]]


def test_loose_ids_must_still_differ() -> None:
    with pytest.raises(FederationError, match="two rows would have the same id"):
        Federation({"bank": {"id": ["1", "01"], "x": [1, 2]}}, "id", declared=LOOSE)


def test_columns_that_differ_in_their_spelling() -> None:
    with pytest.warns(UserWarning, match="north has a column 'Age' and south 'age'"):
        Federation({"north": {"Age": [1, 2]}, "south": {"age": [3, 4]}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Federation({"north": {"a": [1], "A": [2]}, "south": {"a": [3], "A": [4]}})
