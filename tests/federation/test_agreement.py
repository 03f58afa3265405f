"""Agreement: one name means one thing, or an error says who means what."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree, in_agreed
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table


def of(*variables: Variable) -> Schema:
    return Schema(variables)


def united(*variables: Variable) -> Variable:
    parties = {f"p{i}": of(v) for i, v in enumerate(variables)}
    return agree(parties)[variables[0].name]


REAL, COUNT = Variable("x"), Variable("x", "count")
YES = Variable("x", "boolean", ("no", "yes"))
BIT, TRUTH = Variable("x", "boolean", (0, 1)), Variable("x", "boolean")
ABC = Variable("x", "category", ("a", "b", "c"))
GRADES = Variable("x", "category", (1, 2, 3))


@pytest.mark.parametrize(
    ("one", "other", "kind", "categories"),
    [
        (COUNT, REAL, "real", ()),
        (BIT, COUNT, "count", ()),
        (BIT, REAL, "real", ()),
        (GRADES, COUNT, "count", ()),
        (GRADES, REAL, "real", ()),
        (ABC, Variable("x", "category", ("d", "b")), "category", {"a", "b", "c", "d"}),
        (YES, Variable("x", "category", ("no", "maybe")), "category", {"no", "yes", "maybe"}),
        (YES, Variable("x", "category", ("yes",)), "boolean", {"no", "yes"}),
        (YES, Variable("x", "boolean", ("yes", "no")), "boolean", {"no", "yes"}),
        (GRADES, Variable("x", "category", (3.0, 4.0)), "category", {1, 2, 3, 4}),
        (TRUTH, TRUTH, "boolean", {False, True}),
        (TRUTH, BIT, "boolean", {False, True}),
    ],
)
def test_kinds_that_go_together(one: Variable, other: Variable, kind: str, categories: Any) -> None:
    for pair in ((one, other), (other, one)):
        found = united(*pair)
        assert found.kind == kind
        assert set(found.categories) == set(categories)
        own = pair[0].categories  # codes of who came first stay as they are
        assert not found.categories or found.categories[: len(own)] == own


@pytest.mark.parametrize(
    ("one", "other"),
    [(ABC, REAL), (ABC, COUNT), (TRUTH, COUNT), (TRUTH, REAL), (TRUTH, ABC), (ABC, GRADES),
     (YES, BIT), (REAL, Variable("x", unit="date"))],
)  # fmt: skip
def test_kinds_that_do_not(one: Variable, other: Variable) -> None:
    for a, b in itertools.permutations((one, other)):
        with pytest.raises(FederationError) as error:
            agree({"north": of(a), "south": of(b)})
        text = str(error.value)
        assert f"'x' is {a.described()} at north and {b.described()} at south" in text
        assert "Table.of(…, kinds={…})" in text


@pytest.mark.parametrize("words", [("ja",), ("Nein", "ja"), ("0", "1")])
def test_words_for_yes_and_no_are_truth_values(words: tuple[str, ...]) -> None:
    said = Variable("x", "category", words)
    for pair in ((TRUTH, said), (said, TRUTH)):
        assert united(*pair) == TRUTH


def test_categories_that_differ_in_case_and_padding_are_one() -> None:
    other = Variable("x", "category", ("A ", "d"))
    assert united(ABC, other).categories == ("a", "b", "c", "d")
    apart = Variable("x", "category", ("a", "A"))  # at one party they are two
    assert united(apart, other).categories == ("a", "A", "A ", "d")
    table = Table.of({"x": ["A ", "d"]})
    assert in_agreed(table, of(united(ABC, other))).column("x").tolist() == ["a", "d"]


def test_days_and_moments_units_and_their_spellings() -> None:
    days, moments = Variable("x", unit="date"), Variable("x", unit="date and time")
    assert united(days, moments) == united(moments, days) == moments
    assert united(Variable("x", unit="mg/dl"), Variable("x", unit="mg/dL")).unit == "mg/dl"


def test_all_columns_that_differ_are_named_at_once() -> None:
    north = Schema((Variable("x"), Variable("y", unit="m"), Variable("z")))
    south = Schema((ABC, Variable("y", unit="km"), Variable("z")))
    with pytest.raises(FederationError, match=r"'x' is a real at north.*'y' is in 'm' at north"):
        agree({"north": north, "south": south})


def test_fractions_are_no_counts() -> None:
    halves = Variable("x", "category", (0.5, 1, 2))
    assert united(halves, COUNT).kind == united(COUNT, halves).kind == "real"
    assert united(Variable("x", "boolean", (-1, 1)), COUNT).kind == "real"


def test_units() -> None:
    kilos, pounds = Variable("x", unit="kg"), Variable("x", unit="lb")
    assert united(kilos, REAL).unit == united(REAL, kilos).unit == "kg"
    with pytest.raises(
        FederationError, match=r"^'x' is in 'kg' at north and in 'lb' at south: con"
    ):
        agree({"north": of(kilos), "south": of(pounds)})


def test_errors_name_who_said_it() -> None:
    kilos, pounds = Variable("x", unit="kg"), Variable("x", unit="lb")
    with pytest.raises(FederationError, match="'kg' at second and in 'lb' at third"):
        agree({"first": of(REAL), "second": of(kilos), "third": of(pounds)})
    with pytest.raises(FederationError, match=r"a real at second and a category .* at third"):
        agree({"first": of(COUNT), "second": of(REAL), "third": of(ABC)})


def test_variables_stand_in_the_order_they_first_appear() -> None:
    y, z = Variable("y"), Variable("z")
    assert agree({"a": of(y, REAL), "b": of(z, y)}).names == ("y", "x", "z")


def test_a_table_is_read_in_what_was_agreed() -> None:
    north = fc.Table.of({"c": ["a", "b", "b"], "n": [0, 1, 1], "k": [3, 4, 9]}, row_id=None)
    south = fc.Table.of({"c": ["c", "a"], "n": [7, 2], "k": [0.5, 1.5]}, kinds={"n": "count"})
    agreed = agree({"north": north.schema, "south": south.schema})
    assert agreed["c"].categories == ("a", "b", "c")
    assert (agreed["n"].kind, agreed["k"].kind) == ("count", "real")
    there = in_agreed(south, agreed)
    assert np.array_equal(there.values, [[2, 7, 0.5], [0, 2, 1.5]])
    assert np.array_equal(in_agreed(north, agreed).values[:, 1], [0, 1, 1])
    again = in_agreed(there, agreed)
    assert again is there


def test_parties_with_other_categories_learn_together() -> None:
    """Codes differ before agreement; the model knows all categories afterwards."""
    rng = np.random.default_rng(0)
    parties = {
        "north": {"colour": rng.choice(["red", "blue"], 40), "n": rng.integers(0, 2, 40)},
        "south": {"colour": rng.choice(["green", "blue"], 60), "n": rng.poisson(3, 60)},
    }
    learner = fc.MixtureOfProducts(1)
    model = fc.FedPC(learner, random_state=0).fit(fc.Federation(parties, allow_collect=True))
    assert set(model.classes("colour")) == {"red", "blue", "green"}
    assert model.schema_["n"].kind == "count"
    blue = sum((parties[p]["colour"] == "blue").sum() for p in parties) / 100
    assert model.probability("colour = 'blue'") == pytest.approx(blue, abs=0.02)
    share = (parties["south"]["colour"] == "green").sum() / 100
    assert model.probability("colour = 'green'") == pytest.approx(share, abs=0.02)
