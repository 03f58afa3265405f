"""200 generated questions against brute force, and 50 malformed ones refused with a pointer.

Questions are put together from conditions whose meaning is known as a Python function of a row, and
go through the parser of the command line. The truth is a sum over all rows of a small domain.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.app.asking import answered
from fedcircuits.app.screen import one_line
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import QueryError
from tests.app.conditions import Condition, condition

COLOURS = ("red", "green", "dark blue")
QUESTIONS = 200


def small_model() -> fc.CircuitModel:
    """Three categories, two of them with values that look like numbers, and a boolean."""
    rng = np.random.default_rng(0)
    n = rng.integers(0, 6, 400)
    columns = {
        "colour": [COLOURS[i] for i in (n + rng.integers(0, 2, 400)) % 3],
        "mean size": [str(v) for v in rng.integers(1, 4, 400)],
        "ill": (n + rng.normal(0, 2, 400) > 3).tolist(),
        "n": [str(v) for v in n],
    }
    table = fc.Table.of(columns, kinds=dict.fromkeys(["colour", "mean size", "n"], "category"))
    model = fc.MixtureOfProducts(3, random_state=0).fit(table)
    return fc.CircuitModel(model.circuit_, model.parameters_)


MODEL = small_model()
ASKED = Distribution(MODEL.circuit_, MODEL.parameters_)
ROWS = [
    dict(zip(MODEL.schema_.names, values, strict=True))
    for values in itertools.product(*(v.categories for v in MODEL.schema_))
]
MASS = np.exp(MODEL.score_samples(fc.Table.of(
    {name: [row[name] for row in ROWS] for name in MODEL.schema_.names}, schema=MODEL.schema_,
)))  # fmt: skip


def atom(rng: np.random.Generator) -> Condition:
    kind = rng.integers(0, 4)
    if kind == 0:
        return Condition("ill", lambda row: bool(row["ill"]))
    name = str(rng.choice(["colour", "mean size", "n"]))
    values = [str(c) for c in MODEL.schema_[name].categories]
    quoted = f"`{name}`" if rng.random() < 0.5 else name
    value = str(rng.choice(values))
    if kind == 1:
        written = f"'{value}'" if rng.random() < 0.5 else value
        return Condition(f"{quoted} = {written}", lambda row: str(row[name]) == value)
    if kind == 2:
        sign = str(rng.choice(["!=", "<>", "≠"]))
        return Condition(f"{quoted} {sign} '{value}'", lambda row: str(row[name]) != value)
    few = [str(v) for v in rng.choice(values, 2, replace=False)]
    inside = bool(rng.random() < 0.5)
    listed = ", ".join(f"'{v}'" for v in few)
    return Condition(
        f"{quoted} {'in' if inside else 'not in'} {{{listed}}}",
        lambda row: (str(row[name]) in few) == inside,
    )


def mass(*conditions: Condition) -> float:
    return float(sum(m for row, m in zip(ROWS, MASS, strict=True)
                     if all(c.holds(row) for c in conditions)))  # fmt: skip


def test_the_domain_has_all_the_mass() -> None:
    assert MASS.sum() == pytest.approx(1)


def test_generated_questions_have_the_answers_of_brute_force() -> None:
    rng, asked = np.random.default_rng(1), 0
    while asked < QUESTIONS:
        event, given = condition(rng, 3, atom), condition(rng, 2, atom)
        known = mass(given)
        if known < 1e-9:  # evidence that cannot be; the malformed ones have it
            continue
        asked += 1
        match asked % 4:
            case 0:
                found = answered(ASKED, event.text).values["probability"]
                expected = mass(event)
            case 1:
                found = answered(ASKED, f"P({event.text})").values["probability"]
                expected = mass(event)
            case 2:
                found = answered(ASKED, f"P({event.text} | {given.text})").values["probability"]
                expected = mass(event, given) / known
            case _:
                found = answered(ASKED, f"E(ill | {given.text})").values["mean"]
                expected = mass(Condition("", lambda row: bool(row["ill"])), given) / known
        assert found == pytest.approx(expected, abs=1e-9), (event.text, given.text)


def test_all_values_of_a_category() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        given = condition(rng, 2, atom)
        if mass(given) < 1e-9:
            continue
        found = answered(ASKED, f"P(colour | {given.text})").values
        for value in COLOURS:
            here = Condition("", lambda row, v=value: row["colour"] == v)  # type: ignore[misc]
            assert found[value] == pytest.approx(mass(here, given) / mass(given), abs=1e-9)


MALFORMED = {  # what is asked, and what the pointer names
    "": "an empty question",
    "   ": "an empty question",
    "P()": "found ')'",
    "P(": "end",
    "P(ill": "end",
    "P(ill |": "end",
    "P(ill | )": ")",
    "P(| ill)": "| ill",
    "P(ill)) ": ")",
    "P(ill) P(ill)": "P(ill)",
    "P(ill) + 1": "+",
    "ill and": "end",
    "and ill": "and",
    "ill or or ill": "or",
    "not": "end",
    "(ill": "end",
    "ill)": ")",
    "colour": "colour",
    "colour =": "end",
    "colour = ": "end",
    "colour == = red": "=",
    "colour = purple": "purple",
    "colour = rde": "did you mean 'red'?",
    "colour = 'red": "red",
    "colour in": "end",
    "colour in red": "red",
    "colour in {}": "}",
    "colour in {red": "end",
    "colour in {red,,}": ",",
    "colour in {red, purple}": "purple",
    "colour > red": "colour",
    "colour between red and green": "colour",
    "colr = red": "did you mean 'colour'?",
    "`colr` = red": "colr",
    "`colour = red": "colour",
    "mean sise = 2": "mean size",
    "ill = maybe": "maybe",
    "n = 17": "17",
    "n ! 3": "!",
    "n = 3 n = 4": "n",
    "ill % colour = red": "%",
    "ill; colour = red": ";",
    "P(ill | colour = red": "end",
    "P(ill ||| colour = red)": "|",
    "P(ill | colour = red | n = 1)": "|",
    "P(ill | colour = red and colour = green)": "contradicts itself",
    "E(colour)": "it has no mean; ask P(colour)",
    "E()": "expected a column",
    "E(ill": "end",
    "E(ill, n)": ",",
    "E(unknown)": "unknown",
    "E(ill) - 1": "-",
    "P(colour, n)": "colour",
}


def test_a_category_that_is_known_is_certain() -> None:
    found = answered(ASKED, "P(colour | colour = red and ill)").values
    assert found == {"dark blue": 0.0, "green": 0.0, "red": 1.0}


def test_there_are_fifty() -> None:
    assert len(MALFORMED) >= 50


@pytest.mark.parametrize("question", MALFORMED)
def test_a_malformed_question_is_refused_with_a_pointer(question: str) -> None:
    with pytest.raises(QueryError) as refused:
        answered(ASKED, question)
    line = one_line(str(refused.value))
    assert "\n" not in line and line.startswith(question.strip() or "an empty question")
    assert MALFORMED[question] in line.removeprefix(f"{question.strip()}: ")
