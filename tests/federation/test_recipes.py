"""Programs and results as bytes without code: what is packed, what is refused, what stays open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import encode_plain
from fedcircuits.federation.recipes import Held, Here, Own, filled, pack, unpack
from fedcircuits.methods.fedpc import training
from fedcircuits.methods.fedpc.planning import FedPCPlan

RNG = np.random.default_rng(0)
TABLE = fc.Table.of(
    {"age": RNG.normal(50, 9, 90), "calls": RNG.poisson(3, 90), "smoker": RNG.random(90) < 0.3}
)


def through_bytes(programs: Mapping[str, Program[Any]], kept: Kept | None = None) -> Outcome[Any]:
    """The memory engine, with everything that enters and leaves a party packed and opened."""
    outcome = memory.run({name: unpack(pack(p)) for name, p in programs.items()}, kept)
    for results in (outcome.results, outcome.kept):
        for name, value in list(results.items()):  # type: ignore[attr-defined]
            results[name] = unpack(pack(value))  # type: ignore[index]
    return outcome


@pytest.mark.filterwarnings("ignore:columns of different parties are assumed to be independent")
@pytest.mark.parametrize("by", ["rows", "columns", "both"])
def test_a_federated_circuit_is_the_same_through_bytes(by: Any) -> None:
    federation = fc.split(TABLE, 3, by=by, target="smoker")
    model = fc.FedPC(random_state=0).fit(federation)
    again = fc.FedPC(random_state=0).fit(federation, engine=through_bytes)
    assert np.array_equal(model.score_samples(TABLE), again.score_samples(TABLE))


@pytest.mark.parametrize(
    "estimator",
    [
        fc.VerticalKMeans(3, random_state=0),
        fc.FedTrees(target="smoker", share_target=True, random_state=0),
        fc.FeatureFusion(
            {
                "party 1": fc.TabularEncoder(epochs=2),
                "party 2": "summary",
                "party 3": fc.BestEncoder(["summary", fc.TabularEncoder(epochs=2)]),
            },
            target="smoker",
            share_target=True,
            random_state=0,
            epochs=20,
        ),
    ],
    ids=lambda e: type(e).__name__,
)
def test_predictions_are_the_same_through_bytes(estimator: Any) -> None:
    federation = fc.split(TABLE, 3, by="columns", target="smoker")
    rows = TABLE if isinstance(estimator, fc.FedTrees) else federation
    learned = [
        np.asarray(estimator.fit(federation, engine=engine).predict(rows))
        for engine in ("memory", through_bytes)
    ]
    assert np.array_equal(*learned)


def test_plain_values_arrays_and_their_order_in_memory_come_back() -> None:
    turned = np.asfortranarray(RNG.normal(size=(3, 4)))
    value = {
        "plain": [None, True, -1, 2**63, 2**200, 0.5, float("inf"), "é", b"\0"],
        "nested": ((1, "a"), {2, 3}, frozenset({4}), {(1, 2): [{}]}),
        "number": np.float32(0.1),
        "arrays": [turned, np.zeros((0, 3)), np.array(["é", "ab"]), np.array([True])],
    }
    again = unpack(pack(value))
    assert again["plain"] == value["plain"] and again["nested"] == value["nested"]
    assert type(again["number"]) is np.float32 and again["number"] == value["number"]
    for got, sent in zip(again["arrays"], value["arrays"], strict=True):
        assert np.array_equal(got, sent) and got.dtype == sent.dtype
        assert got.flags.f_contiguous == sent.flags.f_contiguous
    assert torch.equal(unpack(pack(torch.arange(3.0))), torch.arange(3.0))
    lost = unpack(pack(PartyLostError("north", "it has gone")))
    assert (lost.party, str(lost)) == ("north", "it has gone")


@pytest.mark.parametrize(
    "foreign", [os.system, LogisticRegression(), partial(print, 1), lambda: 0, open, np.array([{}])]
)
def test_what_is_not_of_this_library_is_not_packed(foreign: object) -> None:
    with pytest.raises(ProtocolError, match=r"only objects of fedcircuits are sent|cannot be sent"):
        pack({"learner": foreign})


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "fedcircuits.app.cli:train",
        "fedcircuits.datasets:load",
        "fedcircuits.federation.recipes:import_module",  # of another module
        "fedcircuits.federation.recipes:msgspec.msgpack.decode",
        "fedcircuits.tables.readers:read",
        "fedcircuits.engines.process:run",
        "fedcircuitsx:y",
        "fedcircuits.nothing:at_all",
        "",
    ],
)
def test_a_recipe_names_no_other_code(name: str) -> None:
    for part in ({"name": name}, {"new": name, "arguments": []}, {"made": name, "fields": {}}):
        with pytest.raises(ProtocolError):
            unpack(encode_plain({"partial": [part, [], {"dict": []}]}))


def test_a_function_is_named_but_never_called_while_a_recipe_is_opened() -> None:
    name = f"{training.__name__}:client"
    assert unpack(encode_plain({"name": name})) is training.client
    for made in ({"new": name, "arguments": []}, {"made": name, "fields": {}}):
        with pytest.raises(ProtocolError, match="is not a class"):
            unpack(encode_plain(made))


def test_spoiled_bytes_are_refused() -> None:
    whole = pack(Program(training.coordinator, {"plan": FedPCPlan(("a", "b"))}))
    rng = np.random.default_rng(1)
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(len(data), size=3):
            data[at] = rng.integers(256)
        try:
            unpack(bytes(data[: rng.integers(1, len(data) + 1)]))
        except fc.FedcircuitsError:
            continue
    for odd in (b"", msgspec.msgpack.encode({"dict": [[{}, 1]]}), msgspec.msgpack.encode({"x": 1})):
        with pytest.raises(ProtocolError):
            unpack(odd)


def test_open_places_are_filled_in_where_a_recipe_is_opened() -> None:
    party = Party("north", TABLE)
    site = {Here("party"): party, Own("secret"): b"s" * 32, Held("m", "north"): (1, 2)}
    program = Program(training.client, {"party": Here("party"), "plan": {"key": [Own("secret")]}})
    opened = unpack(pack(program), lambda place: site[place])
    assert opened.arguments == {"party": party, "plan": {"key": [b"s" * 32]}}
    assert filled(program, lambda place: site[place]).arguments == opened.arguments
    assert filled((Held("m", "north"), "x"), lambda place: site[place]) == ((1, 2), "x")
    plan = FedPCPlan(("a", "b"))
    assert filled(plan, lambda place: site[place]) is plan


def test_a_class_is_made_only_as_its_instances_are_sent(tmp_path: Path) -> None:
    """A Federation that is called would read files of the site."""
    path = tmp_path / "rows.csv"
    path.write_text("x\n1\n2\n")
    name = "fedcircuits.federation.federation:Federation"
    parties = {"dict": [["a", str(path)]]}
    for made in (
        {"made": name, "fields": {"parties": parties}},
        {"new": name, "arguments": [parties]},
        {"state": "fedcircuits.methods.fedpc.assembly:ClusterSizes", "fields": {"dict": []}},
    ):
        with pytest.raises(ProtocolError, match="in a way that is never sent"):
            unpack(encode_plain(made))
