"""How well a model fits unseen rows, compared with baselines.

Every line of ``Evaluation.scores`` is measured on the same rows (measures.py). The likelihood is
joint over all columns of these rows; a line without one is not a distribution over them. With
training rows there are lines for baselines (baselines.py), for each party that learns alone, and
for LearnSPN with all of these rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from fedcircuits.arguments import SEED
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.estimators.fedtrees import Predictions
from fedcircuits.estimators.fusion_model import FusionModel
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.federation.federation import Federation
from fedcircuits.reports import baselines
from fedcircuits.reports.measures import (
    CLASS_MEASURES,
    NUMBER_MEASURES,
    Forecast,
    Measures,
    ReliabilityBin,
    measures_of,
    reliability,
)
from fedcircuits.reports.rows import joined, rows_of, seen_before
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

THE_MODEL, TOGETHER = "the model", "LearnSPN, all rows in one place"
INDEPENDENT, OWN_MARGINALS = "independent columns", "independent columns (its own marginals)"
LIKELIHOOD = "log_likelihood"
DRAWS, MOST_RANKED = 100, 300  # draws per row, and rows, used for the calibration of numbers
Predicting: TypeAlias = Model | Predictions
TrainingRows: TypeAlias = Rows | Mapping[str, Rows] | Federation | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores on unseen rows: ``evaluate(model, test).scores``."""

    rows: int
    impossible: int  # rows of probability zero under the model
    target: str | None
    scores: pd.DataFrame  # a line per model: log_likelihood, and measures of predictions
    reliability: tuple[ReliabilityBin, ...] = ()  # of the model, where the target has classes

    def to_json(self) -> dict[str, object]:
        """Plain values; None for undefined ones."""
        lines = {
            str(name): {k: float(v) if math.isfinite(v) else None for k, v in line.items()}
            for name, line in self.scores.iterrows()
        }
        bins = [[b.rows, b.confidence, b.accuracy] for b in self.reliability]
        return {
            "rows": self.rows, "impossible": self.impossible, "target": self.target,
            "scores": lines, "reliability": bins,
        }  # fmt: skip


def evaluate(
    model: Predicting | FusionModel,
    X: Rows | Federation,
    *,
    train: TrainingRows = None,
    target: str | None = None,
    random_state: int = 0,
) -> Evaluation:
    """Scores of a model on test rows, beside plain baselines.

    Parameters
    ----------
    model : Model, FedTrees or FeatureFusion
        What has been fitted.
    X : DataFrame, Table or array; for FeatureFusion a Federation
        Rows that the model has not seen. Columns that they lack are summed out.
    train : rows, or a Federation or mapping of names of parties to their rows, optional
        Training rows for the baselines, which read ordinary columns and no series. With several
        parties, each also learns alone; rows of parties with different columns are joined by the
        row ids of their ``Table``.
    target : str, optional
        The column to predict; by default the model's own. Without one there are likelihoods alone.
    random_state : int, default=0
        The seed of draws and of what is learned here.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> table = fc.datasets.load("breast_cancer")
    >>> first, second = table.rows(range(400)), table.rows(range(400, 569))
    >>> model = fc.MixtureOfProducts(4, target="diagnosis", random_state=0).fit(first)
    >>> found = fc.evaluate(model, second, train=first)
    >>> bool(found.scores.loc["the model", "accuracy"] > 0.85)
    True
    >>> found.scores.index.tolist()[:3]
    ['the model', 'independent columns', 'most frequent class']
    """
    SEED.check("random_state", random_state, ParameterError)
    if isinstance(model, FusionModel):
        return _evaluate_fusion(model, X, _by_party(train), random_state)
    if isinstance(X, Federation):
        X = joined({p.name: rows_of(p.table, model.schema_) for p in X})
    return _Contest(model, X, train, target, random_state).evaluation()


def _by_party(train: TrainingRows) -> dict[str, Rows]:
    if train is None:
        return {}
    if isinstance(train, Federation):
        return {p.name: p.table for p in train}
    return dict(train) if isinstance(train, Mapping) else {"": train}


