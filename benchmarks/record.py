"""What every estimator learns, answers, sends and saves on small tables, before and after a change.

    python -m benchmarks.record write before.json --keep-files files
    python -m benchmarks.record compare before.json --files files

``write`` fits each case and keeps every answer number by number (floats in hexadecimal, to the last
bit), messages, bytes, tags with counts, the order of messages, what was revealed, notes, warnings,
and SHA-256 of the saved file and its members. ``compare`` does it again with the present code,
prints a table and below it what differs, and exits with 1 if an answer does. ``--files`` also asks
the files that ``write`` kept; ``--only text`` takes the cases with this text in their name.

Answers must be equal bit for bit. Where two runs of the same code differ, VARIES and the JSON say
why: answers then have a tolerance, and what else varies is not compared. Only public names of the
package are used.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks import walks
from benchmarks.runner import THREAD_LIMITS, print_table
from benchmarks.walks import discrete, mixed, reals, split

Record = dict[str, Any]
LEDGERS = ("ledger_", "queries_")
HISTORIES = ("history_", "validation_history_")
DIFFER = "DIFFER"
Variants = dict[str, dict[str, Any]]

# ---------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Group:
    """Cases that differ in settings: what ``make`` gives learns from ``data`` and is asked."""

    name: str
    make: Callable[..., Any]
    data: Callable[[], object]
    ask: Callable[[Any], walks.Questions]
    variants: Variants


def clustered(kind: Any, **settings: Any) -> fc.FedPC:
    """A circuit on clusters that were found before."""
    found = kind(3, random_state=0).fit(split(reals, "columns"))
    return fc.FedPC(clusters=found, **settings)


def by(how: str, table: Callable[[], fc.Table] = mixed) -> Callable[[], fc.Federation]:
    return functools.partial(split, table, how)


def each(settings: Mapping[str, object], variants: Variants) -> Variants:
    return {name: {**settings, **more} for name, more in variants.items()}


SECRET, PATH = {"summation": fc.Secret()}, {"summation": fc.Tree("path")}
SIZES, EM, REFINE = {"weights": "sizes"}, {"weights": "em"}, {"refine": 3}
ALL_ROWS = {"refine": 2, "validation": 0.0}  # what EM learns is kept, whatever held rows say
TARGET, SHARED = {"target": "risk"}, {"target": "risk", "share_target": True}
BY_SUMMATION: Variants = {
    "Hub": {}, "Hub float32": {"summation": fc.Hub("float32")}, "Tree": PATH, "Secret": SECRET,
    "Chebyshev": {"summation": fc.Chebyshev("path")}, "hops": {**PATH, "hops": 1},
    "Metropolis": {"summation": fc.Metropolis("complete")}, "process, Tree": PATH,
}  # fmt: skip
SUMS = {"align": None, "graph": "complete"}
ENCODER, SERIES = fc.TabularEncoder(epochs=3), fc.SequenceEncoder(cell="gru", epochs=3)
ENCODERS = {"north": SERIES, "east": SERIES, "weather": ENCODER}
TOKENS = ({"": 1e-9}, {"file": "shared rows are added up in the order of tokens of a fresh key"})
VARIES: dict[str, tuple[dict[str, float | None], dict[str, str]]] = {
    # by text in the title: tolerance by question (None: not compared), what else varies, and why
    "PrivateForest": ({"": 5e-5, "opened": 1e-9}, {"answers": "shares are drawn, then rounded"}),
    **dict.fromkeys(("weights em", "columns, refine", "both, refine", "Secret, refine"), TOKENS),
    "Vertical": TOKENS,
    "batches": ({"": None}, {"answers": "batches are ranges of the order of tokens"}),
    "noise": ({"": None}, {"file": "noise comes from a fresh key of the owners"}),
    "process": ({}, {"order": "parties send at once"}),
}
GROUPS = [
    Group("MixtureOfProducts", fc.MixtureOfProducts, mixed, walks.about_mixed, {"": {}}),
    Group("LearnSPN", fc.LearnSPN, mixed, walks.about_mixed,
          {"": {}, "ensemble": {"ensemble": 2, "refine": 2}}),
    Group("EinsumNetwork", fc.EinsumNetwork, mixed, walks.about_mixed,
          each({"units": 3, "repetitions": 2, "epochs": 3},
               {"em": {}, "gradient": {"training": "gradient"}, "target": TARGET})),
    Group("HiddenChowLiuTree", fc.HiddenChowLiuTree, mixed, walks.about_mixed,
          {"": {"units": 3, "epochs": 3}}),
    Group("MixtureOfChowLiuTrees", fc.MixtureOfChowLiuTrees, discrete, walks.about_discrete,
          {"": {"components": 2, "ensemble": 2}}),
    Group("ChowLiuTree", fc.ChowLiuTree, discrete, walks.about_discrete, {"": {}}),
    Group("ChowLiuTree by rows", fc.ChowLiuTree, by("rows", discrete), walks.about_discrete,
          {"Hub": {}, "Tree": PATH, "Secret": SECRET}),
    Group("External", fc.External, reals, walks.about_reals, {"": {"learner": GaussianMixture(2)}}),
    Group("FedPC by rows", fc.FedPC, by("rows"), walks.about_mixed,
          {"": {}, "target": TARGET, "sizes": SIZES, "refine": REFINE, "Tree": {**ALL_ROWS, **PATH},
           "Secret": {**ALL_ROWS, **SECRET}, "refine, all rows": ALL_ROWS}),
    Group("FedPC by columns", fc.FedPC, by("columns"), walks.about_mixed,
          {"": {}, "process": {}, "target": TARGET, "share_target": SHARED, "sizes": SIZES,
           "weights em": EM, "refine": REFINE, "refine, all rows": ALL_ROWS, "Secret": SECRET,
           "Secret, weights em": {**SECRET, **EM}, "Secret, refine": {**SECRET, **REFINE},
           "Secret, refine, all rows": {**SECRET, **ALL_ROWS},
           "ensemble": {"ensemble": 3, "clusters": 2},
           "apart": {"share_clusters": False, "learner": fc.MixtureOfProducts(2)}}),
    Group("FedPC by both", fc.FedPC, by("both"), walks.about_mixed,
          {"": {}, "share_target": SHARED, "sizes": SIZES, "weights em": EM, "refine": REFINE,
           "cluster": {"shared_leaves": "cluster"}, "pooled": {"shared_leaves": "pooled", **SIZES},
           "Secret": SECRET, "Secret, refine": {**SECRET, **REFINE}, "refine, all rows": ALL_ROWS}),
    Group("FedPC without row ids", fc.FedPC, walks.strangers, walks.about_mixed, {"": {}}),
    Group("FedPC on clusters", clustered, by("columns", reals), walks.about_reals,
          {"of a mixture": {"kind": fc.VerticalGaussianMixture},
           "of k-means": {"kind": fc.VerticalKMeans}}),
    Group("FedTrees by rows", fc.FedTrees, by("rows"), walks.about_trees,
          {"bagged": TARGET, "process": TARGET, "macro-f1": {**TARGET, "threshold": "macro-f1"},
           "number": {"target": "dose"},
           **each({**TARGET, "grow": "together", "trees": 5},
                  {"together": {}, "together, Tree": PATH, "together, Secret": SECRET})}),
    Group("FedTrees by columns", fc.FedTrees, by("columns"), walks.about_trees,
          {"boosted": SHARED, "bagged": {**SHARED, "grow": "bagged"}, "one party": TARGET,
           "mean": {**SHARED, "fuse": "mean"}}),
    Group("FedTrees by both", fc.FedTrees, by("both"), walks.about_trees,
          {"": SHARED, "together": {**SHARED, "grow": "together", "trees": 5}}),
    Group("VerticalGaussianMixture", fc.VerticalGaussianMixture, by("columns", reals),
          walks.about_mixture, each({"n_components": 3}, {
              **BY_SUMMATION, "n_init": {"n_init": 2}, "batches": {"batch_size": 60},
              "random_from_data": {"init_params": "random_from_data"}})),
    Group("VerticalGaussianMixture, mixed", fc.VerticalGaussianMixture, by("columns"),
          walks.about_mixed, {"": {"n_components": 2, "leaves": {"dose": "gamma"}}}),
    Group("VerticalKMeans", fc.VerticalKMeans, by("columns", reals), walks.about_clusters,
          each({"n_clusters": 3}, BY_SUMMATION)),
    Group("PrivateForest", fc.PrivateForest, by("rows", discrete), walks.about_forest,
          each({"structures": 2, "units": 3, "max_iter": 5}, {
              "average": {}, "together": {"together": 3}, "concatenate": {"combine": "concatenate"},
              "em": {"combine": "em"}, "deep": {"depth": 1}, "no total": {"public_total": False},
              "sealed": {"sealed": True, "marginals": True}, "process": {}})),
    Group("FeatureFusion by columns", fc.FeatureFusion, by("columns"), walks.about_fusion,
          each({"epochs": 4, **SHARED, "encoder": ENCODER}, {
              "apart": {},
              **{h: {"head": h} for h in ("concat", "transformer", "vote", "threshold", "best")},
              "sinkhorn": {"align": "sinkhorn", "graph": "knn"}, "expected": {"graph": "expected"},
              "mean": {**SUMS, "head": "mean"}, "number": {"target": "dose"},
              "int8": {"traffic": "int8", "clip": 2.0}, "noise": {"clip": 2.0, "noise": 0.1},
              "Tree": {**SUMS, **PATH},
              "Hub": {**SUMS, "summation": fc.Hub()}, "Secret": {**SUMS, **SECRET},
              "unshared": {"share_target": False}})),
    Group("FeatureFusion with series", fc.FeatureFusion, walks.sensors, walks.about_fusion,
          each({"epochs": 4, "target": "event"}, {
              "": {}, "process": {},
              "complete": {"graph": "complete", "encoder": ENCODERS}})),
    Group("aligned", walks.Aligned, walks.overlapping, walks.about_rows,
          {"": {}, "private": {"private": True}, "private, process": {"private": True}}),
]  # fmt: skip


def cases(only: str) -> Iterator[tuple[str, Group, dict[str, Any]]]:
    """Titles, groups and settings."""
    for group in GROUPS:
        for name, settings in group.variants.items():
            title = f"{group.name}, {name}".removesuffix(", ")
            if only in title:
                yield title, group, settings


# ---------------------------------------------------------------------- recording


def recorded(title: str, group: Group, settings: Mapping[str, object], path: Path) -> Record:
    """Everything about one case; an error in its place where it fails."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            found = _fitted(group, settings, "process" if "process" in title else "memory", path)
        except Exception as error:  # of any kind: other cases go on
            found = {"error": f"{type(error).__name__}: {error}"}
    known = [why for text, why in VARIES.items() if text in title]
    found["tolerance"] = {part: limit for own, _ in known for part, limit in own.items()}
    found["varies between runs"] = {part: why for _, own in known for part, why in own.items()}
    found["notes"] = sorted({*found.get("notes", ()), *(str(w.message) for w in caught)})
    return {**found, "seconds": round(time.perf_counter() - begin, 2)}


