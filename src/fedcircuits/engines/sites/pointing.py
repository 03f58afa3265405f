"""Where a mistake stands in a TOML file: the whole name of its key, and its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping

import msgspec

Path = tuple[str, ...]
TOKEN = re.compile(r"\[\.\.\.\]|\[\d+\]|[^.\[\]$]+")  # of a place such as $.columns[...].kind
HEADER = re.compile(r"\s*\[+([^\[\]]+)\]+\s*(?:#.*)?$")
KEY = re.compile(
    r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def place_of(
    problem: str, values: Mapping[str, object], convert: Callable[[Mapping[str, object]], object]
) -> Path:
    """Of the key that a problem of msgspec is about. Keys of a table that may have any are not
    named by it, so each is tried alone."""
    at = re.search(r"at `(\$[^`]*)`", problem)
    names: Path = ()
    for token in TOKEN.findall(at[1]) if at else ():
        if token == "[...]":
            inner = _within(values, names)
            odd = (k for k in inner if _fails(convert, _only(values, (*names, k))))
            token = next(odd, "")
        if not token or token.startswith("["):
            break
        names = (*names, token)
    named = re.search(r"field `([^`]*)`", problem) or re.match(r"(\w+): ", problem)
    return (*names, named[1]) if named else names


def line_of(text: str, place: Path) -> int:
    """The line of the key, or of what it would stand in; 0 for none."""
    line, depth = 0, 0
    for number, names in _keys(text):
        if depth < len(names) and place[: len(names)] == names:
            line, depth = number, len(names)
    return line


def _keys(text: str) -> Iterator[tuple[int, Path]]:
    section: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            section = _names(header[1] + " = 0")
            yield number, section
        elif key := KEY.match(line):
            yield number, section + _names(key[1] + " = 0")


def _names(assignment: str) -> Path:
    try:
        inner: object = tomllib.loads(assignment)
    except tomllib.TOMLDecodeError:
        return ()
    names: Path = ()
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        names = (*names, name)
    return names


def _within(values: Mapping[str, object], names: Path) -> Mapping[str, object]:
    for name in names:
        inner = values.get(name)
        values = inner if isinstance(inner, Mapping) else {}
    return values


def _only(values: Mapping[str, object], names: Path) -> dict[str, object]:
    """The same with one key alone in the innermost table."""
    first, *rest = names
    inner = values[first]
    if not rest:
        return {first: inner}
    assert isinstance(inner, Mapping)
    inner_only = _only(inner, tuple(rest))
    return {**values, first: inner_only if len(rest) == 1 else {**inner, **inner_only}}


def _fails(convert: Callable[[Mapping[str, object]], object], values: Mapping[str, object]) -> bool:
    try:
        convert(values)
    except (msgspec.ValidationError, ValueError):
        return True
    return False
