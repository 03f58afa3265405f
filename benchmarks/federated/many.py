"""Many parties: FedPC at defaults beside one place, each alone, independence and the paper's rule.

    python -m benchmarks.run federated_many
    MANY_DATA='wine|digits' MANY_PARTIES=2,200 MANY_KINDS=rows MANY_SEEDS=10,11 python -m …

"one place": LearnSPN of all rows. "alone": LearnSPN of each party's own rows on the columns that it
holds, beside FedPC's marginal on the same columns and test rows; the mean of at most five parties.
"independent": every column by itself. "paper": one pass with the learner of the paper, and its rule
by sizes where columns differ. ECE: expected calibration error of the probability of the class
guessed, in ten bins. Settings were chosen on smaller seeds. With MANY_KEEP a
file is written line by line, and what it has is not run again. Tables and splits: many_sets.py.

Then one party of ten has wrong rows: is it named, and nobody where all are right?
"""

import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score

import fedcircuits as fc
from benchmarks.federated.many_sets import data_of, splits
from benchmarks.federated.sets import Data
from benchmarks.runner import Cell, Json, print_table


def _listed(name: str, usual: str) -> list[str]:
    return os.environ.get(f"MANY_{name}", usual).split(",")


DATA = os.environ.get("MANY_DATA", "wine|vowels|digits|diabetes|adult, no atoms|credit").split("|")
SEEDS = [int(n) for n in _listed("SEEDS", "10,11,12,13,14")]
PARTIES = [int(n) for n in _listed("PARTIES", "2,5,20,50,200")]
KINDS = _listed("KINDS", "rows,columns,both,wrong")
PAPER = {"test": "rdc", "threshold": 0.3, "trees": False, "min_rows": 50}
WRONG = {"labels": "random labels", "unit": "two columns × 1000", "still": "three stand still",
         "right": "right"}  # fmt: skip
MOST_ALONE = 5
FLOOR = -1e4
Row = dict[str, Cell]


def run() -> list[Json]:
    torch.set_num_threads(1)
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes, and warnings of two parties
        for kind in KINDS:
            for name in DATA:
                found = [row for seed in SEEDS for row in kept(kind, name, seed)]
                print_table(found)
                rows += found
    return [dict(row) for row in rows]


def kept(kind: str, name: str, seed: int) -> list[Row]:
    """Of the file where it is there, else run and written to it."""
    path, found = Path(os.environ.get("MANY_KEEP", os.devnull)), []
    lines = path.read_text().splitlines() if path.is_file() else []
    done = {tuple(record[:4]): record[4] for record in map(json.loads, lines)}
    for parties in PARTIES if kind != "wrong" else (10,):
        if (kind, name, seed, parties) in done:
            found += done[kind, name, seed, parties]
            continue
        data = data_of(name, seed)
        rows = list(wrong(data) if kind == "wrong" else compared(data, kind, parties))
        with path.open("a") as file:
            file.write(json.dumps([kind, name, seed, parties, rows]) + "\n")
        found += rows
    return found


# ---------------------------------------------------------------------- compared


def judged(model: fc.Model, data: Data) -> tuple[float, float, float]:
    """Mean log-likelihood, macro-F1, expected calibration error."""
    codes = data.test.values[:, data.test.schema.index(data.target)].astype(int)
    chance = model.predict_proba(data.test, data.target)
    guessed, sure = chance.argmax(axis=1), chance.max(axis=1)
    bins = np.minimum((10 * sure).astype(int), 9)
    off = [abs(np.sum(sure[bins == b] - (guessed == codes)[bins == b])) for b in range(10)]
    nats = float(np.maximum(model.score_samples(data.test), FLOOR).mean())
    return nats, float(f1_score(codes, guessed, average="macro")), sum(off) / len(codes)


