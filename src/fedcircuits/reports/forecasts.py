"""What models and plain predictors say about the target of test rows."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.estimators.fedtrees import Predictions
from fedcircuits.estimators.model import Model
from fedcircuits.reports.measures import Forecast
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

DRAWS, MOST_RANKED = 100, 300  # draws per row, and rows, that calibration of numbers looks at
Predicting: TypeAlias = Model | Predictions


def forecast(
    model: Predicting, rows: Table, target: Variable, rng: np.random.Generator
) -> Forecast:
    """The target of these rows from their remaining columns."""
    features = rows.select(n for n in rows.names if n != target.name and n in model.schema_)
    if target.size:
        p = model.predict_proba(features, target.name)
        decided = p.argmax(axis=1)
        if isinstance(model, Predictions):
            decided = model._decided(p)  # with a threshold of its own
        return Forecast(np.asarray(decided, np.float64), p)
    means = np.asarray(model.predict(features, target.name), np.float64)
    if not isinstance(model, Model):
        return Forecast(means)
    return Forecast(means, None, _ranks(model, rows, target, rng))


def _ranks(model: Model, rows: Table, target: Variable, rng: np.random.Generator) -> Array:
    """Where the truth lies among draws from p(target | rest of the row); ties at random."""
    at = model.schema_.index(target.name)
    x = Table.of(rows, schema=model.schema_, partial=True).values.copy()
    truth = x[:, at].copy()
    x[:, at] = np.nan
    possible = ~np.isneginf(model._distribution.log_likelihood(x))
    chosen = np.flatnonzero(possible & ~np.isnan(truth))
    if len(chosen) > MOST_RANKED:
        chosen = rng.choice(chosen, MOST_RANKED, replace=False)
    drawn = model._distribution.sample(np.repeat(x[chosen], DRAWS, axis=0), rng)[:, at]
    drawn, truth = drawn.reshape(len(chosen), DRAWS), truth[chosen, None]
    below, equal = (drawn < truth).sum(axis=1), (drawn == truth).sum(axis=1)
    return np.asarray((below + rng.random(len(chosen)) * (equal + 1)) / (DRAWS + 1))
