"""The README and the pages of docs/: their Python runs, their commands and links exist."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.pages import render
from fedcircuits.circuits import leaves

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WORDS_ALONE = {"nvflare.md", "design.md", "questions.md", "reveals.md",
               "tutorial-methods.md"}  # fmt: skip
FIGURES = sorted((ROOT / "docs" / "results").glob("*.json"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python(text: str) -> str:
    """The Python of a page on its own lines, so that a traceback names the line of the page."""
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "index.md"], ids=named)
def test_the_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = python(page.read_text(encoding="utf-8"))
    exec(compile(code, str(page), "exec"), {"__name__": "page"})


def test_the_first_page_has_python_of_the_readme() -> None:
    """Which has run, line by line in the same order."""
    first, readme = (
        [line for line in python(page.read_text(encoding="utf-8")).splitlines() if line]
        for page in (ROOT / "docs" / "index.md", ROOT / "README.md")
    )
    assert first and first == [line for line in readme if line in first]


def test_every_page_but_those_of_words_alone_has_python() -> None:
    without = {p.name for p in PAGES[1:] if not python(p.read_text(encoding="utf-8")).strip()}
    assert without == WORDS_ALONE


def test_pages_of_figures_are_generated() -> None:
    """From the JSON beside them: python -m benchmarks.pages."""
    stored = {p: json.loads(p.read_text(encoding="utf-8")) for p in FIGURES}
    assert stored and not [
        p for p, page in stored.items() if p.with_suffix(".md").read_text("utf-8") != render(page)
    ]


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CONTRIBUTING.md", *(p.with_suffix(".md") for p in FIGURES)],
    ids=named,
)
def test_local_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_first_screen_has_the_two_commands_and_ten_lines_of_python() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    screen = text[: text.index("\n## ")]
    assert re.search(r"^make demo", screen, re.MULTILINE)
    assert re.search(r"^make test", screen, re.MULTILINE)
    assert "docs/demo.png" in screen
    (block,) = BLOCK.findall(screen)
    assert len(block.splitlines()) <= 12


def test_the_makefile_has_every_target_that_is_named() -> None:
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    wanted = {*re.findall(r"`make ([a-z]+)`", text), *re.findall(r"\bmake ([a-z]+)", shell)}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= wanted <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_the_tables_name_every_leaf_family() -> None:
    families = {getattr(leaves, name).name for name in leaves.__all__}
    for page in (ROOT / "README.md", ROOT / "docs" / "circuits.md"):
        words = set(re.findall(r"`([a-z_]+)`", page.read_text(encoding="utf-8")))
        assert families <= words
