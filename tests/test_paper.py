"""``make paper``: every item has its page, keys are unique, and one of them runs to its page."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.paper import __main__ as paper
from benchmarks.paper.items import Item, Line, listed, number
from benchmarks.paper.pieces import kept

ITEMS = [item for one in paper.PAPERS for item in one.items]


def test_keys_and_choices() -> None:
    assert len({item.key for item in ITEMS}) == len(ITEMS) >= 15
    assert paper.chosen([]) == ITEMS
    assert [i.key for i in paper.chosen(["fusion-table-3", "mixture"])] == [
        "mixture-table-1", "mixture-figure-5", "mixture-figure-6", "fusion-table-3",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="no item 'table'"):
        paper.chosen(["table"])


def test_the_page_is_complete() -> None:
    """Every item was run, says its command, and what is not run says why."""
    page = json.loads((pages.RESULTS / "paper.json").read_text(encoding="utf-8"))
    assert set(page["found"]) == {item.key for item in ITEMS}
    text = (pages.RESULTS / "paper.md").read_text(encoding="utf-8")
    assert all(f"python -m benchmarks.paper {item.key}" in text for item in ITEMS)
    assert all(m.why in text for one in paper.PAPERS for m in one.missing)


def test_an_item_runs_to_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(full: bool) -> list[Line]:
        return [Line("rows", "1.0", listed({"ours": [1.0, 3.0]}), "", number(-0.5))]

    item = Item("mixture-table-1", "Table 1: clusters", "What it shows.", run)
    monkeypatch.setattr(paper, "chosen", lambda words: [item])
    path = tmp_path / "paper.json"
    monkeypatch.setattr(sys, "argv", ["paper", "--full", "--output", str(path)])
    monkeypatch.setattr(paper, "place", lambda: tmp_path / "pieces.jsonl")
    paper.main()
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["found"]["mixture-table-1"]["size"] == "full"
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text == pages.render(stored)
    assert "| rows | 1.0 | ours 2.00 ± 1.41 |  | −0.50 |" in text
    assert "python -m benchmarks.paper mixture-table-1 --full" in text
    assert "Not run yet: `python -m benchmarks.paper fedpc-table-1`" in text


def test_a_run_that_is_broken_off_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One item fails: the others run, and what it had is not worked out again."""
    worked: list[int] = []

    def broken(full: bool) -> list[Line]:
        def work(seed: int) -> float:
            worked.append(seed)
            if worked == [0, 1]:
                raise ValueError("no room")
            return 0.5 * seed

        return [Line("x", "", number([kept(f"a · {s}", lambda s=s: work(s)) for s in range(3)]))]  # type: ignore[misc]

    items = [
        Item("mixture-table-1", "Table 1", "", broken),
        Item("mixture-figure-5", "Figure 5", "", lambda full: [Line("y", "", "2.00")]),
    ]
    path = tmp_path / "paper.json"
    monkeypatch.setattr(paper, "chosen", lambda words: items)
    monkeypatch.setattr(paper, "place", lambda: tmp_path / "pieces.jsonl")
    monkeypatch.setattr(sys, "argv", ["paper", "--full", "--output", str(path)])
    with pytest.raises(SystemExit, match=r"failed, and left as they were: mixture-table-1; again"):
        paper.main()
    assert "no room" in capsys.readouterr().err
    assert set(json.loads(path.read_text("utf-8"))["found"]) == {"mixture-figure-5"}
    paper.main()
    assert worked == [0, 1, 1, 2]
    rows = json.loads(path.read_text("utf-8"))["found"]["mixture-table-1"]["rows"]
    assert rows == [["x", "", "0.50 ± 0.50", "", ""]]


NUMBERED = {"circuits": (7, 5), "forests": (8, 7), "mixtures": (1, 7), "fusion": (3, 3)}


@pytest.mark.parametrize("key", NUMBERED)
def test_every_table_and_figure_of_a_paper_is_there_or_excused(key: str) -> None:
    paper_, sizes = dict(zip(NUMBERED, paper.PAPERS, strict=True))[key], NUMBERED[key]
    told = [item.title.partition(":")[0] for item in paper_.items]
    told += [missing.name for missing in paper_.missing]
    for kind, size in zip(("Table", "Figure"), sizes, strict=True):
        found = {n for text in told for n in _numbers(kind, text)}
        assert found >= set(range(1, size + 1)), kind


def _numbers(kind: str, text: str) -> set[int]:
    """Of "Tables 4 to 6 and 8", 4, 5, 6 and 8."""
    found: set[int] = set()
    for numbers in re.findall(rf"{kind}s? (\d+(?:(?:, | and | to )\d+)*)", text):
        for part in re.split(", | and ", numbers):
            first, _, last = part.partition(" to ")
            found |= set(range(int(first), int(last or first) + 1))
    return found
