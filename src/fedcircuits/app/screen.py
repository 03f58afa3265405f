"""Output of the command line: tables and text on standard output, progress on standard error.

Names come from other people's files: unprintable characters are shown as � and never sent to a
terminal. Errors and warnings of the library name arguments of Python, such as ``kinds={'zip':
"category"}``; they are shown with the options of commands for the same, ``--kind zip=category``.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from shlex import quote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedcircuits.app.report import TextTable


def plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def one_line(message: str) -> str:
    """A message on one line; a caret is replaced by the text it points at."""
    lines = message.split("\n")
    if len(lines) == 3 and lines[2].strip() == "^":
        rest = lines[1][lines[2].index("^") :]
        return f"{lines[0]} (at {rest!r})" if rest else lines[0]
    return " ".join(message.split())


def say(text: str = "") -> None:
    """Print text without wrapping lines."""
    print(plain(text), flush=True)


def show(grid: TextTable) -> None:
    """Print a table as wide as the terminal; long texts are wrapped within their column."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title_justify="left")
    for i, name in enumerate(grid.columns):
        table.add_column(Text(plain(name)), justify="left" if i < grid.texts else "right")
    for row in grid.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    if grid.caption:
        say(grid.caption)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    console.print(table)


def silenced(silent: bool) -> AbstractContextManager[object]:
    """Suppresses standard output if ``silent``: the command prints its ``data`` instead."""
    return redirect_stdout(io.StringIO()) if silent else nullcontext()


def data(content: object) -> None:
    """JSON, for other programs; characters that cannot be printed are escaped."""
    text = json.dumps(content, ensure_ascii=False, indent=2)
    escaped = (c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    print("".join(escaped), flush=True)


def tell(step: str) -> None:
    """Announce a step on standard error, if it is a terminal."""
    if sys.stderr.isatty():
        print(f"… {plain(step)}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    print(f"note: {in_options(' '.join(plain(text).split()))}", file=sys.stderr, flush=True)


Replacement = str | Callable[[re.Match[str]], str]


def _kind(match: re.Match[str]) -> str:
    column = match[2] or "COLUMN"
    return f"--kind {quote(f'{column}={match[3]}')}"


OPTIONS: tuple[tuple[str, Replacement], ...] = (
    (r"Table\.of\(…, kinds=\{…\}\) or --kind", "--kind COLUMN=KIND"),
    (r"(Table\.of\([…\w]+, )?kinds=\{(?:'([^']+)'|\w+): ['\"](\w+)['\"]\}(?(1)\))", _kind),
    (r"\bkinds=(?! )", "--kind COLUMN=KIND"),
    (r"name it in drop= to say so", "give --drop COLUMN"),
    (r"\bdrop=\[column\]", "--drop COLUMN"),
    (r"(FedTrees\(|fit\(federation, )target='…'\)", "--target COLUMN"),
    (r"\btarget='…'", "--target COLUMN"),
    (r"Federation\(…, row_id='…'\)", "--row-id COLUMN"),
    (r"\brow_id=\{'([^']*)': '…'\}", r"--row-id \1=COLUMN"),
    (r"\brow_id=('[^']*')", r"--row-id \1"),
    (r"\bleast_count=1, or a Table with declared categories, keeps", "--least-count 1 keeps"),
    (r"\bleast_count=(\d+)", r"--least-count \1"),
    (r"\b(dates|decimal)=['\"]([\w.,]+)['\"]", r"--\1 \2"),
    (r"declare ids = 'loose' \(--ids loose\)", "give --ids loose"),
    (r"\bids='loose'", "--ids loose"),
    (r"\bencoding=(\"[\w-]+\")", r"encoding = \1 under [reading] of a --schema file"),
    (r"\bby='(\w+)'", r"--by \1"),
    (r"\bshare_target=True", "--share-target"),
    (r"\bgive real=", "give --train"),
    (r"\bpass names=\[…\], or ", ""),
)


def in_options(text: str) -> str:
    """The text with options of commands for arguments of Python.

    >>> in_options("keep it by kinds={'zip': 'category'}, or give target='…'")
    'keep it by --kind zip=category, or give --target COLUMN'
    """
    for pattern, option in OPTIONS:
        text = re.sub(pattern, option, text)
    return text
