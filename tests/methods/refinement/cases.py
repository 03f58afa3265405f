"""Circuits and parties to refine: different rows of the same columns, or different columns of the
same rows; and what they learn, in one place."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.circuits.leaves import Gaussian
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.federation.placement import Joint, View, leaves_at
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.leaf_em import MStep
from fedcircuits.methods.refinement import training
from fedcircuits.methods.refinement.roles import EMSettings, EMSite
from fedcircuits.privacy.hidden_sums import Secret
from tests.federation.cases import QUICK, mixed_table, three_columns
from tests.methods.watched import Watched
from tests.privacy.parties import key

PLAIN: dict[str, Any] = {"step": MStep(behind=0.0, damping=0.0), "weight_rounds": 0}  # EM itself
SHARED = mixed_table(80, seed=3)
HELD = {"north": ("age", "colour"), "south": ("visits", "smoker"), "west": ("weight", "risk")}

Held = dict[str, Any]  # what the coordinator and every party hold


def collected(found: Held) -> tuple[Circuit, Parameters]:
    """The whole circuit with its leaves' nodes in it."""
    top = found[COORDINATOR]
    inner = {n: c for v in found.values() for n, c in v.parameters.circuits.items()}
    return inline(top.circuit, Parameters(top.parameters.values, inner))


def central(
    start: tuple[Circuit, Parameters], rounds: int, x: Array, least: float
) -> tuple[Parameters, list[float]]:
    """Iterations of EM of the whole circuit in one place, with a least variance."""
    program = CircuitProgram(start[0])
    packed = program.pack(start[1])
    history = []
    for _ in range(rounds):
        counts = program.counts(torch.from_numpy(x), packed, None)
        history.append(counts.log_likelihood / counts.weight)
        packed = program.maximise(counts, packed, {"gaussian": Gaussian(least, np.inf)})
    return program.unpack(packed), history


def assert_close(found: Parameters, expected: Parameters, rtol: float, atol: float = 1e-9) -> None:
    assert set(found.values) == set(expected.values)
    for name, arrays in expected.values.items():
        for what, array in arrays.items():
            np.testing.assert_allclose(
                found[name][what], array, rtol=rtol, atol=atol, err_msg=f"{name} {what}"
            )


# ---------------------------------------------------------------------- different rows


def parts(number: int = 3, seed: int = 1) -> fc.Federation:
    """Different rows, and the same columns in another order at every party."""
    rng = np.random.default_rng(seed)
    whole = mixed_table()
    places = np.array_split(rng.permutation(len(whole)), number)
    tables = {
        f"party {i}": whole.select(rng.permutation(whole.names).tolist()).rows(at)
        for i, at in enumerate(places)
    }
    return fc.Federation(tables, allow_collect=True)


def fitted(parties: fc.Federation, **how: Any) -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    usual: dict[str, Any] = {"learner": QUICK, "random_state": 0, "refine": 1, "validation": 0.0}
    return fc.FedPC(**usual | how).fit(parties, engine=engine), engine


@functools.cache
def once(**how: Any) -> tuple[fc.FedPC, Watched]:
    return fitted(parts(), **how)


def row_programs(
    start: fc.FedPC, parties: fc.Federation, settings: EMSettings
) -> dict[str, Program[Any]]:
    """EM by rows alone, from a circuit that the parties have learned."""
    usual = {"way": "rows", "members": parties.names, "settings": settings}
    number = sum(len(p.table) for p in parties)
    found: dict[str, Program[Any]] = {
        COORDINATOR: Program(
            training.coordinator, {**usual, "joint": start.joint_, "number": number}
        )
    }
    for party in parties:
        own = {"view": start.views_[party.name], "table": party.table, "order": None}
        found[party.name] = Program(training.client, usual | own)
    return found


# ---------------------------------------------------------------------- different columns


