"""The demo as a user runs it, once, in a folder of its own; with one division, which takes less."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import fedcircuits as fc
from fedcircuits.app import demo
from fedcircuits.app.report import png_of
from fedcircuits.pictures.drawing import figure_of
from fedcircuits.pictures.federation import bytes_drawing, federated_drawing

SOURCE = Path(fc.__file__).parents[1]
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run "
    "--hide-scrollbars --window-size=900,1400"
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The folder, what was printed, and what went to the error stream."""
    folder = tmp_path_factory.mktemp("demo")
    found = subprocess.run(
        [sys.executable, "-m", "fedcircuits", "demo", "--divisions", "1"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    return folder / "demo", found.stdout, found.stderr


def test_it_compares(ran: tuple[Path, str, str]) -> None:
    _, printed, errors = ran
    row = r"^(.+?) {2,}(\S+)(?: ± \S+)? +(\S+) % +(\S+) *$"
    found = {m[1]: m.groups()[1:] for m in re.finditer(row, printed, re.MULTILINE)}
    likelihood = {name: float(v[0]) for name, v in found.items() if v[0] != "—"}
    crossed = {name: int(v[2].replace(",", "")) for name, v in found.items() if v[2] != "—"}
    assert len(found) == 10 and len(likelihood) == 8 and len(crossed) == 5
    alone = [likelihood[f"by rows: {name} alone"] for name in demo.HOSPITALS]
    assert likelihood["by rows: federated"] > max(alone) + 2
    assert likelihood["by rows: federated"] > likelihood["all rows, LearnSPN"] - 3
    for by in ("rows", "columns"):
        assert likelihood[f"by {by}: federated"] > likelihood["all rows, mixture of 8 products"] + 2
    rows = crossed.pop("all rows, LearnSPN"), crossed.pop("all rows, mixture of 8 products")
    assert rows[0] == rows[1] and all(sent < 5e6 for sent in crossed.values())
    assert errors == "", "no progress unless on a terminal, and no warnings"


def test_it_answers_across_the_parties(ran: tuple[Path, str, str]) -> None:
    printed = ran[1]
    before, after = map(int, re.findall(r"(\d+) %[;.]", printed))
    assert before < after
    assert re.search(r"gives the same number, (bit for bit|up to \de-1[3-9])\.", printed)
    assert "for every pair of columns how many rows" in printed


def test_the_report_has_all_that_was_printed(ran: tuple[Path, str, str]) -> None:
    folder, printed, _ = ran
    page = (folder / "report.html").read_text(encoding="utf-8")
    answers = re.findall(r"\?\n  (.*)\n", printed)
    text = page.replace("&#x27;", "'")
    assert len(answers) == 2 and all(answer in text for answer in answers)
    assert page.count("data:image/png;base64,") == 3 and "http" not in page
    assert sorted(p.name for p in folder.iterdir()) == ["circuit.png", "report.html"]
    assert f"wrote {Path('demo') / 'report.html'}" in printed
    assert np.ptp(imread(folder / "circuit.png")[..., :3]) > 0.5


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")
def test_a_browser_shows_the_report(ran: tuple[Path, str, str], tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    command = [
        str(CHROMIUM),
        *FLAGS.split(),
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--screenshot={shot}",
        (ran[0] / "report.html").as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)
    pixels = imread(shot)[..., :3]
    assert pixels.shape[:2] == (1400, 900)
    inked = (pixels.min(axis=2) < 0.5).mean(axis=1)  # (lines of pixels,)
    assert (inked[:700] > 0).sum() > 100 and (inked[700:] > 0).sum() > 100


def test_test_rows_are_held_out_and_keep_the_classes() -> None:
    table = fc.datasets.load("breast_cancer")
    train, test = demo.held_out(table, 0.3, np.random.default_rng(0))
    assert len(train) + len(test) == len(table) == 569
    shares = [float((t.column("diagnosis") == "malignant").mean()) for t in (train, test)]
    assert shares[0] == pytest.approx(shares[1], abs=0.003)
    together = np.vstack([train.values, test.values])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(table.values, axis=0))


def test_the_bars_add_up_and_hostile_names_are_drawn() -> None:
    table = fc.Table.of(np.random.default_rng(0).normal(size=(60, 4)))
    names = ["$north", "so\\uth"]
    model = fc.FedPC(clusters=2, random_state=0).fit(fc.split(table, names, by="columns"))
    figure = figure_of(bytes_drawing({"$a": model.ledger_, "b": model.ledger_}))
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert sum(widths) * 1000 == pytest.approx(2 * model.ledger_.bytes)
    weights = np.ones(len(model.circuit_.root.children))
    drawing = federated_drawing(model.circuit_, model.placement_, names, weights)
    assert len(png_of(figure_of(drawing))) > 5000 and len(png_of(figure)) > 5000
