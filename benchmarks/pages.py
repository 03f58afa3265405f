"""The pages of docs/results, made from the JSON beside them.

    python -m benchmarks.pages                     # write every page anew
    python -m benchmarks.run evaluation --page     # run a section and write a page of its tables

A page is a title and blocks in their order: a heading, a paragraph, a code block (commands), a
table (columns and rows), or a picture. Figures stand in the JSON; nobody edits a page by hand,
and a test holds the two together.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs" / "results"
Block = Mapping[str, Any]


def render(page: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    parts = [f"# {page['title']}", *(_rendered(block) for block in page["blocks"])]
    return "\n\n".join(parts) + "\n"


def _rendered(block: Block) -> str:
    match block:
        case {"heading": text, **rest}:
            return f"{'#' * int(rest.get('level', 2))} {text}"
        case {"text": text}:
            return str(text)
        case {"code": text}:
            return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
        case {"picture": path, "caption": caption}:
            return f"![{caption}]({path})"
        case {"columns": columns, "rows": rows}:
            return "\n".join(_table(columns, rows))
    raise ValueError(f"a block with the fields {sorted(block)} is none that a page can have")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |".replace("|  |", "| |")
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def of_run(section: str, machine: Mapping[str, Any], tables: Sequence[Block]) -> dict[str, Any]:
    """The page of one run of a section: where it ran, and the tables that it printed."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    where = f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}"
    command = {"code": f"python -m benchmarks.run {section}"}
    facts = {"text": f"{where}, {versions}."}
    return {"title": f"Last run: {section}", "blocks": [command, facts, *tables]}


def write(path: Path, page: Mapping[str, Any]) -> None:
    """A page and its JSON."""
    text = json.dumps(page, indent=1, ensure_ascii=False) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")
    path.with_suffix(".md").write_text(render(page), encoding="utf-8")


def main() -> None:
    for path in sorted(RESULTS.glob("*.json")):
        page = json.loads(path.read_text(encoding="utf-8"))
        path.with_suffix(".md").write_text(render(page), encoding="utf-8")
        print(f"written: {path.with_suffix('.md')}", file=sys.stderr)


if __name__ == "__main__":
    main()