def shared_leaves(seed: int) -> tuple[Circuit, dict[str, str]]:
    """Two or three leaves per party, products that share them, and sums with several parents."""
    rng = np.random.default_rng(seed)
    nodes: list[Node] = []
    placement: dict[str, str] = {}
    for party, scope in HELD.items():
        for k in range(int(rng.integers(2, 4))):
            nodes.append(Leaf(f"{party}/{k}", CIRCUIT, scope))
            placement[f"{party}/{k}"] = party
    own = {p: [n for n, at in placement.items() if at == p] for p in HELD}
    nodes.append(Sum("south mix", tuple(own["south"])))
    nodes.append(Product("pair 0", (own["north"][0], "south mix")))
    nodes.append(Product("pair 1", (own["north"][1], own["south"][0])))
    nodes.append(Sum("pairs", ("pair 0", "pair 1")))
    tops = []
    for i, leaf in enumerate([*own["west"], own["west"][0]]):
        pair = "pairs" if i < 2 else "pair 0"
        tops.append(f"top {i}")
        nodes.append(Product(f"top {i}", (pair, leaf)))
    nodes.append(Product("apart", (own["north"][-1], "south mix", own["west"][-1])))
    nodes.append(Sum("root", (*tops, "apart")))
    schema = SHARED.schema.select([n for names in HELD.values() for n in names])
    circuit = Circuit(tuple(nodes), schema)
    return circuit, {n.name: placement.get(n.name, COORDINATOR) for n in nodes}


def views(seed: int) -> Held:
    circuit, placement = shared_leaves(seed)
    rng = np.random.default_rng(seed)
    weights = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            drawn = rng.gamma(2.0, size=(1, circuit.inputs(node)))
            weights[node.name] = {"weight": drawn / drawn.sum()}
    found: Held = {COORDINATOR: Joint(circuit, placement, Parameters(weights))}
    for party in HELD:
        learned = {}
        for leaf in leaves_at(circuit, placement, party):
            part = SHARED.select(leaf.scope).rows(rng.choice(80, 40, replace=False))
            model = fc.MixtureOfProducts(2, max_iter=3, random_state=seed).fit(part)
            learned[leaf.name] = (model.circuit_, model.parameters_)
        leaves = tuple(leaves_at(circuit, placement, party))
        own = circuit.schema.select(HELD[party])
        found[party] = View(party, own, leaves, Parameters({}, learned))
    return found


def network_programs(
    start: Held, settings: EMSettings, rows: Labels | None = None
) -> dict[str, Program[Any]]:
    """Every party lists its rows in its own order. With a share to hold back, it is the rows with
    the smallest numbers."""
    rng, members = np.random.default_rng(1), tuple(HELD)
    shared = np.arange(80) if rows is None else rows
    orders = {party: rng.permutation(80) for party in HELD}
    told = {
        "way": "network",
        "joint": start[COORDINATOR],
        "members": members,
        "settings": settings,
        "shared": np.stack([np.argsort(orders[p])[shared] for p in members], axis=1),
    }
    found: dict[str, Program[Any]] = {COORDINATOR: Program(training.coordinator, told)}
    for party, order in orders.items():
        listed = SHARED.select(HELD[party]).rows(order)
        site = EMSite(start[party], listed, listed, order / 80, members, settings, least=5)
        found[party] = Program(training.refined, {"way": "network", "site": site})
    return found


@functools.cache
def apart() -> fc.FedPC:
    """A circuit whose products are over parties, and its leaves."""
    model = fc.FedPC(QUICK, clusters=3, ensemble=1, share_clusters=False, random_state=0)
    return model.fit(three_columns())


def sum_programs(
    settings: EMSettings, impossible: float = 0.0, way: str = "sums"
) -> dict[str, Program[Any]]:
    """``impossible``: an age in two of the rows. The first rows are held back."""
    start, members = apart(), tuple(apart().views_)
    shared = np.stack([np.arange(60)] * len(members), axis=1)
    usual = {"way": way, "joint": start.joint_, "members": members, "shared": shared}
    made: dict[str, Program[Any]] = {
        COORDINATOR: Program(training.coordinator, {**usual, "settings": settings})
    }
    for party, view in start.views_.items():
        table = three_columns()[party].table
        values = table.values.copy()
        if impossible and "age" in table.names:
            values[:2, table.schema.index("age")] = impossible
        lots, listed = np.arange(len(table)) / len(table), fc.Table(table.schema, values)
        own = replace(settings, summation=Secret(key=key(party)))
        site = EMSite(view, table, listed, lots, members, own, least=5)
        made[party] = Program(training.refined, {"way": way, "site": site})
    return made
