"""The site: it builds without a warning, loads nothing from elsewhere, and its commands run."""

from __future__ import annotations

import re
import shlex
import subprocess
from html.parser import HTMLParser
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import fedcircuits as fc
from fedcircuits.app import cli
from tests.commands import RUNNER
from tests.forked import python

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
WALKED = ["README.md", "docs/own-data.md", "docs/federation.md", "docs/dashboard.md"]
LATER = ("demo", "dashboard")  # these have tests of their own
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ROOMS = sorted((ROOT / "src" / "fedcircuits" / "app").rglob("*.py"))  # examples of --help
TYPED = re.compile(r"(?:^|; |do )\s*(fedcircuits [^\n]*)", re.MULTILINE)
PATTERN = re.compile(r"…|\bCOMMAND\b")
QUOTED = re.compile(r"(?<!`)`(fedcircuits [^`]+)`(?!`)")


def test_the_reference_has_every_public_name_once() -> None:
    text = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   ~fedcircuits\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(fc.__all__)


def test_every_method_says_what_it_reveals() -> None:
    text = (DOCS / "reveals.md").read_text(encoding="utf-8")
    methods = ROOT / "src" / "fedcircuits" / "methods"
    heads = {str(p.relative_to(methods.parent)) for p in methods.glob("*/training.py")}
    assert heads <= set(re.findall(r"\{head\} (\S+)", text))


class Loads(HTMLParser):
    """What a page has a browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.found.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") != "canonical":
            self.found.append(given.get("href") or "")


def test_the_site_builds_without_a_warning_and_loads_nothing(tmp_path: Path) -> None:
    for library in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(library, reason="needs the extra docs")
    words = ["-q", "-W", "--keep-going", "-b", "html", "-d", tmp_path / "trees"]
    done = subprocess.run(
        python("-m", "sphinx", *words, DOCS, tmp_path / "site"),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80 and (tmp_path / "site" / "searchindex.js").exists()
    for page in pages:
        loaded = Loads(page.read_text(encoding="utf-8")).found
        assert not [link for link in loaded if re.match(r"(https?:)?//", link)], page.name


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the pages speak of."""
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, 240)
    frame = pd.DataFrame({"patient": np.arange(240), "age": age, "smokes": rng.random(240) < 0.3})
    frame["pressure"] = (100 + 0.5 * age + rng.normal(0, 8, 240)).round(1)
    frame["risk"] = np.where(rng.random(240) < (age - 20) / 70, "high", "low")
    monkeypatch.chdir(tmp_path)
    frame.to_csv("patients.csv", index=False)
    frame.drop(columns="patient").to_csv("table.csv", index=False)
    frame[["patient", "age", "smokes"]].to_csv("north.csv", index=False)
    frame[["patient", "pressure", "risk"]].to_parquet("south.parquet")
    frame[["patient", "pressure", "risk"]].to_csv("south.csv", index=False)


@pytest.mark.parametrize("page", WALKED)
def test_the_commands_of_a_page_run(page: str, patients: None) -> None:
    shell = "\n".join(SHELL.findall((ROOT / page).read_text(encoding="utf-8")))
    lines = [line for line in shell.splitlines() if line.startswith("fedcircuits ")]
    assert len(lines) >= 4
    for line in lines:
        if typed(line)[0] not in LATER:
            done = RUNNER.invoke(cli.app, typed(line))
            assert done.exit_code == 0, f"{line}\n{done.output}"


def typed(line: str) -> list[str]:
    """The words of a command behind its name, up to a comment, pipe or redirection."""
    line = re.sub(r"\$\([^)]*\)", "given", line)
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return [*takewhile(lambda word: word[0] not in "|>&;()", words)][1:]


def test_every_command_that_a_page_names_can_be_typed() -> None:
    """Its verb, its options and their values are such as the command line takes; where a sentence
    names it, arguments may be left out."""
    program, wrong, number = typer.main.get_command(cli.app), [], 0
    for page in [*PAGES, *ROOMS]:
        text = page.read_text(encoding="utf-8")
        lines = {line: False for block in SHELL.findall(text) for line in TYPED.findall(block)}
        lines |= {" ".join(words.split()): True for words in QUOTED.findall(text)}
        lines = {line: short for line, short in lines.items() if not PATTERN.search(line)}
        number += len(lines)
        for line, short in lines.items():
            command, words = program, typed(line)
            try:
                while words and hasattr(command, "commands"):
                    command = command.commands[words.pop(0)]
                if not hasattr(command, "commands"):
                    command.make_context(line, words)
            except Exception as error:
                fine = ("Exit", "MissingParameter") if short else ("Exit",)  # --help
                if type(error).__name__ not in fine:
                    wrong.append(f"{page.name}: {line}: {error!r} {error}")
    assert not wrong, "\n".join(wrong)
    assert number > 80


def test_help_has_an_example_of_every_verb() -> None:
    for verb in ("train", "query", "sample", "inspect", "evaluate", "compare", "impute",
                 "synthesise", "report", "dashboard"):  # fmt: skip
        text = RUNNER.invoke(cli.app, [verb, "--help"]).stdout
        assert f"fedcircuits {verb} " in " ".join(text.split()), verb


def test_the_page_of_commands_has_them_all() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    names = {c.name or c.callback.__name__ for c in cli.app.registered_commands if c.callback}
    names |= {group.name or "" for group in cli.app.registered_groups}
    assert names <= set(re.findall(r"`([a-z]+)`", text[: text.index("## ")]))
