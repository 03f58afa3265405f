"""The demo as a user runs it, once, in a folder of its own; and its models by themselves."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.stats import multivariate_normal

import fedcircuits as fc
from fedcircuits.app import contest, demo

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
        [sys.executable, "-m", "fedcircuits.app.demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert found.returncode == 0, found.stderr
    return folder / "demo", found.stdout, found.stderr


def test_it_compares_and_answers(ran: tuple[Path, str, str]) -> None:
    _, printed, errors = ran
    table = dict(re.findall(r"^(\S.*?) {2,}(-?\d+\.\d\d|—) +\d", printed, re.MULTILINE))
    assert list(table)[:2] == ["factorised", "mixture of 8 products"]
    assert float(table["circuit"]) > float(table["naive Bayes"]) > float(table["factorised"])
    assert table["logistic regression"] == "—"
    assert printed.count("?\n  ") == 3
    before, after, small = map(int, re.findall(r"(\d+) %[.;]", printed)[:3])
    assert small < before < after
    assert "a lower bound" in printed
    assert "…" not in errors, "no progress unless on a terminal"


def test_the_report_has_all_that_was_printed(ran: tuple[Path, str, str]) -> None:
    folder, printed, _ = ran
    page = (folder / "report.html").read_text(encoding="utf-8")
    answers = re.findall(r"\?\n  (.*)\n", printed)
    assert len(answers) == 3 and all(answer in page for answer in answers)
    assert page.count("data:image/png;base64,") == 2 and "http" not in page
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
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)
    pixels = imread(shot)[..., :3]
    assert pixels.shape[:2] == (1400, 900)
    inked = (pixels.min(axis=2) < 0.5).mean(axis=1)  # (lines of pixels,)
    assert (inked[:700] > 0).sum() > 100 and (inked[700:] > 0).sum() > 100


def test_a_folder_that_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert demo.main(["--output", str(tmp_path / "taken")]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("demo: ") and "taken" in errors and errors.count("\n") == 1


# ---------------------------------------------------------------------- the models


@pytest.fixture(scope="module")
def parts() -> tuple[fc.Table, fc.Table]:
    table = fc.datasets.load("breast_cancer")
    return contest.split(table, "diagnosis", 0.3, np.random.default_rng(0))


def test_the_split_keeps_the_classes(parts: tuple[fc.Table, fc.Table]) -> None:
    train, test = parts
    assert len(train) + len(test) == 569
    shares = [float((t.column("diagnosis") == "malignant").mean()) for t in parts]
    assert shares[0] == pytest.approx(shares[1], abs=0.003)
    both = np.vstack([train.values, test.values])
    assert len(np.unique(both, axis=0)) == len(np.unique(both[:398], axis=0)) + len(
        np.unique(both[398:], axis=0)
    )


def test_groups_are_columns_that_say_the_same(parts: tuple[fc.Table, fc.Table]) -> None:
    names = parts[0].names[:-1]
    found = contest.groups(parts[0], names, 0.5)
    assert sorted(n for group in found for n in group) == sorted(names)
    (home,) = [group for group in found if "mean radius" in group]
    assert {"mean perimeter", "mean area", "worst radius"} <= set(home)
    assert "mean texture" not in home
    assert len(contest.groups(parts[0], names, contest.GAUSSIAN.apart)) == 1


def test_one_group_and_shape_is_the_gaussian_of_every_class(
    parts: tuple[fc.Table, fc.Table],
) -> None:
    train, test = (t.select(["mean texture", "mean radius", "diagnosis"]) for t in parts)
    model = contest.learn(train, "diagnosis", contest.GAUSSIAN, 0)
    expected = np.empty(len(test))
    for code in (0, 1):
        x, rows = train.values[train.values[:, 2] == code], test.values[:, 2] == code
        density = multivariate_normal(x[:, :2].mean(axis=0), np.cov(x[:, :2].T, bias=True))
        expected[rows] = density.logpdf(test.values[rows, :2]) + np.log(len(x) / len(train))
    np.testing.assert_allclose(model.score_samples(test), expected, rtol=1e-5)


def test_the_same_seed_learns_the_same(parts: tuple[fc.Table, fc.Table]) -> None:
    plan = contest.Plan(0.5, 2, 2)
    first, again = (contest.learn(parts[0], "diagnosis", plan, 3) for _ in range(2))
    np.testing.assert_array_equal(first.score_samples(parts[1]), again.score_samples(parts[1]))
    assert first.circuit_ == again.circuit_
