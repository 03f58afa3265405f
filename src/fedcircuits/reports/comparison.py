"""Two models, or a model and data, side by side: likelihoods, columns, dependencies.

A model is represented by rows sampled from it, in the columns of both sides. ``chance`` is the
distance between two samples of the first model, the second as large as the other side: distances
that do not exceed it are not significant.

    divergence   of two models a and b, the mean of log a(x) − log b(x) over samples x of a, which
                 estimates KL(a ‖ b) in nats per row, and the other way round

Columns of two tables are compared one by one and in pairs, in bins: one per class; for a number, at
most ten bins between quantiles of the first table; and, in pairs, one for missing values.

    distance of a column    total variation of known values, ½ Σ |p − q|: 0 if equal, 1 if disjoint.
                            Samples of a model have no missing values, whatever data have
    dependence of a pair    mutual information over the smaller of the two entropies: 0 if
                            independent, 1 if one determines the other. With few rows in many bins
                            it is positive by chance; the expected bias is subtracted
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.arguments import SEED, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.reports.rows import rows_of
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

BINS = 10
MOST_COLUMNS = 40  # of which all pairs are compared
Codes = npt.NDArray[np.int64]


def bin_ends(variable: Variable, column: Array) -> Array:
    """The ends of the bins of a number: quantiles of its known values."""
    known = column[~np.isnan(column)]
    if len(known) == 0:
        return np.zeros(0)
    return np.unique(np.quantile(known, np.arange(1, BINS) / BINS))


def binned(variable: Variable, column: Array, ends: Array) -> Codes:
    """Bins (rows,); missing values are in the last one."""
    gaps = np.isnan(column)
    if variable.size:
        return np.where(gaps, variable.size, np.nan_to_num(column)).astype(np.int64)
    return np.where(gaps, len(ends) + 1, np.searchsorted(ends, column, side="left"))


def columns_in_bins(first: Table, second: Table) -> tuple[list[Codes], list[Codes], list[int]]:
    """The bins of every column in two tables of one schema, and their numbers."""
    one, two, sizes = [], [], []
    for i, variable in enumerate(first.schema):
        ends = bin_ends(variable, first.values[:, i])
        one.append(binned(variable, first.values[:, i], ends))
        two.append(binned(variable, second.values[:, i], ends))
        sizes.append((variable.size or len(ends) + 1) + 1)
    return one, two, sizes


def distances(first: Table, second: Table) -> pd.Series:
    """Total variation by column, of values that are known."""
    one, two, sizes = columns_in_bins(first, second)
    return pd.Series({
        name: float(np.abs(_known_shares(a, n) - _known_shares(b, n)).sum() / 2)
        for name, a, b, n in zip(first.names, one, two, sizes, strict=True)
    }, dtype=np.float64)  # fmt: skip


def pairs(first: Table, second: Table) -> pd.DataFrame:
    """Dependence of every pair of columns in both tables, sorted by that in the first.

    Wide tables are limited to the first 40 columns.
    """
    one, two, sizes = columns_in_bins(first, second)
    names = first.names[:MOST_COLUMNS]
    rows = [
        (names[i], names[j], *(dependence(t[i], t[j], sizes[i], sizes[j]) for t in (one, two)))
        for i, j in itertools.combinations(range(len(names)), 2)
    ]
    frame = pd.DataFrame(rows, columns=["column", "with", "first", "second"])
    frame["difference"] = (frame["first"] - frame["second"]).abs()
    return frame.sort_values("first", ascending=False, ignore_index=True, kind="stable")


def dependence(a: Codes, b: Codes, n: int, m: int) -> float:
    """Normalised mutual information, minus its expected value for independent columns."""
    joint = np.bincount(a * m + b, minlength=n * m).reshape(n, m) / len(a)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    information = _entropy(p) + _entropy(q) - _entropy(joint.ravel())
    freedom = (np.count_nonzero(p) - 1) * (np.count_nonzero(q) - 1)
    information -= freedom / (2 * len(a))  # Miller and Madow
    least = min(_entropy(p), _entropy(q))
    return float(np.clip(information / least, 0, 1)) if least > 0 else 0.0


def _known_shares(codes: Codes, bins: int) -> Array:
    rows = np.bincount(codes, minlength=bins)[:-1]
    return np.asarray(rows / max(int(rows.sum()), 1))


def _entropy(p: Array) -> float:
    seen = p[p > 0]
    return float(-(seen * np.log(seen)).sum())


MOST_ROWS = 5_000  # of data, or draws, that columns are compared by


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two sides: ``compare(model, other).columns``."""

    likelihoods: dict[str, float]  # mean log-likelihood per row; divergences of two models
    columns: pd.DataFrame  # by column: distance, chance
    pairs: pd.DataFrame  # column, with, first, second, difference: dependence on both sides

    def to_json(self) -> dict[str, object]:
        likelihoods = {k: v if np.isfinite(v) else None for k, v in self.likelihoods.items()}
        columns = {str(n): line.to_dict() for n, line in self.columns.iterrows()}
        return {
            "likelihoods": likelihoods, "columns": columns, "pairs": self.pairs.to_dict("records"),
        }  # fmt: skip


