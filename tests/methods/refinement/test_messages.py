"""Messages of EM across parties: circuits arrive as they were sent, and whoever sends nonsense is
blamed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Sum
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.engines import memory
from fedcircuits.errors import FedcircuitsError, MessageError
from fedcircuits.federation.federation import COORDINATOR
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
from tests.methods.watched import saying

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


def through_network() -> dict[str, Program[Any]]:
    return network_programs(views(0), EMSettings(2, 0.2))


def by_sums(share: float = 0.2) -> dict[str, Program[Any]]:
    return sum_programs(EMSettings(1, share, weight_rounds=2))


@pytest.mark.parametrize(
    "programs",
    [
        by_rows,
        lambda: by_rows(summation=Tree("complete")),
        through_network,
        by_sums,
        lambda: by_sums(share=0.0),
    ],
)
def test_spoiled_messages_blame_their_sender(programs: Callable[[], Any]) -> None:
    assert check_messages(programs(), most=60) == 60


def twice(fields: Any) -> Any:
    return {**fields, "weights": {n: 2 * w for n, w in fields["weights"].items()}}


def other_leaf(**change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Another graph or other arrays of the first leaf."""

    def changed_leaf(fields: Any) -> Any:
        name, leaf = next(iter(fields["leaves"].items()))
        other = {k: change[k](v) if k in change else v for k, v in leaf.items()}
        return {**fields, "leaves": {**fields["leaves"], name: other}}

    return changed_leaf


weightless = other_leaf(arrays=lambda arrays: without(arrays, "weight"))
renamed = other_leaf(graph=lambda graph: graph.replace("age", "size"))


def holding(value: float) -> Callable[[Any], Any]:
    """A number that no log-likelihood or posterior is."""

    def change(fields: Any) -> Any:
        [(name, array)] = [(n, a) for n, a in fields.items() if isinstance(a, np.ndarray)]
        changed = array.copy()
        changed[0, 0] = value
        return {**fields, name: changed}

    return change


def first_row(fields: Any) -> Any:
    """EM of a single row would tell how likely it is, and in which cluster."""
    return {**fields, "rows": fields["rows"][:1], "number": 1}


@pytest.mark.parametrize(
    ("programs", "who", "tag", "change", "field"),
    [
        (by_rows, "party 1", "em/leaves", lambda m: {}, "leaves"),
        (by_rows, "party 1", "em/leaves", lambda m: {**m, "deviation": -m["deviation"]}, "devia"),
        (by_rows, "party 1", "em/leaves", lambda m: {**m, "mean": m["mean"] + 1e308}, "mean"),
        (by_rows, "party 1", "em/leaves", weightless, "leaves"),
        (by_rows, "party 1", "em/leaves", renamed, "leaves"),
        (by_rows, "party 0", "em/size", lambda m: {**m, "size": "many"}, "size"),
        (by_rows, "party 0", "em/size", lambda m: {**m, "size": 2**50}, "size"),
        (by_rows, "party 0", "em/learned", twice, "weights"),
        (by_rows, "party 0", "em/learned", lambda m: {}, "weights"),
        (by_rows, COORDINATOR, "em/graph", lambda m: {}, "circuit"),
        (by_rows, COORDINATOR, "em/graph", twice, "weights"),
        (by_rows, COORDINATOR, "em/graph", lambda m: {**m, "held": 2.0}, "held"),
        (by_rows, COORDINATOR, "em/graph", lambda m: {**m, "held": 0.99}, "held"),
        (by_rows, COORDINATOR, "em/judged/1", lambda m: {"values": m["values"] + 5}, "values"),
        (by_rows, "party 2", "em/counts/0", lambda m: {"values": m["values"] * np.nan}, "values"),
        (through_network, "north", "em/held", lambda m: {"held": np.ones(80, np.bool_)}, "held"),
        (through_network, "north", "em/held", lambda m: {"held": np.ones(80)}, "held"),
        (through_network, "north", "em/held", lambda m: {"held": 16}, "held"),
        *((through_network, "south", "em/values/1", holding(v), "values")
          for v in (np.nan, np.inf, 1e308)),
        *((through_network, COORDINATOR, "em/posterior/0", holding(v), "posteriors")
          for v in (np.nan, np.inf, 1e308, -0.5, 1.5)),
        (through_network, COORDINATOR, "em/posterior/1", lambda m: {"stays": 3}, "stays"),
        (through_network, COORDINATOR, "em/posterior/2", lambda m: {}, "stays"),
        (through_network, COORDINATOR, "em/rows", lambda m: {**m, "rows": m["rows"] + 1}, "rows"),
        (through_network, COORDINATOR, "em/rows", first_row, "rows"),
        (by_sums, COORDINATOR, "em/rows", first_row, "rows"),
        (by_sums, "north", "em/learned", lambda m: {}, "weights"),
        (by_sums, "north", "em/learned", twice, "weights"),
        (by_sums, COORDINATOR, "em/graph", twice, "weights"),
        (by_sums, COORDINATOR, "em/graph", lambda m: {**m, "below": m["below"][1:]}, "weights"),
        (by_sums, "north", "em/held", lambda m: {"values": ~(m["values"] & False)}, "values"),
    ],
)  # fmt: skip
def test_who_sends_nonsense_is_blamed(
    programs: Callable[[], Any], who: str, tag: str, change: Any, field: str
) -> None:
    made = programs()
    spoiled = Program(saying, {"program": made[who], "tag": tag, "change": change})
    outcome = memory.run({**made, who: spoiled})
    first = next(iter(outcome.lost.values()))
    assert isinstance(first.__cause__, MessageError), first
    assert first.__cause__.sender == first.party == who and tag in str(first)
    assert first.__cause__.field.startswith(field)
