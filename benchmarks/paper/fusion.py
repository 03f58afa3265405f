"""Ma, Hoang and Chen (2023), Federated Learning of Models Pre-Trained on Different Features."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedcircuits as fc
from benchmarks.fusion import conflict, tables
from benchmarks.fusion.kept import Kept, Key
from benchmarks.fusion.sets import load
from benchmarks.paper.circuits import quiet
from benchmarks.paper.items import Item, Line, Missing, Paper, number
from benchmarks.paper.pieces import CURRENT, some

NAME, HOW, FEW = "semi-synthetic", "random", 12
TABLE_2 = {  # METR-LA, F1 and AUC
    "A horizontal averaging": ".25", "B majority vote": ".11", "C tuned threshold": ".69",
    "D best owner": ".53 / .70", "E mean pooling": ".77 / .96", "F transformer": ".78 / .94",
    "G concatenation": ".83 / .97", "H fusion, no alignment": ".80 / .96",
    "J fusion, tied": ".82 / .97", "K fusion, aligned": ".83 / .97",
    "L joint, pre-trained": ".83 / .97", "M joint, from scratch": ".77 / .94",
}  # fmt: skip
TABLE_3 = {
    "not aligned, no graph": ".768 / .957", "not aligned, given graph": ".763 / .957",
    "not aligned, knn graph": ".715 / .952", "not aligned, learned graph": ".798 / .963",
    "aligned, no graph": ".813 / .970", "aligned, given graph": ".828 / –",
    "aligned, knn graph": ".803 / .968", "aligned, learned graph": ".835 / .975",
}  # fmt: skip
SLOW = ("A horizontal averaging", "F transformer", "J fusion, tied", "L joint, pre-trained",
        "M joint, from scratch")  # fmt: skip
PLAIN = {"B majority vote", "D best owner", "E mean pooling", "G concatenation",
         "C tuned threshold", "A horizontal averaging"}  # fmt: skip


@functools.lru_cache(maxsize=2)
def _kept(path: Path | None) -> tuple[Kept, frozenset[Key]]:
    """Figures of single fits, and which of them an earlier run has left."""
    kept = Kept(None if path is None else path.with_suffix(".fusion.jsonl"))
    return kept, frozenset(kept.figures)


def _spent(seed: int, source: str) -> None:
    """Counts what an earlier run has spent on a figure."""
    kept, earlier = _kept(CURRENT[-1].path)
    if (key := (NAME, HOW, seed, source)) in earlier:
        CURRENT[-1].seconds += kept.figures[key]["cpu_seconds"]


def _figures(full: bool, title: str) -> str:
    kept, owners = _kept(CURRENT[-1].path)[0], None if full else FEW
    source = tables.SAME.get(title, title)
    for seed in some(tables.SEEDS, full):
        tables.run_one(kept, NAME, owners, HOW, seed, only=source)  # type: ignore[arg-type]
        _spent(seed, source)
    f1, auc = (kept.over_seeds(NAME, HOW, source, word) for word in ("F1", "AUC"))
    return f"{number(f1, 3)} / {number(auc, 3)}"


def table_2(full: bool) -> list[Line]:
    lines = []
    with quiet():
        for title, theirs in TABLE_2.items():
            if title in SLOW and not full:
                lines.append(Line(title, theirs, "with FULL=1"))
                continue
            found = _figures(full, title)
            own = {"baseline": found} if title in PLAIN else {"ours": found}
            lines.append(Line(title, theirs, **own))
        lines.append(Line("all series in one place", "", "", "", f"logistic {_pooled(full)}"))
    return lines


def _pooled(full: bool) -> str:
    owners = load(NAME, None if full else FEW)
    f1, auc = [], []
    for seed in some(tables.SEEDS, full):
        train, test = owners.split(HOW, seed)  # type: ignore[arg-type]
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        model.fit(*_arrays(train))
        x, y = _arrays(test)
        found = tables.scores(model.predict_proba(x), y)
        f1.append(found["F1"])
        auc.append(found["AUC"])
    return f"{number(f1, 3)} / {number(auc, 3)}"


def _arrays(parties: fc.Federation) -> tuple[np.ndarray, np.ndarray]:
    values = [party.table.series["series"].reshape(len(party.table), -1) for party in parties]
    return np.hstack(values), next(iter(parties)).table.values[:, 0]


def table_3(full: bool) -> list[Line]:
    with quiet():
        return [Line(title, theirs, _figures(full, title)) for title, theirs in TABLE_3.items()]


def figure_3(full: bool) -> list[Line]:
    kept = _kept(CURRENT[-1].path)[0]
    with quiet():
        for seed in some(tables.SEEDS, full):
            conflict.run_one(kept, seed, None if full else FEW)
            _spent(seed, "conflict")
    lines = []
    for word, title in (("mean", "mean entropy, bits"), ("above 0.5", "rows above half a bit")):
        found = kept.over_seeds(NAME, HOW, "conflict", word)
        paper = "much of it away from zero" if word == "mean" else "drawn"
        lines.append(Line(title, paper, number(found, 3)))
    return lines


ABOUT = (
    "F1 / AUC of test rows. METR-LA itself is not available; rows generated from a model of it, "
    f"which are easier, replace it, with all 207 owners with FULL=1 and {FEW} otherwise. Compare "
    "the order of the lines, not their size. Rules without a fusion are among the plain baselines."
)
PAPER = Paper(
    "fusion",
    "Feature fusion (Ma, Hoang and Chen, 2023)",
    [
        Item("fusion-table-2", "Table 2: alignment", ABOUT, table_2),
        Item("fusion-table-3", "Table 3: graphs", ABOUT, table_3),
        Item("fusion-figure-3", "Figure 3: owners that disagree",
             "Entropy of the owners' predictions for a row; same rows and encoders.", figure_3),
    ],
    [
        Missing("METR-LA and PEMS-BAY", "the paper's rows are in an archive that was not "
                "available; if git can clone it, run python -m benchmarks.fusion.tables --set "
                "metr-la"),
        Missing("PMU-B and PMU-C", "proprietary measurements of the power grid"),
        Missing("Table 1", "sizes of the data sets, nothing measured"),
        Missing("Figures 1 and 2", "drawings of the method"),
    ],
)  # fmt: skip
