"""F1 when owners are missing in questions, with and without owner dropout; F1 by bytes an owner;
and a check that the order of numbers in a representation does not matter once they are aligned.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import fedcircuits as fc
from benchmarks.federated.scores import spread
from benchmarks.fusion.sets import TARGET, load
from benchmarks.fusion.tables import encoders_of, scores
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.circuits.family import Array
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.learning.encoders import Encoder

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75)
DROPOUTS = (0.0, 0.1, 0.3)


class Permuted:
    """An owner's encoder whose numbers stand in another order."""

    def __init__(self, encoder: Encoder, seed: int) -> None:
        self.encoder, self.seed = encoder, seed

    def encode(self, X: fc.Table) -> Array:
        found = np.asarray(self.encoder.encode(X))
        return found[:, np.random.default_rng(self.seed).permutation(found.shape[1])]


def run(owners: int | None = None, seeds: int = 5, epochs: int = 60) -> list[Json]:
    data = load("semi-synthetic", owners)
    missing: dict[float, dict[float, list[float]]] = {d: {s: [] for s in SHARES} for d in DROPOUTS}
    traffic: dict[str, list[float]] = {}
    size: dict[str, float] = {}
    order: dict[str, list[float]] = {}
    for seed in range(seeds):
        train, test = data.split("random", seed)
        ready = encoders_of(train, epochs, seed)
        rng = np.random.default_rng(seed)
        gone = {s: rng.permutation(list(test.names))[round(s * len(test)) :] for s in SHARES}
        for dropout in DROPOUTS:
            model = _fitted(ready, train, seed, owner_dropout=dropout)
            for share, present in gone.items():
                few = test.select([str(n) for n in present])
                missing[dropout][share].append(scores(model, few)[0])
        for how in ("float32", "float16", "int8"):
            model = _fitted(ready, train, seed, traffic=how)
            traffic.setdefault(how, []).append(scores(model, test)[0])
            sent = [e.bytes for e in model.ledger_ if e.tag == "gather/rows"]
            size[how] = float(np.mean(sent))
        mixed = {n: Permuted(e, i) for i, (n, e) in enumerate(ready.items())}
        for align in ("linear", None):
            for name, encoder in (("as learned", ready), ("permuted", mixed)):
                model = _fitted(encoder, train, seed, align=align)
                title = f"{'aligned' if align else 'not aligned'}, {name}"
                order.setdefault(title, []).append(scores(model, test)[0])
    _show(missing, traffic, size, order)
    return [
        *({"table": "missing", "dropout": d, "share": s, "F1": f}  # type: ignore[dict-item]
          for d, own in missing.items() for s, f in own.items()),
        *({"table": "traffic", "traffic": h, "F1": f, "bytes": size[h]}  # type: ignore[dict-item]
          for h, f in traffic.items()),
        *({"table": "order", "row": n, "F1": f} for n, f in order.items()),  # type: ignore[dict-item]
    ]  # fmt: skip


def _fitted(encoder: Any, train: fc.Federation, seed: int, **options: Any) -> FeatureFusion:
    return FeatureFusion(encoder, random_state=seed, **options).fit(train, target=TARGET)


def _show(missing: Any, traffic: Any, size: Any, order: Any) -> None:
    rows: list[dict[str, Cell]] = [
        {"owner dropout": d, **{f"{100 * s:.0f} % missing": spread(f) for s, f in own.items()}}
        for d, own in missing.items()
    ]
    print("\nF1 by the share of owners that are missing in questions")
    print_table(rows)
    print_table([{"traffic": h, "bytes an owner": size[h], "F1": spread(f)}
                 for h, f in traffic.items()])  # fmt: skip
    print_table([{"representations": n, "F1": spread(f)} for n, f in order.items()])


def picture(results: list[Json]) -> Figure:
    """F1 against the share of owners missing."""
    figure = Figure(figsize=(6, 3.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for dropout in DROPOUTS:
        own = [r for r in results if isinstance(r, dict) and r.get("dropout") == dropout]
        shares = [100 * float(r["share"]) for r in own]  # type: ignore[arg-type]
        axes.plot(shares, [np.mean(r["F1"]) for r in own], "o-", label=f"owner dropout {dropout}")  # type: ignore[arg-type]
    axes.set_xlabel("owners missing in questions, %")
    axes.set_ylabel("F1")
    axes.legend(frameon=False)
    return figure
