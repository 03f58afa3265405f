"""One table split into a federation, for experiments: by rows, by columns, or both.

    by="rows"      every party gets different rows, all columns
    by="columns"   every party gets different columns of all rows
    by="both"      parties get different columns of a share of the rows, and share some columns

Skew of rows: none; "label", every party prefers different classes of the target; "cluster", every
party gets clusters of similar rows; dirichlet(β), shares of every class are drawn from a Dirichlet
distribution, more uneven for smaller β.
``overlap`` is a share: of rows that a second party holds as well (by rows), of columns that all
parties hold (by columns and by both; with both at least one). Every row keeps its id.

A parquet file is split by its row groups without loading it: each party gets some of them, which
are read where the party runs (tables/stored.py), so a table may be larger than the memory of one
machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.arguments import Choice, Real
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import LEAST_COUNT, Federation
from fedcircuits.learning.batches import ParquetRows
from fedcircuits.learning.independence import Floats
from fedcircuits.learning.spn.clustering import Features, split_rows
from fedcircuits.tables.stored import StoredTable
from fedcircuits.tables.table import Table

HELD = 0.6  # of the rows, by every party of a split by both
LEAST = 2  # rows of a party


@dataclass(frozen=True, slots=True)
class dirichlet:
    """Shares of every class over the parties are drawn from Dirichlet(β).

    >>> dirichlet(0.5).beta
    0.5
    """

    beta: float


Skew: TypeAlias = Literal["label", "cluster"] | dirichlet | None
Rows: TypeAlias = npt.NDArray[np.int64]


def split(
    table: object,
    parties: int | list[str],
    *,
    by: Literal["rows", "columns", "both"] = "rows",
    skew: Skew = None,
    overlap: float = 0.0,
    target: str | None = None,
    seed: int = 0,
    allow_collect: bool = True,
    least_count: int = LEAST_COUNT,
) -> Federation:
    """A federation made of one table, or of the row groups of a parquet file (by rows).

    >>> import fedcircuits as fc
    >>> table = fc.Table.of(np.random.default_rng(0).normal(size=(60, 4)))
    >>> fc.split(table, 3, by="columns").kind
    'vertical'
    """
    names = [f"party {i + 1}" for i in range(parties)] if isinstance(parties, int) else parties
    if isinstance(table, str | os.PathLike | ParquetRows):
        _check_groups(names, by, skew, overlap)
        groups = _by_groups(ParquetRows.of(table), names, np.random.default_rng(seed))
        return Federation(groups, allow_collect=allow_collect, least_count=least_count)
    whole = _with_ids(Table.of(table))
    _check(whole, names, by, skew, overlap, target)
    rng = np.random.default_rng(seed)
    if by == "rows":
        rows = _rows(whole, len(names), skew, overlap, target, rng)
        parts = [whole.rows(r) for r in rows]
    else:
        shared = overlap if by == "columns" else max(overlap, 1e-9)
        columns = _columns(whole, len(names), shared, target, rng)
        parts = [whole.select(c) for c in columns]
        if by == "both":
            parts = [p.rows(_some(len(whole), HELD, rng)) for p in parts]
    tables = dict(zip(names, parts, strict=True))
    return Federation(tables, allow_collect=allow_collect, least_count=least_count)


def _with_ids(table: Table) -> Table:
    if table.row_ids is not None:
        return table
    return replace(table, row_ids=np.arange(len(table)))


def _check(
    table: Table, names: list[str], by: str, skew: Skew, overlap: float, target: str | None
) -> None:
    if target is not None:
        table.schema.index(target)  # an error that names it
    Choice("rows", "columns", "both").check("by", by, FederationError)
    if not names or len(set(names)) != len(names):
        raise FederationError(f"parties must be a number from 1, or different names, got {names!r}")
    Real(least=0, most=1, what="a share").check("overlap", overlap, FederationError)
    if not (skew in (None, "label", "cluster") or isinstance(skew, dirichlet)):
        raise FederationError(
            f"skew must be None, 'label', 'cluster' or dirichlet(beta), got {skew!r}"
        )
    if isinstance(skew, dirichlet):
        Real(above=0).check("dirichlet: beta", skew.beta, FederationError)
    if skew is not None and by != "rows":
        raise FederationError(f"skew applies to rows: it needs by='rows', got by={by!r}")
    if (skew == "label" or isinstance(skew, dirichlet)) and (
        target is None or not table.schema[target].size
    ):
        raise FederationError("this skew needs target='…', a category or boolean")
    if by != "rows" and table.series:
        raise FederationError("series cannot be split by columns: give each party its table")
    if by != "rows" and len(names) > len(table.schema):
        raise FederationError(
            f"{len(table.schema)} columns cannot be split over {len(names)} parties: give fewer "
            "parties, or split by='rows'"
        )
    if by == "rows" and len(names) * LEAST > len(table):
        raise FederationError(
            f"{len(table)} row{'s' * (len(table) != 1)} cannot be split over {len(names)} parties: "
            f"each needs at least {LEAST}, so give fewer parties"
        )


# ---------------------------------------------------------------------- row groups


def _check_groups(names: list[str], by: str, skew: Skew, overlap: float) -> None:
    if not names or len(set(names)) != len(names):
        raise FederationError(f"parties must be a number from 1, or different names, got {names!r}")
    given = {"by": by != "rows", "skew": skew is not None, "overlap": bool(overlap)}
    if odd := [name for name, other in given.items() if other]:
        raise FederationError(
            f"a file is split by its row groups and does not support {odd[0]}=: load it with "
            "Table.read(path) to split it otherwise"
        )


def _by_groups(rows: ParquetRows, names: list[str], rng: np.random.Generator) -> dict[str, Table]:
    """Row groups in random order, each to the party with the fewest rows so far."""
    about = rows.file.metadata
    sizes = np.array([about.row_group(i).num_rows for i in range(about.num_row_groups)])
    if len(sizes) < len(names):
        raise FederationError(
            f"{rows.path} has {len(sizes)} row groups, which cannot be split over {len(names)} "
            f"parties: write it with row_group_size={max(1, len(rows) // len(names) // 4):,} or so"
        )
    before, load = np.cumsum(sizes) - sizes, np.zeros(len(names), np.int64)
    held: list[list[int]] = [[] for _ in names]
    for group in rng.permutation(len(sizes)):
        owner = int(load.argmin())
        held[owner].append(int(group))
        load[owner] += sizes[group]
    return {
        name: StoredTable(
            rows.path,
            rows.schema,
            int(sizes[columns].sum()),
            [(g, int(before[g])) for g in columns],
        )
        for name, columns in zip(names, map(sorted, held), strict=True)
    }


# ---------------------------------------------------------------------- rows


def _rows(
    table: Table,
    parties: int,
    skew: Skew,
    overlap: float,
    target: str | None,
    rng: np.random.Generator,
) -> list[Rows]:
    if skew is None:
        owner = rng.permutation(np.arange(len(table)) % parties)
    elif isinstance(skew, dirichlet):
        owner = _drawn(_codes(table, target), np.full(parties, skew.beta), rng)
    elif skew == "label":
        owner = _preferred(_codes(table, target), parties, rng)
    else:
        owner = _by_clusters(table, parties, rng)
    owner = _nobody_empty(owner, parties, rng)
    held = owner[:, None] == np.arange(parties)
    also = rng.random(len(table)) < overlap
    held[also, (owner[also] + rng.integers(1, max(2, parties), also.sum())) % parties] = True
    return [np.flatnonzero(held[:, p]) for p in range(parties)]


def _codes(table: Table, target: str | None) -> Rows:
    codes = table.values[:, table.schema.index(str(target))]
    return np.where(np.isnan(codes), 0, codes).astype(np.int64)


def _drawn(codes: Rows, beta: Floats | npt.NDArray[np.float64], rng: np.random.Generator) -> Rows:
    owner = np.zeros(len(codes), dtype=np.int64)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        owner[rows] = rng.choice(len(beta), len(rows), p=rng.dirichlet(beta))
    return owner


def _preferred(codes: Rows, parties: int, rng: np.random.Generator) -> Rows:
    """Parties of about equal size; two thirds of each party's rows are of its preferred classes."""
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    owner = np.empty(len(codes), dtype=np.int64)
    owner[order] = np.arange(len(codes)) * parties // len(codes)
    mixed = rng.random(len(codes)) < 1 / 3
    owner[mixed] = rng.integers(parties, size=int(mixed.sum()))
    return owner