def _evaluate_fusion(
    model: FusionModel, X: object, train: Mapping[str, Rows], seed: int
) -> Evaluation:
    """Owners read the rows, and those that hold the target reveal it."""
    if not isinstance(X, Federation):
        raise QueryError("a fusion predicts from the rows of its owners: give them as a Federation")
    answers, variable = model._answers(X, truth=True), model.fusion_.target
    assert answers.truth is not None, "it was asked for"
    known = ~np.isnan(answers.truth)
    if not known.any():
        raise QueryError(f"no row has a value of {variable.name!r} to compare predictions with")
    values, truth = answers.values[known], answers.truth[known]
    predicted = Forecast(values[:, 0])
    if variable.size:
        predicted = Forecast(np.asarray(values.argmax(axis=1), np.float64), values)
    lines = _beside_fusion(X, train, variable.name, seed) if train else {}
    lines = {**lines, THE_MODEL: measures_of(predicted, truth, variable.size)}
    scores = _frame({name: lines[name] for name in [THE_MODEL, *lines]}, variable)
    return Evaluation(len(values), 0, variable.name, scores, _bins(predicted, truth))


def _beside_fusion(
    X: Federation, train: Mapping[str, Rows], target: str, seed: int
) -> dict[str, Measures]:
    """What others predict from ordinary columns; nothing if there are none but the target."""
    tables = {n: rows if isinstance(rows, Table) else Table.of(rows) for n, rows in train.items()}
    schema = Federation(tables).schema
    if set(schema.names) <= {target}:
        return {}
    parts, tests = ({n: rows_of(t, schema) for n, t in every.items()}
                    for every in (tables, {p.name: p.table for p in X}))  # fmt: skip
    plain = baselines.independent(joined(parts))
    contest = _Contest(plain, joined(tests), parts, target, seed)
    return {name: line for name, line in contest.lines() if name != THE_MODEL}


