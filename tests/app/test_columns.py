"""Messy files of three parties, trained and asked by the command line alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import fedcircuits as fc
from fedcircuits.app.cli import app
from tests.commands import RUNNER

ROWS = 120
RNG = np.random.default_rng(0)
SICK = RNG.random(ROWS) < 0.4


def clinic() -> bytes:
    """Semicolons, decimal commas, dates, remarks, Latin-1."""
    lines = ["Fall;geboren;Größe;Gewicht;Bemerkung"]
    for i in range(ROWS):
        height, weight = RNG.normal(1.7, 0.1), RNG.normal(70 + 20 * SICK[i], 5)
        born = f"{1 + i % 28:02d}.{1 + i % 12:02d}.{1930 + i % 60}"
        row = [f"{i}", born, f"{height:.2f}", f"{weight:.1f}", f"kam um {i} Uhr, müde und schwach"]
        lines.append(";".join(row[:2] + [c.replace(".", ",") for c in row[2:4]] + row[4:]))
    return "\r\n".join(lines).encode("latin-1")


def laboratory() -> bytes:
    """A byte-order mark, bounds, codes of many levels, gaps written five ways."""
    lines = ["Fall,crp,icd,urea"]
    for i in range(ROWS):
        crp = "<5" if not SICK[i] and i % 2 else f"{5 + RNG.gamma(2 + 3 * SICK[i]) * 4:.0f}"
        gap = ("", "NA", "n/a", "-", "?")[i % 5]
        lines.append(f"{i},{crp},{'IEJK'[i % 4]}{10 + i % 9}.{i % 3},{gap if i % 4 else i % 7}")
    return "\n".join(lines).encode("utf-8-sig")


def insurance() -> bytes:
    """Tabs, postcodes, signs of currency, truth values."""
    lines = ["Fall\tplz\tcosts\tsick\tempty"]
    for i in range(ROWS):
        costs = f"€ {RNG.gamma(2 + 3 * SICK[i]) * 700:,.2f}"
        lines.append(f"{i}\t0{1067 + i % 5}\t{costs}\t{'Ja' if SICK[i] else 'nein'}\t")
    return "\n".join(lines).encode("utf-8")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, data in (("clinic", clinic()), ("lab", laboratory()), ("insurer", insurance())):
        (tmp_path / f"{name}.csv").write_bytes(data)
    return tmp_path


def called(command: str, code: int = 0) -> Result:
    result = RUNNER.invoke(app, command.split("¦"), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


TRAIN = "train¦clinic.csv¦lab.csv¦insurer.csv¦--row-id¦Fall¦--target¦sick¦-o¦m.fc"


def test_what_was_done_to_each_column_is_told(files: Path) -> None:
    result = called(TRAIN)
    told = " ".join((result.stdout + result.stderr).split())
    for words in (
        "geboren date dates, day first",
        "Größe real with a decimal comma",
        "Bemerkung left out free text",
        "bounds such as <5 as the bound",
        "costs real in €",
        "sick boolean ja and nein",
        "empty left out it has no values",
    ):
        assert words in told
    ill = float(called("query¦m.fc¦P(sick = 'ja' | Gewicht > 85)").output.split()[-1])
    well = float(called("query¦m.fc¦P(sick = 'ja' | Gewicht < 70)").output.split()[-1])
    assert ill > 0.6 > 0.3 > well
    assert 0 < float(called("query¦m.fc¦P(geboren > '1960-01-01')").output.split()[-1]) < 1
    shown = called("query¦m.fc¦E(geboren)").output.split(" = ")[1].split()[0]
    assert json.loads(called("query¦m.fc¦E(geboren)¦--json").output)[0]["date"] == shown


def test_the_schema_is_edited_and_given_back(files: Path) -> None:
    called(TRAIN)
    path = files / "m.schema.toml"
    text = path.read_text(encoding="utf-8")
    assert '[columns.plz]\nkind = "category"' in text
    path.write_text(text.replace('[columns.crp]\nkind = "count"', '[columns.crp]\nkind = "real"'))
    result = called(f"{TRAIN}¦--schema¦m.schema.toml")
    assert "left out:" not in result.stdout + result.stderr  # the file says so
    assert 'kind = "real"' in path.read_text(encoding="utf-8").partition("[columns.crp]")[2][:20]


def test_options_say_what_columns_mean(files: Path) -> None:
    result = called(f"{TRAIN}¦--kind¦icd=category¦--drop¦Bemerkung¦--drop¦empty¦--dates¦dmy")
    assert "Bemerkung" not in result.stdout + result.stderr
    again = called(f"{TRAIN}¦--schema¦m.schema.toml")  # which remembers what was dropped
    assert "Bemerkung" not in again.stdout + again.stderr
    schema = files / "m.schema.toml"
    assert '[columns.Bemerkung]\nkind = "left out"\n' in schema.read_text(encoding="utf-8")
    other = schema.read_text(encoding="utf-8") + '[columns.nothere]\nkind = "left out"\n'
    schema.write_text(other, encoding="utf-8")
    assert "no file has the columns 'nothere'" in called(f"{TRAIN}¦--schema¦{schema}").stderr
    assert "[columns.icd]" in (files / "m.schema.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--kind¦icd", "--kind: expected COLUMN=KIND"),
        ("--kind¦icd=text", "real, count, category, boolean, date"),
        ("--kind¦icdd=real", "there is no column 'icdd'"),
        ("--drop¦Bemrkung", "--drop: there is no column 'Bemrkung' to learn from"),
        ("--drop¦Fall", "--drop: there is no column 'Fall' to learn from"),
        ("--schema¦nowhere.toml", "nowhere.toml: cannot be read"),
        ("--delimiter¦;;", "delimiter: expected one character"),
    ],
)
def test_a_mistake_is_one_line(files: Path, option: str, problem: str) -> None:
    result = called(f"{TRAIN}¦{option}", code=1)
    assert problem in result.stderr
    assert not (files / "m.fc").exists()


def test_the_files_of_a_split_keep_units(files: Path) -> None:
    lines = [f"{i};{30 + i},5 %;{i},25 €;{1 + i % 28:02d}.03.2024;{i % 5} mg" for i in range(40)]
    text = "id;share;price;paid;dose\n" + "\n".join([*lines, "99;;;;"])
    (files / "shop.csv").write_text(text)
    words = "split shop.csv --row-id id --by rows --parties a,b -o pieces"
    assert RUNNER.invoke(app, words.split()).exit_code == 0
    whole = fc.Table.read(files / "shop.csv", row_id="id")
    for name in ("a", "b"):
        part = fc.Table.read(files / "pieces" / f"{name}.csv", row_id="id")
        assert part.schema == whole.schema
        known = list(whole.row_ids)
        kept = whole.rows([known.index(i) for i in part.row_ids])
        np.testing.assert_array_equal(part.values, kept.values)
