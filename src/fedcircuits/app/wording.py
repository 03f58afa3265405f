"""Advice of the library in the words of the command line.

Errors and warnings name arguments of Python, such as ``kinds={'zip': "category"}``. Who types
commands has options for the same, ``--kind zip=category``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from shlex import quote

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
