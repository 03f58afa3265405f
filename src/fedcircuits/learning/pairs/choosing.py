"""Forests and factors, chosen and weighted by rows that are held back.

Candidates are two forests and mixtures of factor analysers, of all rows and by class. Counts of
pairs are divided at random: what is learned from most of them is judged by the rest, on average a
row at a time (``gain``). The better a candidate, the more it weighs in the mixture; independence
weighs the more, the less sure it is that the best of them gains anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.factors import Correlations, FactorModel, points_of
from fedcircuits.learning.pairs.forests import (
    ForestModel,
    MixedForests,
    differing_forests,
    worth_of_edges,
)
from fedcircuits.learning.pairs.tables import TablesOfPairs

FACTORS = 1, 2, 4  # numbers that are tried
FORESTS = 2  # that differ
MOST_POINTS = 3_000  # of all components of factors
SHARPNESS = 2.0  # a candidate weighs e to this many times the nats that it gains
LEAST_WEIGHT = 0.03  # of a candidate beside the best
FOLDS = 2, 5  # the fewer, the more rows there are
ROWS_IN_FOLDS = 1_500  # of all folds together
SURE = 0.5  # deviations: where rows held back gain less, columns are independent
Model = ForestModel | FactorModel


@dataclass(frozen=True, slots=True)
class LearnedPairs:
    """What was learned: a mixture of forests, and how it was judged."""

    mixture: MixedForests
    gains: Array  # (folds,) nats per row held back over independent columns, and within groups
    refused: bool = False  # whether edges were found, and rows held back were likelier without


class _Candidates:
    """Models of the same tables, by name; they share what they can."""

    def __init__(self, tables: TablesOfPairs) -> None:
        self.tables = tables
        self.ways: dict[str, Callable[[], Model]] = {}
        self.joins = False
        for by_class in (False, True) if tables.classes > 1 else (False,):
            self._add(by_class)

    def _add(self, by_class: bool) -> None:
        tables, about = self.tables, " by class" if by_class else ""
        worth = worth_of_edges(tables, by_class)
        self.joins = self.joins or bool((worth > 0).any())
        for i, edges in enumerate(differing_forests(worth, FORESTS)):
            self.ways[f"forest {i}{about}"] = partial(ForestModel, tables, edges, by_class)
        known, components = Correlations(tables, by_class), tables.classes if by_class else 1
        for number in FACTORS if known.enough else ():
            fits = number < len(known.ranked) and components * points_of(number) <= MOST_POINTS
            if fits:
                self.ways[f"{number} factors{about}"] = partial(FactorModel, known, number)


def learn_pairs(tables: TablesOfPairs, rng: np.random.Generator) -> LearnedPairs:
    """The mixture of what suits the tables best."""
    found: dict[str, list[float]] = {}
    folds = int(np.clip(ROWS_IN_FOLDS // max(tables.rows, 1.0), *FOLDS))
    for rest, held in tables.folds(rng, folds):
        for name, way in _Candidates(rest).ways.items():
            found.setdefault(name, []).append(way().gain(held))
    names, gains = list(found), np.array(list(found.values()))  # (candidates, folds)
    mean = gains.mean(axis=1)
    best = int(mean.argmax())
    every = _Candidates(tables)
    doubt = _doubt(float(mean[best]), tables.rows)
    if doubt == 1:
        return LearnedPairs(_independent(tables), np.zeros(1), every.joins)
    weights = np.exp(SHARPNESS * (mean - mean[best]))
    kept = np.flatnonzero(weights >= LEAST_WEIGHT)
    models = [every.ways[names[i]]() for i in kept]
    parts = [model.mixed() for model in models] + [_independent(tables)]
    within = max(model.within for model in models)
    shares = np.append((1 - doubt) * weights[kept] / weights[kept].sum(), doubt)
    return LearnedPairs(_mixed(parts, shares), gains[best] + within)


def _doubt(gain: float, rows: float) -> float:
    """The weight of independence, by how many standard deviations rows gain over it: those of
    a logarithm of a ratio of likelihoods have about twice its mean as their variance."""
    sure = gain * rows / 2
    return 1 / (1 + sure) if gain > 0 and sure > SURE**2 else 1.0


def _independent(tables: TablesOfPairs) -> MixedForests:
    edges = [(c, -1) for c in range(len(tables.columns))]
    return MixedForests(np.ones(1), [(edges, [column.shares[None] for column in tables.columns])])


def _mixed(parts: list[MixedForests], shares: Array) -> MixedForests:
    weights = [share * part.weights for share, part in zip(shares, parts, strict=True)]
    return MixedForests(np.concatenate(weights), [f for part in parts for f in part.forests])
