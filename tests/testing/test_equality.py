"""Values are the same to the last bit, or the first part that differs is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.testing.protocols.trial import difference


@dataclass
class Node:
    value: float
    children: list[Any] = field(default_factory=list)
    seen: int = field(default=0, compare=False)


class Plain:
    def __init__(self, value: float) -> None:
        self.value = value

    @cached_property
    def square(self) -> float:
        return self.value**2


class Named(Plain):
    """Its own way of being copied leaves a part out."""

    def __init__(self, value: float) -> None:
        super().__init__(value)
        self.ready: list[float] = []

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return Named, (self.value,)


def circuit(seed: int) -> tuple[fc.Circuit, fc.Parameters]:
    x = np.random.default_rng(seed).normal(size=(50, 2))
    model = fc.MixtureOfProducts(2, max_iter=3, random_state=0).fit(x)
    return model.circuit_, model.parameters_


def tree(seed: int) -> fc.DecisionTreeLeaf:
    x = np.random.default_rng(seed).normal(size=(40, 2))
    table = fc.Table.of({"a": x[:, 0], "y": np.where(x[:, 1] > 0, "yes", "no")})
    return fc.DecisionTreeLeaf(random_state=0).fit(table, "y")


DIFFERENT: dict[str, tuple[Callable[[], object], Callable[[], object], str]] = {
    "last bit": (lambda: np.ones(3), lambda: np.array([1, 1, 1 + 2**-52]), ": other bytes"),
    "sign of zero": (lambda: 0.0, lambda: -0.0, ": other bytes"),
    "precision": (lambda: np.ones(3), lambda: np.ones(3, np.float32), ": float32 (3,) instead"),
    "shape": (lambda: np.ones(3), lambda: np.ones((3, 1)), ": float64 (3, 1) instead of float64"),
    "kind": (lambda: [1], lambda: (1,), ": tuple instead of list"),
    "truth": (lambda: {"a": 1}, lambda: {"a": True}, "['a']: bool instead of int"),
    "key": (lambda: {"a": 1}, lambda: {"b": 1}, ": other or more parts (['a'], ['b'])"),
    "longer": (lambda: [1, 2], lambda: [1, 2, 3], ": other or more parts (none, [2])"),
    "words": (lambda: ["x", "y"], lambda: ["x", "z"], "[1]: 'z' instead of 'y'"),
    "set": (lambda: {1, 2}, lambda: {1, 3}, "instead of {1, 2}"),
    "tensor": (lambda: torch.ones(2), lambda: torch.zeros(2), ": other bytes"),
    "objects": (lambda: np.array(["x", 1.0], object), lambda: np.array(["x", 2.0], object), "[1]"),
    "frame": (lambda: pd.DataFrame({"x": [1]}), lambda: pd.DataFrame({"x": [2]}), ": other values"),
    "field": (lambda: Node(0.0, [Node(1.0)]), lambda: Node(0.0, [Node(2.0)]), ".children[0].value"),
    "state": (lambda: Plain(1.0), lambda: Plain(2.0), ".value: other bytes"),
    "arguments": (lambda: Named(1.0), lambda: Named(2.0), "()[0]: other bytes"),
    "function": (lambda: partial(max, 1), lambda: partial(max, 2), "[0]: 2 instead of 1"),
    "parameters": (lambda: circuit(1), lambda: circuit(2), "[1].values"),
    "tree": (lambda: tree(1), lambda: tree(2), "tree"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_first_difference_is_named(name: str) -> None:
    one, other, words = DIFFERENT[name]
    assert words in difference(one(), other())
    assert difference(one(), one()) == "" and difference(other(), other()) == ""


def test_what_is_no_part() -> None:
    one, other = Plain(2.0), Plain(2.0)
    assert one.square == 4.0 and difference(one, other) == difference(other, one) == ""
    assert difference(Node(1.0, seen=1), Node(1.0, seen=2)) == ""
    named = Named(2.0)
    named.ready.append(1.0)
    assert difference(named, Named(2.0)) == ""
    spent = np.random.default_rng(0)
    spent.normal()
    assert difference([spent], [np.random.default_rng(0)]) == ""
    assert difference({"a": 1, "b": 2}, {"b": 2, "a": 1}) == ""


def test_bytes_between_fields_do_not_count() -> None:
    kind = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8]})
    one, other = np.zeros(2, kind), np.frombuffer(b"\1" * 32, kind).copy()
    other["a"], other["b"] = 0, 0.0
    assert one.tobytes() != other.tobytes() and difference(one, other) == ""
    other["b"][1] = 1.0
    assert difference(one, other) == "['b']: other bytes"


def test_wholes_that_are_parts_of_themselves() -> None:
    one, other = Node(1.0), Node(1.0)
    one.children.append(one)
    other.children.append(other)
    assert difference(one, other) == ""
    other.children.append(3)
    assert ".children: other or more parts" in difference(one, other)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_copies_are_the_same_and_texts_tell_others(one: object, other: object) -> None:
    assert difference(one, copy.deepcopy(one)) == ""
    ordered = repr(_sorted(one)) == repr(_sorted(other))
    assert (difference(one, other) == "") == ordered


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return sorted((k, _sorted(v)) for k, v in value.items()), "dict"
    return [_sorted(v) for v in value] if isinstance(value, list) else value