def _fitted(group: Group, settings: Mapping[str, object], engine: str, path: Path) -> Record:
    model, data = made(group.make, settings), group.data()
    model.fit(data, **({"engine": engine} if isinstance(data, fc.Federation) else {}))
    found = {"answers": answers(group.ask(model)), "notes": getattr(model, "notes_", ())}
    found["answers"] |= {n: list(plain(getattr(model, n))) for n in HISTORIES if hasattr(model, n)}
    found |= {name: crossed(getattr(model, name, ())) for name in LEDGERS}
    try:
        model.save(path)
    except (AttributeError, fc.FedcircuitsError):  # there is nothing to save, or it is secret
        return found
    return {**found, "file": hashes(path), "loaded": answers(group.ask(loaded(group, path)))}


def made(make: Callable[..., Any], settings: Mapping[str, object]) -> Any:
    """The estimator; how it adds up is its ``summation``, or ``summing`` as it was once called."""
    model = make(**{k: v for k, v in settings.items() if k != "summation"}, random_state=0)
    if "summation" in settings:
        name = "summation" if "summation" in model.get_params(deep=False) else "summing"
        model.set_params(**{name: settings["summation"]})
    return model


def loaded(group: Group, path: Path) -> Any:
    own = group.make in (fc.FedTrees, fc.FeatureFusion)  # predictors have a load of their own
    return group.make.load(path) if own else fc.load(path)


