"""HTML representations for notebooks: a caption and a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

MOST = 30  # rows
MOST_NAMES = 4  # in a cell


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Some names, and how many they are if that is not all of them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} … ({len(names)})"


def shown(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of at most ``MOST`` rows, and the number of rows omitted. Texts are aligned on the
    left, numbers on the right, whatever the notebook would do.

    >>> shown("two", [""], [["1 < 2"]])
    '<p><b>two</b></p><table><tbody><tr><td style="text-align: left">1 &lt; 2</td></tr></tbody>\
</table>'
    """
    parts = [f"<p><b>{escape(caption)}</b></p>"]
    if rows:
        sides = ["right" if _is_number(cell) else "left" for cell in rows[0]]
        head = f"<thead>{_row(heads, 'th', sides)}</thead>" if any(heads) else ""
        body = "".join(_row(row, "td", sides) for row in rows[:MOST])
        parts.append(f"<table>{head}<tbody>{body}</tbody></table>")
    if len(rows) > MOST:
        parts.append(f"<p>… and {len(rows) - MOST:,} more</p>")
    return "".join(parts)


def _row(cells: Sequence[object], tag: str, sides: Sequence[str]) -> str:
    inner = "".join(
        f'<{tag} style="text-align: {side}">{escape(_text(cell))}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{inner}</tr>"


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def width(names: Collection[str], series: Collection[str] = ()) -> str:
    """How many variables there are, and which series."""
    words = ["1 variable" if len(names) == 1 else f"{len(names):,} variables"]
    return ", ".join((words if names or not series else []) + [f"series {n!r}" for n in series])
