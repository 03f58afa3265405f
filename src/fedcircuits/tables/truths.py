"""Words for yes and no in several languages: ja, nein, oui, TRUE, WAHR, pos., +, ✓."""

from __future__ import annotations

from collections.abc import Sequence

YES = frozenset(
    ("yes", "true", "y", "t", "on", "1", "ja", "j", "oui", "sí", "si", "sì", "sim", "wahr", "vrai",
     "verdadero", "vero", "positive", "positiv", "pos", "pos.", "present", "+", "tak", "kyllä", "✓",
     "✔", "☑")
)  # fmt: skip
NO = frozenset(
    ("no", "false", "n", "f", "off", "0", "nein", "non", "não", "nee", "nej", "falsch", "faux",
     "falso", "negative", "negativ", "neg", "neg.", "absent", "-", "nie", "ei", "✗", "✘", "☐")
)  # fmt: skip
LETTERS = ({"y", "n"}, {"j", "n"}, {"t", "f"})
MARKS = frozenset(("x", "✓", "✔", "☑", "☒", "✗", "✘"))  # a tick: what is not ticked is blank


def truth_of(text: str) -> bool | None:
    """The boolean that a word for yes or no means; None for other words."""
    word = text.strip().casefold()
    return True if word in YES else False if word in NO else None


def truths(texts: Sequence[str]) -> tuple[str, str] | None:
    """The words for no and yes, if all texts are such words, in any case and padding, and both
    occur.

    >>> truths(["Ja ", "nein", "JA"])
    ('nein', 'ja')
    """
    words = list(dict.fromkeys(text.strip().casefold() for text in texts))
    if set(words) <= {"0", "1"} or not all(word in YES or word in NO for word in words):
        return None
    if all(word.isalpha() and len(word) == 1 for word in words) and set(words) not in LETTERS:
        return None  # T and N may be anything
    yes, no = (next((w for w in words if w in some), None) for some in (YES, NO))
    return None if yes is None or no is None else (no, yes)


def ticked(texts: Sequence[str]) -> bool:
    """Whether all texts are ticks, so that blanks mean false."""
    return bool(texts) and all(text.strip().casefold() in MARKS for text in texts)
