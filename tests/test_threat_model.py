"""The pages that promise something name tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "threat-model.md", ROOT / "SECURITY.md"]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def missing(text: str) -> list[str]:
    """Tests that a text names and that are not there."""
    absent = []
    for path, function in NAMED.findall(text):
        file = ROOT / path
        code = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not re.search(rf"^def {function}\(" if function else "^def test_", code, re.MULTILINE):
            absent.append(f"{path}::{function}")
    return absent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tests_that_are_named_exist(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_every_promise_names_one() -> None:
    rows = [r for r in PAGES[0].read_text(encoding="utf-8").splitlines() if r.startswith("| ")]
    promises = [row for row in rows if "| test |" not in row and not row.startswith("|---")]
    attackers = rows.index("| attacker | holds |")
    others = rows[attackers : attackers + 6]
    assert not [row for row in promises if row not in others and not NAMED.search(row)]


def test_a_test_that_is_not_there_is_found() -> None:
    assert missing("`tests/test_house.py::test_rooms_are_small`, `tests/test_nothing.py`") == [
        "tests/test_nothing.py::"
    ]
