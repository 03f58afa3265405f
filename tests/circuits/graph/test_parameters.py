"""Learned values: every wrong shape, sign, sum or type is named; circuits as leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Arrays
from fedcircuits.circuits.graph.parameters import Parameters, inline, random_weights
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Schema, Variable

X, Y = Variable("x"), Variable("y")
COLOUR = Variable("colour", "category", ("red", "blue", "green"))
FLAG = Variable("flag", "boolean")
Values = dict[str, dict[str, np.ndarray]]


def mixture() -> tuple[Circuit, Values]:
    nodes = (
        Leaf("g", "gaussian", ("x", "y"), 2),
        Leaf("c", "categorical", ("colour",), 2),
        Leaf("i", "indicator", ("flag",), 2),
        Product("p", ("g", "c", "i")),
        Sum("root", ("p",)),
    )
    values = {
        "g": {"mean": np.array([[0.0, 1.0], [2.0, 3.0]]), "variance": np.ones((2, 2))},
        "c": {"probability": np.array([[[0.2, 0.3, 0.5]], [[1.0, 0.0, 0.0]]])},
        "i": {"code": np.array([[0.0], [1.0]])},
        "root": {"weight": np.array([[0.25, 0.75]])},
    }
    return Circuit(nodes, Schema((X, Y, COLOUR, FLAG))), values


def change(node: str, name: str, value: object) -> Callable[[Values], None]:
    def apply(values: Values) -> None:
        values[node][name] = value  # type: ignore[assignment]

    return apply


def remove(node: str, name: str | None = None) -> Callable[[Values], None]:
    def apply(values: Values) -> None:
        if name is None:
            del values[node]
        else:
            del values[node][name]

    return apply


def test_sound_values_pass_and_are_counted() -> None:
    circuit, values = mixture()
    parameters = Parameters(values)
    parameters.check(circuit)
    assert parameters.count() == 8 + 6 + 2 + 2
    assert len(parameters) == 4 and list(parameters) == list(values)
    assert "g" in parameters and "p" not in parameters
    assert repr(parameters) == "<Parameters of 4 nodes, 18 numbers>"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove("root"), ["'root'", "no parameters"]),
        (remove("g"), ["'g'", "no parameters"]),
        (remove("root", "weight"), ["sum 'root'", "expected the parameters weight", "none"]),
        (remove("g", "mean"), ["leaf 'g' (gaussian)", "mean, variance", "got variance"]),
        (change("root", "bias", np.zeros((1, 2))), ["sum 'root'", "got bias, weight"]),
        (change("g", "scale", np.ones((2, 2))), ["leaf 'g'", "mean, scale, variance"]),
        (change("root", "weight", np.ones((2, 1)) / 2), ["'root'", "(1, 2)", "(2, 1)"]),
        (change("root", "weight", np.ones(2) / 2), ["'root'", "(1, 2)", "(2,)"]),
        (change("root", "weight", np.array([[-0.5, 1.5]])), ["'root'", "not be negative", "-0.5"]),
        (
            change("root", "weight", np.array([[0.5, 0.6]])),
            ["'root'", "unit 0", "add up to 1", "1.1"],
        ),
        (change("root", "weight", np.zeros((1, 2))), ["'root'", "unit 0", "add up to 1", "0.0"]),
        (
            change("root", "weight", np.array([[0.5, np.nan]])),
            ["'root'", "weight", "finite", "NaN"],
        ),
        (change("root", "weight", np.array([[0.5, np.inf]])), ["'root'", "weight", "finite"]),
        (change("root", "weight", np.float32([[0.25, 0.75]])), ["'root'", "float64", "float32"]),
        (change("root", "weight", np.array([[0, 1]])), ["'root'", "float64", "int64"]),
        (change("root", "weight", np.array([[0.5, 0.5j]])), ["'root'", "float64", "complex128"]),
        (change("root", "weight", np.array([[0.25, 0.75]], ">f8")), ["'root'", "float64", ">f8"]),
        (change("root", "weight", [[0.25, 0.75]]), ["'root'", "float64", "list", "asarray"]),
        (change("root", "weight", None), ["'root'", "float64", "NoneType"]),
        (change("g", "mean", np.zeros((2, 1))), ["leaf 'g'", "mean", "(2, 2)", "(2, 1)"]),
        (change("g", "mean", np.zeros((2, 2, 1))), ["leaf 'g'", "mean", "(2, 2, 1)"]),
        (change("g", "mean", np.full((2, 2), np.nan)), ["leaf 'g'", "mean", "finite"]),
        (change("g", "variance", np.zeros((2, 2))), ["'g'", "variance", "positive"]),
        (change("g", "variance", -np.ones((2, 2))), ["'g'", "variance", "positive"]),
        (change("c", "probability", np.ones((2, 1, 2)) / 2), ["'c'", "(2, 1, 3)", "(2, 1, 2)"]),
        (change("c", "probability", np.ones((2, 1, 3))), ["'c'", "probability", "1"]),
        (change("i", "code", np.array([[0.0], [0.5]])), ["'i'", "code", "whole"]),
        (change("i", "code", np.array([[0.0], [2.0]])), ["'i'", "codes below 2"]),
    ],
)
def test_wrong_values_are_named(damage: Callable[[Values], None], words: list[str]) -> None:
    circuit, values = mixture()
    damage(values)
    with pytest.raises(ParameterError) as caught:
        Parameters(values).check(circuit)
    for word in words:
        assert word in str(caught.value)


def test_the_worst_unit_is_named() -> None:
    leaf = Leaf("g", "gaussian", ("x",), 2)
    circuit = Circuit((leaf, Sum("s", ("g",), 3)), Schema((X,)))
    values: Values = {
        "g": {"mean": np.zeros((2, 1)), "variance": np.ones((2, 1))},
        "s": {"weight": np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.4]])},
    }
    with pytest.raises(ParameterError, match=r"sum 's'.*unit 2 add up to 0.9"):
        Parameters(values).check(circuit)


def test_parameters_of_other_nodes_may_be_there() -> None:
    circuit, values = mixture()
    Parameters({**values, "elsewhere": {"weight": np.ones((1, 1))}}).check(circuit)


def test_equal_by_numbers() -> None:
    one, two = Parameters(mixture()[1]), Parameters(mixture()[1])
    assert one == two and one != "parameters"
    other = mixture()[1]
    other["g"]["mean"][0, 0] += 1e-300
    assert one != Parameters(other)
    del other["g"]
    assert one != Parameters(other)
    circuit, _ = mixture()
    assert one != Parameters(one.values, {"g": (circuit, two)})


def test_random_weights_are_sound_and_repeatable() -> None:
    circuit, values = mixture()
    first = random_weights(circuit, np.random.default_rng(1))
    Parameters({**values, **first}).check(circuit)
    again = random_weights(circuit, np.random.default_rng(1))
    assert np.array_equal(first["root"]["weight"], again["root"]["weight"])
    assert set(first) == {"root"}


# ---------------------------------------------------------------------- circuits as leaves


def gaussians(variable: str, means: list[float], root: str = "root") -> tuple[Circuit, Parameters]:
    """A mixture of Gaussians of one variable, of one unit."""
    units = len(means)
    leaf, top = Leaf("leaf", "gaussian", (variable,), units), Sum(root, ("leaf",))
    values: dict[str, Arrays] = {
        "leaf": {"mean": np.array(means)[:, None], "variance": np.ones((units, 1))},
        root: {"weight": np.full((1, units), 1 / units)},
    }
    return Circuit((leaf, top), Schema.real([variable])), Parameters(values)


def joined(*nodes: Node, **inner: tuple[Circuit, Parameters]) -> tuple[Circuit, Parameters]:
    """A product of circuit leaves X and Y, and nodes under them."""
    leaves = (Leaf("X", "circuit", ("x",)), Leaf("Y", "circuit", ("y",)))
    circuit = Circuit((*leaves, Product("root", ("X", "Y"))), Schema((X, Y)))
    return circuit, Parameters({}, inner)


def test_inline_is_the_same_distribution() -> None:
    left, right = gaussians("x", [0.0, 3.0]), gaussians("y", [1.0], "top")
    circuit, parameters = joined(X=left, Y=right)
    parameters.check(circuit)
    assert parameters.count() == 6 + 3
    whole, values = inline(circuit, parameters)
    values.check(whole)
    assert {n.name for n in whole.nodes} == {"X/leaf", "X", "Y/leaf", "Y", "root"}
    rows = np.array([[0.5, 2.0], [np.nan, 1.0], [4.0, np.nan]])
    expected = Distribution(*left).log_likelihood(rows[:, :1]) + Distribution(
        *right
    ).log_likelihood(rows[:, 1:])
    np.testing.assert_allclose(Distribution(circuit, parameters).log_likelihood(rows), expected)
    assert inline(whole, values) == (whole, values)


def test_inline_of_circuits_in_circuits() -> None:
    deepest = gaussians("x", [7.0])
    middle = Circuit((Leaf("m", "circuit", ("x",)), Sum("root", ("m",))), Schema((X,)))
    within = Parameters({"root": {"weight": np.ones((1, 1))}}, {"m": deepest})
    circuit, parameters = joined(X=(middle, within), Y=gaussians("y", [0.0]))
    parameters.check(circuit)
    whole, values = inline(circuit, parameters)
    assert {n.name for n in whole.nodes} >= {"X", "X/m", "X/m/leaf"}
    assert values["X/m/leaf"]["mean"] == 7.0


def test_inline_keeps_names_apart() -> None:
    leaves = (Leaf("X", "circuit", ("x",)), Leaf("X/leaf", "gaussian", ("y",)))
    circuit = Circuit((*leaves, Product("root", ("X", "X/leaf"))), Schema((X, Y)))
    own = {"X/leaf": {"mean": np.array([[50.0]]), "variance": np.ones((1, 1))}}
    parameters = Parameters(own, {"X": gaussians("x", [7.0])})
    whole, values = inline(circuit, parameters)
    values.check(whole)
    assert len(whole) == 4
    at_peak = Distribution(circuit, parameters).log_likelihood(np.array([[7.0, 50.0]]))
    np.testing.assert_allclose(at_peak, -np.log(2 * np.pi))


def test_inline_leaves_out_what_no_node_asks_for() -> None:
    inner, learned = gaussians("x", [1.0])
    surplus = Parameters({**learned.values, "unused": {"weight": np.ones((1, 1))}})
    whole, values = inline(*joined(X=(inner, surplus), Y=gaussians("y", [0.0])))
    assert set(values) == {n.name for n in whole.nodes if n.name != "root"}


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (None, ["leaf 'X'", "is a circuit, but none is given"]),
        (gaussians("y", [0.0]), ["leaf 'X'", "over ['y']", "expected ['x']"]),
        (
            (
                Circuit((Leaf("a", "gaussian", ("x",), 2),), Schema((X,))),
                Parameters({"a": {"mean": np.zeros((2, 1)), "variance": np.ones((2, 1))}}),
            ),
            ["leaf 'X' has 1 units", "has 2"],
        ),
        (
            (
                Circuit((Leaf("a", "poisson", ("x",)),), Schema((Variable("x", "count"),))),
                Parameters({"a": {"rate": np.ones((1, 1))}}),
            ),
            ["leaf 'X'", "'x' is a count in its circuit, expected a real"],
        ),
        (
            (gaussians("x", [0.0])[0], Parameters({})),
            ["in the circuit of leaf 'X'", "'leaf'", "no parameters"],
        ),
    ],
)
def test_circuits_that_do_not_fit_are_named(
    inner: tuple[Circuit, Parameters] | None, words: list[str]
) -> None:
    given = {} if inner is None else {"X": inner}
    circuit, parameters = joined(Y=gaussians("y", [0.0]), **given)
    with pytest.raises(ParameterError) as caught:
        parameters.check(circuit)
    for word in words:
        assert word in str(caught.value)
    if inner is None:
        with pytest.raises(ParameterError, match="leaf 'X' is a circuit, but none is given"):
            inline(circuit, parameters)


def test_categories_in_another_order_are_refused() -> None:
    turned = Variable("colour", "category", ("green", "blue", "red"))
    leaf = Leaf("c", "categorical", ("colour",))
    values = Parameters({"c": {"probability": np.array([[[0.2, 0.3, 0.5]]])}})
    inner = Circuit((leaf,), Schema((turned,))), values
    outer = Circuit((Leaf("C", "circuit", ("colour",)),), Schema((COLOUR,)))
    with pytest.raises(ParameterError, match=r"leaf 'C'.*'green', 'blue'.*expected.*'red'"):
        Parameters({}, {"C": inner}).check(outer)
