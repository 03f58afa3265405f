"""How faithful a synthetic table is to a real one, and how close it comes to single rows of it.

    columns     total variation of every column, and what it is by chance: between the real rows
                and as many of them as there are synthetic rows, drawn with replacement
    pairs       how strongly pairs of columns depend on each other in both tables (comparison.py)
    usefulness  gradient boosting learns to predict the target from synthetic rows, and from real
                ones; both are measured on unseen test rows
    nearness    the distance of every synthetic row to the nearest training row, and the same for
                test rows: copies of training rows are closer to them than new rows are. The
                distance is the mean over columns of |difference| over the interquartile range of
                the training rows, at most 1; for classes it is 0 or 1; a missing value is at
                distance 1 from any value

Nearness detects copies but proves nothing: a private row can show in a synthetic table in other
ways. Only noise in training gives a guarantee (docs/differential-privacy.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedcircuits.arguments import SEED, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.reports import baselines
from fedcircuits.reports.comparison import distances, pairs
from fedcircuits.reports.measures import measures_of
from fedcircuits.reports.rows import rows_of
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

MOST_COMPARED = 2_000  # rows whose nearest one is looked for
BLOCK = 2_000_000  # cells of a block of differences


@dataclass(frozen=True, slots=True)
class Nearness:
    """Distances to the nearest training row."""

    copies: int  # synthetic rows that equal a training row
    compared: int  # synthetic rows that were looked at
    synthetic: tuple[float, float, float]  # quantiles: 5 %, 50 %, 95 %
    test: tuple[float, float, float] | None
    closer: float | None  # share of synthetic rows nearer than 5 % of test rows are


@dataclass(frozen=True, slots=True)
class Synthesis:
    """A synthetic table and its report: ``synthesise(model, 100, real=train)``."""

    table: Table
    columns: pd.Series | None = None  # total variation by column
    chance: pd.Series | None = None  # the same between real rows and so many of them
    pairs: pd.DataFrame | None = None  # dependence in the real and the synthetic table
    usefulness: pd.DataFrame | None = None  # measures, learned from synthetic and from real rows
    nearness: Nearness | None = None

    def to_json(self) -> dict[str, object]:
        near = self.nearness
        return {
            "rows": len(self.table),
            "columns": None if self.columns is None else self.columns.to_dict(),
            "chance": None if self.chance is None else self.chance.to_dict(),
            "pairs": None if self.pairs is None else self.pairs.to_dict("records"),
            "usefulness": None if self.usefulness is None else {
                str(n): {k: v if np.isfinite(v) else None for k, v in line.items()}
                for n, line in self.usefulness.iterrows()
            },
            "nearness": None if near is None else {
                "copies": near.copies, "compared": near.compared, "closer": near.closer,
                "synthetic": near.synthetic, "test": near.test,
            },
        }  # fmt: skip


def synthesise(
    model: Model,
    n: int,
    *,
    real: Rows | None = None,
    test: Rows | None = None,
    target: str | None = None,
    random_state: int = 0,
) -> Synthesis:
    """Rows drawn from a model, with a report on how faithful and how near to real rows they are.

    Parameters
    ----------
    model : Model
        A distribution.
    n : int
        How many rows to draw.
    real : DataFrame, Table or array, optional
        The rows it was learned from; without them there is no report. Columns that they lack are
        left out of it.
    test : DataFrame, Table or array, optional
        Rows it has not seen, for what can be learned from synthetic rows and for nearness.
    target : str, optional
        The column that is predicted from the others; by default the model's own.
    random_state : int, default=0
        The seed of draws.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> table = fc.datasets.load("breast_cancer")
    >>> first, second = table.rows(range(400)), table.rows(range(400, 569))
    >>> model = fc.MixtureOfProducts(4, target="diagnosis", random_state=0).fit(first)
    >>> made = fc.synthesise(model, 300, real=first, test=second)
    >>> len(made.table), made.nearness.copies, list(made.usefulness.index)
    (300, 0, ['synthetic rows', 'real rows'])
    """
    Whole(1).check("n", n, ParameterError)
    SEED.check("random_state", random_state, ParameterError)
    rng = np.random.default_rng(random_state)
    nothing = np.full((n, len(model.schema_)), np.nan)
    made = Table(model.schema_, model._distribution.sample(nothing, rng))
    if real is None:
        if test is not None:
            raise QueryError("test rows are compared with the training rows: give real=, too")
        return Synthesis(made)
    train = rows_of(real, model.schema_)
    held = None if test is None else rows_of(test, model.schema_)
    name = target if target is not None else getattr(model, "target", None)
    useful = None
    if held is not None and name is not None:
        useful = usefulness(made, train, held, model.schema_[name])
    known = [n for n, c in zip(train.names, train.values.T, strict=True) if not np.isnan(c).all()]
    if not known:
        raise QueryError("real= has no value of any column of the model: give its training rows")
    drawn, train = made.select(known), train.select(known)
    near = nearness(drawn, train, None if held is None else held.select(known), rng)
    again = train.rows(rng.integers(len(train), size=n))
    apart, chance = distances(train, drawn), distances(train, again)
    return Synthesis(made, apart, chance, pairs(train, drawn), useful, near)


def usefulness(made: Table, train: Table, test: Table, target: Variable) -> pd.DataFrame | None:
    """Measures by training table; None if the target has one class, or is absent from test or
    training rows."""
    at = test.schema.index(target.name)
    known = ~np.isnan(test.values[:, at])
    if not known.any() or np.isnan(train.values[:, at]).all():
        return None
    lines = {}
    for name, rows in (("synthetic rows", made), ("real rows", train)):
        predicted = baselines.predicted("gradient boosting", rows, test.rows(known), target)
        if predicted is None:
            return None
        lines[name] = measures_of(predicted, test.values[known, at], target.size)
    return pd.DataFrame.from_dict(lines, orient="index").dropna(axis=1, how="all")


def nearness(made: Table, train: Table, test: Table | None, rng: np.random.Generator) -> Nearness:
    """Distances of synthetic and of test rows to their nearest training rows."""
    synthetic = nearest(_some(made, rng), train)
    quantiles = _quantiles(synthetic)
    copies = int((synthetic == 0).sum())
    if test is None:
        return Nearness(copies, len(synthetic), quantiles, None, None)
    new = nearest(_some(test, rng), train)
    closer = float((synthetic < np.quantile(new, 0.05)).mean())
    return Nearness(copies, len(synthetic), quantiles, _quantiles(new), closer)


def nearest(rows: Table, train: Table) -> Array:
    """The distance (rows,) of each row to the nearest training row."""
    x, y = (_scaled(t, train) for t in (rows, train))
    classes = np.array([v.size > 0 for v in train.schema])
    distances = np.empty(len(x))
    step = max(1, BLOCK // (len(y) * len(classes)))
    for start in range(0, len(x), step):
        apart = np.abs(x[start : start + step, None] - y[None])  # (block, training rows, columns)
        apart = np.where(classes, (apart > 0).astype(np.float64), np.minimum(apart, 1))
        one_gap = np.isnan(x[start : start + step, None]) != np.isnan(y[None])
        apart = np.where(one_gap, 1.0, np.nan_to_num(apart))
        distances[start : start + step] = apart.mean(axis=2).min(axis=1)
    return distances


def _scaled(rows: Table, train: Table) -> Array:
    """Numbers in units of the interquartile range of training rows."""
    scaled = rows.values.copy()
    for i, variable in enumerate(train.schema):
        known = train.values[:, i][~np.isnan(train.values[:, i])]
        if variable.size or len(known) == 0:
            continue
        low, high = np.quantile(known, [0.25, 0.75])
        spread = high - low or known.std() or 1.0
        scaled[:, i] /= spread
    return scaled


def _some(rows: Table, rng: np.random.Generator) -> Table:
    if len(rows) <= MOST_COMPARED:
        return rows
    return rows.rows(np.sort(rng.choice(len(rows), MOST_COMPARED, replace=False)))


def _quantiles(values: Array) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return low, middle, high
