"""Many parties that hold different columns, or columns and rows, beside one place and independence.

    python -m benchmarks.run federated_many_columns

"one place" is LearnSPN on all training rows, "independent" every column by itself, "paper's rule"
FedPC(weights="sizes"). "columns" are split down to one column a party; all parties hold a
part of the rows, and each of the others is at one of them; "both" splits columns and gives each
party 60 % of the rows. Test rows are read for the table only.
"""

import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from sklearn import datasets

import fedcircuits as fc
from benchmarks.federated.scores import macro_f1
from benchmarks.federated.sets import SHARE, Data, halves
from benchmarks.runner import Cell, Json, print_table

SEEDS = range(5)
PARTIES = (2, 5, 20, 50, 200)
SHARED = (1.0, 0.3, 0.1)
OVERLAPS = (0.2, 0.6)
MOST = 1_500  # rows of adult


def vowels(seed: int, rows: int = 990) -> fc.Table:
    """25 mixed columns of 11 classes: numbers with factors of their class, names and counts."""
    rng = np.random.default_rng([7, seed])
    kind, factors = rng.integers(11, size=rows), rng.normal(size=(rows, 4))
    centres, loads = rng.normal(size=(11, 10)) * 1.2, rng.normal(size=(11, 4, 10)) * 0.35
    x = centres[kind] + np.einsum("nf,nfd->nd", factors, loads[kind])
    x += rng.normal(size=x.shape) * 0.35
    found = {f"formant {i}": x[:, i] for i in range(10)}
    for i in range(5):
        found[f"sum {i}"] = x[:, i] + 0.2 * x[:, (i + 3) % 10] + rng.normal(size=rows) * 0.3
    found["sex"] = np.where(factors[:, 0] + rng.normal(size=rows) * 0.3 > 0, "f", "m")
    found["speaker"] = np.array(list("abcde"))[np.digitize(factors[:, 1], [-1, -0.3, 0.3, 1])]
    for i in range(4):
        level = np.round(x[:, i] + 2.5 + rng.normal(size=rows) * 0.3)
        found[f"level {i}"] = np.array(list("uvwxyz"))[np.clip(level, 0, 5).astype(int)]
    for i in range(3):
        found[f"count {i}"] = rng.poisson(np.exp(np.clip(x[:, 5 + i] / 2 + 0.7, -1, 2.2)))
    found["class"] = np.array([f"v{i}" for i in range(11)])[kind]
    return fc.Table.of(pd.DataFrame(found))


def bundled(name: str) -> fc.Table:
    """Of scikit-learn; pixels that hardly vary are left out."""
    loaded = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = loaded.data.astype(float)
    frame = frame.loc[:, frame.std() > 0.3] if name == "digits" else frame
    return fc.Table.of(frame.assign(**{"class": [f"c{i}" for i in loaded.target]}))


def data_of(name: str, seed: int) -> Data:
    if name in ("breast cancer", "adult, no atoms"):
        return halves(name, seed, MOST)
    table = vowels(seed) if name == "vowels" else bundled(name)
    order = np.random.default_rng(seed).permutation(len(table))
    cut = int(SHARE * len(order))
    train = table.rows(order[:cut])
    train = fc.Table(train.schema, train.values, np.arange(cut))
    return Data(name, "class", train, table.rows(order[cut:]), seed)


SETS = ("vowels", "wine", "digits", "breast cancer", "adult, no atoms")


def by_columns(data: Data, parties: int, shared: float) -> fc.Federation:
    """Some rows at all parties; each of the others at one, in turn."""
    whole = fc.split(data.train, parties, by="columns", target=data.target, seed=data.seed)
    common = round(shared * len(data.train))
    turn = np.arange(len(data.train)) % parties
    tables = {
        p.name: p.table.rows((np.arange(len(turn)) < common) | (turn == i))
        for i, p in enumerate(whole)
    }
    return fc.Federation(tables)


def splits(data: Data) -> Iterator[tuple[str, fc.Federation]]:
    columns = len(data.train.names)
    for parties in sorted({min(p, columns) for p in PARTIES}):
        for shared in SHARED:
            title = f"columns, {parties} parties, {shared:.0%} shared"
            yield title, by_columns(data, parties, shared)
        for overlap in OVERLAPS if parties <= 20 else ():
            how = {"by": "both", "overlap": overlap, "target": data.target, "seed": data.seed}
            found = fc.split(data.train, parties, **how)  # type: ignore[arg-type]
            yield f"both, {parties} parties, overlap {overlap}", found


def run(sets: Sequence[str] = SETS, seeds: Sequence[int] = SEEDS) -> list[Json]:
    torch.set_num_threads(1)
    results: list[Json] = []
    for name in sets:
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in seeds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # notes of FedPC
                for title, scores in _scored(data_of(name, seed)):
                    found.setdefault(title, []).append(scores)
            print(f"  {name}, seed {seed}: done", flush=True)
        rows = [_row(title, np.array(scores)) for title, scores in found.items()]
        print(f"\n{name}: means over {len(seeds)} seeds")
        print_table(rows)
        results += [{"table": "many columns", "set": name, **row} for row in rows]
    return results


def _scored(data: Data) -> Iterator[tuple[str, tuple[float, float, float]]]:
    yield "one place", _fitted(fc.LearnSPN(target=data.target, random_state=data.seed), data)
    alone = [
        fc.LearnSPN(random_state=data.seed).fit(data.train.select([n])).score(data.test.select([n]))
        for n in data.train.names
    ]
    yield "independent", (float(np.sum(alone)), np.nan, np.nan)
    for title, federation in splits(data):
        usual = fc.FedPC(target=data.target, dependence="tree", random_state=data.seed)
        yield title, _fitted(usual, data, federation)
        if "100%" in title:
            paper = fc.FedPC(target=data.target, weights="sizes", random_state=data.seed)
            yield f"{title}, paper's rule", _fitted(paper, data, federation)


def _fitted(
    model: fc.Model, data: Data, federation: fc.Federation | None = None
) -> tuple[float, float, float]:
    """Log-likelihood, macro-F1, CPU seconds to learn it."""
    begin = time.process_time()
    model.fit(data.train if federation is None else federation)  # type: ignore[attr-defined]
    seconds = time.process_time() - begin
    asked = model.collect() if isinstance(model, fc.FedPC) and federation is None else model
    return asked.score(data.test), macro_f1(asked, data), seconds


def _row(title: str, scores: np.ndarray) -> dict[str, Cell]:
    likelihood, macro, seconds = scores.mean(axis=0).tolist()
    return {"": title, "log-likelihood": likelihood, "macro-F1": macro, "cpu s": seconds}
