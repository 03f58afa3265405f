"""Questions and evidence: text made of pieces of the grammar, good and bad, and Python objects."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc
from benchmarks.fuzz.judging import Attempt, pick, require

NAMES = ("x", "age (years)", "P (kPa)", "n", "colour", "größe", "ok", "and", "`", "1.5")
WORDS = (
    "x", "`age (years)`", "age (years)", "`P (kPa)`", "P (kPa)", "n", "colour", "größe", "ok",
    "`and`", "````", "`1.5`", "X", "COLOUR", "unknown", "", "`", "``", "'red'", "red", '"blue"',
    "'", '"', "yes", "True", "false", "k\u0000", "\ud800", "\U0010ffff", "é́", "\u202e",
)  # fmt: skip
FIGURES = (
    "0", "1", "-1", "3.5", "1e3", "9" * 400, "-" + "9" * 400, "1e400", "-1e400", "1e-400", "0x10",
    "1_000", "1__0", ".5", "5.", "..", "nan", "inf", "-inf", "+0", "-0.0", "1e308", "2e308",
    "9007199254740993", "٣", "1e", "1e+", "0." + "0" * 400 + "1", "9" * 5000, "4503599627370497.5",
)  # fmt: skip
MARKS = (
    "=", "==", "!=", "<>", "<", "<=", ">", ">=", "≠", "≤", "≥", " and ", " or ", " not ", " in ",
    " between ", "&", "&&", "|", "||", "!", ",", "(", ")", "{", "}", "[", "]", "P(", " ", "\n",
    "\0", "\ud83d", "?", ";", "--", "=>",
)  # fmt: skip
CONDITIONS = (
    "x > {f}", "{f} < x <= {f}", "n = {f}", "n in {{{f}, {f}}}", "colour = red", "colour != {w}",
    "ok", "not ok", "`age (years)` between {f} and {f}", "größe >= {f}", "n not in [{f}]",
    "{f} = n", "colour in {{'red', {w}}}", "P (kPa) < {f}", "x = {f}", "{w} {m} {f}", "n < {f}",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2.5, 10**400, -(10**5000), float("nan"), float("inf"), -0.0, 1e308,
    "red", "9" * 400, "", "\ud800", "\0", b"red", (), (1,), (0, 1), (None, None), (1, None),
    (2, 1), (1, 2, 3), ("a", "b"), (float("nan"), 1), (-np.inf, np.inf), (10**400, None), set(),
    {1}, {0, 2.5}, frozenset({1}), [], [1, 1], [[1]], [None], {"a": 1}, object(), 1j,
    Decimal("NaN"),
    Decimal("1e5000"), Decimal("2"), Fraction(1, 3), Fraction(10**400), np.float64(2), np.int64(1),
    np.array(1.0), np.array([1.0, 2.0]), np.array([]), np.datetime64("2020"), pd.NA, pd.NaT,
    pd.Timestamp(0), pd.Series([1.0]), range(3), slice(1), type, ..., "red" * 4000,
)  # fmt: skip


def prepare(folder: Path) -> Attempt:
    model = small_model()

    def attempt(rng: np.random.Generator, number: int) -> None:
        event: Any = question_text(rng) if rng.random() < 0.8 else hostile_mapping(rng)
        given: Any = None
        if rng.random() < 0.4:
            given = question_text(rng) if rng.random() < 0.5 else hostile_mapping(rng)
        match int(rng.integers(10)):
            case 0:
                found = model.expect(["x", "n"], given=event).to_numpy(dtype=float)
                require(np.isfinite(found).all(), f"expect({event!r}) is {found.tolist()}")
            case 1:
                drawn = model.sample(2, given=event, random_state=number)
                require(not drawn.isna().any(axis=None), f"sample(given={event!r}) has NaN")
            case _:
                answer = model.probability(event, given=given)
                sound = isinstance(answer, float) and -1e-9 <= answer <= 1 + 1e-9
                require(sound, f"probability({event!r}, {given!r}) is {answer!r}")

    return attempt


def small_model() -> Any:
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=80)
    columns = {
        "x": rng.normal(size=80) + group, "age (years)": 40 + 9 * rng.normal(size=80),
        "P (kPa)": rng.normal(size=80) * 1e6, "n": rng.poisson(3 + group),
        "colour": np.array(["red", "blue", "dark red"])[rng.integers(3, size=80)],
        "größe": rng.choice([1, 2, 10], 80), "ok": rng.random(80) < 0.3 + 0.3 * group,
        "and": rng.normal(size=80), "`": rng.random(80) < 0.5, "1.5": rng.normal(size=80),
    }  # fmt: skip
    table = fc.Table.of(columns, kinds={"größe": "category"})
    return fc.MixtureOfProducts(2, max_iter=5, random_state=0).fit(table)


def question_text(rng: np.random.Generator) -> str:
    match int(rng.integers(16)):
        case 0:
            return "".join(pick(rng, (*WORDS, *FIGURES, *MARKS)) for _ in range(rng.integers(12)))
        case 1:
            depth = int(rng.choice([50, 99, 100, 101, 3000]))
            opening = pick(rng, ("(", "not ", "!", "P(", "((", "not ("))
            return opening * depth + "x > 0" + ")" * depth
        case 2:
            return pick(rng, (*WORDS, *FIGURES, *MARKS)) * int(rng.choice([300, 2500, 12_000]))
        case 3:
            return _mutated(rng, _question(rng))
        case 4:
            parts = (f"(x > {i} {pick(rng, ('and', 'or'))} n = {i})" for i in range(300))
            return pick(rng, (" or ", " and ", ", ")).join(parts)[: int(rng.integers(1, 10_100))]
    return _question(rng)


def _question(rng: np.random.Generator) -> str:
    joined = pick(rng, (" and ", " or ", ", ", " | ", " and not "))
    parts = [_condition(rng) for _ in range(int(rng.integers(1, 5)))]
    text = joined.join(f"({p})" if rng.random() < 0.3 else p for p in parts)
    return f"P({text})" if rng.random() < 0.2 else text


def _condition(rng: np.random.Generator) -> str:
    plain = FIGURES if rng.random() < 0.15 else ("0", "1", "2.5", "-3", "1e3")
    text: str = pick(rng, CONDITIONS)
    for mark, options in (("{f}", plain), ("{w}", WORDS), ("{m}", MARKS)):
        while mark in text:
            text = text.replace(mark, pick(rng, options), 1)
    return text.replace("{{", "{").replace("}}", "}")


def _mutated(rng: np.random.Generator, text: str) -> str:
    letters = list(text)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(letters) + 1))
        match int(rng.integers(3)):
            case 0:
                letters[at : at + 1] = []
            case 1:
                letters[at:at] = pick(rng, MARKS)
            case 2:
                letters[at : at + 1] = chr(int(rng.integers(0x110000)))
    return "".join(letters)


def hostile_mapping(rng: np.random.Generator) -> Any:
    if rng.random() < 0.05:
        return pick(rng, VALUES)
    names = (*NAMES, *NAMES, "unknown", 5, None, ("x",), "\ud800")
    return {pick(rng, names): pick(rng, VALUES) for _ in range(int(rng.integers(1, 4)))}
