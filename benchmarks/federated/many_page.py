"""The page of many parties, from files that benchmarks/federated/many.py has kept.

    python -m benchmarks.federated.many_page kept.jsonl …

Figures are means over the seeds that are there, whose number stands in each line. Kinds of splits
that the files do not have keep the table that the page has of them, and the page says so.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import RESULTS, write
from benchmarks.runner import machine_facts

TITLES = {
    "rows": "Different rows of the same columns",
    "columns": "Different columns",
    "both": "Rows and columns both split",
}
FIGURES = ("nats", "F1", "ECE", "one place", "its F1", "independent", "of rows held",
           "paper", "paper F1", "own columns", "alone", "messages per party", "kB per party",
           "CPU s")  # fmt: skip
MEANING = (
    "FedPC(target=…) with defaults on small tables (adult and credit: 1,000 rows sampled by seed), "
    "70 % of the rows for training: mean log-likelihood of test rows (nats), macro-F1 and expected "
    "calibration error (ECE). For comparison: centralised LearnSPN (one place), all columns "
    "independent, and the paper's learner and rule. Own columns: the joint model on the columns "
    "that a party holds. Alone: a party's own model, mean of at most five parties. One place and "
    "independence use all training rows, even if parties hold fewer. Of rows held: independence "
    "learned from the party with most rows of each column. The machine was busy with other work. "
    "Settings were chosen in view of test rows of another seed of such tables: these are "
    "development figures."
)
NOBODY_OR_ONE = "One wrong party among ten"
OLDER = {"text": "Measured with an earlier version of FedPC and LearnSPN."}
PAGE = RESULTS / "federated_many.md"
WRONG = (
    "Ten parties, one of which has wrong rows, and runs without a wrong party. Right: the fraction "
    "of seeds in which exactly that party is named, or nobody."
)


def page(paths: Sequence[str]) -> dict[str, Any]:
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    every = [row for *_, rows in map(json.loads, lines) for row in rows]
    facts = machine_facts()
    where = f"{facts['cores']} cores, {facts['processor']}, Python {facts['python']}."
    blocks: list[dict[str, Any]] = [
        {"code": "python -m benchmarks.run federated_many"}, {"text": where}, {"text": MEANING},
    ]  # fmt: skip
    for kind, title in TITLES.items():
        if some := [row for row in every if row["kind"] == kind]:
            blocks += [{"heading": title}, _table(some, ("data", "parties", "split"), FIGURES)]
        else:
            blocks += _as_it_was(title)
    if some := [row for row in every if row["kind"] == "wrong"]:
        blocks += [{"heading": NOBODY_OR_ONE}, {"text": WRONG}]
        blocks += [_table(some, ("data", "rows of party 4"), ("right",))]
    else:
        blocks += _as_it_was(NOBODY_OR_ONE)
    return {"title": "Many parties", "blocks": blocks}


def _as_it_was(title: str) -> list[dict[str, Any]]:
    """The part of the page under this heading, if there is one."""
    path = PAGE.with_suffix(".json")
    if not path.is_file():
        return []
    blocks: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["blocks"]
    heads = [i for i, block in enumerate(blocks) if "heading" in block]
    for first, end in zip(heads, [*heads[1:], len(blocks)], strict=True):
        if blocks[first]["heading"] == title:
            head, *rest = blocks[first:end]
            return [head, *([] if OLDER in rest else [OLDER]), *rest]
    return []


def _table(
    rows: Sequence[dict[str, Any]], keys: Sequence[str], figures: Sequence[str]
) -> dict[str, Any]:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[k]) for k in keys), []).append(row)
    found = []
    for key, own in groups.items():
        means = [np.mean([row[f] for row in own]) for f in figures]
        found.append([*key, str(len(own)), *(f"{mean:.4g}" for mean in means)])
    return {"columns": [*keys, "seeds", *figures], "rows": found}


if __name__ == "__main__":
    write(PAGE, page(sys.argv[1:]))
