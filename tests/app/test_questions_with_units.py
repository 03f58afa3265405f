"""Generated questions about amounts, dates, counts and names beyond ASCII, against brute force.

The density of a small model is integrated over cells between the numbers that questions name
(Gauss–Legendre), and summed over counts and categories. A condition is true or false of a whole
cell.
"""

from __future__ import annotations

import itertools
from datetime import date, timedelta

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.app.asking import answered
from fedcircuits.app.screen import one_line
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import ReadingHabits, Schema, Variable
from tests.app.conditions import Condition, condition

SIZES = ("klein", "groß & breit", "it's über-groß")
SCHEMA = Schema(
    (
        Variable("Preis (netto)", unit="€"),
        Variable("came", unit="date"),
        Variable("visits", "count"),
        Variable("Größe", "category", SIZES),
        Variable("ill", "boolean"),
    ),
    (ReadingHabits(",", "dmy"),),
)
QUESTIONS = 100
PRICES = (900.0, 1200.5, 1600.0)
DAYS = tuple((date(2021, m, d) - date(1970, 1, 1)).days for m, d in ((3, 31), (6, 1), (9, 30)))
COUNTS = range(17)
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)


def small_model() -> fc.CircuitModel:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 500)
    rows = np.column_stack(
        [
            rng.normal(800 + 400 * kind, 200),
            rng.normal(DAYS[1] + 40 * (kind - 1), 50),
            rng.poisson(1 + kind),
            (kind + rng.integers(0, 2, 500)) % 3,
            rng.random(500) < 0.2 + 0.3 * kind,
        ]
    )
    model = fc.MixtureOfProducts(3, random_state=0).fit(fc.Table(SCHEMA, rows))
    return fc.CircuitModel(model.circuit_, model.parameters_)


MODEL = small_model()
ASKED = Distribution(MODEL.circuit_, MODEL.parameters_)


