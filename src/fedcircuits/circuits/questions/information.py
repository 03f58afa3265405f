"""Mutual information of columns, and how much each piece of evidence adds to an answer.

Mutual information is exact for columns of finitely many values. Real columns and counts without a
range are cut into ``bins`` intervals of equal probability, and it is that of the bins: never more
than that of the columns themselves.

The contribution of a piece of evidence is its Shapley value in the game v(S) = P(event | S): how
much it changes the answer when it becomes known, averaged over all orders in which the pieces may
become known. Contributions add up to P(event | everything) − P(event).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise, product
from math import comb

import numpy as np
from scipy.special import entr, rel_entr

from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.events import Evidence
from fedcircuits.circuits.questions.queryable import Queryable
from fedcircuits.circuits.questions.regions import Event, conjunction
from fedcircuits.errors import QueryError

MOST_PIECES = 14  # of evidence: 2^14 answers
HALVINGS = 60


Cell = float | Region  # a code, or an interval


def mutual_information(asked: Queryable, names: Sequence[str], bins: int = 8) -> Array:
    """(columns, columns) in nats; on the diagonal the entropy of the column or of its bins."""
    cells = {name: _cells(asked, name, bins) for name in names}
    information = np.zeros((len(names), len(names)))
    for i, a in enumerate(names):
        alone = _joint(asked, {a: cells[a]})
        information[i, i] = float(entr(alone).sum())
        for j, b in enumerate(names[:i]):
            joint = _joint(asked, {a: cells[a], b: cells[b]})
            apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
            information[i, j] = information[j, i] = max(0.0, float(rel_entr(joint, apart).sum()))
    return information


def _joint(asked: Queryable, columns: Mapping[str, list[Cell]]) -> Array:
    """(cells of the first column, of the second …): the probability of all."""
    schema = asked.circuit.schema
    coded = [n for n, cells in columns.items() if not isinstance(cells[0], tuple)]
    cut = [n for n in columns if n not in coded]
    codes = np.array(list(product(*(columns[n] for n in coded))), dtype=np.float64)
    rows = np.full((len(codes), len(schema)), np.nan)
    rows[:, [schema.index(n) for n in coded]] = codes
    logs = [
        asked.log_values_within(
            rows, {schema.index(n): r for n, r in zip(cut, choice, strict=True)}
        )
        for choice in product(*(_intervals(columns[n]) for n in cut))
    ]
    joint = np.exp(np.array(logs)).reshape([len(columns[n]) for n in (*cut, *coded)])
    joint = joint.transpose([(*cut, *coded).index(n) for n in columns])
    return np.asarray(joint / joint.sum())


def _intervals(cells: list[Cell]) -> list[Region]:
    return [c for c in cells if isinstance(c, tuple)]


def _cells(asked: Queryable, name: str, bins: int) -> list[Cell]:
    variable = asked.circuit.schema[name]
    if variable.levels:
        return [float(code) for code in range(variable.levels)]
    edges = [_quantile(asked, name, (i + 1) / bins) for i in range(bins - 1)]
    if variable.discrete:
        edges = [np.floor(e) + 0.5 for e in edges]
    ends = [-np.inf, *sorted(set(edges)), np.inf]
    return [((float(a), float(b)),) for a, b in pairwise(ends)]


def _quantile(asked: Queryable, name: str, share: float) -> float:
    """About where the probability below is this much: by halving, the answers are exact anyway."""
    at, nothing = asked.circuit.schema.index(name), np.full((1, len(asked.circuit.schema)), np.nan)

    def below(x: float) -> float:
        return float(np.exp(asked.log_values_within(nothing, {at: ((-np.inf, x),)})[0]))

    low, high = -1.0, 1.0
    while below(low) > share:
        low *= 4
    while below(high) < share:
        high *= 4
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
        if abs(below(middle) - share) < 1e-3:
            return middle
    return (low + high) / 2


# ---------------------------------------------------------------------- contributions


def contributions(asked: Queryable, event: Event, known: Evidence) -> dict[str, float]:
    """By column of the evidence, in the order it was given."""
    if len(known.event) != 1:
        raise QueryError(
            "contributions need evidence that holds all at once: conditions under 'or' over "
            "several columns cannot be told apart"
        )
    [box] = known.event
    pieces = (*known.values, *box)
    if not pieces:
        raise QueryError("contributions need evidence: say what is given")
    if len(pieces) > MOST_PIECES:
        raise QueryError(
            f"contributions go through all subsets of the evidence: expected at most {MOST_PIECES} "
            f"columns, got {len(pieces)}"
        )
    answers = _answers(asked, event, known.values, box)
    return {piece: _shapley(piece, pieces, answers) for piece in pieces}


def _answers(
    asked: Queryable, event: Event, values: Mapping[str, float], box: Mapping[str, Region]
) -> dict[frozenset[str], float]:
    """P(event | pieces) for every subset of the pieces."""
    schema = asked.circuit.schema
    fixed = [frozenset(s) for k in range(len(values) + 1) for s in combinations(values, k)]
    rows = np.full((len(fixed), len(schema)), np.nan)
    for row, names in zip(rows, fixed, strict=True):
        for name in names:
            row[schema.index(name)] = values[name]
    answers = {}
    for k in range(len(box) + 1):
        for open_names in combinations(box, k):
            within: Event = ({n: box[n] for n in open_names},)
            base = asked.log_probability(rows, within)
            if np.isneginf(base).any():
                raise QueryError("the evidence has probability zero under the model")
            logs = asked.log_probability(rows, conjunction(event, within)) - base
            for subset, log in zip(fixed, logs, strict=True):
                answers[subset | frozenset(open_names)] = float(np.exp(min(log, 0.0)))
    return answers


def _shapley(piece: str, pieces: Sequence[str], answers: Mapping[frozenset[str], float]) -> float:
    others, n = [p for p in pieces if p != piece], len(pieces)
    return sum(
        (answers[frozenset({*subset, piece})] - answers[frozenset(subset)]) / (n * comb(n - 1, k))
        for k in range(n)
        for subset in combinations(others, k)
    )
