"""Commands as they stand on a page: tests take them from there, so that neither can drift."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"\| `(fedcircuits [^`]+)` \|")


class TypedPage:
    """Lines of the blocks of ``sh`` on a page, and commands in its tables, or of one part of it.
    ``left`` has those that nobody has taken yet."""

    def __init__(self, name: str, heading: str = "") -> None:
        text = (DOCS / name).read_text(encoding="utf-8")
        if heading:
            text = re.split(r"^## ", text[text.index(f"\n{heading}\n") + 4 :], flags=re.M)[0]
        lines = [line for block in SHELL.findall(text) for line in block.splitlines()]
        self.lines = [line.partition(" #")[0].strip() for line in lines if line.strip()]
        self.lines += QUOTED.findall(text)
        self.left = list(dict.fromkeys(self.lines))
        self.snippets = [block for block in TEXT.findall(text) if "fc." in block]

    def line(self, begin: str, **names: str) -> str:
        """The one that begins so, with other names in the place of those on the page."""
        found = [line for line in dict.fromkeys(self.lines) if line.startswith(begin)]
        assert len(found) == 1, f"{begin!r} stands on the page as {found}"
        if found[0] in self.left:
            self.left.remove(found[0])
        for old, new in names.items():
            found[0] = re.sub(rf"\b{old}\b", new, found[0])
        return found[0]

    def words(self, begin: str, **names: str) -> list[str]:
        """Behind the name of the program."""
        return shlex.split(self.line(f"fedcircuits {begin}", **names))[1:]
