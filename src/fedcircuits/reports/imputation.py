"""Missing values filled in by a model, in four ways.

    mpe      jointly, by the most probable explanation (exact for deterministic circuits, otherwise
             the best single path)
    mean     each separately: the conditional mean of a number, the most probable class
    mode     each separately: the most probable value, exact for classes; for numbers the densest of
             50 samples from the conditional distribution
    sample   jointly, by samples from the exact conditional distribution; several of them are
             multiple imputations

A row with probability zero under the model cannot be completed from it: its missing values are
filled from the marginal distribution, with a warning.
"""

from __future__ import annotations

import warnings
from typing import get_args

import numpy as np

from fedcircuits.arguments import SEED, Choice, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.estimators.imputer import Filling, completed
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.reports.rows import rows_of
from fedcircuits.tables.table import Table


def impute(
    model: Model,
    X: Rows,
    by: Filling = "mpe",
    *,
    imputations: int = 1,
    random_state: int | None = None,
) -> list[Table]:
    """Tables without gaps in the columns of the model, one per imputation.

    Parameters
    ----------
    model : Model
        A distribution over the columns.
    X : DataFrame, Table or array
        Rows with gaps; columns that they lack are filled, too.
    by : {"mpe", "mean", "mode", "sample"}, default="mpe"
        How gaps are filled.
    imputations : int, default=1
        How many tables; more than one with "sample" alone.
    random_state : int, optional
        The seed of draws.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> table = fc.datasets.load("breast_cancer")
    >>> model = fc.MixtureOfProducts(4, random_state=0).fit(table)
    >>> gaps = table.to_pandas().head(3)
    >>> gaps.loc[1, "mean radius"] = None
    >>> drawn = fc.impute(model, gaps, "sample", imputations=5, random_state=0)
    >>> len(drawn), bool(drawn[0].column("mean radius")[0] == gaps.loc[0, "mean radius"])
    (5, True)
    """
    Choice(*get_args(Filling)).check("by", by, ParameterError)
    Whole(1).check("imputations", imputations, ParameterError)
    SEED.check("random_state", random_state, ParameterError)
    if imputations > 1 and by != "sample":
        raise ParameterError(
            f"several imputations differ by their draws, and by={by!r} draws nothing: "
            "give by='sample'"
        )
    rows = rows_of(X, model.schema_)
    known, rng = _possible(model, rows.values), np.random.default_rng(random_state)
    tables = []
    for _ in range(imputations):
        values = np.where(np.isnan(rows.values), completed(model, known, by, rng), rows.values)
        tables.append(Table(model.schema_, values, rows.row_ids))
    return tables


def _possible(model: Model, x: Array) -> Array:
    """The rows, with all values removed if they have probability zero."""
    impossible = np.isneginf(model._distribution.log_likelihood(x))
    if not impossible.any():
        return x
    warnings.warn(
        f"{int(impossible.sum())} of {len(x)} rows have probability zero under the model (the "
        f"first is row {int(np.flatnonzero(impossible)[0])}); their gaps are filled from the "
        "overall distribution",
        UserWarning,
        stacklevel=3,
    )
    return np.where(impossible[:, None], np.nan, x)
