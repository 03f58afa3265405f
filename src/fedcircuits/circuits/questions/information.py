"""Entropies, mutual information of columns, and what each piece of evidence adds to an answer.

Mutual information is exact for columns of finitely many values. Real columns and counts without a
range are cut into ``bins`` intervals of equal probability, and it is that of the bins: never more
than that of the columns themselves.

The contribution of a piece of evidence is its Shapley value in the game v(S) = P(event | S): how
much it changes the answer when it becomes known, averaged over all orders in which the pieces may
become known. Contributions add up to P(event | everything) − P(event).

The entropy of a circuit is exact where it is deterministic, and within bounds elsewhere. A circuit
draws a row X by choosing an input Z at every sum it reaches, then values of the leaves. With r, the
probability that a unit is reached from the root,

    H(X | Z) = Σ over leaf units of r · their entropy
    H(Z)     = Σ over sum units of r · H(weights)
    H(X | Z) ≤ H(X) ≤ H(X | Z) + H(Z)

In a deterministic circuit a row determines Z, so the upper bound is the entropy. For real columns
it is the differential entropy, which may be negative.

``expected_log`` is E_p[log q] of two leaves over one variable, where it has a closed form. For
units i of p and k of q, S(i, k) is the mass of p where q is positive, and T(i, k) = E_p[log q] over
that part. For finite variables and counts it is a sum over their values (for unbounded counts up to
a tail of 1e-13 of p). For real ones, q must have a log-density whose expectation is known under p:

    q gaussian      from the mean and variance of any p
    q exponential   from the mean of p above zero
    q gamma         the same, and E[log x], which is known for p = gamma or exponential
    q histogram     from the masses of its bins under any p
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise, product
from math import comb

import numpy as np
from scipy.special import betaln, digamma, entr, gammaln, rel_entr

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays, Family, Region, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.graph.properties import is_deterministic
from fedcircuits.circuits.questions.events import Evidence
from fedcircuits.circuits.questions.queryable import Queryable
from fedcircuits.circuits.questions.regions import Event, conjunction
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

Expected = tuple[Array, Array]  # S and T, (units of p, units of q)
TAIL = 1e-13
MOST_COUNTS = 100_000
Rule = Callable[[Family, Arrays, Arrays], Expected]


def expected_log(
    p: Family, arrays: Arrays, q: Family, other: Arrays, variable: Variable
) -> Expected:
    """Arrays (units, …) of both leaves."""
    if variable.discrete:
        return _by_values(p, arrays, q, other, variable)
    if q.name in REAL:
        return REAL[q.name](p, arrays, other)
    raise QueryError(
        f"the mean of the log density of {q.name!r} leaves (of {variable.name!r}) has no closed "
        f"form: cross entropies need one of {', '.join(REAL)} for real columns"
    )


def _by_values(
    p: Family, arrays_of_p: Arrays, q: Family, other: Arrays, variable: Variable
) -> Expected:
    levels = variable.levels or _reach(p, arrays_of_p, variable)
    codes = np.arange(levels)
    mine, theirs = (
        np.stack([rule.mass(arrays, c - 0.5, c + 0.5) for c in codes], axis=-1)
        for rule, arrays in ((p, arrays_of_p), (q, other))
    )
    logs = np.log(np.where(theirs > 0, theirs, 1.0))
    return mine @ (theirs > 0).T.astype(np.float64), mine @ logs.T


def _reach(p: Family, arrays: Arrays, variable: Variable) -> int:
    """How many counts hold all but the last trace of every unit."""
    levels = 16
    while float(np.max(p.mass(arrays, levels - 0.5, np.inf))) > TAIL:
        levels *= 2
        if levels > MOST_COUNTS:
            raise QueryError(f"{variable.name!r} has too many values to go through one by one")
    return levels


def _above(p: Family, arrays: Arrays, lower: float) -> Array:
    """(3, units): mass, E[x], E[x²] of p above a bound."""
    moments = p.moments(arrays, lower, np.inf)
    if not np.isfinite(moments).all():
        raise QueryError(f"{p.name!r} leaves of few degrees have no variance to compare by")
    return moments


def _gaussian(p: Family, arrays: Arrays, other: Arrays) -> Expected:
    _, first, second = (m[:, None] for m in _above(p, arrays, -np.inf))
    mean, variance = other["mean"], other["variance"]
    spread = second - 2 * mean * first + np.square(mean)
    logs = -0.5 * (spread / variance + np.log(2 * np.pi * variance))
    return np.ones(logs.shape), logs


def _exponential(p: Family, arrays: Arrays, other: Arrays) -> Expected:
    mass, first, _ = (m[:, None] for m in _above(p, arrays, 0.0))
    rate = other["rate"]
    return mass * np.ones_like(rate), mass * np.log(rate) - rate * first


def _gamma(p: Family, arrays: Arrays, other: Arrays) -> Expected:
    if p.name not in ("gamma", "exponential"):
        raise QueryError(
            f"a gamma leaf needs E[log x], which {p.name!r} leaves do not know: both circuits must "
            "have gamma or exponential leaves there"
        )
    shape, rate = arrays.get("shape", np.ones_like(arrays["rate"])), arrays["rate"]
    log, mean = (digamma(shape) - np.log(rate))[:, None], (shape / rate)[:, None]
    k, r = other["shape"], other["rate"]
    logs = (k - 1) * log - r * mean + k * np.log(r) - gammaln(k)
    return np.ones(logs.shape), logs


def _histogram(p: Family, arrays: Arrays, other: Arrays) -> Expected:
    units = len(next(iter(arrays.values())))
    mass, logs = np.zeros((units, len(other["edges"]))), np.zeros((units, len(other["edges"])))
    for k, (edges, held) in enumerate(zip(other["edges"], other["probability"], strict=True)):
        for low, high, inside in zip(edges, edges[1:], held, strict=False):
            if inside > 0:
                share = p.mass(arrays, low, high)
                mass[:, k] += share
                logs[:, k] += share * np.log(inside / (high - low))
    return mass, logs


REAL: dict[str, Rule] = {
    "gaussian": _gaussian, "exponential": _exponential, "gamma": _gamma, "histogram": _histogram,
}  # fmt: skip


def entropy_bounds(circuit: Circuit, parameters: Parameters) -> tuple[float, float]:
    """Between what the entropy lies, in nats; both are equal where the circuit is deterministic."""
    circuit, parameters = inline(circuit, parameters)
    reach = {n.name: np.zeros(circuit.units[n.name]) for n in circuit.nodes}
    reach[circuit.root.name][:] = 1.0
    of_leaves = of_sums = 0.0
    for node in reversed(circuit.nodes):
        share = reach[node.name]
        if isinstance(node, Leaf):
            of_leaves += float(share @ _leaf_entropy(node, parameters[node.name], circuit.schema))
        elif isinstance(node, Sum):
            weight = parameters[node.name][WEIGHT]
            of_sums += float(share @ entr(weight).sum(axis=1))
            sizes = [circuit.units[c] for c in node.children]
            for child, part in zip(
                node.children, np.split(share @ weight, np.cumsum(sizes)[:-1]), strict=True
            ):
                reach[child] += part
        elif isinstance(node, Product) and node.outer:
            pairs = share.reshape([circuit.units[c] for c in node.children])
            reach[node.children[0]] += pairs.sum(axis=1)
            reach[node.children[1]] += pairs.sum(axis=0)
        else:
            for child in node.children:
                reach[child] += share
    most = of_leaves + of_sums
    return (most if is_deterministic(circuit, parameters) else of_leaves), most


def _leaf_entropy(leaf: Leaf, arrays: Arrays, schema: Schema) -> Array:
    """(units,)"""
    rule = family(leaf.family)
    if not isinstance(rule, Family):
        width = len(leaf.scope)
        volume = np.linalg.slogdet(arrays["covariance"])[1]
        return np.asarray(0.5 * (width * np.log(2 * np.pi * np.e) + volume))
    total = np.zeros(leaf.units)
    for i, name in enumerate(leaf.scope):
        arrays_of_unit = {n: a[:, i] for n, a in arrays.items()}
        if rule.name == "student_t":
            total += _t_entropy(arrays_of_unit["degrees"]) + np.log(arrays_of_unit["scale"])
        else:
            _, logs = expected_log(rule, arrays_of_unit, rule, arrays_of_unit, schema[name])
            total -= np.diagonal(logs)
    return total


def _t_entropy(degrees: Array) -> Array:
    half = (degrees + 1) / 2
    spread = half * (digamma(half) - digamma(degrees / 2))
    return np.asarray(spread + 0.5 * np.log(degrees) + betaln(degrees / 2, 0.5))


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