class _Contest:
    """One model, its test rows, and its competitors."""

    def __init__(
        self, model: Predicting, X: Rows, train: TrainingRows, target: str | None, seed: int
    ) -> None:
        self.model, self.seed = model, seed
        self.schema = model.schema_
        self.test = rows_of(X, self.schema)
        self.parts = self._training(train)
        self.train = joined(self.parts) if self.parts else None
        if self.train is not None and (again := seen_before(self.test, self.train)):
            warnings.warn(
                f"{again:,} of {len(self.test):,} test rows are training rows, too: scores of "
                "unseen rows would be worse",
                UserWarning,
                stacklevel=4,
            )
        self.target = self._target(target)
        self.truth = np.zeros(0)
        if self.target is not None:
            self.truth = self.test.values[:, self.schema.index(self.target.name)]
            if np.isnan(self.truth).all():
                raise QueryError(
                    f"no row has a value of {self.target.name!r} to compare predictions with"
                )

    def _training(self, train: TrainingRows) -> dict[str, Table]:
        return {name: rows_of(rows, self.schema) for name, rows in _by_party(train).items()}

    def _target(self, target: str | None) -> Variable | None:
        if isinstance(self.model, Predictions):
            return self.schema[self.model._target(target)]
        name = target if target is not None else getattr(self.model, "target", None)
        return None if name is None else self.schema[name]

    # ------------------------------------------------------------------ lines

    def evaluation(self) -> Evaluation:
        lines = dict(self.lines())
        impossible, bins = 0, tuple[ReliabilityBin, ...]()
        if isinstance(self.model, Model):
            impossible = int(np.isneginf(self.model.score_samples(self.test)).sum())
        if self.target is not None:
            known = ~np.isnan(self.truth)
            predicted = forecast(self.model, self.test.rows(known), self.target, self._rng())
            lines[THE_MODEL] |= measures_of(predicted, self.truth[known], self.target.size)
            bins = _bins(predicted, self.truth[known])
        name = None if self.target is None else self.target.name
        return Evaluation(len(self.test), impossible, name, _frame(lines, self.target), bins)

    def lines(self) -> Iterator[tuple[str, Measures]]:
        yield THE_MODEL, self._fit_of(self.model)
        if self.train is None:
            if isinstance(self.model, Model):
                yield OWN_MARGINALS, {LIKELIHOOD: self._own_marginals(self.model)}
            return
        yield INDEPENDENT, self._fit_of(baselines.independent(self.train))
        yield from self._plain(self.train)
        for name, part in self.parts.items() if len(self.parts) > 1 else ():
            if measures := self._learned(part):  # nothing, if it lacks columns and the target
                yield f"{name} alone", measures
        yield TOGETHER, self._learned(self.train)

    def _plain(self, train: Table) -> Iterator[tuple[str, Measures]]:
        if self.target is None:
            return
        column = train.values[:, self.schema.index(self.target.name)]
        column = column[~np.isnan(column)]
        if len(column) == 0:
            raise QueryError(f"no training row has a value of {self.target.name!r}")
        known = ~np.isnan(self.truth)
        name = "most frequent class" if self.target.size else "the mean"
        guess = baselines.constant(column, int(known.sum()), self.target)
        yield name, measures_of(guess, self.truth[known], self.target.size)
        for kind in baselines.PREDICTORS:
            predicted = baselines.predicted(kind, train, self.test.rows(known), self.target)
            if predicted is not None:
                measures = measures_of(predicted, self.truth[known], self.target.size)
                yield baselines.name_of(kind, self.target), measures

    def _learned(self, rows: Table) -> Measures:
        """Measures of LearnSPN trained on the columns of these rows."""
        held = [n for n, c in zip(rows.names, rows.values.T, strict=True) if not np.isnan(c).all()]
        target = self.target if self.target is not None and self.target.name in held else None
        name = None if target is None else target.name
        model = LearnSPN(target=name, random_state=self.seed).fit(rows.select(held))
        measures = self._fit_of(model)
        if target is not None and len(held) > 1:
            known = ~np.isnan(self.truth)
            predicted = forecast(model, self.test.rows(known), target, self._rng())
            measures |= measures_of(predicted, self.truth[known], target.size)
        return measures

    # ------------------------------------------------------------------ likelihoods

    def _fit_of(self, model: Predicting) -> Measures:
        """The likelihood, for models of all columns of the test rows."""
        held = [
            n for n, c in zip(self.test.names, self.test.values.T, strict=True)
            if not np.isnan(c).all()
        ]  # fmt: skip
        if not isinstance(model, Model) or not set(held) <= set(model.schema_.names):
            return {}
        return {LIKELIHOOD: model.score(self.test)}

    def _own_marginals(self, model: Model) -> float:
        total = np.zeros(len(self.test))
        for i in range(len(self.schema)):
            alone = np.full_like(self.test.values, np.nan)
            alone[:, i] = self.test.values[:, i]
            total += model._distribution.log_likelihood(alone)
        return float(total.mean())

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def _frame(lines: Mapping[str, Measures], target: Variable | None) -> pd.DataFrame:
    measures: tuple[str, ...] = ()
    if target is not None:
        measures = CLASS_MEASURES if target.size else NUMBER_MEASURES
    columns = [LIKELIHOOD, *measures]
    return pd.DataFrame(list(lines.values()), index=list(lines)).reindex(columns=columns)


def _bins(predicted: Forecast, truth: Array) -> tuple[ReliabilityBin, ...]:
    if predicted.probabilities is None:
        return ()
    return tuple(reliability(predicted.probabilities, truth.astype(np.int64)))


def forecast(
    model: Predicting, rows: Table, target: Variable, rng: np.random.Generator
) -> Forecast:
    """The target of these rows predicted from their remaining columns."""
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
    """The rank of the true value among samples of p(target | rest of the row); ties at random."""
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
