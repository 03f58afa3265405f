"""The walk of a reader: which files a call goes through, how many lines, how many folders.

    python -m benchmarks.walks [--files] [--json walks.json] [--only text]

Every walk is first run once unobserved, so that modules are imported and kernels compiled, then
under ``sys.setprofile`` (and ``threading.setprofile``, for what runs in threads). A question is the
first to a model that was just fitted, so that nothing is kept from an earlier one. A file of
``src/fedcircuits`` belongs to a walk when a function in it is called; lambdas, generators and
comprehensions count in the file they stand in. What numba has compiled does not show.

    files       entered by a call, in the order of first entry
    lines       distinct lines of the functions entered: their sizes added up, decorators and
                docstrings with them, a function within another one once
    changes     of folder: how often the next file to be entered for the first time lies in another
                folder of the package than the last one; ``circuits/evaluation`` is in ``circuits``
    subfolders  the same where ``circuits/evaluation`` is a folder of its own

The small tables and the questions about them serve ``benchmarks.record`` as well.
"""

import argparse
import functools
import inspect
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
import torch

import fedcircuits as fc
from benchmarks.runner import print_table

ROOT = Path(fc.__file__).parent
Questions = dict[str, Callable[[], object]]

# ---------------------------------------------------------------------- tables


@functools.cache
def mixed(rows: int = 240) -> fc.Table:
    """Columns of every kind, with gaps, that depend on one of three groups."""
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=rows)
    frame = pd.DataFrame({"age": rng.normal(35 + 12 * group, 5), "dose": rng.gamma(2.0 + group)})
    frame["weight"] = rng.normal(60 + frame["age"] / 5, 6)
    frame["visits"] = rng.poisson(2 + 2 * group)
    frame["town"] = np.array(["ash", "elm", "oak"])[(group + (rng.random(rows) < 0.2)) % 3]
    frame["smoker"] = rng.random(rows) < 0.2 + 0.2 * group
    frame["risk"] = np.where(rng.random(rows) < 0.15 + 0.35 * group, "high", "low")
    frame.loc[rng.random(rows) < 0.05, "age"] = np.nan
    return fc.Table.of(frame)


@functools.cache
def discrete(rows: int = 240) -> fc.Table:
    """Six booleans and a category."""
    town, rng = mixed(rows).column("town"), np.random.default_rng(1)
    chance = np.array([{"ash": 0.2, "elm": 0.6, "oak": 0.9}[t] for t in town])[:, None]
    votes = rng.random((rows, 6)) < chance ** np.array([1, 2, 3, 1, 2, 3])
    return fc.Table.of({**{f"x{i}": votes[:, i] for i in range(6)}, "town": town})


@functools.cache
def reals(rows: int = 240) -> fc.Table:
    """Six numbers around three centres."""
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=rows)
    return fc.Table.of(rng.normal(size=(rows, 6)) + 3 * rng.normal(size=(3, 6))[group])


@functools.cache
def sensors(rows: int = 120) -> fc.Federation:
    """Two owners of series and one of columns; the first lacks some rows."""
    rng, ids = np.random.default_rng(0), np.arange(rows)
    event, tables = rng.random(rows) < 0.4, {}
    for name in ("north", "east"):
        speed = rng.normal(size=(rows, 6, 1)) - 2 * event[:, None, None]
        tables[name] = fc.Table.from_series({"speed": speed}, columns={"event": event}, row_id=ids)
    rain = {"hour": ids, "rain": event + rng.normal(size=rows), "wet": rng.random(rows) < 0.5}
    tables["weather"] = fc.Table.of({**rain, "event": event}, row_id="hour")
    tables["north"] = tables["north"].rows(slice(10, None))
    return fc.Federation(tables, allow_collect=True)


@functools.cache
def split(table: Callable[[], fc.Table], by: str) -> fc.Federation:
    """One of these tables at three parties."""
    target = "risk" if "risk" in table().names else None
    return fc.split(table(), 3, by=by, target=target, overlap=0.2 if by == "both" else 0.0)


def strangers() -> fc.Federation:
    """Parties with different columns and without row ids."""
    frame = mixed().to_pandas()
    return fc.Federation({"a": frame[["age", "dose", "town"]], "b": frame[["weight", "risk"]]})


def overlapping() -> fc.Federation:
    """Parties with different columns of different rows, in different orders."""
    frame = reals().to_pandas().assign(id=np.arange(240))
    parts = {"a": frame[["id", "x0"]][:200], "b": frame[["id", "x1"]][:29:-1]}
    return fc.Federation({**parts, "c": frame[["id", "x2"]][20:180]}, row_id="id")


def pair() -> fc.Federation:
    """Owners whose encoders have one shape."""
    return sensors().select(["north", "east"])


