"""schema.toml: written as the columns were read, edited, read again."""

from pathlib import Path

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import TableError
from fedcircuits.tables.declared import DeclaredTable, read_schema, read_table, schema_text
from fedcircuits.tables.reading import ColumnReading

LINES = ["nr;born;dose;town;note"] + [
    f"{i:04d};{1 + i % 28:02d}.{1 + i % 12:02d}.19{40 + i % 50};{i % 7},{i % 10};t{i % 3};said {i}"
    for i in range(40)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ward.csv"
    path.write_text("\n".join(LINES))
    return path


def written(path: Path, text: str) -> Path:
    file = path.with_name("schema.toml")
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.filterwarnings("ignore:left out")
def test_what_is_written_reads_the_same_table(path: Path) -> None:
    table = fc.Table.read(path)
    file = written(path, schema_text(table.schema, table.readings))
    again = read_table(path, read_schema(file))
    assert again.schema == table.schema
    np.testing.assert_array_equal(again.values, table.values)


def test_nothing_is_left_out_without_a_word_or_twice(path: Path) -> None:
    with pytest.warns(UserWarning, match="left out: 'nr'"):
        table = fc.Table.read(path)
    file = written(path, schema_text(table.schema, table.readings))
    read_table(path, read_schema(file))  # what the file leaves out is no surprise


def test_the_user_changes_a_kind(path: Path) -> None:
    text = '[reading]\ndecimal = ","\n[columns.town]\nkind = "category"\n'
    text += 'categories = ["t2", "t1", "t0"]\n[columns.nr]\nkind = "left out"\n'
    text += '[columns.note]\nkind = "category"\n[columns."not here"]\nkind = "real"\n'
    table = read_table(path, read_schema(written(path, text)))
    assert table.names == ("born", "dose", "town", "note")
    assert table.schema["town"].categories == ("t2", "t1", "t0")
    assert table.schema["note"].size == 40


def test_a_federation_reads_by_it(path: Path) -> None:
    text = '[columns.note]\nkind = "left out"\n'
    declared = read_schema(written(path, text))
    federation = fc.Federation({"a": path, "b": path}, row_id="nr", declared=declared)
    assert federation.schema.names == ("born", "dose", "town")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[columns.x]\nkind = 'reel'\n", "kind"),
        ("[columns.x]\n", "kind"),
        ("[column.x]\nkind = 'real'\n", "column"),
        ("[reading]\ndecimal = 'x'\n", "decimal"),
        ("kind = ", "no TOML"),
    ],
)
def test_mistakes_are_named(path: Path, text: str, problem: str) -> None:
    with pytest.raises(TableError, match=problem) as caught:
        read_schema(written(path, text))
    assert "schema.toml" in str(caught.value)


def test_odd_names_and_values_survive(tmp_path: Path) -> None:
    odd = {'a "b" \\ c': ['x"y', "ü\tz"], "plain": ["1", "2"], "k.1": ["\x7f", "q"]}
    table = fc.Table.of(odd)
    file = written(tmp_path / "x.csv", schema_text(table.schema))
    assert set(read_schema(file).columns) == set(odd)
    assert read_schema(file).columns["k.1"].categories == ["q", "\x7f"]
    assert isinstance(read_schema(file), DeclaredTable)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = " + "[" * 100_000, "at most 32 levels"),
        ("[columns" + ".a" * 50_000 + "]\nkind = 'real'", "at most 32 levels"),
        ("x = " + "[" * 40 + "]" * 40, "at most 32 levels"),
        ("[columns.a]\ncategories = [" + "9" * 10_000 + "]", "this is no TOML: Exceeds the limit"),
        ("[columns.a]\nkind = '" + "k" * 100_000 + "'", "Invalid enum value 'kkk.* … .*kkk"),
        ("#" + "x" * (5 << 20), "at most 4 MB"),
        ("[reading]\nencoding = 'punycode'", "expected an encoding such as|expected text in"),
        ("[reading]\nencoding = 'a\\u0000b'".replace("'", '"'), "unknown encoding"),
        ('[reading]\ndelimiter = "\\n"', "delimiter: expected one character"),
        ("[reading]\ndelimiter = '😀'", "delimiter: expected a character of ASCII"),
    ],
)
def test_a_file_of_unknown_origin_is_refused_in_words(
    tmp_path: Path, text: str, problem: str
) -> None:
    schema, rows = tmp_path / "schema.toml", tmp_path / "rows.csv"
    schema.write_text(text)
    rows.write_text("a,b\n1,2.5\n2,3.5\n")
    with pytest.raises(TableError, match=problem) as caught:
        read_table(rows, read_schema(schema))
    assert len(str(caught.value)) < 1000 and str(caught.value).isprintable()


def test_a_long_word_takes_no_time_and_a_mark_of_an_editor_is_allowed(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_bytes(b"\xef\xbb\xbf[columns." + b"a" * 1_000_000 + b"]\r\nkind = 'real'\r\n")
    assert [c.kind for c in read_schema(schema).columns.values()] == ["real"]


def test_how_a_column_was_read_cannot_spoil_the_file(tmp_path: Path) -> None:
    """It stands in a comment, in which TOML allows no control character."""
    schema = fc.Table.of({"a": [0.5, 1.5]}).schema
    text = schema_text(schema, [ColumnReading("a", "real", "\x00 \x1b[31m \x85\n[columns.b]")])
    path = tmp_path / "schema.toml"
    path.write_text(text)
    assert list(read_schema(path).columns) == ["a"]
