"""A cursor in a text that reads words, names, values and operators by the schema.

A bare name is the longest name of the schema at this position (``hours-per-week``,
``mean radius``), in any case if no other of that length fits; a bare value is the longest category
of its variable. Backticks always quote a name, single or double quotes a value; a quote inside its
own kind is written twice. A name that is itself a number or a keyword needs its backticks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeVar

from fedcircuits.circuits.questions import amounts
from fedcircuits.circuits.questions.amounts import GOES_ON
from fedcircuits.circuits.questions.regions import KEYWORDS
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Scalar, Schema, Variable, is_text, shown

MAXIMUM_LENGTH = 10_000  # characters
T = TypeVar("T")

_BLANK = re.compile(r"\s")
_BLANKS = re.compile(r"\s*")
_STRING = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")
_BACKTICKS = re.compile(r"`((?:[^`]|``)*)`")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?(?![\w:])")
_LETTER = re.compile(r"\w")
_WORD = re.compile(r"[+-]?[\w.][\w.-]*")
_FREE_WORD = rf"(?!(?:{'|'.join(sorted(KEYWORDS))})(?![\w.-]))[\w.-]+"
_WORDS = re.compile(rf"{_FREE_WORD}(?:\s+{_FREE_WORD})*", re.IGNORECASE)
_OPERATOR = re.compile(r"==|=|!=|<>|<=|>=|<|>|≠|≤|≥")
_SPELLINGS: Final = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}


def located(message: str, text: str | None, position: int) -> QueryError:
    """The error with the text and a caret under the position."""
    if text is None:
        return QueryError(message)
    start, stop = max(0, position - 60), position + 40
    before = ("…" if start else "") + text[start:position]
    line = _BLANK.sub(" ", before + text[position:stop] + ("…" if stop < len(text) else ""))
    return QueryError(f"{message}\n  {line}\n  {' ' * len(before)}^")


class Lexicon:
    """Known words, found at a place of a text by the longest that stands there."""

    def __init__(self, words: Iterable[str], any_case: bool = False) -> None:
        self.words = {w for w in words if w}
        times = Counter(w.lower() for w in self.words)
        self.folded = {w.lower(): w for w in self.words if any_case and times[w.lower()] == 1}
        self.lengths = sorted({len(w) for w in self.words}, reverse=True)

    def at(self, text: str, position: int) -> tuple[str, int] | None:
        """The word and where it ends."""
        for length in self.lengths:
            piece = text[position : position + length]
            word = piece if piece in self.words else self.folded.get(piece.lower())
            end = position + len(piece)
            if word and not (_LETTER.match(piece[-1]) and GOES_ON.match(text, end)):
                return word, end
        return None


class Scanner:
    def __init__(self, text: str, schema: Schema) -> None:
        if not isinstance(text, str):
            raise QueryError(f"a question must be text, got {type(text).__name__}")
        if len(text) > MAXIMUM_LENGTH:
            raise QueryError(
                f"the question has {len(text):,} characters: expected at most {MAXIMUM_LENGTH:,}; "
                "ask it in smaller parts"
            )
        if not is_text(text):
            raise QueryError(
                f"the question {shown(text)} holds half of a pair of UTF-16, which is no character"
            )
        self.text, self.schema, self.position = text, schema, 0
        self.names = Lexicon(schema.names, any_case=True)
        self.categories: dict[str, Lexicon] = {}

    def here(self) -> int:
        """Where the next thing begins."""
        blanks = _BLANKS.match(self.text, self.position)
        self.position = blanks.end() if blanks else self.position
        return self.position

    def accept(self, *marks: str) -> str | None:
        """Move behind the first of these marks that matches here."""
        start = self.here()
        mark = next((m for m in marks if self.text.startswith(m, start)), None)
        self.position += len(mark or "")
        return mark

    def keyword(self, word: str) -> bool:
        end = self.here() + len(word)
        stands = self.text[self.position : end].lower() == word
        if not stands or GOES_ON.match(self.text, end):
            return False
        self.position = end
        return True

    def operator(self) -> str | None:
        if match := _OPERATOR.match(self.text, self.here()):
            self.position = match.end()
            return _SPELLINGS.get(match[0], match[0])
        return None

    def name_at(self, position: int) -> tuple[str, int] | None:
        """The bare name that stands there and where it ends."""
        name = self.names.at(self.text, position)
        if name is None or not _LETTER.match(name[0]):
            return None
        reserved = name[0].lower() in KEYWORDS or amounts.PROGRAM.fullmatch(name[0])
        return None if reserved else name

    def variable(self) -> Variable | None:
        start = self.here()
        if self.text.startswith("`", start):
            name = self._quoted(_BACKTICKS, "`")
            return self.at(start, lambda: self.schema[name])
        if known := self.name_at(start):
            self.position = known[1]
            return self.schema[known[0]]
        return None

    def category_at(self, variable: Variable, position: int) -> tuple[Scalar, int] | None:
        """The bare category of the variable that stands there and where it ends."""
        if variable.name not in self.categories:
            self.categories[variable.name] = Lexicon(map(str, variable.categories))
        category = self.categories[variable.name].at(self.text, position)
        if category is None:
            return None
        return next(c for c in variable.categories if str(c) == category[0]), category[1]

    def value(
        self, variable: Variable | None = None, listed: bool = False, leading: bool = False
    ) -> Scalar | None:
        """A value, of the variable if it is known; None if there is none here. ``listed``: a comma
        is not part of a number; ``leading``: it is, even before an operator."""
        start = self.here()
        if self.text[start : start + 1] in ("'", '"'):
            return self._read(variable, self._quoted(_STRING, self.text[start]), start)
        if variable and (category := self.category_at(variable, start)):
            self.position = category[1]
            return category[0]
        if clock := _CLOCK.match(self.text, start):
            self.position = clock.end()
            return clock[0]
        if end := self._end_of_value(variable, start, listed, leading):
            self.position = end
            return self._read(variable, self.text[start:end], start)
        if word := _WORD.match(self.text, start):
            self.position = word.end()
            return word[0]
        return None

    def _end_of_value(
        self, variable: Variable | None, start: int, listed: bool, leading: bool
    ) -> int | None:
        """Where a number or date ends; None if there is none."""
        if variable is None or amounts.is_measured(variable):
            return amounts.amount_end(self.text, start, variable, listed, leading)
        if variable.dated and (end := amounts.date_end(self.text, start)):
            return end
        figure = amounts.PROGRAM.match(self.text, start)
        return figure.end() if figure and not GOES_ON.match(self.text, figure.end()) else None

    def _read(self, variable: Variable | None, text: str, start: int) -> Scalar:
        """The value of a text; numbers and dates by the habits of the files."""
        habits, value = self.schema.habits, _number(text)
        if variable is None or variable.categories or isinstance(value, int):
            return value
        if variable.dated:
            day = self.at(start, lambda: amounts.read_day(text, habits))
            return value if day is None else day
        if isinstance(value, float) and all(h.point != "," for h in habits):
            return value
        return self.at(start, lambda: amounts.amount(variable, text, habits))

    def words_at(self, position: int) -> str:
        """All words from there to the next operator or keyword, for messages."""
        match = _WORDS.match(self.text, position)
        return match[0][:80] if match else ""

    def what_stands_here(self) -> str:
        """The text at this position, for messages."""
        start = self.here()
        if start == len(self.text):
            return "the end"
        match = _WORD.match(self.text, start) or _OPERATOR.match(self.text, start)
        return shown(match[0] if match else self.text[start])

    def fail(self, expected: str) -> NoReturn:
        text = self.what_stands_here()
        raise located(f"expected {expected}, found {text}", self.text, self.position)

    def unknown(self, name: str, position: int) -> NoReturn:
        """Refuses what stands there and was not read as a name."""
        if name not in self.schema:
            self.at(position, lambda: self.schema.index(name))
        message = f"expected a condition; to name the variable write `{name}` in backticks"
        raise located(message, self.text, position)

    def at(self, position: int, make: Callable[[], T]) -> T:
        """What ``make`` gives; its errors point to the position."""
        try:
            return make()
        except QueryError as error:
            raise located(str(error), self.text, position) from None

    def _quoted(self, pattern: re.Pattern[str], mark: str) -> str:
        match = pattern.match(self.text, self.position)
        if match is None:
            message = f"expected a second {mark} that closes the one opened here, found the end"
            raise located(message, self.text, self.position)
        self.position = match.end()
        return match[0][1:-1].replace(mark * 2, mark)


def _number(text: str) -> Scalar:
    """A number as programs write it, or else the text."""
    if amounts.PROGRAM.fullmatch(text) is None:
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)