# ---------------------------------------------------------------------- questions


def density(model: Any, table: fc.Table, target: str, event: str, given: str) -> Questions:
    """What every distribution answers, or refuses."""
    rows = table.to_pandas().head(20)
    rows = rows[[name for name in rows if name in model.schema_.names]]
    first, gaps = rows.columns[0], rows.drop(columns=target)
    return {
        "score_samples": lambda: model.score_samples(rows),
        "score": lambda: model.score(rows),
        "marginal": lambda: model.score_samples(rows[[first, target]]),
        "probability": lambda: model.probability(event, given=given),
        "probability of rows": lambda: model.probability(event, given=rows[[rows.columns[2]]]),
        "expect": lambda: model.expect([first], given=given),
        "expect of rows": lambda: model.expect([first], given=rows[[target]]),
        "predict_proba": lambda: model.predict_proba(rows, target),
        "predict": lambda: model.predict(rows, target),
        "predict the first": lambda: model.predict(rows, first),
        "mpe": lambda: model.mpe(gaps),
        "explain": lambda: model.explain(gaps).log_value,
        "sample": lambda: model.sample(5, random_state=0),
        "sample given": lambda: model.sample(5, given=given, random_state=0),
    }


def about_mixed(model: Any) -> Questions:
    return density(model, mixed(), "risk", "age > 45 and risk = high", "weight < 75")


def about_discrete(model: Any) -> Questions:
    return density(model, discrete(), "town", "x1 and town = elm", "x2")


def about_reals(model: Any) -> Questions:
    return density(model, reals(), "x5", "x0 > 1", "x3 < 0")


def about_mixture(model: Any) -> Questions:
    """Components too, of rows of a table and of parties; a loaded file has none."""
    rows, held = reals().rows(np.arange(20)), split(reals, "columns")
    own: Questions = {
        "components": lambda: model.predict_proba(rows),
        "components of parties": lambda: model.predict_proba(held),
        "score of parties": lambda: model.score_samples(held),
        "bic": lambda: model.bic(rows),
        "learned": lambda: [model.weights_, model.means_, model.covariances_, model.labels_],
        "bounds": lambda: [model.lower_bounds_, model.lower_bound_, model.n_iter_],
    }
    return about_reals(model) | (own if hasattr(model, "lower_bound_") else {})


def about_clusters(model: Any) -> Questions:
    rows = reals().rows(np.arange(20))
    return {
        "learned": lambda: [model.labels_, model.inertia_, model.n_iter_, model.cluster_centers_],
        "predict": lambda: model.predict(rows),
        "predict for parties": lambda: model.predict(split(reals, "columns")),
        "score": lambda: model.score(reals()),
    }


def about_trees(model: Any) -> Questions:
    rows = mixed().to_pandas().head(40)
    return {
        "predict_proba": lambda: model.predict_proba(rows),
        "predict": lambda: model.predict(rows),
        "of some columns": lambda: model.predict(rows[["age", "town"]]),
        "score": lambda: [model.score(mixed()), model.threshold_],
    }


def about_forest(model: Any) -> Questions:
    """On shares, as an outsider asks, and of the opened forest."""
    rows, asker = discrete().to_pandas().head(8), model.connect("clinic")
    return {
        "score_samples": lambda: model.score_samples(rows),
        "prepared": lambda: model.prepare(8).connect("party 1").score_samples(rows),
        "predict_proba": lambda: asker.predict_proba(rows, "town"),
        "predict": lambda: asker.predict(rows, "town"),
        "marginal": lambda: model.score_samples(rows[["x0", "town"]]),
        "opened": lambda: model.open_parameters().score_samples(rows),
        "known": lambda: [model.total_, model.sum_weights_, model.asked_, model.reveals_],
    }


def about_fusion(model: Any) -> Questions:
    """Of all owners, and of the first and third."""
    new = sensors() if "north" in model.views_ else split(mixed, "columns")
    new = new.select(list(model.views_))
    some = new.select(list(new.names[::2]))
    return {
        "predict_proba": lambda: model.predict_proba(new),
        "predict": lambda: model.predict(new),
        "score": lambda: model.score(new),
        "of some owners": lambda: model.predict(some),
        "opinions": lambda: model.opinions(new),
        "learned": lambda: [model.graph_, model.alignment_, model.history_],
    }


class Aligned:
    """``fc.aligned`` in the manner of an estimator."""

    def __init__(self, private: bool = False, random_state: int | None = None) -> None:
        self.private, self.ledger_ = private, fc.Ledger()

    def fit(self, X: fc.Federation, engine: str) -> "Aligned":
        self.rows = fc.aligned(X, private=self.private, engine=engine, ledger=self.ledger_)
        return self