def cells(cuts: tuple[float, ...], wide: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The middle of every cell, and its nodes with weights (cells, nodes)."""
    inner = np.linspace(cuts[0], cuts[-1], 4)
    ends = np.unique([*(cuts[0] - wide * np.arange(1, 9)), *cuts, *inner,
                      *(cuts[-1] + wide * np.arange(1, 9))])  # fmt: skip
    half, middle = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    return middle, middle[:, None] + half[:, None] * NODES, half[:, None] * NODE_WEIGHTS


def masses() -> tuple[list[dict[str, object]], np.ndarray]:
    """Rows that stand for cells, and their probabilities."""
    prices, price_nodes, price_weights = cells(PRICES, 250.0)
    days, day_nodes, day_weights = cells(tuple(map(float, DAYS)), 60.0)
    rest = list(itertools.product(COUNTS, range(len(SIZES)), range(2)))
    x, y = np.meshgrid(price_nodes.ravel(), day_nodes.ravel(), indexing="ij")
    points = np.column_stack([x.ravel(), y.ravel()])
    shape = (*price_nodes.shape, *day_nodes.shape)
    found, rows = [], []
    for values in rest:
        table = np.column_stack([points, np.tile(values, (len(points), 1))])
        density = np.exp(MODEL.score_samples(fc.Table(SCHEMA, table))).reshape(shape)
        found.append(np.einsum("anbm,an,bm->ab", density, price_weights, day_weights))
        n, size, ill = values
        known = {"visits": n, "Größe": SIZES[size], "ill": bool(ill)}
        rows.append([known | {"Preis (netto)": p, "came": d} for p in prices for d in days])
    return list(itertools.chain(*rows)), np.concatenate([f.ravel() for f in found])


@pytest.fixture(scope="module")
def domain() -> tuple[list[dict[str, object]], np.ndarray]:
    return masses()


def atom(rng: np.random.Generator) -> Condition:
    return (amount, day, count, size, truth)[rng.integers(0, 5)](rng)


def _name(rng: np.random.Generator, name: str) -> str:
    return f"`{name}`" if rng.random() < 0.5 else name


def _spelled(rng: np.random.Generator, price: float) -> str:
    german = f"{price:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")
    ways = (f"{price:g}".replace(".", ","), f"{german} €", f"€ {german}", f"EUR {german}")
    return str(rng.choice(ways))


def amount(rng: np.random.Generator) -> Condition:
    name, key = _name(rng, "Preis (netto)"), "Preis (netto)"
    low, high = sorted(rng.choice(PRICES, 2, replace=False))
    first, second = _spelled(rng, low), _spelled(rng, high)
    match int(rng.integers(0, 4)):
        case 0:
            sign = rng.choice([">", ">=", "≥"])
            return Condition(f"{name} {sign} {first}", lambda row: row[key] > low)  # type: ignore[operator]
        case 1:
            return Condition(f"{second} ≥ {name}", lambda row: row[key] < high)  # type: ignore[operator]
        case 2:
            text = f"{name} between {first} and {second}"
            return Condition(text, lambda row: low < row[key] < high)  # type: ignore[operator]
        case _:
            text = f"{first} < {name} ≤ {second}"
            return Condition(text, lambda row: low < row[key] < high)  # type: ignore[operator]


def day(rng: np.random.Generator) -> Condition:
    low, high = sorted(int(d) for d in rng.choice(DAYS, 2, replace=False))
    first, second = (date(1970, 1, 1) + timedelta(d) for d in (low, high))
    forms = [(f"{d:%Y-%m-%d}", f"{d:%d.%m.%Y}", f"{d.day} {d:%B %Y}") for d in (first, second)]
    one, two = (str(rng.choice(form)) for form in forms)
    if rng.random() < 0.5:
        return Condition(f"came > {one}", lambda row: row["came"] > low)  # type: ignore[operator]
    text = f"came between {one} and {two}"
    return Condition(text, lambda row: low < row["came"] < high)  # type: ignore[operator]


def count(rng: np.random.Generator) -> Condition:
    a, b = sorted(int(n) for n in rng.choice(6, 2, replace=False))
    choices = (
        Condition(f"visits = {a}", lambda row: row["visits"] == a),
        Condition(f"visits != {a}", lambda row: row["visits"] != a),
        Condition(f"visits in {{{a}, {b}}}", lambda row: row["visits"] in (a, b)),
        Condition(f"visits > {a}", lambda row: row["visits"] > a),  # type: ignore[operator]
        Condition(f"{a} <= visits < {b}", lambda row: a <= row["visits"] < b),  # type: ignore[operator]
    )
    return choices[rng.integers(0, len(choices))]


def size(rng: np.random.Generator) -> Condition:
    value = SIZES[rng.integers(0, 3)]
    quoted = f'"{value}"' if "'" in value or rng.random() < 0.5 else f"'{value}'"
    if rng.random() < 0.5:
        return Condition(f"{_name(rng, 'Größe')} = {quoted}", lambda row: row["Größe"] == value)
    return Condition(f"Größe not in {{{quoted}}}", lambda row: row["Größe"] != value)


def truth(rng: np.random.Generator) -> Condition:
    yes = bool(rng.random() < 0.5)
    text = rng.choice([f"ill = {'yes' if yes else 'no'}", "ill" if yes else "not ill"])
    return Condition(str(text), lambda row: row["ill"] is yes)


def test_the_cells_have_all_the_mass(domain: tuple[list[dict[str, object]], np.ndarray]) -> None:
    assert domain[1].sum() == pytest.approx(1, abs=1e-6)


def test_answers_are_those_of_brute_force(
    domain: tuple[list[dict[str, object]], np.ndarray],
) -> None:
    rows, mass = domain
    rng, asked = np.random.default_rng(3), 0
    while asked < QUESTIONS:
        event, given = condition(rng, 2, atom), condition(rng, 1, atom)
        true, known = (np.array([c.holds(row) for row in rows]) for c in (event, given))
        if mass[known].sum() < 1e-6:
            continue
        asked += 1
        found = answered(ASKED, f"P({event.text} | {given.text})").values["probability"]
        expected = mass[true & known].sum() / mass[known].sum()
        assert found == pytest.approx(expected, abs=1e-6), (event.text, given.text)


MALFORMED = {  # what is asked, and what the pointer names
    "Preis (netto) > 5 $": "$",
    "Preis (netto) > 5 mg": "mg",
    "Preis (netto) > 5 € €": "€",
    "`Preis (netto)` between 5 and": "end",
    "`Preis (netto)` between 5": "end",
    "5 < `Preis (netto)` <": "end",
    "came > 31.02.2021": "31.02.2021",
    "came > 2021-13-01": "2021-13-01",
    "came > Mai": "Mai",
    "came between 2021-01-01 or 2021-02-01": "or",
    "visits > zwei": "zwei",
    "visits > 2 €": "€",
    "visits in {1; 2}": ";",
    "Große = klein": "did you mean 'Größe'?",
    "Größe = kleim": "did you mean 'klein'?",
    "Größe = groß und breit": "groß",
    "Größe = ‘klein’": "‘klein’",
    "Größe = 'it's über-groß'": "über",
    "not": "end",
    "not not": "end",
    "ill or not": "end",
    "ill and (came > 2021-01-01": "end",
}


@pytest.mark.parametrize("question", MALFORMED)
def test_what_cannot_be_read_is_refused_with_a_pointer(question: str) -> None:
    with pytest.raises(QueryError) as refused:
        answered(ASKED, question)
    line = one_line(str(refused.value))
    assert "\n" not in line and line.startswith(question)
    assert MALFORMED[question] in line.removeprefix(f"{question}: ")