def _by_clusters(table: Table, parties: int, rng: np.random.Generator) -> Rows:
    """Clusters go, the largest first, to the party with the fewest rows so far."""
    label = split_rows(Features.of(table.values, table.schema), 2 * parties, rng)
    sizes = np.bincount(label)
    owner, load = np.zeros(len(sizes), np.int64), np.zeros(parties)
    for cluster in np.argsort(-sizes, kind="stable"):
        owner[cluster] = load.argmin()
        load[owner[cluster]] += sizes[cluster]
    return owner[label]


def _nobody_empty(owner: Rows, parties: int, rng: np.random.Generator) -> Rows:
    while (sizes := np.bincount(owner, minlength=parties)).min() < LEAST:
        owner[rng.choice(np.flatnonzero(owner == sizes.argmax()))] = sizes.argmin()
    return owner


def _some(rows: int, share: float, rng: np.random.Generator) -> Rows:
    return np.sort(rng.permutation(rows)[: max(LEAST, round(share * rows))])


# ---------------------------------------------------------------------- columns


def _columns(
    table: Table, parties: int, overlap: float, target: str | None, rng: np.random.Generator
) -> list[list[str]]:
    """Columns at random; the target goes to the last party, which is not shared by overlap."""
    names = [n for n in table.names if n != target]
    mixed = [names[i] for i in rng.permutation(len(names))]
    common = min(int(np.ceil(overlap * len(names))), max(0, len(names) - parties))
    shared, rest = set(mixed[:common]), mixed[common:]
    columns = [{*rest[i::parties], *shared} for i in range(parties)]
    if target is not None:
        columns[-1].add(target)
    return [[n for n in table.names if n in part] for part in columns]
