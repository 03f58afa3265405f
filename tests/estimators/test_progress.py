"""Progress bars: after a while, on a terminal, and nowhere else."""

import io
import os
import pty
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress

from fedcircuits.estimators.learner import Learner, progress
from fedcircuits.estimators.progress import Bar, _columns
from fedcircuits.learning.batches import Source
from fedcircuits.tables.schema import Schema


class Slow(Learner):
    """Three epochs of 0.15 seconds, told or not."""

    def __init__(self, tells: bool, random_state: int | None = 0) -> None:
        self.tells, self.random_state = tells, random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        tell = progress("Slow", 3)
        for epoch in range(3):
            time.sleep(0.15)
            if self.tells:
                tell(epoch + 1, -1.5)


def learn(tells: bool) -> None:
    Slow(tells).fit(np.zeros((3, 1)))


Shown = Callable[[bool, float], str]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a fit shows on a terminal where bars wait for so many seconds."""

    def fit(tells: bool, quiet: float) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        ours, theirs = pty.openpty()
        with ThreadPoolExecutor(1) as reader:
            found = reader.submit(everything, ours)
            with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as changed:
                changed.setattr(sys, "stderr", terminal)
                with Bar("Slow", quiet):
                    learn(tells)
            return found.result()

    return fit


def everything(source: int) -> str:
    text = b""
    while True:
        try:
            part = os.read(source, 65_536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            os.close(source)
            return text.decode()
        text += part


def test_long_learning_shows_its_epochs(shown: Shown) -> None:
    text = shown(True, 0.1)
    assert "Slow" in text and "epoch 3 of at most 3, log-likelihood -1.5000" in text


def test_learners_without_epochs_show_that_they_learn(shown: Shown) -> None:
    text = shown(False, 0.1)
    assert "Slow" in text and "learning" in text and "epoch" not in text


def test_quick_learning_shows_nothing(shown: Shown) -> None:
    assert shown(True, 60) == ""


@pytest.mark.parametrize("tells", [True, False])
def test_nothing_is_shown_without_a_terminal(
    tells: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with Bar("Slow", 0.1):
        learn(tells)
    assert capfd.readouterr() == ("", "")


def test_a_narrow_terminal_cuts_what_happens_and_keeps_how_far_it_is() -> None:
    console = Console(file=io.StringIO(), width=72)
    shown = RichProgress(*_columns(), console=console, expand=True)
    text = "shared, round 3 of 20 · hospital with a long name · counting its rows · 120 kB crossed"
    shown.add_task("learning at 6 parties", total=20, completed=3, text=text, left="0:07 left")
    with console.capture() as captured:
        console.print(shown.get_renderable())
    [line] = captured.get().splitlines()
    assert len(line) <= 72 and line.rstrip().endswith("0:07 left")
    assert "━" in line and "shared, r" in line and "…" in line
