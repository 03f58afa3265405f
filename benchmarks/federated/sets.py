"""The tables of the federated benchmarks, and how they are split.

A seed shuffles the rows; 70 % are to learn from and 30 % to test, and the training rows keep ids.
Values are as they come: no scaler or imputer is fitted anywhere, so none can have seen test rows.
Of credit, rows without a label (the contest's own test file) are left out. "adult, no atoms" has
whether there was any capital gain or loss in place of how much, and neither the survey weight nor
the number of the education: nine of ten gains are exactly 0, and the density of a real number there
is as high as its leaf is narrow, so likelihoods of "adult" say more of that one value than of all
the rest.

    horizontal            5 parties that prefer other classes
    vertical              2 parties with different columns of all rows; the last one has the label
    hybrid                2 parties with 60 % of the rows each; a fifth of the columns is shared
    hybrid, label shared  the same, and both know the label of their rows
"""

from dataclasses import dataclass

import numpy as np

import fedcircuits as fc

SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Data:
    name: str
    target: str
    train: fc.Table
    test: fc.Table
    seed: int


SETS = {
    "breast cancer": ("breast_cancer", "diagnosis"),
    "credit": ("give_me_some_credit", "SeriousDlqin2yrs"),
    "adult": ("adult", "income"),
    "adult, no atoms": ("adult", "income"),
}


def halves(name: str, seed: int, most: int | None = None) -> Data:
    """Rows to learn from and to test; ``most`` of them in all where given."""
    stored, target = SETS[name]
    table = fc.datasets.load(stored)
    table = _without_atoms(table) if name == "adult, no atoms" else table
    known = np.flatnonzero(~np.isnan(table.values[:, table.schema.index(target)]))
    order = np.random.default_rng(seed).permutation(known)[:most]
    cut = int(SHARE * len(order))
    train = table.rows(order[:cut])
    train = fc.Table(train.schema, train.values, np.arange(cut))
    return Data(name, target, train, table.rows(order[cut:]), seed)


def _without_atoms(adult: fc.Table) -> fc.Table:
    frame = adult.to_pandas().drop(columns=["fnlwgt", "education-num"])
    gains = {name: frame[name] > 0 for name in ("capital-gain", "capital-loss")}
    return fc.Table.of(frame.assign(**gains))


def horizontal(data: Data, parties: int = 5) -> fc.Federation:
    return fc.split(data.train, parties, skew="label", target=data.target, seed=data.seed)


def vertical(data: Data, parties: int = 2) -> fc.Federation:
    return fc.split(data.train, parties, by="columns", target=data.target, seed=data.seed)


def hybrid(data: Data, parties: int = 2) -> fc.Federation:
    return fc.split(data.train, parties, by="both", overlap=0.2, target=data.target, seed=data.seed)


def hybrid_with_label(data: Data, parties: int = 2) -> fc.Federation:
    return with_label(data, hybrid(data, parties))


def with_label(data: Data, federation: fc.Federation) -> fc.Federation:
    """The same parties, each of which knows the label of its rows."""
    tables = {}
    for party in federation:
        held = {*party.table.names, data.target}
        rows = data.train.rows(np.asarray(party.table.row_ids))
        tables[party.name] = rows.select(n for n in data.train.names if n in held)
    return fc.Federation(tables, allow_collect=True)


SPLITS = {
    "horizontal": horizontal,
    "vertical": vertical,
    "hybrid": hybrid,
    "hybrid, label shared": hybrid_with_label,
}