def compared(data: Data, kind: str, parties: int) -> Iterator[Row]:
    one = judged(fc.LearnSPN(target=data.target, random_state=data.seed).fit(data.train), data)
    apart = sum(
        fc.LearnSPN(random_state=0).fit(data.train.select([n])).score(data.test.select([n]))
        for n in data.train.names
    )
    for title, federation in splits(data, kind, parties):
        row: Row = {"data": data.name, "kind": kind, "seed": data.seed,
                    "parties": len(federation), "split": title}  # fmt: skip
        held = apart if kind == "rows" else independent(data, federation)
        yield row | _figures(data, federation, one) | {"independent": apart, "of rows held": held}


def independent(data: Data, federation: fc.Federation) -> float:
    """Every column by itself, from the rows of the party that holds most of them."""
    tables = {n: p.table for p in sorted(federation, key=lambda p: len(p.table))
              for n in p.table.names}  # fmt: skip
    return sum(
        fc.LearnSPN(random_state=0).fit(t.select([n])).score(data.test.select([n]))
        for n, t in tables.items()
    )


def _figures(data: Data, federation: fc.Federation, one: tuple[float, ...]) -> Row:
    count, usual = len(federation), {"target": data.target, "random_state": data.seed}
    begin = time.process_time()
    model = fc.FedPC(**usual).fit(federation)
    seconds = time.process_time() - begin
    whole = model.collect()
    nats, f1, off = judged(whole, data)
    rows = federation.kind == "horizontal"
    rule = {"method": "one_pass"} if rows else {"weights": "sizes"}
    paper = fc.FedPC(fc.LearnSPN(**PAPER), **usual, **rule).fit(federation)
    paper_nats, paper_f1, _ = judged(paper.collect(), data)
    ours, alone = _own_columns(whole, data, federation)
    return {
        "nats": nats, "F1": f1, "ECE": off, "one place": one[0], "its F1": one[1],
        "paper": paper_nats, "paper F1": paper_f1, "own columns": ours, "alone": alone,
        "messages per party": len(model.ledger_) / count,
        "kB per party": model.ledger_.bytes / count / 1e3, "CPU s": seconds,
        "notes": "; ".join(model.notes_),
    }  # fmt: skip


def _own_columns(whole: fc.Model, data: Data, federation: fc.Federation) -> tuple[float, float]:
    """Test rows on parties' own columns: under the joint model, and what each learns alone."""
    some = list(federation)[:: max(1, len(federation) // MOST_ALONE)][:MOST_ALONE]
    ours, alone = [], []
    for party in some:
        names = party.table.names
        test = data.test.select(names)
        target = data.target if data.target in names else None
        own = fc.LearnSPN(target=target, random_state=data.seed).fit(party.table)
        alone.append(np.maximum(own.score_samples(test), FLOOR).mean())
        ours.append(np.maximum(whole.score_samples(test), FLOOR).mean())
    return float(np.mean(ours)), float(np.mean(alone))


# ---------------------------------------------------------------------- wrong rows


def wrong(data: Data) -> Iterator[Row]:
    for how, title in WRONG.items():
        named = _odd(data, how)
        right = named == ([] if how == "right" else ["party 4"])
        yield {"data": data.name, "kind": "wrong", "seed": data.seed, "rows of party 4": title,
               "right": int(right), "named": ", ".join(named)}  # fmt: skip


def _odd(data: Data, how: str) -> list[str]:
    """Who is named."""
    federation, rng = fc.split(data.train, 10, seed=data.seed), np.random.default_rng(data.seed)
    tables = {p.name: p.table for p in federation}
    values, schema = tables["party 4"].values.copy(), data.train.schema
    real = [i for i, v in enumerate(schema) if v.kind == "real"]
    if how == "labels":
        at = schema.index(data.target)
        values[:, at] = rng.integers(schema.variables[at].size, size=len(values))
    elif how == "unit":
        values[:, real[:2]] *= 1000
    elif how == "still":
        values[:, real[:3]] = values[0, real[:3]]
    tables["party 4"] = fc.Table(tables["party 4"].schema, values)
    model = fc.FedPC(target=data.target, random_state=data.seed).fit(federation.with_tables(tables))
    return [n.partition(" differs from")[0] for n in model.notes_ if " differs from" in n]
