"""Small tables for many parties, and the ways they are split.

``vowels`` is made here: 25 mixed columns, of which the reals hang together within nine classes.
Adult and credit are 1,000 rows drawn by the seed. Three tenths of the rows are test rows.

    rows      at random, by Dirichlet(0.1) shares of the classes, or by clusters
    columns   as equally many columns each as can be, down to one; all parties hold a part of the
              rows, and each of the other rows is at one of them
    both      columns and rows: each party holds 60 % of the rows, and some columns are at several
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

import fedcircuits as fc
from benchmarks.federated.sets import SHARE, Data, halves

CLASSES = 9
MOST = 1_000  # rows of adult and credit
SKEWS: dict[str, Any] = {"random": None, "Dirichlet": fc.dirichlet(0.1), "clusters": "cluster"}
SHARED = (1.0, 0.3, 0.1)
OVERLAPS = (0.2, 0.6)


def vowels(seed: int, rows: int = 640) -> pd.DataFrame:
    rng = np.random.default_rng(1000 + seed)
    y = rng.integers(CLASSES, size=rows)
    mean, own = 0.8 * rng.normal(size=(CLASSES, 12)), 0.35 * rng.normal(size=(CLASSES, 12, 3))
    x = mean[y] + np.einsum("nij,nj->ni", own[y], rng.normal(size=(rows, 3)))
    x += rng.normal(size=(rows, 2)) @ (0.3 * rng.normal(size=(2, 12)))
    x = 0.15 * (x + 0.25 * rng.normal(size=x.shape))
    spread = 0.4 * rng.normal(size=(CLASSES, 8))[y] + 2 * x[:, :8]
    spread = 0.05 * np.exp(spread + 0.25 * rng.normal(size=(rows, 8)))
    found: dict[str, Any] = {f"mean {i}": x[:, i] for i in range(12)}
    found |= {f"spread {i}": spread[:, i] for i in range(8)}
    found["form"] = np.array(list("abcd"))[(y + (rng.random(rows) < 0.4)) % 4]
    found["rising"] = x[:, 0] + 0.05 * rng.normal(size=rows) > 0
    found["place"] = np.array(list("xyz"))[rng.integers(3, size=rows)]
    found["length"] = rng.poisson(6 + 2 * (y % 4))
    found["class"] = np.array([f"speaker {i}" for i in range(CLASSES)])[y]
    return pd.DataFrame(found)


def bundled(name: str) -> pd.DataFrame:
    """Of scikit-learn; pixels that hardly vary are left out."""
    if name == "diabetes":
        loaded = datasets.load_diabetes(as_frame=True, scaled=False)
        high = np.where(loaded.target > loaded.target.median(), "high", "low")
        frame: pd.DataFrame = loaded.data.assign(sex=loaded.data["sex"].astype(int).astype(str))
        return frame.assign(**{"class": high})
    loaded = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = loaded.data.astype(float)
    frame = frame.loc[:, frame.std() > 3] if name == "digits" else frame
    return frame.assign(**{"class": [f"c{i}" for i in loaded.target]})


def data_of(name: str, seed: int) -> Data:
    if name in ("adult, no atoms", "credit"):
        return halves(name, seed, MOST)
    table = fc.Table.of(vowels(seed) if name == "vowels" else bundled(name))
    order = np.random.default_rng(seed).permutation(len(table))[:MOST]
    cut = int(SHARE * len(order))
    train = table.rows(order[:cut])
    train = fc.Table(train.schema, train.values, np.arange(cut))
    return Data(name, "class", train, table.rows(order[cut:]), seed)


def splits(data: Data, kind: str, parties: int) -> Iterator[tuple[str, fc.Federation]]:
    """Ways to split it between so many parties; fewer where there are not so many columns."""
    how: dict[str, Any] = {"target": data.target, "seed": data.seed, "allow_collect": True}
    if kind == "rows":
        for title, skew in SKEWS.items():
            if title == "random" or parties in (5, 20):
                yield title, fc.split(data.train, parties, skew=skew, **how)
        return
    if parties > len(data.train.names):
        parties = len(data.train.names)
    if kind == "columns":
        for shared in SHARED:
            yield f"{shared:.0%} shared", by_columns(data, parties, shared)
    else:
        for overlap in OVERLAPS:
            yield (
                f"overlap {overlap}",
                fc.split(data.train, parties, by="both", overlap=overlap, **how),
            )


def by_columns(data: Data, parties: int, shared: float) -> fc.Federation:
    whole = fc.split(data.train, parties, by="columns", target=data.target, seed=data.seed)
    common, turn = round(shared * len(data.train)), np.arange(len(data.train)) % parties
    tables = {
        p.name: p.table.rows((np.arange(len(turn)) < common) | (turn == i))
        for i, p in enumerate(whole)
    }
    return fc.Federation(tables, allow_collect=True)
