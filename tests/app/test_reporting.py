"""``fedcircuits report``: a page that says what the library says, and loads nothing."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fedcircuits as fc
from fedcircuits.app import pages, report
from fedcircuits.app.columns import ColumnOptions
from fedcircuits.app.rows import RowReader
from fedcircuits.estimators.record import HoldingRecord, TrainingRecord
from tests.app import browser
from tests.app.desk import Desk

TRAIN = "--train north.csv --train south.csv --row-id id"


class Reading(HTMLParser):
    """Headings, tables as lists of cells, and whatever a page points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.at = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at = tag
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.at == "h2":
            self.headings.append(data.strip())
        if self.at in ("td", "th") and data.strip():
            self.rows[-1].append(data)
        if data.strip():
            self.at = ""


@pytest.fixture(scope="module")
def trained(furnished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federated model, learned by the command."""
    desk, folder = Desk(furnished), tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(furnished)
        words = f"train north.csv south.csv --row-id id --target risk --clusters 2 -o {folder}/m.fc"
        assert desk(words).exit_code == 0
    return folder / "m.fc"


def test_many_parties_share_lines_and_notes_are_said_once(
    desk: Desk, trained: Path, tmp_path: Path
) -> None:
    clinics = {f"clinic {i}": HoldingRecord(60 + i % 2, ["age", "risk"]) for i in range(12)}
    learned = TrainingRecord("FedPC", "horizontal", parties=clinics, notes=["least_count=1 keeps"])
    given = pages.Given(RowReader(trained, ColumnOptions()), (), (), None, 0)
    text = report.page("", pages.opening(fc.load(trained), learned, given))
    assert Reading(text).rows[1] == [
        "clinic 0, clinic 1, clinic 2, clinic 3 … (12)", "age, risk", "726", "60 to 61",
    ]  # fmt: skip
    assert "Notes from training: --least-count 1 keeps." in text
    assert "trained on a horizontal split of 12 parties: parties hold different rows" in text
    single = TrainingRecord("FedPC", "horizontal", parties={"clinic": clinics["clinic 0"]})
    text = report.page("", pages.opening(fc.load(trained), single, given))
    assert "FedPC was trained on the rows of one party. Rows stayed where they were." in text
    strange = tmp_path / "strange.csv"
    strange.write_text("id,age,risk\n1,50,unheard\n2,60,high\n")
    found = desk(f"report {trained} --test {strange} --row-id id -o {tmp_path}/page.html")
    assert found.exit_code == 0 and found.stderr.count("note:") == 1, found.stderr


def test_a_page_says_what_the_library_says(desk: Desk, trained: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = desk(f"report {trained} --test test.csv {TRAIN} -o {page} --json")
    assert found.exit_code == 0, found.stderr
    told = json.loads(found.stdout)["evaluation"]["scores"]
    text = page.read_text(encoding="utf-8")
    read = Reading(text)
    assert read.headings == [
        "What was learned, and from whom", "How good it is", "Calibration", "Columns",
        "Dependencies", "The circuit", "Messages between the parties",
        "What was revealed to whom", "How to reproduce it",
    ]  # fmt: skip
    (line,) = [row for row in read.rows if row[0] == "the model"]
    assert line[1:] == [f"{v:.4g}" for v in told["the model"].values()]
    assert {row[0] for row in read.rows} >= {"south alone", "gradient boosting", "north"}
    assert "the cluster of each row (rows are" in text
    assert "script" not in read.tags and "link" not in read.tags
    assert all(link.startswith("data:image/png;base64,") for link in read.links)
    assert not re.search(r"url\(|@import|https?:", text)
    assert "prefers-color-scheme: dark" in text


def test_the_command_on_the_page_gives_the_model_again(
    desk: Desk, trained: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert desk(f"report {trained} -o {page}").exit_code == 0
    (commands,) = re.findall(r"<pre[^>]*>(.*?)</pre>", page.read_text("utf-8"), re.DOTALL)
    train, again = commands.splitlines()
    assert again == f"fedcircuits report {trained}"
    output = tmp_path / "again.fc"
    words = train.replace(str(trained), str(output)).split()
    assert words[0] == "fedcircuits" and desk(words[1:]).exit_code == 0
    drawn = [desk(f"sample {model} -n 5").stdout for model in (trained, output)]
    assert drawn[0] == drawn[1] and drawn[0].count("\n") == 6


@pytest.mark.parametrize("model", ["model.fc", "trees.fc"])
def test_any_model_has_a_page(desk: Desk, model: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = desk(f"report {model} --test test.csv -o {page}")
    assert found.exit_code == 0, found.stderr
    read = Reading(page.read_text(encoding="utf-8"))
    assert ("Columns" in read.headings) == (model == "model.fc")
    assert "The circuit" in read.headings and "the model" in {r[0] for r in read.rows}


@pytest.mark.skipif(bool(browser.lacking()), reason=browser.lacking() or "-")
def test_a_browser_shows_it_on_a_phone_in_light_and_dark(
    desk: Desk, trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("selenium", reason="needs the extra dev")
    page = tmp_path / "page.html"
    assert desk(f"report {trained} --test test.csv -o {page}").exit_code == 0
    with browser.chromium(390, 844) as driver:
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
        images = "return [...document.images].every(i => i.complete && i.naturalWidth && i.alt)"
        assert driver.execute_script(images)
        shades = []
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            shade = "return getComputedStyle(document.querySelector('main')).backgroundColor"
            shades.append(sum(map(int, re.findall(r"\d+", driver.execute_script(shade))[:3])))
        assert shades[0] > 700 and shades[1] < 200
        assert browser.complaints(driver) in ([], [f"a request to {page.as_uri()}"])


WRONG = {
    "report nope.fc": "cannot read nope.fc",
    "report junk.fc": "junk.fc is not a fedcircuits model",
    "report model.fc -o page.pdf": "ending in .html",
    "report model.fc --train all.csv": "give --test",
    "report model.fc --test nope.csv": "nope.csv: there is no such file",
    "report model.fc --test test.csv --target rsk": "did you mean 'risk'?",
    "report model.fc -o nowhere/page.html": "nowhere",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_clear_line(desk: Desk, words: str) -> None:
    desk.fails(words, WRONG[words])
