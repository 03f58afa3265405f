"""Whether the order of numbers in representations matters: permuted before the gather, each owner's
in its own way, F1 with and without alignment.

Encoders that learned apart have their numbers in orders that have nothing to do with each other, so
permuting them changes nothing that a fusion could have relied on. Tied ones (weights averaged while
training) have one order, which permuting destroys.
"""

import functools
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.fusion import together
from benchmarks.fusion.kept import Figures, Kept
from benchmarks.fusion.sets import TARGET, Split
from benchmarks.fusion.tables import (
    NOT_ALIGNED,
    PLAIN,
    SEEDS,
    TOGETHER,
    judged,
    plain,
    prepared,
)
from benchmarks.runner import Json, print_table
from fedcircuits.circuits.graph.family import Array
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.learning.encoders.foreign import Encoder, Frozen

SETS, HOW = ("semi-synthetic", "digits"), "random"
ORDERS = tuple(
    f"{who}, {align}{permuted}"
    for who in ("apart", "tied")
    for align in ("aligned", "not aligned")
    for permuted in ("", ", permuted")
)


class Permuted:
    """An owner's encoder whose numbers stand in another order."""

    def __init__(self, encoder: Encoder, seed: int) -> None:
        self.encoder, self.seed = encoder, seed

    def encode(self, X: fc.Table) -> Array:
        found = np.asarray(self.encoder.encode(X))
        return found[:, np.random.default_rng(self.seed).permutation(found.shape[1])]


@functools.lru_cache(maxsize=1)
def tied(name: str, owners: int | None, how: Split, seed: int) -> dict[str, Frozen]:
    train, _, ready = prepared(name, owners, how, seed)
    return together.tied(FeatureFusion(ready, random_state=seed), train, TOGETHER, every=False)


def run_one(kept: Kept, name: str, seed: int, owners: int | None = None) -> None:
    given = name, owners, HOW, seed
    for order in ORDERS:
        kept.found((name, HOW, seed, f"order, {order}"), lambda o=order: _ordered(given, o))  # type: ignore[misc]


def _ordered(given: Any, order: str) -> Figures:
    train, test, ready = prepared(*given)
    aligned = "not aligned" not in order
    if order.startswith("apart") and "permuted" not in order:
        return judged(plain(*given, aligned), test)
    encoder: dict[str, Any] = dict(ready if order.startswith("apart") else tied(*given))
    if "permuted" in order:
        encoder = {n: Permuted(e, i) for i, (n, e) in enumerate(encoder.items())}
    options = {**PLAIN, **({} if aligned else NOT_ALIGNED)}
    model = FeatureFusion(encoder, random_state=given[3], **options)
    return judged(model.fit(train, target=TARGET), test)


def show(kept: Kept) -> None:
    print("\nF1 with numbers of representations in their order, and permuted")
    print_table([
        {"encoders": n, **{s: kept.spread(s, HOW, f"order, {n}", "F1") for s in SETS}}
        for n in ORDERS
    ])  # fmt: skip


def run(kept: Kept | None = None, owners: int | None = None) -> list[Json]:
    kept = Kept() if kept is None else kept
    for name in SETS:
        for seed in SEEDS:
            run_one(kept, name, seed, owners)
    show(kept)
    return kept.results()


if __name__ == "__main__":
    run(*Kept.asked("The order of numbers in representations."))