def compare(
    model: Model,
    other: Model | Rows,
    data: Rows | None = None,
    *,
    draws: int = MOST_ROWS,
    random_state: int = 0,
) -> Comparison:
    """How a model differs from another one, or from data.

    Parameters
    ----------
    model : Model
        A distribution.
    other : Model, DataFrame, Table or array
        Another distribution, or rows.
    data : DataFrame, Table or array, optional
        For two models: rows whose likelihood under both is reported.
    draws : int, default=5000
        Rows that are drawn from models.
    random_state : int, default=0
        The seed of draws.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> table = fc.datasets.load("breast_cancer")
    >>> one = fc.MixtureOfProducts(1, random_state=0).fit(table)
    >>> many = fc.MixtureOfProducts(8, random_state=0).fit(table)
    >>> found = fc.compare(many, one, draws=500)
    >>> found.likelihoods["divergence of the second from the first"] > 1
    True
    >>> fc.compare(many, table, draws=500).columns.columns.tolist()
    ['distance', 'chance']
    """
    Whole(2).check("draws", draws, ParameterError)
    SEED.check("random_state", random_state, ParameterError)
    rng = np.random.default_rng(random_state)
    if not isinstance(other, Model):
        if data is not None:
            raise QueryError("data= is for two models; here one side is data already")
        return _with_data(model, other, draws, rng)
    return _of_models(model, other, data, draws, rng)


def _with_data(model: Model, rows: Rows, draws: int, rng: np.random.Generator) -> Comparison:
    real = rows_of(rows, model.schema_)
    held = [n for n, c in zip(real.names, real.values.T, strict=True) if not np.isnan(c).all()]
    one = drawn(model, model.schema_.select(held), draws, rng)
    likelihoods = {
        "data": model.score(real.select(held)),
        "its own samples": model.score(one),
    }
    chosen = real.select(held)
    if len(chosen) > MOST_ROWS:
        chosen = chosen.rows(np.sort(rng.choice(len(chosen), MOST_ROWS, replace=False)))
    again = drawn(model, one.schema, len(chosen), rng)
    return Comparison(likelihoods, _columns(one, chosen, again), pairs(one, chosen))


def _of_models(
    model: Model, other: Model, data: Rows | None, draws: int, rng: np.random.Generator
) -> Comparison:
    shared = common(model.schema_, other.schema_)
    one, again, two = (drawn(m, shared, draws, rng) for m in (model, model, other))
    likelihoods: dict[str, float] = {}
    if data is not None:
        rows = rows_of(data, shared)
        likelihoods |= {"data, first": model.score(rows), "data, second": other.score(rows)}
    likelihoods["divergence of the second from the first"] = _gap(model, other, one)
    likelihoods["divergence of the first from the second"] = _gap(other, model, two)
    return Comparison(likelihoods, _columns(one, two, again), pairs(one, two))


def common(first: Schema, second: Schema) -> Schema:
    """The columns of both; QueryError if there are none, or if they have different meanings."""
    names = [n for n in first.names if n in second]
    if not names:
        raise QueryError(
            f"the two models have no column in common: {', '.join(first.names[:8])}; "
            f"{', '.join(second.names[:8])}"
        )
    for name in names:
        one, two = first[name], second[name]
        if one.kind != two.kind or set(one.categories) != set(two.categories):
            raise QueryError(
                f"{name!r} is {one.described()} in the first model and {two.described()} in the "
                "second: train both with the same schema"
            )
    return first.select(names)


def drawn(model: Model, schema: Schema, rows: int, rng: np.random.Generator) -> Table:
    """Rows sampled from a model in the columns and codes of a schema."""
    nothing = np.full((rows, len(model.schema_)), np.nan)
    table = Table(model.schema_, model._distribution.sample(nothing, rng))
    return Table.of(table.select(schema.names), schema=schema)


def _gap(model: Model, other: Model, rows: Table) -> float:
    gaps: Array = model.score_samples(rows) - other.score_samples(rows)
    return float(gaps.mean())


def _columns(one: Table, two: Table, again: Table) -> pd.DataFrame:
    return pd.DataFrame({"distance": distances(one, two), "chance": distances(one, again)})
