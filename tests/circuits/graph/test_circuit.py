"""The graph: what is refused, by the name of the node, and the JSON form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.circuit import Circuit, Fuse, Leaf, Node, Product, Sum, reachable
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema, Variable

SCHEMA = Schema(
    (
        Variable("x"),
        Variable("y"),
        Variable("n", "count"),
        Variable("colour", "category", ("red", "blue", "green")),
        Variable("flag", "boolean"),
    )
)
XY = SCHEMA.select(["x", "y"])
X, Y = Leaf("X", "gaussian", ("x",)), Leaf("Y", "gaussian", ("y",))
X2, Y2 = Leaf("X2", "gaussian", ("x",), 2), Leaf("Y2", "gaussian", ("y",), 2)


def both(*more: Node) -> tuple[Node, ...]:
    """A sound circuit over x and y, and more."""
    return (X, Y, Product("both", ("X", "Y")), *more)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((), ["at least one node"]),
        ((X, Y, Sum("mix", ("X", "Y"))), ["sum 'mix'", "not smooth", "'X' and 'Y'", "'x', 'y'"]),
        (
            both(Product("twice", ("both", "X"))),
            ["product 'twice'", "not decomposable", "'x'", "'X'"],
        ),
        ((X, Product("twice", ("X", "X"))), ["product 'twice'", "not decomposable"]),
        (both(Leaf("X", "gaussian", ("x",))), ["two nodes", "'X'", "unique"]),
        ((X, Product("p", ("X", "Z"))), ["product 'p'", "child 'Z'", "does not exist"]),
        ((X, Product("p", ("X", "Y")), Y), ["product 'p'", "child 'Y'", "comes after it"]),
        ((X, Y, Product("p", ("X", "p"))), ["product 'p'", "the node itself", "cycles"]),
        (
            (X, Y, Product("a", ("X", "b")), Product("b", ("Y", "a"))),
            ["product 'a'", "'b'", "comes after it", "cycles"],
        ),
        (
            (X2, Y, Product("p", ("X2", "Y"))),
            ["product 'p'", "[1, 2] units", "expected equal units, or outer=True"],
        ),
        ((X, Product("p", ("X",), outer=True)), ["outer product 'p'", "two children", "got 1"]),
        ((X, Product("p", ())), ["product 'p'", "no children"]),
        ((X, Sum("s", ())), ["sum 's'", "no children"]),
        ((X, Fuse("f", (), "mean")), ["fuse 'f'", "no children"]),
        ((Leaf("l", "gaussian", ()),), ["leaf 'l'", "scope", "()"]),
        ((Leaf("l", "gaussian", ("x", "x")),), ["leaf 'l'", "different variables", "'x'"]),
        ((Leaf("l", "gaussian", ("z",)),), ["leaf 'l'", "no variable 'z'"]),
        ((Leaf("l", "gauss", ("x",)),), ["leaf 'l'", "unknown leaf family 'gauss'", "gaussian"]),
        ((Leaf("l", "bernoulli", ("x",)),), ["leaf 'l'", "'bernoulli'", "boolean", "'x'", "real"]),
        ((Leaf("l", "gaussian", "xy"),), ["leaf 'l'", "scope", "('a',)", "'xy'"]),  # type: ignore[arg-type]
        ((X, Sum("s", "X")), ["sum 's'", "children", "('a',)", "'X'"]),  # type: ignore[arg-type]
        ((X, Sum("s", ["X"])), ["sum 's'", "children", "tuple"]),  # type: ignore[arg-type]
        ((X, Sum("s", (X,))), ["sum 's'", "children", "tuple of names"]),  # type: ignore[arg-type]
        ((Leaf(3, "gaussian", ("x",)),), ["name of a node", "3"]),  # type: ignore[arg-type]
        ((X, "Y"), ["Leaf, Product, Sum or Fuse", "'Y'"]),
        ((Leaf("l", "gaussian", ("x",), 0),), ["leaf 'l'", "whole number from 1", "0"]),
        ((Leaf("l", "gaussian", ("x",), -2),), ["leaf 'l'", "-2"]),
        ((X, Sum("s", ("X",), 0)), ["sum 's'", "whole number from 1", "0"]),
        ((X, Sum("s", ("X",), 1.5)), ["sum 's'", "whole number from 1", "1.5"]),  # type: ignore[arg-type]
        ((X, Sum("s", ("X",), True)), ["sum 's'", "True"]),
        ((X, Fuse("f", ("X",), "mean", 0)), ["fuse 'f'", "0"]),
        ((X,), ["root 'X'", "does not cover 'y'", "every variable"]),
        (
            both(Fuse("f", ("both",), "mean")),
            ["fuse node 'f'", "product 'both'", "leaves or other fuse nodes"],
        ),
        (
            (X, Fuse("f", ("X",), "mean"), Sum("s", ("f",))),
            ["sum 's'", "fuse node 'f'", "no density"],
        ),
        (
            (X, Y, Fuse("f", ("X",), "mean"), Product("p", ("f", "Y"))),
            ["product 'p'", "fuse node 'f'", "no density"],
        ),
    ],
)
def test_refused_by_the_name_of_the_node(nodes: tuple[Node, ...], words: list[str]) -> None:
    with pytest.raises(StructureError) as caught:
        Circuit(nodes, XY)
    for word in words:
        assert word in str(caught.value)


def test_nodes_that_the_root_does_not_reach_are_refused() -> None:
    spare = [Leaf(f"spare{i}", "gaussian", ("x",)) for i in range(7)]
    above = Sum("above", ("spare0",))
    nodes = (*spare, above, *both())
    with pytest.raises(StructureError, match="root 'both' does not reach") as caught:
        Circuit(nodes, XY)
    message = str(caught.value)
    assert "'above', 'spare0', 'spare1', 'spare2', 'spare3' …" in message
    assert "reachable(nodes, root)" in message and "spare4" not in message
    assert Circuit(reachable(nodes, "both"), XY) == Circuit(both(), XY)


def test_many_nodes_are_checked_in_one_pass() -> None:
    """A second of work; a pass over all nodes for each of them would take an hour."""
    leaves = [Leaf(f"x{i}", "gaussian", ("x",)) for i in range(100_000)]
    root = Sum("root", tuple(leaf.name for leaf in leaves))
    assert len(Circuit((*leaves, root), XY.select(["x"]))) == 100_001


def test_outer_products_have_exactly_two_children() -> None:
    leaves = tuple(Leaf(v, "gaussian", (v,)) for v in "abc")
    with pytest.raises(StructureError, match="outer product 'p' must have two children, got 3"):
        Circuit((*leaves, Product("p", tuple("abc"), outer=True)), Schema.real("abc"))


def test_a_leaf_over_categories_of_other_sizes_is_refused() -> None:
    leaf = Leaf("l", "categorical", ("colour", "flag"))
    with pytest.raises(StructureError, match=r"leaf 'l'.*different numbers of categories"):
        Circuit((leaf,), SCHEMA.select(["colour", "flag"]))


@pytest.mark.parametrize(
    ("family", "name"),
    [("gaussian", "n"), ("poisson", "x"), ("bernoulli", "colour"), ("categorical", "x")],
)
def test_families_are_for_kinds(family: str, name: str) -> None:
    with pytest.raises(StructureError, match=rf"leaf 'l': family '{family}' models .*'{name}'"):
        Circuit((Leaf("l", family, (name,)),), SCHEMA.select([name]))


def test_units_and_scopes() -> None:
    nodes = (X2, Y2, Product("outer", ("X2", "Y2"), outer=True), Sum("root", ("outer",), 3))
    circuit = Circuit(nodes, XY)
    assert dict(circuit.units) == {"X2": 2, "Y2": 2, "outer": 4, "root": 3}
    assert circuit.scopes["outer"] == {"x", "y"} and circuit.scopes["X2"] == {"x"}
    assert circuit.inputs(circuit["root"]) == 4
    assert circuit.root is nodes[-1] and len(circuit) == 4 and circuit.is_density
    assert [leaf.name for leaf in circuit.leaves()] == ["X2", "Y2"]
    assert repr(circuit) == "<Circuit of 4 nodes over 2 variables>"
    with pytest.raises(StructureError, match="no node 'Z'"):
        circuit["Z"]


def test_lists_of_nodes_and_units_of_numpy_are_taken() -> None:
    made = Circuit([Leaf("l", "gaussian", ("x",), np.int64(2))], XY.select(["x"]))  # type: ignore[arg-type]
    assert Circuit.loads(made.dumps()) == made
    assert hash(made) == hash(Circuit.loads(made.dumps()))


def test_fuse_nodes_may_stand_on_leaves_and_each_other() -> None:
    low = Fuse("low", ("X", "Y"), "mean", 2)
    circuit = Circuit((X, Y, low, Fuse("top", ("low",), "network")), XY)
    assert not circuit.is_density
    assert circuit.scopes["top"] == {"x", "y"} and circuit.inputs(low) == 2
    assert Circuit.loads(circuit.dumps()) == circuit


def test_equal_graphs_are_equal_and_hash_alike() -> None:
    one, two = Circuit(both(), XY), Circuit(both(), XY)
    assert one == two and hash(one) == hash(two)
    assert one != Circuit((Y, X, Product("both", ("X", "Y"))), XY)


def test_reachable_orders_children_first_and_leaves_the_rest_out() -> None:
    nodes = (Product("p", ("X", "Y")), Leaf("unused", "gaussian", ("x",)), Y, X)
    assert [n.name for n in reachable(nodes, "p")] == ["X", "Y", "p"]


def test_reachable_has_no_depth_limit() -> None:
    chain: list[Node] = [X]
    for i in range(5_000):
        chain.append(Sum(f"s{i}", (chain[-1].name,)))
    found = reachable(reversed(chain), "s4999")
    assert found == tuple(chain)
    assert len(Circuit(found, XY.select(["x"]))) == 5_001


# ---------------------------------------------------------------------- JSON


@st.composite
def circuits(draw: st.DrawFn) -> Circuit:
    """Random circuits under names of any characters."""
    names = iter(draw(st.lists(st.text(max_size=6), min_size=24, max_size=24, unique=True)))
    kinds = draw(st.lists(st.sampled_from("rcb"), min_size=1, max_size=4))
    columns = draw(st.lists(st.text(max_size=6), min_size=4, max_size=4, unique=True))
    nodes: list[Node] = []
    variables, branches = [], []
    for column, kind in zip(columns, kinds, strict=False):
        family = {"r": "gaussian", "c": "poisson", "b": "bernoulli"}[kind]
        word = {"r": "real", "c": "count", "b": "boolean"}[kind]
        variables.append(Variable(column, word, unit=draw(st.sampled_from([None, "µ"]))))  # type: ignore[arg-type]
        leaves = [
            Leaf(next(names), family, (column,), draw(st.integers(1, 3)))
            for _ in range(draw(st.integers(1, 3)))
        ]
        branch = Sum(next(names), tuple(leaf.name for leaf in leaves), 2)
        nodes.extend([*leaves, branch])
        branches.append(branch.name)
    top = Product(next(names), tuple(branches), len(branches) == 2 and draw(st.booleans()))
    return Circuit((*nodes, top, Sum(next(names), (top.name,))), Schema(tuple(variables)))


@given(circuits())
def test_json_form_gives_the_same_circuit_back(circuit: Circuit) -> None:
    found = Circuit.loads(circuit.dumps())
    assert found == circuit
    assert found.units == circuit.units and found.scopes == circuit.scopes
    assert Circuit.from_json(json.loads(json.dumps(circuit.to_json()))) == circuit


def row(*values: object) -> str:
    schema = [{"name": "x", "kind": "real"}]
    return json.dumps({"schema": schema, "nodes": [["leaf", "a", "gaussian", ["x"], 1], [*values]]})


HUGE = "9" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "circuit",
        "{",
        "null",
        "[]",
        "3",
        "{}",
        '{"nodes": []}',
        '{"nodes": [], "schema": []}',
        '{"nodes": {}, "schema": []}',
        '{"nodes": [["leaf", "a", "gaussian", ["x"], 1]]}',
        '{"nodes": [["leaf", "a", "gaussian", ["x"], 1]], "schema": 3}',
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"nodes": ' + "[" * 900 + "]" * 900 + "}",
        '{"nodes": [' + '{"a":' * 900 + "1" + "}" * 900 + "]}",
        row(),
        row("sum"),
        row("sum", "s", ["a"]),
        row("sum", "s", ["a"], 1, 1),
        row("sum", "s", "a", 1),
        row("sum", "s", ["a"], "1"),
        row("sum", "s", ["a"], 1.5),
        row("sum", "s", ["a"], True),
        row("sum", "s", ["a"], -(10**30)),
        row("sum", "s", ["a"], math.nan),
        row("sum", None, ["a"], 1),
        row("sum", ["s"], ["a"], 1),
        row("sum", "s", [["a"]], 1),
        row("sum", "s", [1], 1),
        row("sum", "s", {"a": 1}, 1),
        row("SUM", "s", ["a"], 1),
        row("leaf", "b", "gaussian", "x", 1),
        row("leaf", "b", None, ["x"], 1),
        row("leaf", "b", "nonsense", ["x"], 1),
        row("product", "p", ["a", "missing"]),
        row("outer", "p", ["a"]),
        row("fuse", "f", ["a"], 3, 1),
        row("fuse", "f", ["a"], "mean", 0),
        row({"leaf": "b"}),
        row("x" * 1_000_000),
        '{"nodes": [["sum", "s", ["a"], ' + HUGE + "]]}",
    ],
    ids=lambda text: text[:60],
)
def test_nonsense_json_is_refused(text: str) -> None:
    with pytest.raises(StructureError) as caught:
        Circuit.loads(text)
    assert 10 < len(str(caught.value)) < 400


def test_huge_numbers_of_units_cost_nothing() -> None:
    text = row("sum", "s", ["a"], 10**30)
    assert Circuit.loads(text).units["s"] == 10**30
