"""Circuits as messages: what arrives is what was sent, and nonsense is refused by its sender."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.nodes import Leaf, Sum
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.wire import decode, encode
from fedcircuits.methods.refinement.circuits_on_wire import GRAPHS, off_wire, on_wire
from tests.circuits.strategies import Model, models
from tests.federation.cases import QUICK, mixed_table


def arrived(circuits: Any) -> Any:
    return off_wire(decode(encode(on_wire(circuits))), "north", "em/leaves")  # type: ignore[arg-type]


@settings(max_examples=25)
@given(models(), models())
def test_what_arrives_was_sent(one: Model, other: Model) -> None:
    found = arrived({"a/0/0": one, '["odd"]': other})
    assert list(found) == ["a/0/0", '["odd"]']
    for (circuit, parameters), sent in zip(found.values(), (one, other), strict=True):
        assert circuit == sent[0] and parameters == sent[1]
        assert all(a.flags.writeable for own in parameters.values.values() for a in own.values())


def test_nothing_is_a_message_too() -> None:
    assert arrived({}) == {}


def test_circuits_that_are_leaves_are_written_out() -> None:
    inner = QUICK.fit(mixed_table())
    scope = inner.circuit_.schema.names
    top = Circuit((Leaf("a", CIRCUIT, scope), Leaf("b", CIRCUIT, scope), Sum("root", ("a", "b"))),
                  inner.circuit_.schema)  # fmt: skip
    own = (inner.circuit_, inner.parameters_)
    whole = Parameters({"root": {"weight": np.array([[0.25, 0.75]])}}, {"a": own, "b": own})
    circuit, parameters = arrived({"x": (top, whole)})["x"]
    assert (circuit, parameters) == inline(top, whole)


def without(word: str) -> Callable[[Any], Any]:
    return lambda message: {k: v for k, v in message.items() if word not in k}


def changed(key: str, value: Any) -> Callable[[Any], Any]:
    return lambda message: {**message, key: value}


@pytest.mark.parametrize(
    "change",
    [
        without(GRAPHS),
        without("weight"),
        changed(GRAPHS, np.frombuffer(b'{"x": 3}', np.uint8)),
        changed(GRAPHS, np.frombuffer(b"[[[", np.uint8)),
        changed(GRAPHS, np.frombuffer(b"[" * 100_000, np.uint8)),
        changed('["x","nobody","weight"]', np.ones((1, 2))),
        changed('["nobody","root","weight"]', np.ones((1, 2))),
        changed('["x"]', np.ones(1)),
        changed("[", np.ones(1)),
        lambda m: {k: v.astype(np.float32) if "mean" in k else v for k, v in m.items()},
        lambda m: {k: v * np.nan if "mean" in k else v for k, v in m.items()},
    ],
)
def test_nonsense_is_refused(change: Callable[[Any], Any]) -> None:
    model = QUICK.fit(mixed_table())
    message = on_wire({"x": (model.circuit_, model.parameters_)})
    assert off_wire({**message, "beside": np.ones(2)}, "north", "em/leaves").keys() == {"x"}
    with pytest.raises(ProtocolError, match="north sent circuits under 'em/leaves' that cannot be"):
        off_wire(change(message), "north", "em/leaves")
