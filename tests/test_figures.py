"""Figures that were measured stand in the tables of docs/results, which programs write; prose has
none typed by hand. Prose may name what was chosen: goals, settings, bounds, versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "docs" / "results").glob("*.json"))
UNITS = r"times|%|per cent|nats|bits|seconds|s|ms|minutes|CPU seconds|CPU minutes|[kMGT]B|MB/s"
FIGURE = re.compile(rf"(?<![\w.])\d[\d,]*\.\d+(?![\d.])|\b\d[\d.,]* (?:{UNITS})(?!\w)")
NARROW = re.compile(r"(?<![\w.])\d[\d,]*\.\d{2,}(?![\d.])|\b\d[\d.,]* (?:s|ms|%|[kMGT]B)(?!\w)")
CODE = re.compile(r"^```.*?^```|^(?:    [^\n]*\n?)+|`[^`]*`", re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(  # versions, and words that generators of pages fill in
    r"(?:torch|Python|MPyC|NVFlare|Ray|Apache|before)[- ]\d+(?:\.\d+)+|load [\d.]+ during the run"
    r"|Size: [^.]*CPU seconds"
)
CHOSEN = {
    "attacks": ["0.5 means that nothing is revealed"],
    "densities": [
        "1.25 bits on test images", "30 CPU minutes", "1.20 in a longer run", "goal of 5.5 bits",
        "goal of 1.6 times", "budget of 60 CPU seconds",
    ],
    "federated": [
        "70 % of the rows are for training and 30 % for testing", "60 % of the rows",
        "threshold 0.5", "rate 0.1", "rate 0.02",
    ],
    "federated_many": ["70 % of the rows for training"],
    "fusion": [
        "70 % for training, 10 % for early stopping, 20 % for testing", "owner dropout 0.3",
        "chance alone gives about 0.001", "θ = 0.1, 0.3, 0.5, 0.9", "dropout was 0.1 before",
        "0.3 was then chosen", "0.5 is worse",
    ],
    "learners": ["RDC threshold 0.3", "0.3 falling to 0.01"],
    "paper": ["10 ms for every message"],
    "private": [
        "10 ms after it was sent", "until 10 ms have passed", "goal of 2 s", "2 s for training",
        "0.3 s for ten rows", "10 s for a thousand", "64 bits with 40 fractional bits",
        "128 bits with 40 fractional bits", "64 bits with 18",
    ],
    "ray": ["0.5 ms per message and 125 MB/s"],
    "vertical": ["ratio of 0.35", "standard deviation of 0.3"],
    "learners.md": ["in at most 256 MB", "significance level of 0.05"],
    "nvflare.md": ["after 120 s an error"],
}  # fmt: skip


def figures(prose: str, chosen: list[str], figure: re.Pattern[str] = FIGURE) -> list[str]:
    """What looks measured in the prose of a page, and phrases of the list that it does not have."""
    prose = WRITTEN.sub("", " ".join(CODE.sub("", prose).split()))
    unused = [f"no longer said: {phrase}" for phrase in chosen if phrase not in prose]
    for phrase in chosen:
        prose = prose.replace(phrase, "")
    return unused + [prose[max(m.start() - 40, 0) : m.end() + 20] for m in figure.finditer(prose)]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_prose_of_results_has_no_figure(path: Path) -> None:
    blocks = json.loads(path.read_text(encoding="utf-8"))["blocks"]
    prose = "\n\n".join(block["text"] for block in blocks if "text" in block)
    assert figures(prose, CHOSEN.get(path.stem, [])) == []


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_guides_have_no_figure(path: Path) -> None:
    """Their tables do not either: a guide refers to the results."""
    assert figures(path.read_text(encoding="utf-8"), CHOSEN.get(path.name, []), NARROW) == []


def test_a_figure_is_seen() -> None:
    assert figures("It takes 3.1 CPU seconds.", [])
    assert figures("In `x = 0.5`, with torch 2.13, three of five", ["three"]) == []
    assert figures("Up to 67 times as fast", ["gone"]) != []
    assert figures("The fit takes 18 s and 723 MB", [], NARROW)
