"""A report as one HTML page: title, headings, paragraphs, answers, tables, pictures, commands.

The page is self-contained: pictures are embedded, nothing is loaded from elsewhere, and it is
readable on a phone, in light and dark mode. All text is escaped, so that names of columns cannot
inject code.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from fedcircuits.circuits.graph.files import check_writable, replace_file
from fedcircuits.errors import FileError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; background: #f5f7f9; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1.2rem; background: #fff; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p, dd { max-width: 42rem; overflow-wrap: anywhere; }
dt { font-weight: 600; margin-top: 1rem; } dd { margin: .2rem 0 0; color: #2563a8; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .95rem; }
caption { text-align: left; color: #6b7785; padding-bottom: .3rem; }
th, td { padding: .35rem .8rem .35rem 0; text-align: left; border-bottom: 1px solid #e4e8ec;
  vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { min-width: 9rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
figcaption { color: #6b7785; font-size: .9rem; }
pre { padding: .8rem; background: #eef1f4; font-size: .9rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) {
  body { color: #dde3ea; background: #12171d; } main { background: #1a2129; }
  dd { color: #8fb8e8; } caption, figcaption { color: #9aa7b4; } pre { background: #12171d; }
  th, td { border-bottom-color: #2c3642; } img { background: #fff; border-radius: .3rem; }
}
"""


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class Answers:
    pairs: Sequence[tuple[str, str]]  # question, answer


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; columns after the first ``texts`` are right-aligned numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    texts: int = 1


@dataclass(frozen=True, slots=True)
class Picture:
    png: bytes
    caption: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands to type."""

    lines: Sequence[str]


Block = Heading | Paragraph | Answers | TextTable | Picture | Commands


def page(title: str, blocks: Iterable[Block]) -> str:
    """The whole page as text."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def png_of(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def check_output(path: Path, what: str, ending: str, *sources: Path) -> None:
    """FileError, before long work, if the result cannot be written there: another ending than
    expected, no such folder, no right to write, or one of the files that are read."""
    if path.suffix != ending:
        raise FileError(f"{path}: expected the name of {what}, ending in {ending}")
    if any(source.exists() and path.exists() and source.samefile(path) for source in sources):
        raise FileError(f"{path} is also read: give the output another name")
    check_writable(path)


def write(path: Path, content: bytes) -> None:
    """Write the file atomically."""
    replace_file(path, lambda file: file.write(content))


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Answers(pairs):
            parts = (f"<dt>{escape(q)}</dt>\n<dd>{escape(a)}</dd>" for q, a in pairs)
            return "<dl>\n" + "\n".join(parts) + "\n</dl>"
        case Commands(lines):
            return f'<pre class="wide">{escape(chr(10).join(lines))}</pre>'
        case Picture(png, caption):
            data = base64.b64encode(png).decode("ascii")
            width = int.from_bytes(png[16:20])  # wide ones may be scrolled rather than shrunk
            wide = f"min-width: min({width}px, 36rem, 170vw)"
            alt = escape(caption)
            image = f'<img alt="{alt}" style="{wide}" src="data:image/png;base64,{data}">'
            below = f"<figcaption>{escape(caption)}</figcaption>"
            return f'<figure>\n<div class="wide">{image}</div>\n{below}\n</figure>'
    return _table(block)


def _table(grid: TextTable) -> str:
    caption = f"<caption>{escape(grid.caption)}</caption>\n" if grid.caption else ""
    head = _cells("th", grid.columns, grid.texts)
    body = "\n".join(_cells("td", row, grid.texts) for row in grid.rows)
    return (
        f'<div class="wide"><table>\n{caption}<thead>\n{head}\n</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cells(tag: str, texts: Sequence[str], words: int) -> str:
    marks = [""] * words + [' class="number"'] * (len(texts) - words)
    cells = (f"<{tag}{m}>{escape(t)}</{tag}>" for m, t in zip(marks, texts, strict=True))
    return f"<tr>{''.join(cells)}</tr>"
