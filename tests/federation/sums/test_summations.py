"""Hub, tree and gossip: the contract, exact counts, errors that are promised, who learns what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import Outcome
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.messages import encode_message
from fedcircuits.federation.sums.collectives import Addend, Summation, Then
from fedcircuits.federation.sums.summations import Chebyshev, Cost, Hub, Metropolis, Tree
from fedcircuits.federation.sums.topology import Topology
from fedcircuits.testing import check_summation
from tests.federation.sums.graphs import topologies

TIGHT = 1e-12  # sums of numbers around 100 are then right to 1e-9


def adds(
    me: str, members: tuple[str, ...], how: Summation, value: Array, then: Then | None = None
) -> Flow[Array]:
    return (yield from how.at(me, members).sum("add/up", value, "terms", then))


def tells(me: str, members: tuple[str, ...], how: Summation, value: Array) -> Flow[Array]:
    return (yield from how.at(me, members).agree("tell/all", value, "a decision"))


def run(
    how: Summation, values: Mapping[str, Array], flow: Any = adds, **more: Any
) -> Outcome[Array]:
    """Whoever is no party contributes zeros."""
    members = how.members(tuple(values))
    zeros = np.zeros_like(next(iter(values.values())))
    programs: dict[str, Program[Array]] = {
        me: Program(
            flow, {"me": me, "members": members, "how": how, "value": values.get(me, zeros)} | more
        )
        for me in members
    }
    return memory.run(programs)


def party_names(count: int) -> tuple[str, ...]:
    return tuple(f"party {i}" for i in range(count))


def drawn(count: int, columns: int = 4, seed: int = 5) -> dict[str, Array]:
    values = np.random.default_rng(seed).normal(size=(count, columns))
    return dict(zip(party_names(count), values, strict=True))


def worst(outcome: Outcome[Array], values: Mapping[str, Array]) -> float:
    """The largest error of anyone, relative to N × max |value| of its column."""
    assert not outcome.lost
    own = np.array(list(values.values()))  # (parties, columns)
    found = np.array(list(outcome.results.values()))  # (members, columns)
    return float((np.abs(found - own.sum(0)) / (len(own) * np.abs(own).max(0))).max())


# ---------------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    "how",
    [
        Hub(),
        Tree(),
        Tree("cycle"),
        Tree("path"),
        Tree("star"),
        Chebyshev("complete", TIGHT),
        Chebyshev("cycle", TIGHT),
        Chebyshev("geometric", TIGHT),
        Chebyshev("scale-free", TIGHT),
        Metropolis("cycle", TIGHT),
    ],
    ids=repr,
)
def test_contract(how: Summation) -> None:
    check_summation(how, tolerance=1e-8)


@pytest.mark.parametrize("how", [Hub("float32"), Tree("cycle", "float32")], ids=repr)
def test_contract_in_single_precision(how: Summation) -> None:
    check_summation(how, tolerance=1e-3)


@pytest.mark.parametrize("kind", [Chebyshev, Metropolis])
def test_gossip_in_single_precision_ends_as_precise(kind: type[Chebyshev]) -> None:
    """Where one round would do, a second and third one send what rounding left."""
    check_summation(kind("cycle", TIGHT, dtype="float32"), tolerance=1e-8)
    for tolerance, rounds in ((1e-6, 1), (1e-10, 3)):
        how, values = kind("complete", tolerance, dtype="float32"), drawn(20)
        assert how.cost(party_names(20)).rounds == rounds
        assert how.cost(party_names(20)).error <= tolerance
        assert worst(run(how, values), values) <= tolerance


@settings(max_examples=30)
@given(topologies(), st.integers(0, 2**32), st.integers(2, 12))
def test_errors_in_single_precision(topology: Topology, seed: int, digits: int) -> None:
    values = drawn(len(topology.names), seed=seed)
    for kind in (Chebyshev, Metropolis):
        how = kind(topology, 10.0**-digits, dtype="float32")
        assert worst(run(how, values), values) <= how.cost(topology.names).error + 1e-14


def test_contract_between_processes() -> None:
    edges = nx.Graph([(0, 1), (1, 2)])
    for how in (Hub(), Tree(edges), Chebyshev(edges, TIGHT), Metropolis([(0, 1), (1, 2)], TIGHT)):
        check_summation(how, process.run, counts=[3])


@settings(max_examples=40)
@given(topologies(), st.integers(0, 2**32))
def test_any_graph(topology: Topology, seed: int) -> None:
    values = drawn(len(topology.names), seed=seed)
    tree, fast = Tree(topology), Chebyshev(topology, 1e-9)
    assert worst(run(tree, values), values) < 1e-15
    outcome = run(fast, values)
    assert worst(outcome, values) <= 1e-9
    assert len(outcome.ledger) == fast.cost(topology.names).messages


# ---------------------------------------------------------------------- exact counts


def test_cost_of_a_hub() -> None:
    outcome = run(Hub(), drawn(7))
    assert Hub().cost(Hub().members(party_names(7))) == Cost(2, 14)
    assert len(outcome.ledger) == 14


@pytest.mark.parametrize(
    ("graph", "rounds"), [("complete", 2), ("star", 2), ("path", 20), ("cycle", 20), ("grid", 8)]
)
def test_cost_of_a_tree(graph: str, rounds: int) -> None:
    how, values = Tree(graph), drawn(20)
    assert how.cost(party_names(20)) == Cost(rounds, 38)
    assert len(run(how, values).ledger) == 38


@pytest.mark.parametrize("kind", [Chebyshev, Metropolis])
def test_cost_of_gossip(kind: type[Chebyshev]) -> None:
    """Every party sends its array over every link in every round."""
    how, values = kind("cycle", rounds=13), drawn(9)
    assert how.cost(party_names(9)).messages == 13 * 2 * 9
    ledger = run(how, values).ledger
    pairs = {(e.sender, e.receiver) for e in ledger}
    assert len(ledger) == 13 * 18 and len(pairs) == 18
    assert {e.bytes for e in ledger} == {len(encode_message(Addend(np.zeros(4))))}


def test_alone() -> None:
    for how in (Tree("cycle"), Chebyshev("complete"), Metropolis([]), Metropolis("path", rounds=9)):
        outcome = run(how, {"north": np.array([1.5, -2.0])}, then=np.cumsum)
        assert outcome.results["north"].tolist() == [1.5, -0.5] and not len(outcome.ledger)
        assert how.cost(["north"]) == Cost(0, 0)


def test_two_need_one_round() -> None:
    for kind in (Chebyshev, Metropolis):
        how, values = kind("path"), drawn(2)
        assert how.cost(party_names(2)).rounds == 1
        assert worst(run(how, values), values) < 1e-15


GRAPHS = {
    "geometric, degree 31": Topology.of("geometric", party_names(100), radius=0.3691, seed=1),
    "geometric, degree 9": Topology.of("geometric", party_names(100), radius=0.1946, seed=0),
    "cycle": Topology.of("cycle", party_names(100)),
}


@pytest.mark.parametrize(
    ("graph", "tree", "fast", "slow"),
    [
        ("geometric, degree 31", 6, 23, 93),
        ("geometric, degree 9", 12, 67, 771),
        ("cycle", 100, 263, 10759),
    ],
)
def test_rounds_for_a_millionth(graph: str, tree: int, fast: int, slow: int) -> None:
    """A tree and Chebyshev need at most a third of Metropolis' rounds for the same error."""
    names, topology = party_names(100), GRAPHS[graph]
    needed = [Tree(topology), Chebyshev(topology, 1e-6), Metropolis(topology, 1e-6)]
    costs = [how.cost(names) for how in needed]
    assert [c.rounds for c in costs] == [tree, fast, slow]
    links = len(topology.edges)
    assert [c.messages for c in costs] == [198, 2 * links * fast, 2 * links * slow]
    assert max(c.error for c in costs) <= 1e-6 and 3 * max(tree, fast) <= slow
    assert Chebyshev(topology, rounds=fast - 1).cost(names).error > 1e-6
    assert Metropolis(topology, rounds=slow - 1).cost(names).error > 1e-6


