"""A model remembers how the files that it has learned from were read."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.app.cli import app
from fedcircuits.estimators import record
from fedcircuits.tables.schema import ReadingHabits
from tests.commands import RUNNER

ROWS = 60


def called(command: str) -> str:
    result = RUNNER.invoke(app, command.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def written(path: Path, point: str, day: str, start: int, words: tuple[str, str]) -> None:
    """Weights rise with days; ``day`` says where day and month go."""
    rng, lines = np.random.default_rng(start), ["id;visit;weight;smokes;dose"]
    for i in range(ROWS):
        date = day.format(d=1 + i % 28, m=1 + i % 12)
        weight = f"{50 + i % 28 + rng.normal():.2f}".replace(".", point)
        lines.append(f"{start + i:05d};{date};{weight};{words[i % 2]};1{point}250")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "berlin.csv", ",", "{d:02d}/{m:02d}/2020", 0, ("ja", "nein"))
    written(tmp_path / "boston.csv", ".", "{m:02d}/{d:02d}/2020", 900, ("yes", "no"))
    called("train berlin.csv boston.csv --row-id id --ids loose -o m.fc")
    return tmp_path


def test_what_is_kept_is_how_they_write_and_no_value(files: Path) -> None:
    kept = record.read(files / "m.fc")
    assert kept is not None and kept.reading.ids == "loose"
    assert kept.habits == {
        "berlin": ReadingHabits(",", "dmy"), "boston": ReadingHabits(".", "mdy"),
    }  # fmt: skip
    assert '[reading]\nids = "loose"' in (files / "m.schema.toml").read_text()


def test_what_one_row_leaves_open_is_read_as_before(files: Path) -> None:
    """02/03/2020 and 1,250 can be read in two ways."""
    for name, row in (("berlin", "7;02/03/2020;;ja;1,250"), ("boston", "7;02/03/2020;;no;1.250")):
        (files / name).mkdir()
        (files / name / f"{name}.csv").write_text(f"id;visit;weight;smokes;dose\n{row}\n")
        called(f"impute m.fc {name}/{name}.csv -o {name}/out.csv")
    model = called("compare m.fc berlin=berlin/berlin.csv --draws 20 --json")
    assert '"visit"' in model
    found = {name: (files / name / "out.csv").read_text().splitlines()[1] for name in
             ("berlin", "boston")}  # fmt: skip
    assert found["berlin"].startswith("7;02/03/2020;") and found["berlin"].endswith(";ja;1,250")
    weights = {name: line.split(";")[2].replace(",", ".") for name, line in found.items()}
    assert abs(float(weights["berlin"]) - float(weights["boston"])) < 30


def test_an_option_wins_and_gaps_are_filled_in_the_files_own_words(files: Path) -> None:
    (files / "new.csv").write_text(
        "id;visit;weight;smokes;dose\n" + "".join(
            f"{i};{'' if i == 3 else '02/03/2020'};{'' if i == 1 else '60,5'};"
            f"{'' if i == 2 else ('ja', 'nein')[i % 2]};1,250\n" for i in range(9)
        )
    )  # fmt: skip
    called("impute m.fc new.csv --dates mdy --decimal , -o out.csv")
    cells = [line.split(";") for line in (files / "out.csv").read_text().splitlines()[1:]]
    assert "," in cells[1][2] and cells[2][3] in ("ja", "nein")
    assert len(cells[3][1]) == 10 and cells[0][1] == "02/03/2020"


def test_every_verb_that_reads_rows_takes_the_same_options() -> None:
    wanted = {"--schema", "--delimiter", "--decimal", "--dates"}
    for verb in ("train", "split", "evaluate", "impute", "compare", "synthesise", "report"):
        shown = called(f"{verb} --help")
        assert all(option in shown for option in wanted), verb
        assert "--row-id" in shown, verb
        assert ("--ids" in shown) == (verb not in ("split", "impute", "compare")), verb


def test_no_cell_of_a_table_is_in_what_train_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word among numbers, a category of one row, an id, a remark, a number that could be two."""
    monkeypatch.chdir(tmp_path)
    rng, lines = np.random.default_rng(0), ["pid,dose,town,crp,remark"]
    for i in range(ROWS):
        town = "Rareville" if i == 3 else ("Bonn", "Trier")[i % 2]
        crp = "Smith refused" if i == 7 else f"{rng.normal(20, 3):.4f}"
        remark = f"remark {i} on this patient"
        lines.append(f"KEY{i},{1 + i % 9}.{100 + i},{town},{crp},{remark}")
    (tmp_path / "north.csv").write_text("\n".join(lines))
    called("train north.csv --row-id pid -o m.fc")
    with zipfile.ZipFile("m.fc") as file:
        model = b"".join(map(file.read, file.namelist()))
    written = Path("m.schema.toml").read_bytes()
    for word in (b"Rareville", b"Smith", b"KEY", b"remark 1", b"1.100", b"2.101"):
        assert word not in model and word not in written
    assert b'categories = ["Bonn", "Trier", "other"]' in written
    assert b"1 other value taken as missing" in written
    called("train north.csv --row-id pid --schema m.schema.toml -o again.fc")
    assert b'categories = ["Bonn", "Trier", "other"]' in Path("again.schema.toml").read_bytes()


def test_questions_are_asked_as_the_files_write(tmp_path: Path) -> None:
    """By the command line, and in Python after loading."""
    rng, lines = np.random.default_rng(0), ["id;share;price;paid"]
    for i in range(80):
        price = f"{1000 + 10 * i + rng.random():.2f}".replace(".", ",")
        lines.append(f"{i};{20 + i % 40} %;{price[0]}.{price[1:]} €;3/{1 + i % 28}/2024")
    (tmp_path / "shop.csv").write_text("\n".join(lines) + "\n")
    model = tmp_path / "m.fc"
    called(f"train {tmp_path / 'shop.csv'} --row-id id -o {model}")
    asked = ["query", str(model), "--json", "share > 30%", "share > 30", "P(price > 1.200,50 €)",
             "price > 1200.5", "paid > 3/4/2024", "paid > 2024-03-04"]  # fmt: skip
    result = RUNNER.invoke(app, asked, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = [answer["probability"] for answer in json.loads(result.output)]
    assert found[::2] == found[1::2] and all(0.1 < p < 0.95 for p in found)
    loaded = fc.load(model)
    assert float(np.asarray(loaded.probability("price > 1.200,50 €"))) == pytest.approx(found[2])
    for command in (["query", str(model), "price > 1.200"],
                    ["sample", str(model), "--given", "price > 1.200"]):  # fmt: skip
        result = RUNNER.invoke(app, command)
        assert result.exit_code == 1 and "can be 1.2 or 1200; write 1200, or 1.20" in result.stderr
