"""Messages of EM across parties: circuits arrive as they were sent, and whoever sends nonsense is
blamed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.nodes import Leaf, Sum
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.errors import FedcircuitsError
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import decode_message, encode_message
from fedcircuits.federation.sums.summations import Tree
from fedcircuits.methods.refinement.roles import EMSettings
from fedcircuits.methods.refinement.rows import LeafCircuit, PartyLeaves
from fedcircuits.testing import check_messages
from tests.circuits.strategies import Model, models
from tests.federation.cases import QUICK, mixed_table
from tests.methods.refinement.cases import (
    fitted,
    network_programs,
    parts,
    row_programs,
    sum_programs,
    views,
)

# ---------------------------------------------------------------------- circuits


def arrived(learned: Any) -> Any:
    message = PartyLeaves({"x": LeafCircuit.of(learned)}, np.zeros(1), np.ones(1))
    found = decode_message(PartyLeaves, encode_message(message), "north", PartyLeaves.tag)
    return found.leaves["x"].learned()


@settings(max_examples=25)
@given(models())
def test_what_arrives_was_sent(model: Model) -> None:
    circuit, parameters = arrived(model)
    assert circuit == model[0] and parameters == model[1]
    assert all(a.flags.writeable for own in parameters.values.values() for a in own.values())


def test_circuits_that_are_leaves_are_written_out() -> None:
    inner = QUICK.fit(mixed_table())
    scope = inner.circuit_.schema.names
    top = Circuit((Leaf("a", CIRCUIT, scope), Leaf("b", CIRCUIT, scope), Sum("root", ("a", "b"))),
                  inner.circuit_.schema)  # fmt: skip
    own = (inner.circuit_, inner.parameters_)
    whole = Parameters({"root": {"weight": np.array([[0.25, 0.75]])}}, {"a": own, "b": own})
    assert arrived((top, whole)) == inline(top, whole)


def without(arrays: Any, key: str) -> Any:
    return {n: {k: a for k, a in own.items() if k != key} for n, own in arrays.items()}


def changed(arrays: Any, key: str, change: Callable[[Any], Any]) -> Any:
    return {
        n: {k: change(a) if k == key else a for k, a in own.items()} for n, own in arrays.items()
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda graph, arrays: ("", arrays),
        lambda graph, arrays: ('{"x": 3}', arrays),
        lambda graph, arrays: ("[[[", arrays),
        lambda graph, arrays: ("[" * 100_000, arrays),
        lambda graph, arrays: (graph, without(arrays, "weight")),
        lambda graph, arrays: (graph, {**arrays, "nobody": {"weight": np.ones((1, 2))}}),
        lambda graph, arrays: (graph, changed(arrays, "mean", lambda a: a.astype(np.float32))),
        lambda graph, arrays: (graph, changed(arrays, "mean", lambda a: a * np.nan)),
        lambda graph, arrays: (graph, changed(arrays, "mean", lambda a: a + 1e308)),
        lambda graph, arrays: (graph, changed(arrays, "weight", lambda a: a * 2)),
    ],
)
def test_what_is_no_circuit_is_refused(change: Any) -> None:
    model = QUICK.fit(mixed_table())
    sent = LeafCircuit.of((model.circuit_, model.parameters_))
    with pytest.raises(FedcircuitsError):
        LeafCircuit(*change(sent.graph, sent.arrays)).learned()


# ---------------------------------------------------------------------- every message


def by_rows(**how: Any) -> dict[str, Program[Any]]:
    parties = parts()
    return row_programs(fitted(parties, refine=0)[0], parties, EMSettings(2, 0.2, **how))


@pytest.mark.parametrize("summation", [None, Tree("complete")])
def test_messages_by_rows(summation: Any) -> None:
    how = {} if summation is None else {"summation": summation}
    assert check_messages(by_rows(**how), most=150) > 100


def test_messages_through_the_network() -> None:
    assert check_messages(network_programs(views(0), EMSettings(2, 0.2)), most=250) > 100


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_messages_by_sums(share: float) -> None:
    assert check_messages(sum_programs(EMSettings(1, share, weight_rounds=2)), most=150) > 100
