"""EM across parties and rows far out: what few rows say must not cost new ones next to them."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest

import fedcircuits as fc


def debts(rows: int, seed: int) -> tuple[fc.Table, npt.NDArray[np.bool_]]:
    """Three groups in three columns; and which rows have a debt a thousand times that of others."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=rows)
    far = rng.random(rows) < 0.006
    debt = np.where(far, 10 ** rng.uniform(3, 4, rows), group + rng.random(rows))
    others = group + rng.normal(0, 0.5, rows), 2 * group + rng.normal(0, 0.7, rows)
    table = fc.Table.of(np.stack([debt, *others], axis=1), names=["debt", "a", "b"])
    return fc.Table(table.schema, table.values, np.arange(rows)), far


@functools.cache
def parties(kind: str, seed: int) -> fc.Federation:
    table, _ = debts(500, seed)
    if kind == "rows":
        return fc.split(table, 2, by="rows", allow_collect=True)
    tables = {"bank": table.select(["debt", "a"]), "shop": table.select(["b"])}
    return fc.Federation(tables, allow_collect=True)


@pytest.mark.parametrize(
    ("kind", "seed", "share"),
    [("columns", 0, 0.1), ("columns", 8, 0.0), ("rows", 0, 0.1), ("rows", 10, 0.0)],
)
def test_new_rows_far_out_stay_as_likely(kind: str, seed: int, share: float) -> None:
    """Of few rows far out some become a Gaussian each, and broad ones that covered them all are
    hardly reached any more, which new rows between them need. Whole steps of EM would take these
    from tens of nats to a hundred thousand and more."""
    leaf = fc.EinsumNetwork(
        4, depth=1, repetitions=2, epochs=10, batch_size=64, step=0.5, validation=0.0
    )
    new, far = debts(4000, seed + 1)
    found = []
    for rounds in (0, 10):
        model = fc.FedPC(
            leaf, clusters=3, ensemble=1, refine=rounds, validation=share, random_state=0
        )
        found.append(model.fit(parties(kind, seed)).collect().score_samples(new))
    before, after = found
    assert np.median(after) > np.median(before)
    assert after[~far].mean() > before[~far].mean()
    assert after[far].mean() > 4 * before[far].mean()
