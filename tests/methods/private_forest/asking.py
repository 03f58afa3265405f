"""Private forests of a test: circuits with random parameters, parties with fixed keys, queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters, random_weights
from fedcircuits.circuits.graph.structures import latent_tree, mixture_of_products, random_binary
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.methods.private_forest.masks import MaskBatch, MaskStore, prepare
from fedcircuits.methods.private_forest.model import Forest, ForestView, ModelShares, bounded
from fedcircuits.methods.private_forest.parameters import dealt, encoded
from fedcircuits.methods.private_forest.query import ask, respond
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.tables.schema import Schema, Variable
from tests.privacy.parties import key, names

ASKER = "doctor"
RUN = "training 1"
CLOSE = 2e-5  # nats
Programs = dict[str, Program[Any]]


def booleans(count: int) -> Schema:
    return Schema(tuple(Variable(f"v{i}", "boolean") for i in range(count)))


def mixed(count: int = 5) -> Schema:
    """Booleans, and categories of three and four codes."""
    extra = Variable("a", "category", tuple("xyz")), Variable("b", "category", tuple("wxyz"))
    return Schema((*booleans(count).variables, *extra))


def chain(schema: Schema) -> Any:
    import networkx as nx

    return nx.path_graph(list(schema.names))


def circuits() -> dict[str, Circuit]:
    rng, schema = np.random.default_rng(5), mixed()
    three = booleans(3)
    leaves = [Leaf(f"l{i}", "bernoulli", (f"v{i}",), 2) for i in range(3)]
    pair = Product("pair", ("l0", "l1"), outer=True)
    both = Sum("one", ("pair",), 3), Sum("two", ("pair",), 3)  # two sums read one outer product
    tops = Product("top1", ("one", "l2"), outer=True), Product("top2", ("two", "l2"), outer=True)
    shared = (*leaves, pair, *both, *tops, Sum("root", ("top1", "top2")))
    whole, rest = (Leaf(f"w{i}", "bernoulli", three.names[i:], 2) for i in (0, 1))
    split = Product("split", ("l0", "w1"), outer=True)
    below = Sum("below", ("w1",), 2), Product("long", ("l0", "below"), outer=True)
    return {
        "uneven": Circuit((leaves[0], whole, rest, split, Sum("root", ("w0", "split"))), three),
        "uneven pairs": Circuit(
            (leaves[0], rest, split, *below, Sum("root", ("split", "long"))), three
        ),
        "flat": mixture_of_products(schema, 4),
        "side by side": side_by_side(schema, (2, 3, 1)),
        "depth 2": random_binary(schema, depth=2, repetitions=3, units=2, rng=rng),
        "depth 3": random_binary(schema, depth=3, repetitions=2, units=2, rng=rng),
        "tree": latent_tree(schema, chain(schema), 2),  # elementwise products over sums
        "shared": Circuit(shared, three),
    }


def side_by_side(schema: Schema, components: tuple[int, ...]) -> Circuit:
    """Components of several parties under one root."""
    nodes: list[Any] = []
    for k, units in enumerate(components):
        for node in mixture_of_products(schema, units).nodes[:-1]:
            if isinstance(node, Leaf):
                nodes.append(Leaf(f"{k}/{node.name}", node.family, node.scope, units))
            else:
                nodes.append(Product(f"{k}", tuple(f"{k}/{c}" for c in node.children)))
    tops = tuple(str(k) for k in range(len(components)))
    if len({v.size for v in schema}) == 1:
        tops = tuple(node.name for node in nodes)
    return Circuit((*nodes, Sum("root", tops)), schema)


def parameters(forest: Forest, seed: int = 0, alpha: float = 0.6) -> Parameters:
    rng, circuit = np.random.default_rng(seed), forest.circuit
    values: dict[str, Any] = dict(random_weights(circuit, rng))
    for leaf in circuit.leaves():
        size = circuit.schema[leaf.scope[0]].size
        p = rng.dirichlet(np.full(size, alpha), (leaf.units, len(leaf.scope)))
        values[leaf.name] = {"probability": p[..., 1] if leaf.family == "bernoulli" else p}
    found = bounded(forest, Parameters(values))
    found.check(circuit)
    return found


def mixture(forest: Forest, p: Array, weight: Array) -> Parameters:
    """Of a flat forest of booleans in one leaf."""
    [leaf] = forest.circuit.leaves()
    return Parameters({leaf.name: {"probability": p}, "root": {"weight": weight[None]}})


def points(schema: Schema, rows: int, seed: int = 0, missing: float = 0.0) -> Array:
    rng = np.random.default_rng(seed)
    x = np.stack([rng.integers(0, v.size, rows) for v in schema], 1).astype(float)
    x[rng.random(x.shape) < missing] = np.nan
    return x


def exact(forest: Forest, learned: Parameters, x: Array) -> Array:
    return Distribution(forest.circuit, learned).log_values_within(x, {})


# ---------------------------------------------------------------------- running


def deals(
    me: str, members: tuple[str, ...], key: bytes, forest: Forest, owners: Any, own: Any
) -> Flow[ModelShares]:
    group = Group.of(me, members, key, "deal")
    return (yield from dealt(group, forest, RUN, owners, own))


def dealing(forest: Forest, learned: Parameters, count: int) -> Programs:
    """The first party knows the model."""
    members = names(count)
    return {
        me: Program(
            deals,
            {
                "me": me,
                "members": members,
                "key": key(me),
                "forest": forest,
                "owners": members[0],
                "own": learned if me == members[0] else None,
            },
        )
        for me in members
    }


def preparing(forest: Forest, count: int, rows: int, label: str = "", **chosen: int) -> Programs:
    members = names(count)
    return {
        me: Program(
            prepare,
            {
                "view": ForestView(forest, ModelShares(RUN, me, members, {})),
                "rows": rows,
                "key": key(f"{me} prepares {label}"),
                **chosen,
            },
        )
        for me in members
    }


def asking(
    forest: Forest,
    shares: Mapping[str, ModelShares],
    batches: Mapping[str, MaskBatch],
    x: Array,
    asker: str = ASKER,
    label: str = "",
) -> Programs:
    found: Programs = {
        me: Program(
            respond,
            {
                "view": ForestView(forest, own),
                "masks": (batches[me],),
                "asker": asker,
                "key": key(f"{me} answers {label}"),
                "points": x if me == asker else None,
            },
        )
        for me, own in shares.items()
    }
    if asker not in shares:
        own = {"me": asker, "members": tuple(shares), "forest": forest}
        found[asker] = Program(ask, {**own, "points": x, "key": key(f"asks {label}")})
    return found


def run(programs: Programs) -> Outcome[Any]:
    outcome = memory.run(programs)
    assert not outcome.lost, "; ".join(map(str, outcome.lost.values()))
    return outcome


def held(forest: Forest, learned: Parameters, count: int) -> dict[str, ModelShares]:
    return run(dealing(forest, learned, count)).results


def known(forest: Forest, learned: Parameters, me: str, members: tuple[str, ...]) -> ModelShares:
    """Shares of parameters that all parties know: polynomials of degree 0."""
    return ModelShares(RUN, me, members, encoded(forest, learned, len(members)))


def stores(
    forest: Forest, count: int, rows: int, label: str = "", **chosen: int
) -> dict[str, MaskStore]:
    return run(preparing(forest, count, rows, label, **chosen)).results


def taken(prepared: Mapping[str, MaskStore], rows: int) -> dict[str, MaskBatch]:
    return {me: next_of(own, rows) for me, own in prepared.items()}


def next_of(store: MaskStore, rows: int) -> MaskBatch:
    """The first so many that are left."""
    start = max((stop for _, stop in store.given), default=0)
    return store.hand_out(start, start + rows)


def ready(
    forest: Forest, learned: Parameters, count: int, x: Array, asker: str = ASKER
) -> Programs:
    """The programs of one query."""
    batches = taken(stores(forest, count, len(x)), len(x))
    return asking(forest, held(forest, learned, count), batches, x, asker)


def answer(forest: Forest, learned: Parameters, count: int, x: Array, asker: str = ASKER) -> Array:
    results = run(ready(forest, learned, count, x, asker)).results
    found = results.pop(asker)
    assert set(results.values()) <= {None}
    return np.asarray(found)
