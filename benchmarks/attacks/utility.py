"""What each protection costs: likelihood, macro-F1 and CPU seconds, next to the model without it.

Three parties; means over two seeds, which shuffle and split the table. Adult has 1,000 training
rows and 1,000 test rows, breast cancer 398 and 171, nltcs 1,500 (or all 16,181) and 1,000.
Likelihoods are per test row, and macro-F1 is that of the class. Seconds are those of one core, for
training and for the likelihoods of the test rows. "nothing" has every protection turned off; each
line below it turns one on, except "the default". δ is 1e-5. FeatureFusion sends columns with
"nothing"; with ε its representations are clipped to norm 1 and noisy, where ε is for one query and
one owner's representation of a row, and δ is 1e-6. FedPC by rows learns one circuit by sums only
if these are masked or secret, so that protection makes it better there, and slower. FedPC by
columns joins combinations of clusters, except with share_clusters=False and by default, where it
joins tables of pairs: these are better.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

import fedcircuits as fc
from benchmarks.attacks.measuring import commit, kept, made
from benchmarks.data import density_set, mixed_adult, mixed_breast_cancer
from benchmarks.runner import Cell, print_table, write_json
from fedcircuits.errors import FedcircuitsError

SEEDS = range(2)
Tables = tuple[fc.Table, fc.Table, str | None]  # to learn from, to test, the class


def adult(seed: int) -> Tables:
    return *_shuffled(*mixed_adult(1000), seed), "income"


def breast_cancer(seed: int) -> Tables:
    return *_shuffled(*mixed_breast_cancer(), seed), "diagnosis"


def nltcs(rows: int, seed: int) -> Tables:
    with np.load(density_set("nltcs")) as file:
        train, test = file["train"].astype(bool), file["test"].astype(bool)
    train = train[np.random.default_rng(seed).permutation(len(train))[:rows]]
    return fc.Table.of(train), fc.Table.of(test[:1000]), None


def _shuffled(train: fc.Table, test: fc.Table, seed: int) -> tuple[fc.Table, fc.Table]:
    every = np.concatenate([train.values, test.values])
    every = every[np.random.default_rng(seed).permutation(len(every))]
    return fc.Table(train.schema, every[: len(train)]), fc.Table(train.schema, every[len(train) :])


ALL = "nltcs, all rows"
SETS: dict[str, Callable[[int], Tables]] = {
    "adult": adult,
    "breast cancer": breast_cancer,
    "nltcs": partial(nltcs, 1500),
    ALL: partial(nltcs, 16_181),
}
OFF = {"share_clusters": True}
COLUMNS: dict[str, tuple[dict[str, Any], int | None]] = {  # of the model, the least count
    "nothing": (OFF, 1),
    "sealed": ({**OFF, "sealed": True}, 1),
    "share_clusters=False": ({}, 1),
    "least_count=5": (OFF, 5),
    "least_count=20": (OFF, 20),
    "the default": ({}, None),
    "rows='private'": ({**OFF, "rows": "private"}, 1),
    "answers='root'": ({**OFF, "answers": "root"}, 1),
    "summation=Secret()": ({**OFF, "summation": fc.Secret()}, 1),
}
BY_ROWS: dict[str, tuple[dict[str, Any], int | None]] = {
    "nothing": ({"summation": fc.Hub()}, 1),
    "summation=Masked()": ({"summation": fc.Masked()}, 1),
    "summation=Secret()": ({"summation": fc.Secret()}, 1),
    "least_count=5": ({"summation": fc.Hub()}, 5),
    "least_count=20": ({"summation": fc.Hub()}, 20),
    "the default": ({}, None),
}
FUSED: dict[str, dict[str, Any]] = {
    "nothing": {"encoder": "summary"},
    "the default": {},
    **{f"ε = {e}": {"clip": 1.0, "epsilon": e} for e in (0.5, 1, 4)},
    "summation=Secret()": {"summation": fc.Secret(), "align": None, "graph": "complete"},
}
ROWS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "summation=Secret()": {"summation": fc.Secret()},
    **{f"ε = {e}": {"epsilon": e} for e in (0.5, 1, 4)},
    **{f"ε = {e}, Secret()": {"epsilon": e, "summation": fc.Secret()} for e in (0.5, 1, 4)},
}


SUMMED: dict[str, Callable[..., Any]] = {
    "MixtureOfProducts(8)": partial(fc.MixtureOfProducts, 8),
    "HiddenChowLiuTree(8)": partial(fc.HiddenChowLiuTree, 8),
}
Jobs = list[tuple[str, str, str, Callable[..., Any]]]  # set, method, protection, how to learn


def jobs() -> Jobs:
    found: Jobs = []
    for name in SETS:
        for setting, (settings, least) in COLUMNS.items() if name != ALL else ():
            learn = partial(fedpc, "columns", settings, least)
            found.append((name, "FedPC, by columns", setting, learn))
        for setting, (settings, least) in BY_ROWS.items() if name != ALL else ():
            found.append((name, "FedPC, by rows", setting, partial(fedpc, "rows", settings, least)))
        for setting, settings in FUSED.items() if not name.startswith("nltcs") else ():
            found.append((name, "FeatureFusion, by columns", setting, partial(fusion, settings)))
        method, grow = ("ChowLiuTree", tree) if name.startswith("nltcs") else ("FedTrees", trees)
        for setting, settings in ROWS.items():
            found.append((name, f"{method}, by rows", setting, partial(grow, settings)))
        for method, learner in SUMMED.items() if name == ALL else ():
            for setting, settings in ROWS.items():
                found.append(
                    (name, f"{method}, by rows", setting, partial(summed, learner, settings))
                )
    return found


def run(known: Sequence[dict[str, Cell]] = (), only: str = "") -> list[dict[str, Cell]]:
    """All rows; those that are known are not measured again. ``only``: those with this text."""
    named = {tuple(row[name] for name in ("set", "method", "protection")): row for row in known}
    rows: list[dict[str, Cell]] = []
    for name, method, protection, make in jobs():
        row = named.get((name, method, protection))
        if row is None and only in f"{name} {method} {protection}":
            row = _row(name, method, protection, SETS[name], make)
        rows += [] if row is None else [row]
    return rows


def _row(
    name: str, method: str, protected: str, tables: Any, make: Callable[..., Any]
) -> dict[str, Cell]:
    """Means of all figures; empty ones where the setting is not there or refused."""
    row: dict[str, Cell] = {"set": name, "method": method, "protection": protected}
    try:
        found = [measured(tables(seed), make, seed) for seed in SEEDS]
    except (TypeError, FedcircuitsError) as error:
        print(f"not measured: {name}, {method}, {protected}: {error}", file=sys.stderr)
        return {**row, "log-likelihood": None}
    for figure in found[0]:
        values = [one[figure] for one in found if one[figure] is not None]
        row[figure] = float(np.mean(values)) if values else None
    print_table([row])
    return {**row, "commit": commit()}


def measured(tables: Tables, make: Callable[..., Any], seed: int) -> Mapping[str, float | None]:
    train, test, target = tables
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        fitted = make(train, target, seed)
        learned = time.process_time()
        scores = fitted.score_samples(test) if hasattr(fitted, "score_samples") else None
        asked = time.process_time()
        f1 = None
        if target is not None:
            truth = np.asarray(test.column(target)).astype(str)
            fused = isinstance(fitted, fc.FeatureFusion)
            rows = fc.split(test, 3, by="columns", target=target, seed=seed) if fused else test
            said = np.asarray(fitted.predict(rows)).astype(str)
            f1 = float(f1_score(truth, said, average="macro"))
    return {
        "log-likelihood": None if scores is None else float(np.mean(scores)),
        "macro-F1": f1,
        "learning, s": learned - start,
        "asking, s": None if scores is None else asked - learned,
    }


def fusion(settings: Any, train: fc.Table, target: Any, seed: int) -> Any:
    parties = fc.split(train, 3, by="columns", target=target, seed=seed)
    given = {name: value for name, value in settings.items() if name != "epsilon"}
    if "epsilon" in settings:
        given["noise"] = fc.DifferentialPrivacy(settings["epsilon"], 1e-6).clip_noise()
    model = fc.FeatureFusion(**given, target=target, share_target=True, random_state=seed)
    return model.fit(parties)


def fedpc(
    by: Any, settings: Any, least: int | None, train: fc.Table, target: Any, seed: int
) -> Any:
    federation = fc.split(train, 3, by=by, target=target, seed=seed)
    if least is not None:
        tables = {party.name: party.table for party in federation}
        federation = fc.Federation(tables, least_count=least)
    given = {name: value for name, value in settings.items() if name != "sealed"}
    model = made(fc.FedPC, {**given, "target": target, "random_state": seed})
    model.sealed = settings.get("sealed", "auto")  # in memory nothing is relayed, so not by itself
    return model.fit(federation)


def tree(settings: Any, train: fc.Table, target: Any, seed: int) -> Any:
    return made(fc.ChowLiuTree, _private(settings)).fit(fc.split(train, 3, by="rows", seed=seed))


def summed(learner: Any, settings: Any, train: fc.Table, target: Any, seed: int) -> Any:
    model = learner(**_private(settings), random_state=seed)
    return model.fit(fc.split(train, 3, by="rows", seed=seed))


def trees(settings: Any, train: fc.Table, target: Any, seed: int) -> Any:
    federation = fc.split(train, 3, by="rows", seed=seed, target=target, allow_collect=True)
    more = {"target": target, "grow": "together", "random_state": seed}
    return made(fc.FedTrees, {**_private(settings), **more}).fit(federation)


def _private(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in settings.items() if name != "epsilon"}
    if "epsilon" in settings:
        kept["privacy"] = fc.DifferentialPrivacy(settings["epsilon"], 1e-5)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/utility.json"))
    parser.add_argument("--again", default="", help="measure anew what has this in its name")
    parser.add_argument("--only", default="", help="of what is not known, what has this in it")
    chosen = parser.parse_args()
    known = kept(chosen.output)
    found = [row for row in known if row.get("learning, s") is not None]
    if chosen.again:
        found = [row for row in found if chosen.again not in " ".join(map(str, row.values()))]
    rows = run(found, chosen.only)
    print()
    print_table(rows)
    write_json(chosen.output, {"section": "utility", "results": [dict(row) for row in rows]})


if __name__ == "__main__":
    main()
