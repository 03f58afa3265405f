"""Columns that identify rows, people or places, recognised by their names and values.

Nothing can be learned from them, and in a federation they would be revealed to others: ids, account
and telephone numbers, addresses, names. Each function returns the reason why a column is
identifying, or "".
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from fedcircuits.tables.columns import Column, Floats

ENOUGH = 0.9  # of the texts
FEW_LEVELS = 20
EXACT = 2.0**53  # above it, neighbouring whole numbers are one
LONG_NUMBER = 1e8  # from nine digits on, where nearly all differ

ID = re.compile(r"(.*[\W_])?(id|ids|uuid|guid|mrn|ssn|key|pid)|.*identifier", re.I)
CAMEL = re.compile(r".*[a-z](ID|Id|Nr)\.?")
NUMBERED = re.compile(
    r".*(nummer|number|konto|account|iban|telefon|phone|mobile?|handy|fax|msisdn|imsi|imei|kennung"
    r"|aktenzeichen|contract|vertrag)|(.*[\W_])?(nr|no|tel)\.?|.{3,}nr\.?",
    re.I,
)
PERSON = re.compile(
    r"((full|first|last|sur|family|given|maiden|middle|patients?|customers?|kunden?|vor|nach"
    r"|familien|geburts|pre|nom)[ _.-]?)?(names?|noms?|prénom|nombre|apellidos?)|.*(address|adresse"
    r"|anschrift|strasse|straße|street|e-?mail)|kunde|patient(in)?",
    re.I,
)
POSTCODE = re.compile(
    r"(.*[\W_])?(plz|zip|zip ?code|post ?code|postal[ _]?code|postleitzahl|npa|code[ _]postal)"
    r"([\W_].*)?",
    re.I,
)
PATTERNS = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.\w+"),
    "addresses of the web": re.compile(r"(https?|ftp)://\S+|www\.\S+", re.I),
    "paths of files": re.compile(r"([A-Za-z]:)?(\\[^\\]+)+|(/[^/\s]+){2,}"),
    "identifiers (UUID)": re.compile(r"\{?[\da-f]{8}-([\da-f]{4}-){3}[\da-f]{12}\}?", re.I),
    "addresses of machines": re.compile(
        r"([\da-f]{2}[:-]){5}[\da-f]{2}|\d{1,3}(\.\d{1,3}){3}(:\d+)?", re.I
    ),
    "numbers of accounts (IBAN)": re.compile(r"[A-Z]{2}\d{2}( ?[\dA-Z]{4}){3,7}( ?[\dA-Z]{1,3})?"),
    "numbers of persons": re.compile(r"\d{3}-\d{2}-\d{4}"),
    "telephone numbers": re.compile(
        r"(\+|00)\d[\d ()/.-]{6,}\d|\(\d{2,5}\)[ /]?\d[\d /-]{3,}\d|0\d{2,4}[ /-]\d[\d /-]{3,}\d"
    ),
    "numbers of accounts or telephones": re.compile(r"0\d{7,}"),
}  # fmt: skip


def why_text(texts: Sequence[str]) -> str:
    """For a column of texts, by their form."""
    for what, pattern in PATTERNS.items():
        if texts and sum(map(bool, map(pattern.fullmatch, texts))) >= ENOUGH * len(texts):
            return what
    if texts and all(map(_nested, texts)):
        return "nested values (JSON or XML): give one column per part"
    return ""


def why_named(column: Column, texts: Sequence[str]) -> str:
    """For a column of texts that are neither numbers nor dates, by its name."""
    if PERSON.fullmatch(column.name.strip()) and any(len(text) > 2 for text in texts):
        return "names or addresses of persons, by its name"
    if _named(column.name) and _many(len(texts), int(column.present.sum())):
        return f"an identifier: {len(texts):,} different texts, and its name says so"
    return ""


def why_number(column: Column, typed: bool) -> str:
    """For a column of whole numbers; the types of a frame are trusted more than text."""
    known = column.numbers[column.present]
    different = len(np.unique(known))
    distinct = different == len(known) and different > FEW_LEVELS
    if distinct and ID.fullmatch(column.name.strip()):
        return "an identifier: a different number in every row"
    if typed:
        return ""
    if len(known) and np.abs(known).min() >= EXACT:
        return "an identifier: numbers of more digits than can be computed with"
    if _named(column.name) and _many(different, len(known)):
        return f"an identifier: {different:,} different numbers, and its name says so"
    if distinct and _long(known):
        return "an identifier: long numbers, a different one in every row"
    if distinct and np.all(np.diff(known) == 1):
        return "a running number"
    return ""


def is_postcode(name: str) -> bool:
    return POSTCODE.fullmatch(name.strip()) is not None


def _named(name: str) -> bool:
    stripped = name.strip()
    patterns = (ID, CAMEL, NUMBERED)
    return any(pattern.fullmatch(stripped) for pattern in patterns)


def _many(different: int, rows: int) -> bool:
    """Whether so many values identify rows, or people with several rows each."""
    return different > FEW_LEVELS and different > rows / 5


def _long(known: Floats) -> bool:
    digits = np.floor(np.log10(np.maximum(known, 1.0)))
    return bool(known.min() >= LONG_NUMBER and np.ptp(digits) == 0)


def _nested(text: str) -> bool:
    stripped = text.strip()
    if stripped[:1] == "<" and stripped[-1:] == ">":
        return re.fullmatch(r"<(\w+)[^>]*>.*</\1>|<\w+[^>]*/>", stripped, re.DOTALL) is not None
    if (stripped[:1], stripped[-1:]) not in (("{", "}"), ("[", "]")):
        return False
    try:
        return isinstance(json.loads(stripped), dict | list)
    except ValueError:
        return False
