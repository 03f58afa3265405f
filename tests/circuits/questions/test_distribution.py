"""Where numbers must be exact: ends of intervals, and codes that no category has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import factorised
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.events import parse_event, parse_question
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.strategies import model_of, random_parameters, schema_of

NAN = np.nan
LEVELS = np.arange(256) / 255


def one_leaf(family: str, **values: float) -> Distribution:
    """A leaf of this family over x."""
    circuit = Circuit((Leaf("x", family, ("x",)),), Schema.real(["x"]))
    arrays = {name: np.array([[value]]) for name, value in values.items()}
    return Distribution(circuit, Parameters({"x": arrays}))


def ask(found: Distribution, question: str) -> float:
    """P(event | evidence)."""
    event, evidence = parse_question(question, found.circuit.schema)
    names = found.circuit.schema.names
    x = np.array([[evidence.values.get(name, NAN) for name in names]])
    whole = found.log_probability(x, evidence.event)[0]
    (box,) = evidence.event
    assert not box, "this asks with fixed values only"
    return float(np.exp(found.log_probability(x, event)[0] - whole))


# ---------------------------------------------------------------------- ends of intervals


def test_atoms_at_the_ends_count() -> None:
    found = one_leaf("gaussian_mass", mean=0.1, variance=0.04)
    atom = float(np.exp(found.log_likelihood(np.array([[0.0]]))[0]))
    assert atom > 0.3
    assert ask(found, "x >= 0") == pytest.approx(1)
    assert ask(found, "x > 0") == pytest.approx(1 - atom)
    assert ask(found, "x <= 0") == ask(found, "not x > 0") == pytest.approx(atom)
    assert ask(found, "x < 0") == 0
    assert ask(found, "x < 0 or x > 0") == pytest.approx(1 - atom)


@given(st.integers(0, 255), st.integers(0, 255), st.sampled_from(["<", "<="]))
def test_intervals_of_atoms_are_sums(a: int, b: int, order: str) -> None:
    found = one_leaf("gaussian_mass", mean=0.4, variance=0.09)
    low, high = sorted((a, b))
    masses = np.exp(found.log_likelihood(LEVELS[:, None]))
    inside = masses[low : high + 1] if order == "<=" else masses[low + 1 : high]
    chain = f"{float(LEVELS[low])!r} {order} x {order} {float(LEVELS[high])!r}"
    assert ask(found, chain) == pytest.approx(inside.sum(), abs=1e-12)
    assert ask(found, f"not ({chain})") == pytest.approx(1 - inside.sum(), abs=1e-12)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("x >= 0.5", 1),
        ("x > 0.5", 0),
        ("x <= 0.5", 1),
        ("x < 0.5", 0),
        ("x between 0.5 and 3", 1),
        ("not x < 0.5", 1),
        ("x < 0.5 or x > 0.5", 0),
        ("x < 0.5 or x >= 0.5", 1),
    ],
)
def test_evidence_at_the_end_of_an_interval(event: str, expected: float) -> None:
    found = one_leaf("gaussian", mean=0.2, variance=1.0)
    assert ask(found, f"P({event} | x = 0.5)") == expected


def test_densities_do_not_feel_the_ends() -> None:
    found = one_leaf("gaussian", mean=0.2, variance=4.0)
    mass = norm.cdf(1, 0.2, 2) - norm.cdf(-0.5, 0.2, 2)
    for event in ("-0.5 < x < 1", "-0.5 <= x <= 1", "x between -0.5 and 1", "-0.5 <= x < 1"):
        assert ask(found, event) == pytest.approx(mass, rel=1e-14)
    assert ask(found, "x >= 0.5") + ask(found, "x < 0.5") == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("gaussian", {"mean": 0.0, "variance": 1.0}),
        ("exponential", {"rate": 2.0}),
        ("gamma", {"shape": 2.0, "rate": 1.0}),
        ("student_t", {"location": 0.0, "scale": 1.0, "degrees": 5.0}),
    ],
)
def test_draws_keep_to_the_ends(family: str, values: dict[str, float]) -> None:
    """Also of intervals a few floats wide, where leaves can only cut off."""
    found, rng = one_leaf(family, **values), np.random.default_rng(0)
    for low, high in ((0.0, 1.0), (1.0, 1.0 + 2**-49)):
        event = parse_event(f"{low!r} <= x <= {high!r}", found.circuit.schema)
        drawn = found.sample(np.full((200, 1), NAN), rng, event)
        assert ((drawn >= low) & (drawn <= high)).all()


# ---------------------------------------------------------------------- unknown codes

MIXED = Schema(
    (
        Variable("x"),
        Variable("colour", "category", ("red", "blue", "green")),
        Variable("n", "count"),
        Variable("flag", "boolean"),
    )
)
ROW = [7.5, 2.0, 3.0, 1.0]
ASKED: dict[str, Callable[[Distribution, Array], object]] = {
    "log_likelihood": lambda d, x: d.log_likelihood(x),
    "log_probability": lambda d, x: d.log_probability(x, parse_event("x > 0", MIXED)),
    "posterior": lambda d, x: d.posterior(x, "colour" if x[1, 1] == 2 else "flag"),
    "moments": lambda d, x: d.moments(x, "x"),
    "sample": lambda d, x: d.sample(x, np.random.default_rng(0)),
    "mpe": lambda d, x: d.mpe(x),
}


def mixed() -> Distribution:
    circuit = factorised(MIXED)
    return Distribution(circuit, random_parameters(circuit, np.random.default_rng(0)))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (1, 7.0, ["'colour'", "'red', 'blue', 'green'", "from 0 to 2", "got 7"]),
        (1, 3.0, ["'colour'", "from 0 to 2", "got 3"]),
        (1, -1.0, ["'colour'", "got -1"]),
        (1, np.inf, ["'colour'", "got inf"]),
        (3, 0.5, ["'flag'", "a boolean", "from 0 to 1", "got 0.5"]),
        (3, 2.0, ["'flag'", "got 2"]),
    ],
)
def test_unknown_codes_are_refused(asked: str, column: int, value: float, words: list[str]) -> None:
    x = np.array([ROW, ROW, [NAN] * 4])
    ASKED[asked](mixed(), x)
    x[1, column] = value
    with pytest.raises(QueryError) as caught:
        ASKED[asked](mixed(), x)
    for word in ("row 1", "NaN", *words):
        assert word in str(caught.value)


def test_an_unknown_code_is_found_in_any_row() -> None:
    model = model_of("factorised", schema_of(("boolean",) * 3), 0)
    x = np.zeros((100_000, 3))
    x[99_999, 2] = 2
    with pytest.raises(QueryError, match=r"row 99999: 'boolean2' .* got 2;"):
        Distribution(*model).log_likelihood(x)


def test_a_posterior_ignores_the_code_of_its_own_variable() -> None:
    known, unknown = np.array([ROW]), np.array([ROW])
    unknown[0, 1] = 7
    np.testing.assert_array_equal(
        mixed().posterior(unknown, "colour"), mixed().posterior(known, "colour")
    )


@pytest.mark.parametrize("family", ["poisson", "count_histogram"])
@pytest.mark.parametrize("value", [-1.0, 2.5])
def test_what_is_no_count_has_probability_zero(family: str, value: float) -> None:
    schema = Schema((Variable("n", "count"), Variable("flag", "boolean")))
    nodes = (Leaf("n", family, ("n",)), Leaf("f", "bernoulli", ("flag",)))
    circuit = Circuit((*nodes, Product("p", ("n", "f"))), schema)
    found = Distribution(circuit, random_parameters(circuit, np.random.default_rng(0)))
    x = np.array([[value, NAN]])
    assert np.isneginf(found.log_likelihood(x)).all()
    assert np.isnan(found.posterior(x, "flag")).all()
    with pytest.raises(QueryError, match="probability zero"):
        found.sample(x, np.random.default_rng(0))
