"""TOML files of unknown origin, read within limits: schema.toml, site.toml, consortium.toml.

Whoever sends such a file must not be able to take time or memory: it is refused if it is long, has
many nested keys, or what it holds is too deep. A byte-order mark, as editors write it, is allowed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

MOST_BYTES = 4 << 20
DEEPEST = 32
_DOTTED = re.compile(  # possessive, and not from the middle of a word: one pass over the text
    rf"""(?<![\w-])(?:(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)[ \t]*+\.[ \t]*+){{{DEEPEST}}}""", re.ASCII
)


def toml_text(path: Path) -> str:
    """The text of the file; ValueError if it is too long or not text, or OSError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES >> 20} MB, got more")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"this is no TOML: {error}") from None
    return text.replace("\r\n", "\n")


def toml_values(text: str) -> dict[str, object]:
    """The values in the text; ValueError if it is not TOML, or nested too deeply."""
    deep = f"expected at most {DEEPEST} levels, got more"
    if _DOTTED.search(text):
        raise ValueError(deep)
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except ValueError as error:  # also for integers of thousands of digits
        raise ValueError(f"this is no TOML: {str(error)[:200]}") from None
    if _depth(values) > DEEPEST:
        raise ValueError(deep)
    return values


def shortened(error: BaseException) -> str:
    """The message on one line, without control characters and shortened."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return text if len(text) <= 500 else f"{text[:300]} … {text[-150:]}"


def _depth(values: Mapping[str, object]) -> int:
    depth, level = 0, [list(values.values())]
    while level and depth <= DEEPEST:
        depth += 1
        inner = [one for some in level for one in some]
        level = [list(v.values()) for v in inner if isinstance(v, Mapping)]
        level += [v for v in inner if isinstance(v, list)]
    return depth
