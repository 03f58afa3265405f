"""Runs of every method, with the programs that its estimators give to an engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.flow import Program
from tests.federation.cases import QUICK, federation, three_columns
from tests.methods.fusion.sensors import fitted, owners
from tests.methods.private_forest.learning import PLANS
from tests.methods.private_forest.learning import programs as forest
from tests.methods.trees.cases import narrow, table
from tests.methods.vertical.mixtures import blocks_of, clustered
from tests.methods.vertical.mixtures import federation as columns

SUMS: dict[str, Any] = {"align": None, "graph": "complete"}
X = clustered(30, 5)
PARTIES = columns(X, blocks_of(5, 3), np.random.default_rng(0).random((30, 3)) < 0.9)


class Remembering:
    """The memory engine, with the programs of all its runs."""

    def __init__(self) -> None:
        self.runs: list[Mapping[str, Program[Any]]] = []

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.runs.append(dict(programs))
        return memory.run(programs, kept)


Fit = Callable[[Remembering], object]


def circuit(name: str, **settings: Any) -> Fit:
    parties = three_columns() if name == "three" else federation(name)
    few = {p.name: p.table.rows(slice(0, 60)) for p in parties}
    model = fc.FedPC(QUICK, **{"clusters": 2, "ensemble": 1, "random_state": 0, **settings})
    return lambda engine: model.fit(fc.Federation(few, allow_collect=True), engine=engine)


def questions(engine: Remembering) -> None:
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0)
    model.fit(federation("uneven"), engine=engine)
    model.probability("age > 40 and smoker = True", given="weight > 58")
    model.expect("age", given="risk = 'high' and weight < 60")
    model.sample(2, given="age > 40", random_state=2)


def of_the_root(engine: Remembering) -> None:
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0, answers="root")
    model.fit(three_columns(), engine=engine)
    model.probability("age > 40 and smoker = True", given="weight > 58")


def vertical(kind: Any, **settings: Any) -> Fit:
    def fit(engine: Remembering) -> None:
        model = kind(3, max_iter=2, random_state=0, **settings).fit(PARTIES, engine=engine)
        model.predict(X)
        model.predict(PARTIES)

    return fit


def hubs(engine: Remembering) -> None:
    frame = pd.DataFrame(X[:, :4], columns=list("abcd")).assign(e=["x", "y", "z"] * 10)
    own = {"north": ["a", "e"], "east": ["b"], "south": ["c"], "west": ["d"]}
    model = fc.VerticalGaussianMixture(2, max_iter=2, summation=fc.Tree("path"), hops=1)
    model.fit(fc.Federation({n: frame[names] for n, names in own.items()}), engine=engine)


def fusion(**settings: Any) -> Fit:
    def fit(engine: Remembering) -> None:
        few = owners((1,)) if settings.get("share_target") else owners()
        model, watched = fitted(few, **settings)
        model.predict(few)
        engine.runs += watched.programs

    return fit


def trees(by: Any, **settings: Any) -> Fit:
    rows = narrow(40) if settings.get("grow") == "together" else table(24)
    model = fc.FedTrees(target="risk", trees=2, random_state=0, **settings)
    split = fc.split(rows, 3, by=by, target="risk")
    parties = fc.Federation({p.name: p.table for p in split}, allow_collect=True)

    def fit(engine: Remembering) -> None:
        model.fit(parties, engine=engine).predict(rows)

    return fit


def chow_liu(summation: Any) -> Fit:
    rng = np.random.default_rng(0)
    rows = fc.Table.of({name: rng.random(60) < 0.4 for name in "abc"})
    model = fc.ChowLiuTree(summation=summation)
    return lambda engine: model.fit(fc.split(rows, 3, by="rows"), engine=engine)


FLAGS = fc.Table.of({name: np.random.default_rng(0).random(60) < 0.4 for name in "abc"})
MIXED = fc.Table.of({f"x{i}": np.random.default_rng(i).normal(size=60) for i in range(2)})
WIDE = fc.Table.of(np.random.default_rng(0).normal(size=(60, 6)).round(1))
WIDE_OF_KINDS = fc.Table.of({**{f"x{i}": x for i, x in enumerate(WIDE.values.T)},
                             "kind": list("aab") * 20})  # fmt: skip
EPSILON = fc.DifferentialPrivacy(4.0, 1e-5)


def summed(model: Any, rows: fc.Table = FLAGS) -> Fit:
    """One circuit by sums, of parties that hold different rows."""
    model = model.set_params(random_state=0)
    return lambda engine: model.fit(fc.split(rows, 3, by="rows"), engine=engine)


def mixed_in() -> Fit:
    """The default by rows: a circuit by sums beside those that parties learn alone."""
    model = fc.FedPC(random_state=0)
    return lambda engine: model.fit(fc.split(MIXED, 3, by="rows"), engine=engine)


def cells(parties: int, **settings: Any) -> Fit:
    """A tree over the cells of columns."""
    model, target = fc.FedPC(random_state=0, **settings), settings.get("target")
    rows = WIDE if target is None else WIDE_OF_KINDS
    split = fc.split(rows, parties, by="columns", target=target)
    return lambda engine: model.fit(split, engine=engine)


def aligned(private: bool) -> Fit:
    return lambda engine: fc.aligned(federation("uneven"), private=private, engine=engine)


def private(plan: str) -> Fit:
    return lambda engine: engine.runs.append(forest(PLANS[plan]))


def asked_privately(engine: Remembering) -> None:
    rng = np.random.default_rng(0)
    rows = fc.Table.of({name: rng.random(60) < 0.4 for name in "abc"})
    model = fc.PrivateForest(2, max_iter=2, random_state=0)
    model.fit(fc.split(rows, 3, by="rows"), engine=engine)
    model.score_samples(rows.rows([0, 1]))


CASES: dict[str, Fit] = {
    "FedPC, rows": circuit("rows"),
    "FedPC, columns": circuit("columns", weights="sizes"),
    "FedPC, target": circuit("columns", target="risk", share_target=True),
    "FedPC, clusters": circuit("uneven", share_clusters=True),
    "FedPC, pooled": circuit("both", shared_leaves="pooled"),
    "FedPC, secret": circuit("three", summation=fc.Secret()),
    "FedPC, EM by rows": circuit("rows", refine=1),
    "FedPC, EM by columns": circuit("columns", refine=1),
    "FedPC, EM by sums": circuit("three", refine=1, summation=fc.Secret()),
    "FedPC, by sums": mixed_in(),
    "FedPC, cells of five": cells(5),
    "FedPC, cells of two": cells(2),
    "FedPC, cells by class": cells(3, target="kind", rows="private"),
    "FedPC, private rows": circuit("columns", rows="private"),
    "FedPC, questions": questions,
    "FedPC, answers of the root": of_the_root,
    "mixture, hub": vertical(fc.VerticalGaussianMixture),
    "mixture, gossip": vertical(fc.VerticalGaussianMixture, summation=fc.Chebyshev("path")),
    "mixture, secret": vertical(fc.VerticalGaussianMixture, summation=fc.Secret()),
    "mixture, hops": hubs,
    "k-means": vertical(fc.VerticalKMeans, summation=fc.Tree("path")),
    "fusion": fusion(),
    "fusion, int8": fusion(traffic="int8", share_target=True),
    "fusion, votes": fusion(head="vote"),
    "fusion, sums": fusion(**SUMS, summation=fc.Hub()),
    "fusion, noise": fusion(clip=1.0, noise=0.5),
    "trees, rows": trees("rows", threshold="macro-f1"),
    "trees, columns": trees("columns", share_target=True),
    "trees, together": trees("rows", grow="together"),
    "trees, secret": trees("rows", grow="together", summation=fc.Secret()),
    "trees, noise": trees("rows", grow="together", privacy=EPSILON),
    "products by sums": summed(fc.MixtureOfProducts(2, max_iter=2)),
    "products by masked sums": summed(fc.MixtureOfProducts(2, max_iter=2, summation=fc.Masked())),
    "products by noisy sums": summed(fc.MixtureOfProducts(2, max_iter=2, privacy=EPSILON)),
    "hidden tree by sums": summed(fc.HiddenChowLiuTree(2, epochs=1)),
    "einsum network by sums": summed(fc.EinsumNetwork(2, repetitions=1, epochs=1)),
    "normals by sums": summed(fc.MixtureOfNormals(2, max_iter=2), MIXED),
    "alignment": aligned(False),
    "private alignment": aligned(True),
    "Chow-Liu, hub": chow_liu(fc.Hub()),
    "Chow-Liu, secret": chow_liu(fc.Secret()),
    "forest, average": private("average"),
    "forest, concatenate": private("concatenate"),
    "forest, EM": private("em"),
    "forest, questions": asked_privately,
}


@functools.cache
def programs_of(name: str) -> tuple[Mapping[str, Program[Any]], ...]:
    """Of training, and of questions where some are asked."""
    engine = Remembering()
    CASES[name](engine)
    assert engine.runs
    return tuple(engine.runs)