# ---------------------------------------------------------------------- errors


def test_errors_that_are_met() -> None:
    """The same error of both, with messages that were counted."""
    topology, values = Topology.of("geometric", party_names(25), seed=4), drawn(25)
    errors, messages = {}, {}
    for how in (Tree(topology), Chebyshev(topology, 1e-6), Metropolis(topology, 1e-6)):
        outcome = run(how, values)
        errors[type(how)], messages[type(how)] = worst(outcome, values), len(outcome.ledger)
        assert len(outcome.ledger) == how.cost(tuple(values)).messages
    assert errors[Tree] < 1e-15
    assert 1e-9 < errors[Chebyshev] <= 1e-6 and 1e-9 < errors[Metropolis] <= 1e-6
    assert messages[Tree] == 48 and 3 * messages[Chebyshev] < messages[Metropolis]


@pytest.mark.parametrize("kind", [Chebyshev, Metropolis])
@pytest.mark.parametrize("rounds", [1, 2, 9])
def test_errors_as_foretold(kind: type[Chebyshev], rounds: int) -> None:
    """One party holds 1 and all others 0, for every party: the rows of N P."""
    names = party_names(11)
    how = kind(Topology.of("scale-free", names, seed=6), rounds=rounds)
    outcome = run(how, dict(zip(names, np.eye(11), strict=True)))
    rows = np.array([outcome.results[n] for n in names]) / 11.0
    np.testing.assert_allclose(rows, rows.T, atol=1e-12)
    np.testing.assert_allclose(rows.sum(0), 1.0, rtol=1e-12)
    off = np.sqrt(11.0) * np.linalg.norm(rows - 1 / 11, axis=1).max()
    np.testing.assert_allclose(how.cost(names).error, off, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_far_apart(dtype: Any) -> None:
    """Columns from 1e-30 to 1e30, one party's values 1e12 times the others'."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(16, 5)) * np.array([1e-30, 1e-8, 1.0, 1e8, 1e30])
    values[3] *= 1e12 if dtype == "float64" else 1e6
    own = dict(zip(party_names(16), values, strict=True))
    assert worst(run(Chebyshev("grid", 1e-10, dtype=dtype), own), own) <= 1e-10
    assert worst(run(Metropolis("grid", 1e-10, dtype=dtype), own), own) <= 1e-10


@pytest.mark.parametrize("offset", [1e6, 1e12])
def test_numbers_on_an_offset(offset: float) -> None:
    values = {name: offset + v for name, v in drawn(16).items()}
    for how in (Chebyshev("cycle", 1e-13), Metropolis("grid", 1e-13)):
        assert worst(run(how, values), values) <= 2e-13


def test_single_precision_halves_the_bytes() -> None:
    values = drawn(16, columns=5000)
    runs = {d: run(Chebyshev("grid", 1e-10, dtype=d), values) for d in ("float64", "float32")}
    assert worst(runs["float32"], values) <= 1e-10
    assert len(runs["float32"].ledger) == len(runs["float64"].ledger)
    assert runs["float32"].ledger.bytes < 0.51 * runs["float64"].ledger.bytes


def test_numbers_that_have_no_average() -> None:
    values = drawn(3) | {"party 1": np.array([0.0, -np.inf, 0.0, 0.0])}
    lost = run(Chebyshev("path"), values).lost
    assert "party 1 has infinite or missing numbers under 'add/up'" in str(lost["party 1"])
    for how in (Hub(), Tree("path")):
        assert run(how, values).results["party 2"][1] == -np.inf


# ---------------------------------------------------------------------- who learns what


def test_a_tree_and_a_hub_give_everyone_the_same_bits() -> None:
    values = drawn(9, columns=50)
    for how in (Hub(), Hub("float32"), Tree("grid"), Tree("grid", "float32")):
        assert len({v.tobytes() for v in run(how, values).results.values()}) == 1


def test_then_is_applied_once_or_by_everyone() -> None:
    calls: list[float] = []

    def signs(total: Array) -> Array:
        calls.append(float(total[0]))
        return np.sign(total[:1])

    for how, times in ((Hub(), 1), (Tree("path"), 1), (Chebyshev("path"), 4)):
        calls.clear()
        outcome = run(how, {n: np.array([2.0, 0.0]) for n in party_names(4)}, then=signs)
        assert {v.tolist()[0] for v in outcome.results.values()} == {1.0}
        np.testing.assert_allclose(calls, [8.0] * times)


@pytest.mark.parametrize(
    ("how", "leader"),
    [
        (Hub("float32"), "coordinator"),
        (Tree("path", "float32"), "party 2"),
        (Chebyshev("path", dtype="float32"), "party 0"),
        (Metropolis("path"), "party 0"),
    ],
    ids=repr,
)
def test_who_decides(how: Summation, leader: str) -> None:
    members = how.members(party_names(5))
    words = {m: np.array([i + 1 / 3, -0.0, np.nan]) for i, m in enumerate(members)}
    programs = {
        m: Program(tells, {"me": m, "members": members, "how": how, "value": words[m]})
        for m in members
    }
    outcome = memory.run(programs)
    assert {v.tobytes() for v in outcome.results.values()} == {words[leader].tobytes()}
    assert len(outcome.ledger) == len(members) - 1


def test_what_the_ledger_says_of_a_tree() -> None:
    ledger = run(Tree("path"), drawn(5)).ledger
    told = {(e.sender, e.receiver): e.reveals for e in ledger}
    assert told["party 0", "party 1"] == "terms"
    assert told["party 1", "party 2"] == "the sum over a branch of terms"
    assert told["party 2", "party 1"] == told["party 1", "party 0"] == "the sum of terms"


def test_what_the_ledger_says_of_gossip() -> None:
    learned = run(Chebyshev("path"), drawn(3)).ledger.revealed("party 0")
    assert learned["from"].tolist() == ["party 1", "party 1"]
    assert learned["what"].tolist() == ["terms", "running averages of terms"]


# ---------------------------------------------------------------------- refused before a message


@pytest.mark.parametrize("kind", [Tree, Chebyshev, Metropolis])
@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ([(0, 1), (1, 2)], "lacks party 3"),
        ([(0, 1), (1, 2), (2, 3), (3, 4)], "has 4, which is not a party"),
        ([(0, 1), (2, 3)], "there is no path from party 0 to party 2"),
        ("wheel", "unknown graph 'wheel'"),
    ],
)
def test_graphs_that_do_not_fit(kind: Any, graph: Any, words: str) -> None:
    names = party_names(4)
    with pytest.raises(FederationError, match=words):
        kind(graph).members(names)
    programs = {
        me: Program(adds, {"me": me, "members": names, "how": kind(graph), "value": np.ones(2)})
        for me in names
    }
    outcome = memory.run(programs)
    assert not len(outcome.ledger) and set(outcome.lost) == set(names)
    assert words in str(outcome.lost["party 0"])


def test_members_that_do_not_fit() -> None:
    with pytest.raises(FederationError, match=r"Hub\(\) adds up at 'coordinator'"):
        Hub().at("party 0", party_names(3))
    for how in (Hub(), Tree(), Chebyshev("path")):
        with pytest.raises(FederationError, match="nobody is not among the members party 0"):
            how.at("nobody", how.members(party_names(3)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hub("float16"), "dtype must be one of 'float64', 'float32', got 'float16'"),
        (lambda: Tree(dtype="int8"), "dtype must be one of 'float64', 'float32', got 'int8'"),
        (lambda: Chebyshev("path", 0.0), "tolerance must be a number above 0 and below 1, got 0.0"),
        (
            lambda: Chebyshev("path", "1e-6"),
            "tolerance must be a number above 0 and below 1, got '1e-6'",
        ),
        (
            lambda: Metropolis("path", rounds=0),
            "rounds must be None or a whole number from 1, got 0",
        ),
        (
            lambda: Metropolis("path", rounds=2.5),
            "rounds must be None or a whole number from 1, got 2.5",
        ),
        (lambda: Tree(nx.DiGraph([(0, 1)])), "got a directed one"),
    ],
)
def test_settings_that_are_refused(make: Any, words: str) -> None:
    with pytest.raises(FederationError, match=words):
        make()


def test_choices_are_values() -> None:
    assert Tree(nx.path_graph(3)) == Tree(nx.path_graph(3)) != Tree("path")
    assert hash(Chebyshev([(0, 1)], 1e-3)) == hash(Chebyshev([(0, 1)], 1e-3))
    for how in (Hub(), Tree(), Chebyshev("path"), Metropolis("path")):
        assert isinstance(how, Summation)