def about_rows(model: Aligned) -> Questions:
    return {p.name: functools.partial(list, (p.table.row_ids, p.table.values)) for p in model.rows}


# ---------------------------------------------------------------------- walking


def walked(call: Callable[[], object]) -> list[CodeType]:
    """Code of the package that the call enters, in the order of first entry."""
    found: dict[CodeType, None] = {}

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code not in found:
            if frame.f_code.co_filename.startswith(f"{ROOT}{os.sep}"):
                found[frame.f_code] = None

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(found)


def measured(codes: list[CodeType]) -> dict[str, Any]:
    """What is counted, and the files in the order of first entry."""
    paths = list(dict.fromkeys(Path(c.co_filename).relative_to(ROOT) for c in codes))
    return {
        "files": len(paths),
        "lines": len({(c.co_filename, line) for c in codes for line in _lines(c)}),
        "changes": _changes([path.parts[:-1][:1] for path in paths]),
        "subfolders": _changes([path.parts[:-1] for path in paths]),
        "entered": [path.as_posix() for path in paths],
    }


def _changes(folders: list[tuple[str, ...]]) -> int:
    return sum(one != other for one, other in pairwise(folders))


def _lines(code: CodeType) -> range:
    """The lines of a function, from its first decorator; of a lambda or comprehension its own."""
    begin = code.co_firstlineno
    if not code.co_name.startswith("<"):
        return range(begin, begin + len(inspect.getsourcelines(code)[0]))
    return range(begin, 1 + max(line or begin for *_, line in code.co_lines()))


# ---------------------------------------------------------------------- walks


def learning() -> dict[str, Callable[[], Any]]:
    """By name, a fit that gives a new model."""
    rows, columns = split(mixed, "rows"), split(mixed, "columns")
    numbers, votes = split(reals, "columns"), split(discrete, "rows")
    seed: dict[str, Any] = {"random_state": 0}
    tree, few = {"summation": fc.Tree("path"), **seed}, {"trees": 5, "share_target": True, **seed}
    forest, fusion = {"units": 3, "max_iter": 5, **seed}, {"epochs": 3, "target": "event", **seed}
    return {
        "FedPC by columns": lambda: fc.FedPC(**seed).fit(columns),
        "FedPC by rows, refine": lambda: fc.FedPC(refine=2, **seed).fit(rows),
        "PrivateForest": lambda: fc.PrivateForest(2, **forest).fit(votes),
        "VerticalGaussianMixture, Tree": lambda: fc.VerticalGaussianMixture(3, **tree).fit(numbers),
        "VerticalGaussianMixture": lambda: fc.VerticalGaussianMixture(3, **seed).fit(numbers),
        "VerticalKMeans": lambda: fc.VerticalKMeans(3, **seed).fit(numbers),
        "FeatureFusion": lambda: fc.FeatureFusion(**fusion).fit(sensors()),
        "FedTrees by columns": lambda: fc.FedTrees(target="risk", **few).fit(columns),
        "LearnSPN": lambda: fc.LearnSPN(**seed).fit(mixed()),
    }


ASKED: dict[str, tuple[Callable[[Any], Questions], tuple[str, ...]]] = {
    "FedPC by columns": (about_mixed, ("score_samples",)),
    "PrivateForest": (about_forest, ("score_samples",)),
    "VerticalGaussianMixture, Tree": (about_mixture, ("components of parties",)),
    "VerticalGaussianMixture": (about_mixture, ("components", "score_samples")),
    "VerticalKMeans": (about_clusters, ("predict",)),
    "FeatureFusion": (about_fusion, ("predict",)),
    "FedTrees by columns": (about_trees, ("predict",)),
    "LearnSPN": (about_mixed, ("probability",)),
}


def walks(only: str) -> dict[str, dict[str, Any]]:
    """The counts of every walk."""
    found = {}
    for name, fit in learning().items():
        about, questions = ASKED.get(name, (about_mixed, ()))
        if only in f"{name}: fit":
            fit()
            found[f"{name}: fit"] = measured(walked(fit))
        for question in questions:
            if only in f"{name}: {question}":
                about(fit())[question]()
                found[f"{name}: {question}"] = measured(walked(about(fit())[question]))
    return found


def main() -> None:
    """Print the table; files and JSON where asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files of every walk")
    parser.add_argument("--json", type=Path, help="write counts and files there")
    parser.add_argument("--only", default="", help="walks with this text in their name")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = walks(given.only)
    counts = ("files", "lines", "changes", "subfolders")
    print_table([{"walk": n, **{c: w[c] for c in counts}} for n, w in found.items()])
    if given.files:
        for name, walk in found.items():
            print("", name, *(f"  {file}" for file in walk["entered"]), sep="\n")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
