"""Federations: how data are split is read off, and whoever does not fit is named."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.federation.federation import Party, Subspace, row_ids
from tests.federation.cases import QUICK
from tests.methods.watched import Watched

X, Y, Z = {"x": [1.5, 2.5]}, {"y": [1.5, 2.5]}, {"z": [0.5, 2.5]}


@pytest.mark.parametrize(
    ("parties", "kind"),
    [
        ({"a": X}, "horizontal"),
        ({"a": X | Y, "b": Y | X}, "horizontal"),
        ({"a": X, "b": Y}, "vertical"),
        ({"a": X | Y, "b": Z}, "vertical"),
        ({"a": X | Y, "b": Y}, "hybrid"),
        ({"a": X | Y, "b": Y | Z, "c": X}, "hybrid"),
        ({"a": X, "b": X, "c": Y}, "hybrid"),
    ],
)
def test_the_split_is_read_off(parties: dict[str, object], kind: str) -> None:
    assert fc.Federation(parties).kind == kind


def test_matrix_and_subspaces() -> None:
    parties = fc.Federation({"a": X | Y, "b": Y | Z, "c": X})
    assert parties.matrix.loc["a"].tolist() == [True, True, False]
    assert parties.matrix.loc["c"].to_dict() == {"x": True, "y": False, "z": False}
    assert parties.subspaces == [
        Subspace(("a", "c"), ("x",)),
        Subspace(("a", "b"), ("y",)),
        Subspace(("b",), ("z",)),
    ]
    assert len(parties) == 3 and parties.names == ("a", "b", "c")
    assert "hybrid, 3 parties, 3 variables" in repr(parties) and "a: 2 rows × 2" in repr(parties)
    many = fc.Federation({f"p{i}": X for i in range(20)})
    assert repr(many).endswith("…") and len(repr(many).splitlines()) == 14


def test_series_are_shown() -> None:
    series = {n: np.zeros((2, 3, 1)) for n in ("wind", "sun")}
    labels = fc.Table.from_series({"load": np.ones((2, 3, 1))}, columns={"event": [1.5, 2.5]})
    shown = repr(fc.Federation({"a": fc.Table.from_series(series), "b": labels}))
    assert "2 parties, 1 variable\n  a: 2 rows × series 'wind', series 'sun'\n" in shown
    assert shown.endswith("b: 2 rows × 1 variable, series 'load'")


def test_files_and_row_ids(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [3, 1, 2], "x": [0.5, 1.5, 2.5], "c": ["a", "b", "a"]})
    frame.to_csv(tmp_path / "north.csv", index=False)
    frame.drop(columns="c").to_parquet(tmp_path / "south.parquet")
    parties = fc.Federation(
        {"north": str(tmp_path / "north.csv"), "south": tmp_path / "south.parquet", "west": frame},
        row_id="id",
    )
    assert parties.schema.names == ("x", "c")
    for party in parties:
        assert party.table.row_ids is not None and party.table.row_ids.tolist() == [3, 1, 2]
    with pytest.raises(FederationError, match=r"party 'north': .*missing.csv"):
        fc.Federation({"north": tmp_path / "missing.csv"})


def test_parties_name_their_row_ids_differently() -> None:
    bank, telco = {"customer": [3, 1], "x": [1.5, 2.5]}, {"phone": [1, 3], "y": [1.5, 0.5]}
    parties = fc.Federation({"bank": bank, "telco": telco}, {"bank": "customer", "telco": "phone"})
    assert row_ids(parties["bank"]).tolist() == [3, 1] and parties["telco"].table.schema.names == (
        "y",
    )
    with pytest.raises(FederationError, match=r"no column 'customer'.*row_id=\{'telco': '…'\}"):
        fc.Federation({"bank": bank, "telco": telco}, "customer")
    with pytest.raises(FederationError, match="row_id names 'teleco', which is not a party"):
        fc.Federation({"bank": bank, "telco": telco}, {"bank": "customer", "teleco": "phone"})


def test_tables_that_have_row_ids_keep_them() -> None:
    table = fc.Table.of({"key": ["u", "v"], "x": [1.5, 2.5]}, row_id="key")
    parties = fc.Federation({"a": table, "b": {"id": ["v", "w"], "y": [1.5, 0.5]}}, row_id="id")
    assert row_ids(parties["a"]).tolist() == ["u", "v"]
    with pytest.raises(FederationError, match=r"a has no row ids: .*row_id='…'"):
        row_ids(Party("a", fc.Table.of(X)))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"id": [1, 1], "x": [1.5, 2.5]}, "party 'a': row_id 'id': expected different ids, row 1"),
        ({"id": [1, None], "x": [1.5, 2.5]}, "party 'a': .*expected an id in every row, row 1"),
        ({"key": [1, 2], "x": [1.5, 2.5]}, "party 'a': row_id: there is no column 'id'"),
        (17, "party 'a': "),
    ],
)
def test_bad_tables_are_named(data: object, text: str) -> None:
    with pytest.raises(FederationError, match=text):
        fc.Federation({"a": data}, row_id="id")


def test_ids_that_occur_twice_are_refused_however_the_table_was_made() -> None:
    table = fc.Table.of(X)
    twice = fc.Table(table.schema, table.values, np.array([4, 4]))
    with pytest.raises(FederationError, match="party 'a': two rows have the same id"):
        fc.Federation({"a": twice})


@pytest.mark.parametrize("ids", [[4, "4"], ["x4", "x4"], [4, 4]])
def test_ids_of_one_party_that_are_one_text(ids: list[object]) -> None:
    """4 and "4" would get one token: the error names the party, and no id."""
    frame = pd.DataFrame({"id": pd.Series(ids, dtype=object), **X})
    table = fc.Table.of(X)
    given = fc.Table(table.schema, table.values, np.array(ids, dtype=object))
    for data in (frame, given) if ids == [4, "4"] else (given,):
        with pytest.raises(
            FederationError, match="party 'north': two rows have the same id"
        ) as error:
            fc.Federation({"north": data, "south": {"id": [4, 5], **Y}}, row_id="id")
        assert "x4" not in str(error.value)


# ---------------------------------------------------------------------- rare categories


TOWNS = ["ash"] * 6 + ["elm"] * 5 + ["oak", "oak", "yew"]


def test_rare_categories_are_pooled_in_training_and_a_note_says_so() -> None:
    frame = pd.DataFrame({"town": TOWNS, "ill": [True] + [False] * 13, "x": np.arange(14.0)})
    parties = fc.Federation({"north": frame, "south": fc.Table.of(frame)})
    (note,) = parties.notes
    assert note.startswith("north: categories of 'town' that occur in fewer than 5")
    assert "oak" not in note and "yew" not in note
    pooled = parties.pooled()
    assert pooled["north"].table.schema["town"].categories == ("ash", "elm", "other")
    assert pooled["north"].table.column("town").tolist() == TOWNS[:11] + ["other"] * 3
    assert pooled["north"].table.schema["ill"].categories == (False, True)
    assert pooled["south"].table.schema["town"].categories == ("ash", "elm", "oak", "yew")
    assert parties["north"].table.schema["town"].size == 4  # rows of a question stay as they are
    assert pooled.notes == () and pooled.pooled() is pooled
    kept = fc.Federation({"north": frame}, least_count=1)
    assert kept.notes == () and kept.pooled() is kept
    some = parties.select(["north"]).pooled()  # a part of it knows who has declared what
    assert some["north"].table.schema["town"].size == 3


def test_what_crosses_names_no_rare_category() -> None:
    """One patient with a disease of her own: the others would hear its name in agree/hello."""
    disease = ["flu"] * 30 + ["cold"] * 29 + ["kuru"]
    columns = {"disease": disease, "x": np.arange(60.0)}
    frames = {party: pd.DataFrame(columns) for party in ("north", "south")}
    heard = {}
    for least in (5, 1):
        engine = Watched()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fc.FedPC(QUICK, random_state=0)
            model.fit(fc.Federation(frames, least_count=least), engine=engine)
        heard[least] = [m for _, m in engine.messages if b"kuru" in m.data]
        assert any("categories of 'disease'" in str(w.message) for w in caught) == (least == 5)
        assert len(model.notes_) == (least == 5)
        if least == 5:
            text = r"no category 'kuru'.*a federation calls categories that few rows .* 'other'"
            with pytest.raises(QueryError, match=text):
                model.probability("disease = kuru")
            with pytest.warns(UserWarning, match="'disease': 1 value .* is taken as 'other'"):
                model.score_samples(frames["north"])
            assert model.probability("disease = other") < 0.1
    assert not heard[5] and heard[1]


def test_names() -> None:
    for name in ("", 3, "coordinator"):
        with pytest.raises(FederationError, match="a party needs a name, text other than 'coord"):
            fc.Federation({name: X})  # type: ignore[dict-item]
    with pytest.raises(FederationError, match="at least one party"):
        fc.Federation({})
    with pytest.raises(FederationError, match="there is no party 'c': there are a, b"):
        fc.Federation({"a": X, "b": X})["c"]
    with pytest.raises(FederationError, match="allow_collect names 'c', which is not a party"):
        fc.Federation({"a": X}, allow_collect=["c"])


def test_a_party_without_rows_is_named() -> None:
    empty = fc.Table(fc.Table.of(X).schema, np.zeros((0, 1)))
    with pytest.raises(PartyLostError, match="b has no rows to learn from"):
        fc.FedPC(fc.MixtureOfProducts(1)).fit(fc.Federation({"a": X, "b": empty}))


def test_some_of_the_parties() -> None:
    parties = fc.Federation({"a": X | Y, "b": Y, "c": Z}, allow_collect=["a", "c"])
    fewer = parties.select(["a", "b"])
    assert fewer.names == ("a", "b") and fewer.schema.names == ("x", "y")
    assert [p.allow_collect for p in fewer] == [True, False]


def test_a_least_count_goes_with_its_party() -> None:
    parts = {"a": fc.Table.of(X), "b": fc.Table.of(X)}
    federation = fc.Federation(parts, least_count={"a": 12})
    assert [p.least_count for p in federation.select(["b", "a"])] == [5, 12]
    for wrong in (0, True, 2.5, {"a": 0}):
        with pytest.raises(FederationError, match="whole number of rows from 1"):
            fc.Federation(parts, least_count=wrong)  # type: ignore[arg-type]
    with pytest.raises(FederationError, match="least_count names 'c', which is not a party"):
        fc.Federation(parts, least_count={"c": 3})


def test_parties_with_the_same_note_share_it() -> None:
    frame = pd.DataFrame({"ward": ["a"] * 8 + ["b"], "age": range(30, 39)})
    parties = {f"p{i}": frame for i in range(20)} | {
        "alone": frame.assign(town="x y z".split() * 3)
    }
    shared, single = fc.Federation(parties).notes
    assert shared.startswith("p0, p1, p2, p3 … (20): categories of 'ward' that occur in fewer than")
    assert single.startswith("alone: categories of 'ward', 'town' that occur")
