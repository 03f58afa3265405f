"""HTML representations for notebooks: a caption and a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

MOST = 30  # rows


def shown(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of at most ``MOST`` rows, and the number of rows omitted.

    >>> shown("two", ["n"], [["1 < 2"]])
    '<p><b>two</b></p><table><thead><tr><th>n</th></tr></thead><tbody><tr><td>1 &lt; 2</td></tr>\
</tbody></table>'
    """
    parts = [f"<p><b>{escape(caption)}</b></p>"]
    if rows:
        head = f"<thead>{_row(heads, 'th')}</thead>" if any(heads) else ""
        body = "".join(_row(row, "td") for row in rows[:MOST])
        parts.append(f"<table>{head}<tbody>{body}</tbody></table>")
    if len(rows) > MOST:
        parts.append(f"<p>… and {len(rows) - MOST:,} more</p>")
    return "".join(parts)


def _row(cells: Sequence[object], tag: str) -> str:
    inner = "".join(f"<{tag}>{escape(_text(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
