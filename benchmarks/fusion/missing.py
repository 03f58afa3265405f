"""F1 when owners are missing in questions, with and without owner dropout; F1 by bytes per owner.

On the semi-synthetic rows, random split, with the encoders of the tables.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.fusion.kept import Figures, Kept
from benchmarks.fusion.sets import TARGET
from benchmarks.fusion.tables import PLAIN, SEEDS, judged, plain, prepared
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.estimators.feature_fusion import FeatureFusion

NAME, HOW = "semi-synthetic", "random"
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75)
DROPOUTS = (0.0, 0.1, 0.3, 0.6)
TRAFFIC = ("float32", "float16", "int8")


def run_one(kept: Kept, seed: int, owners: int | None = None) -> None:
    given = NAME, owners, HOW, seed
    for dropout in DROPOUTS:
        _told(kept, seed, f"dropout {dropout}", lambda d=dropout: _missing(given, d))
    for traffic in TRAFFIC:
        _told(kept, seed, f"traffic {traffic}", lambda t=traffic: _sent(given, t))


def _told(kept: Kept, seed: int, title: str, work: Any) -> None:
    kept.found((NAME, HOW, seed, title), work)


def _fitted(given: Any, **options: Any) -> FeatureFusion:
    train, _, ready = prepared(*given)
    model = FeatureFusion(ready, random_state=given[3], **{**PLAIN, **options})
    return model.fit(train, target=TARGET)


def _missing(given: Any, dropout: float) -> Figures:
    """F1 by the share of owners that are missing; the same ones for all dropouts."""
    usual = dropout == FeatureFusion().owner_dropout
    model = plain(*given, True) if usual else _fitted(given, owner_dropout=dropout)
    test = prepared(*given)[1]
    order = np.random.default_rng(given[3]).permutation(list(test.names))
    found = {}
    for share in SHARES:
        few = test.select([str(n) for n in order[round(share * len(order)) :]])
        found[f"F1 {share}"] = judged(model, few)["F1"]
    return found


def _sent(given: Any, traffic: str) -> Figures:
    model = plain(*given, True) if traffic == "float32" else _fitted(given, traffic=traffic)
    sent = [e.bytes for e in model.ledger_ if e.tag == "gather/rows"]
    return {**judged(model, prepared(*given)[1]), "bytes": float(np.mean(sent))}


def show(kept: Kept) -> None:
    def cell(row: str, figure: str) -> str | None:
        return kept.spread(NAME, HOW, row, figure)

    print("\nF1 by the share of owners that are missing in questions")
    print_table([
        {"owner dropout": d,
         **{f"{100 * s:.0f} % missing": cell(f"dropout {d}", f"F1 {s}") for s in SHARES}}
        for d in DROPOUTS
    ])  # fmt: skip
    rows: list[dict[str, Cell]] = []
    for how in TRAFFIC:
        size = kept.over_seeds(NAME, HOW, f"traffic {how}", "bytes")
        row = f"traffic {how}"
        mean = float(np.mean(size)) if size else None
        rows.append({"traffic": how, "bytes per owner": mean, "F1": cell(row, "F1"),
                     "AUC": cell(row, "AUC")})  # fmt: skip
    print_table(rows)


def picture(kept: Kept) -> Figure:
    """F1 against the share of owners missing, means and deviations."""
    figure = Figure(figsize=(6, 3.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for dropout in DROPOUTS:
        found = [kept.over_seeds(NAME, HOW, f"dropout {dropout}", f"F1 {s}") for s in SHARES]
        if all(found):
            axes.errorbar(
                [100 * s for s in SHARES], [np.mean(f) for f in found],
                [np.std(f, ddof=1) if len(f) > 1 else 0.0 for f in found], marker="o", capsize=2,
                label=f"owner dropout {dropout}",
            )  # fmt: skip
    axes.set_xlabel("owners missing in questions, %")
    axes.set_ylabel("F1")
    axes.legend(frameon=False)
    return figure


def run(kept: Kept | None = None, owners: int | None = None) -> list[Json]:
    kept = Kept() if kept is None else kept
    for seed in SEEDS:
        run_one(kept, seed, owners)
    show(kept)
    return kept.results()


if __name__ == "__main__":
    run(*Kept.asked("Owners missing, and bytes."))