def answers(questions: walks.Questions) -> dict[str, list[str]]:
    found = {}
    for name, ask in questions.items():
        try:
            found[name] = list(plain(ask()))
        except fc.FedcircuitsError as error:
            found[name] = [f"refused: {type(error).__name__}"]
    return found


def plain(value: Any) -> Iterator[str]:
    """Every number and word of an answer in turn."""
    if isinstance(value, pd.DataFrame | np.ndarray | np.generic):
        value = np.asarray(value).tolist()
    if isinstance(value, Mapping):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list | tuple):
        for part in value:
            yield from plain(part)
    else:
        yield value.hex() if isinstance(value, float) else str(value)


def crossed(ledger: Any) -> Record:
    """Messages of a ledger, or of none."""
    entries = list(ledger)
    learned = ledger.revealed()[["to", "from", "what"]].to_numpy() if entries else ()
    order = "\n".join(f"{e.sender} {e.receiver} {e.tag}" for e in entries)
    return {
        "messages": len(entries),
        "bytes": sum(e.bytes for e in entries),
        "tags": dict(sorted(Counter(e.tag for e in entries).items())),
        "order": hashlib.sha256(order.encode()).hexdigest(),
        "revealed": sorted({" · ".join(row) for row in learned}),
    }


def hashes(path: Path) -> dict[str, str]:
    """SHA-256 of the file and of its members: the zip has a fixed date, but zlib may change."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    data = {"whole": path.read_bytes(), **parts}
    return {name: hashlib.sha256(own).hexdigest() for name, own in data.items()}


# ---------------------------------------------------------------------- comparing


def gaps(before: Record, after: Record) -> dict[str, float]:
    """Of answers that are not equal bit for bit the largest difference; of words it is infinite."""
    names = [name for name in before | after if before.get(name) != after.get(name)]
    return {name: _gap(before.get(name, []), after.get(name, [])) for name in names}


def _gap(one: list[str], other: list[str]) -> float:
    pairs = [(a, b) for a, b in zip_longest(one, other, fillvalue="") if a != b]
    known = all("0x" in a and "0x" in b for a, b in pairs)
    return max(abs(float.fromhex(a) - float.fromhex(b)) for a, b in pairs) if known else np.inf


def lists(case: Record) -> dict[str, list[str]]:
    """What else is compared, as lists of words."""
    kept = {name: case.get(name, crossed(())) for name in LEDGERS}
    return {
        "messages": [f"{n} {own['messages']}" for n, own in kept.items()],
        "order": [f"{n} {own['order']}" for n, own in kept.items()],
        "tags": [f"{n} {t}: {k}" for n, own in kept.items() for t, k in own["tags"].items()],
        "revealed": [f"{n} {text}" for n, own in kept.items() for text in own["revealed"]],
        "notes": [*case["notes"], *filter(None, [case.get("error")])],
        "file": [f"{member} {digest}" for member, digest in case.get("file", {}).items()],
    }


def compared(before: Record, after: Record, old: Record | None) -> tuple[Record, list[str]]:
    """A line of the table, and what differs in words; ``old`` are answers of the file kept."""
    pairs = {name: (before.get(name, {}), after.get(name, {})) for name in ("answers", "loaded")}
    if old is not None:
        pairs["old file"] = (before.get("loaded", {}), old)
    line: Record = dict.fromkeys(before["varies between runs"], "varies")
    words: list[str] = []
    for name, (one, other) in pairs.items():
        line[name], more = _answered(gaps(one, other), before["tolerance"])
        words += [f"{name}: {text}" for text in more]
    mine, theirs = lists(before), lists(after)
    for name in [name for name in mine if name not in before["varies between runs"]]:
        lost = [f"{name}: - {text}" for text in mine[name] if text not in theirs[name]]
        new = [f"{name}: + {text}" for text in theirs[name] if text not in mine[name]]
        line[name] = f"-{len(lost)} +{len(new)}" if lost or new else "equal"
        words += lost + new
    for name, case in {"bytes before": before, "after": after}.items():
        line[name] = sum(case.get(n, {"bytes": 0})["bytes"] for n in LEDGERS)
    return line, words


def _answered(found: dict[str, float], tolerance: Mapping[str, float]) -> tuple[str, list[str]]:
    limits = {name: tolerance.get(name, tolerance.get("", 0.0)) for name in found}
    far = [name for name, limit in limits.items() if limit is not None and found[name] > limit]
    words = [f"{name} differs by {found[name]:.2e}" for name in far]
    most = f"{max(found.values(), default=0.0):.0e}"
    return (f"{DIFFER} {most}" if far else f"within {most}") if found else "equal", words


def compare(given: argparse.Namespace) -> bool:
    """Print what is equal and what is not; whether all answers are equal."""
    known = json.loads(given.path.read_text(encoding="utf-8"))["cases"]
    lines, words = [], []
    for title, group, settings in cases(given.only):
        if title not in known:
            words.append(f"{title}: is not in the record")
            continue
        with tempfile.TemporaryDirectory() as folder:
            after = recorded(title, group, settings, Path(folder) / "model.fc")
        kept = given.files / named(title) if given.files else None
        old = None if kept is None else _kept(group, kept) if "file" in known[title] else {}
        line, own = compared(known[title], after, old)
        lines.append({"case": title, **line})
        words += [f"{title}: {word}" for word in own]
    print_table(lines)
    print("", *words, sep="\n")
    return not any(str(value).startswith(DIFFER) for line in lines for value in line.values())


def _kept(group: Group, path: Path) -> dict[str, list[str]]:
    try:
        return answers(group.ask(loaded(group, path)))
    except Exception as error:  # of any kind: the file cannot be used
        return {"loading": [f"{type(error).__name__}: {error}"]}


def named(title: str) -> str:
    return re.sub(r"\W+", "-", title) + ".fc"


def write(given: argparse.Namespace) -> bool:
    """The record of all cases; whether none has failed."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        files = given.keep_files or Path(folder)
        files.mkdir(parents=True, exist_ok=True)
        for title, *case in cases(given.only):
            found[title] = own = recorded(title, *case, files / named(title))
            print(f"{own['seconds']:6.2f} s  {title} {own.get('error', '')}", flush=True)
    text = json.dumps({"version": fc.__version__, "cases": found}, indent=1)
    given.path.write_text(text + "\n", encoding="utf-8")
    return not any("error" in case for case in found.values())


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("path", type=Path, help="the record, a JSON file")
    parser.add_argument("--keep-files", type=Path, help="write: keep saved models there")
    parser.add_argument("--files", type=Path, help="compare: load these models too")
    parser.add_argument("--only", default="", help="cases with this text in their name")
    given = parser.parse_args()
    os.environ |= dict.fromkeys(THREAD_LIMITS, "1")  # of processes of parties
    torch.set_num_threads(1)
    print(f"fedcircuits of {Path(fc.__file__).parent}", file=sys.stderr)
    with threadpool_limits(1):
        sys.exit(0 if {"write": write, "compare": compare}[given.what](given) else 1)


if __name__ == "__main__":
    main()
