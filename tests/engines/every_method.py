"""Every method, trained and asked in two engines at once: equal programs, equal to the last bit."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

import fedcircuits as fc
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.federation.flow import Program
from fedcircuits.testing.protocols.trial import difference
from tests.estimators.fusions import one_by_one
from tests.federation.cases import QUICK, federation, gaps, mixed_table, three_columns

ROWS = fc.Table(mixed_table().schema, gaps(12))


class Compared:
    """An engine that runs everything in memory too, and raises AssertionError where results or
    messages differ. Both get equal programs: the same keys, drawn once. In memory too each party
    computes alone, since work that is done for several at once is equal up to rounding."""

    def __init__(self, other: Engine) -> None:
        self.other, self.runs = other, 0

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.runs += 1
        found = self.other(deepcopy(dict(programs)), kept)
        expected = one_by_one(programs, kept)
        assert not found.lost, found.lost
        for name, result in expected.results.items():
            problem = difference(result, found.results[name])
            assert not problem, f"run {self.runs}: the result of {name} is another one, {problem}"
        assert _by_way(found) == _by_way(expected), "other messages"
        return expected


def _by_way(outcome: Outcome[Any]) -> dict[tuple[str, str], list[tuple[str, int, str]]]:
    ways: dict[tuple[str, str], list[tuple[str, int, str]]] = defaultdict(list)
    for e in outcome.ledger:
        ways[e.sender, e.receiver].append((e.tag, e.bytes, e.reveals))
    return ways


def _fedpc(split: str, **settings: Any) -> Callable[[Engine], object]:
    def train(engine: Engine) -> None:
        parties = three_columns() if split == "three" else federation(split)
        usual: dict[str, Any] = {"clusters": 2, "ensemble": 2, "random_state": 0}
        model = fc.FedPC(QUICK, **usual | settings).fit(parties, engine=engine)
        model.score_samples(ROWS)
        model.probability("age > 40", given="smoker = True")
        if settings.get("answers") != "root":
            model.sample(5, given="age > 40", random_state=3)

    return train


def _mixture(summation: Any) -> Callable[[Engine], object]:
    def train(engine: Engine) -> None:
        rows = fc.Table.of(np.random.default_rng(0).normal(size=(90, 6)))
        parties = fc.split(rows, 3, by="columns")
        settings = {"max_iter": 4, "random_state": 0, "tol": 0.0, "summation": summation}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has not converged
            model = fc.VerticalGaussianMixture(2, **settings).fit(parties, engine=engine)
        model.predict(parties)

    return train


def _kmeans(engine: Engine) -> None:
    rows = fc.Table.of(np.random.default_rng(1).normal(size=(90, 6)))
    parties = fc.split(rows, 3, by="columns")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fc.VerticalKMeans(3, random_state=0).fit(parties, engine=engine).predict(parties)


def _forest(engine: Engine) -> None:
    bits = np.random.default_rng(2).random((80, 4)) < 0.4
    rows = fc.Table.of(bits)
    settings = {"units": 3, "combine": "concatenate", "max_iter": 4, "random_state": 1}
    model = fc.PrivateForest(2, **settings).fit(fc.split(rows, 3, seed=2), engine=engine)
    model.score_samples(rows.rows([0, 1]))


def _fusion(engine: Engine) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 6))
    names = [f"x{i}" for i in range(6)]
    rows = dict(zip(names, x.T, strict=True)) | {"event": x[:, 0] + x[:, 3] > 0}
    parties = fc.split(fc.Table.of(rows), 2, by="columns", target="event")
    model = fc.FeatureFusion(
        fc.TabularEncoder(epochs=3), epochs=3, share_target=True, random_state=0
    )
    model.fit(parties, target="event", engine=engine).predict_proba(parties)


def _trees(by: Any, **settings: Any) -> Callable[[Engine], object]:
    def train(engine: Engine) -> None:
        parties = fc.split(mixed_table(80), 3, by=by, target="risk", seed=2)
        trees = fc.FedTrees(target="risk", share_target=True, trees=2, random_state=0, **settings)
        trees.fit(parties, engine=engine).predict_proba(ROWS)

    return train


def _chow_liu(summation: Any) -> Callable[[Engine], object]:
    def train(engine: Engine) -> None:
        rows = mixed_table(100).select(["colour", "smoker", "risk"])
        fc.ChowLiuTree(summation=summation).fit(fc.split(rows, 3), engine=engine)

    return train


METHODS: dict[str, Callable[[Engine], object]] = {
    "FedPC by rows": _fedpc("rows"),
    "FedPC by rows, refined": _fedpc("rows", refine=2),
    "FedPC by columns": _fedpc("columns"),
    "FedPC by columns, refined": _fedpc("columns", refine=2, validation=0.2),
    "FedPC by both": _fedpc("both"),
    "FedPC, uneven, refined": _fedpc("uneven", refine=1, target="risk", share_target=True),
    "FedPC on secret sums": _fedpc("three", summation=fc.Secret(), weights="em", ensemble=1),
    "FedPC, answers of the root": _fedpc("three", answers="root"),
    "mixture with a hub": _mixture(fc.Hub()),
    "mixture along a tree": _mixture(fc.Tree("complete")),
    "k-means": _kmeans,
    "private forest": _forest,
    "fusion": _fusion,
    "trees apart": _trees("rows"),
    "trees together": _trees("columns", grow="together"),
    "Chow–Liu": _chow_liu(fc.Hub()),
    "Chow–Liu on secret sums": _chow_liu(fc.Secret()),
}
