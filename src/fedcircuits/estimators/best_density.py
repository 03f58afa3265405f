"""The best density that can be found within a budget of CPU time: learners are tried in a fixed
order and compared on held-out rows.

1  A fraction of the rows is held out; in small tables, each fifth in turn. Nothing is learned from
   them until the choice is made.
2  Learners are tried in a fixed order (``candidates``), sizes of one kind in ascending order. If a
   kind has not gained by growing, its larger sizes are skipped. If epochs are expensive, small
   sizes are skipped in favour of the next one, provided that the budget allows it.
3  The cost of a learner is estimated by a trial on a few hundred rows, or from the previous size. A
   learner that runs EM over batches gets as many epochs as half of the remaining budget allows. Any
   other learner that exceeds the budget is trained on fewer rows, or else skipped.
4  Mixtures of the best two to five are candidates as well. Their weights are fitted on one half of
   the held-out rows, and they are scored on the other half.
5  The best model is trained again on all rows if the budget allows it, and otherwise returned as it
   is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedcircuits.arguments import SEED, Declared, Real
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FedcircuitsError, ParameterError, TableError
from fedcircuits.estimators.circuit_model import CircuitModel
from fedcircuits.estimators.density_candidates import Candidate, candidates
from fedcircuits.estimators.learn_spn import mixed
from fedcircuits.estimators.learner import Learner
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import Rows
from fedcircuits.learning.stopping import IMPOSSIBLE, mean_of_rows
from fedcircuits.tables.series import refuse_series
from fedcircuits.tables.table import Table

Clock = Callable[[], float]  # CPU seconds
Learned = tuple[Circuit, Parameters]
TRIAL = 400  # rows that a cost is judged by
TRIAL_CELLS = 40_000  # fewer rows of a wide table
EPOCHS = 40  # at most
FEWEST = 3  # epochs that are worth it
SHARED = 0.2  # costs grow more slowly than rows, by this power: some of them come once
GROWTH = 1.3  # how costs grow with a size
FEWER = 2000  # rows that a learner which does not fit may be learned from, at least
TOGETHER = 5  # models in a mixture, at most
LEAST_WEIGHT = 0.02  # of a model in a mixture
FEW_ROWS, FOLDS = 2000, 5
LARGE = 1_000_000  # values of a table whose epochs are dear
ALLOWED: Declared = {
    "budget": Real(above=0), "validation": Real(above=0, below=1), "random_state": SEED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tried:
    """One line of ``model.tried_``."""

    name: str
    score: float | None  # mean log-likelihood of the held-out rows; None: left out
    seconds: float  # of CPU; expected ones where it was left out
    epochs: int | None = None
    rows: int | None = None  # that it was learned from, where those are not all
    error: str = ""  # why it could not be learned


def best_density(
    table: Rows,
    budget: float = 60.0,
    *,
    validation: float = 0.15,
    target: str | None = None,
    random_state: int | None = None,
    clock: Clock = time.process_time,
) -> CircuitModel:
    """The model with the best likelihood of rows that it was not learned from.

    Parameters
    ----------
    table : DataFrame, Table or array
        The rows.
    budget : float, default=60.0
        CPU seconds, which begin when what is loaded once has been. The cheapest learner is tried
        whatever it costs. Costs are estimates: the whole may take half as much again.
    validation : float, default=0.15
        The share of held-out rows, by which learners are compared. Of fewer than 2,000 rows each
        fifth is held out in turn.
    target : str or None, default=None
        The column that ``predict`` predicts by default; it does not affect the choice.
    random_state : int or None, default=None
        The seed of the held-out rows and of all learners; None draws one.
    clock : callable, default=time.process_time
        Tells the seconds that count.

    Returns
    -------
    CircuitModel
        With ``tried_``, what each learner gave and took, ``chosen_``, the name of the best,
        ``refitted_``, whether it was learned again from all rows, and ``notes_``, which say the
        same in words.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = best_density(rows, budget=1.0, random_state=0)
    >>> model.score_samples(rows).shape
    (200,)
    """
    given = {"budget": budget, "validation": validation, "random_state": random_state}
    for name, value in given.items():
        ALLOWED[name].check(name, value, ParameterError)
    whole = Table.of(table)
    if whole.series:
        refuse_series(whole.series, "best_density")
    if target is not None:
        whole.schema.index(target)
    return _Search(whole, budget, validation, random_state, clock).model(target)


@dataclass(frozen=True, slots=True)
class Fit:
    """A candidate that was learned."""

    candidate: Candidate
    epochs: int  # planned
    seconds: float  # of all folds
    logs: Array  # log-likelihoods of the held-out rows
    learned: Learned  # of the first fold
    rows: int | None  # where those were not all

    @property
    def score(self) -> float:
        return mean_of_rows(self.logs)


@dataclass
class _Search:
    whole: Table
    budget: float
    share: float
    seed: int | None
    clock: Clock
    tried: list[Tried] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    grown: set[str] = field(default_factory=set)  # kinds that have stopped gaining
    costs: dict[str, tuple[int, float]] = field(default_factory=dict)  # last size; s per row, epoch

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        kept = np.flatnonzero(np.isfinite(self.whole.values).any(axis=1))
        if len(kept) < 2:
            raise TableError(f"best_density needs two rows with values, got {len(kept)}")
        order = rng.permutation(kept)
        self.folds = [(self.whole.rows(a), self.whole.rows(b)) for a, b in self._divided(order)]
        self.train = self.folds[0][0]
        trial = min(TRIAL, max(50, TRIAL_CELLS // len(self.whole.schema)))
        self.trial = self.train.rows(slice(0, trial))
        warm = MixtureOfProducts(2, max_iter=2, random_state=0).fit(self.trial)
        warm.score_samples(self.trial)  # what is loaded or compiled once costs no learner
        self.begin = self.clock()

    def _divided(self, order: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows to learn from and to judge by."""
        if len(order) >= FEW_ROWS:
            held = max(1, round(self.share * len(order)))
            return [(order[held:], order[:held])]
        part = np.arange(len(order)) % min(FOLDS, len(order))
        return [(order[part != k], order[part == k]) for k in range(part.max() + 1)]

    def left(self) -> float:
        return self.budget - (self.clock() - self.begin)

    def model(self, target: str | None) -> CircuitModel:
        for candidate in candidates(self.whole.schema, self.seed):
            if candidate.kind not in self.grown:
                self._try(candidate)
        if not self.fits:
            raise TableError("best_density: no learner could be learned from this table")
        self.fits.sort(key=lambda f: -f.score)
        chosen, weights = self._together()
        learned, refitted = self._again(chosen)
        schema = self.whole.schema
        circuit = learned[0] if len(learned) == 1 else mixed(schema, learned, weights)
        model = CircuitModel(*circuit, target)
        model.__dict__["tried_"] = tuple(self.tried)
        model.__dict__["chosen_"] = " + ".join(f.candidate.name for f in chosen)
        model.__dict__["refitted_"] = refitted
        model.__dict__["notes_"] = self._notes(chosen, weights, refitted)
        return model

    # ------------------------------------------------------------------ one candidate

    def _try(self, candidate: Candidate) -> None:
        epochs, cost = self._planned(candidate)
        rows = self._affordable(candidate, epochs, cost)
        if rows is None or self._makes_way(candidate, epochs, cost):
            self.tried.append(Tried(candidate.name, None, cost))
            return
        begin = self.clock()
        try:
            scored = self._folded(candidate, epochs, rows)
        except FedcircuitsError as error:
            self.tried.append(Tried(candidate.name, None, 0.0, error=str(error)))
            return
        took = self.clock() - begin
        if scored is None:
            self.tried.append(Tried(candidate.name, None, took * len(self.folds)))
            return
        first, logs = scored
        rounds = len(getattr(first, "history_", ())) if candidate.epochs else 1
        learned_rows = sum(min(rows, len(train)) for train, _ in self.folds)
        self.costs[candidate.kind] = candidate.size, took / max(rounds, 1) / learned_rows
        score = mean_of_rows(logs)
        before = [f.score for f in self.fits if f.candidate.kind == candidate.kind]
        if before and score <= max(before):
            self.grown.add(candidate.kind)
        fewer = rows if rows < len(self.train) else None
        learned = (first.circuit_, first.parameters_)
        self.fits.append(Fit(candidate, epochs, took, logs, learned, fewer))
        counted = epochs if candidate.epochs else None
        self.tried.append(Tried(candidate.name, score, took, counted, fewer))

    def _affordable(self, candidate: Candidate, epochs: int, cost: float) -> int | None:
        """How many rows it may be learned from; None: not enough of them."""
        if not self.tried or cost <= self.left() / 2:
            return len(self.train) if not candidate.epochs or epochs >= FEWEST else None
        rows = int(len(self.train) * max(self.left(), 0.0) / 2 / max(cost, 1e-9))
        return rows if rows >= FEWER and not candidate.epochs else None

    def _makes_way(self, candidate: Candidate, epochs: int, cost: float) -> bool:
        """Whether epochs of a large table are too dear to spend them on a small size, as the next
        size is affordable."""
        if not candidate.next or epochs >= EPOCHS or self.train.values.size < LARGE:
            return False
        dearer = cost / epochs * (candidate.next / candidate.size) ** GROWTH
        return bool(2 * FEWEST * dearer < self.left() / 2)

    def _folded(self, candidate: Candidate, epochs: int, rows: int) -> tuple[Learner, Array] | None:
        """The model of the first fold and log-likelihoods of all held-out rows; None where two
        folds show that the others would take too long."""
        models, logs, begin = [], [], self.clock() if len(self.folds) > 1 else 0.0
        for train, held in self.folds:
            model = candidate.make(epochs).fit(train.rows(slice(0, rows)))
            logs.append(model.score_samples(held))
            models.append(model)
            now = self.clock() if len(self.folds) > 1 else 0.0
            if self.fits and len(models) == 2:  # by the second: the first may compile what it runs
                if (len(self.folds) - 2) * (now - begin) > self.left():
                    return None
            begin = now
        return models[0], np.concatenate(logs)

    def _planned(self, candidate: Candidate) -> tuple[int, float]:
        """Epochs, and what they are expected to cost."""
        if not self.tried:
            return EPOCHS, 0.0
        if candidate.kind in self.costs:
            size, seconds = self.costs[candidate.kind]
            seconds *= (candidate.size / max(size, 1)) ** GROWTH
        else:
            seconds = self._trial_cost(candidate)
        epoch = seconds * sum(len(train) for train, _ in self.folds)
        if not candidate.epochs:
            return EPOCHS, epoch
        epochs = int(min(EPOCHS, self.left() / 2 / max(epoch, 1e-9)))
        return max(epochs, 1), epoch * max(epochs, FEWEST)

    def _trial_cost(self, candidate: Candidate) -> float:
        """Seconds per row and epoch, by a fit to a few rows. Where that looks too dear it is tried
        again: what is compiled at its first use, once for all tables, is no cost of the learner."""
        if len(self.train) <= 2 * len(self.trial) and not candidate.epochs:
            return 0.0
        seconds = self._timed(candidate)
        if seconds * sum(len(train) for train, _ in self.folds) * FEWEST > self.left() / 2:
            seconds = min(seconds, self._timed(candidate))
        return seconds

    def _timed(self, candidate: Candidate) -> float:
        begin = self.clock()
        try:
            candidate.make(2).fit(self.trial)
        except FedcircuitsError:
            return 0.0
        rounds = 2 if candidate.epochs else 1
        fewer = len(self.trial) / len(self.train)
        return float((self.clock() - begin) / rounds / len(self.trial) * fewer**SHARED)

    # ------------------------------------------------------------------ several together

    def _together(self) -> tuple[list[Fit], Array]:
        """The best with their weights: one, or more that are better together."""
        best, weights = self.fits[0].score, np.ones(1)
        rows = len(self.fits[0].logs)
        half = np.random.default_rng(self.seed).permutation(rows) % 2 == 0
        for n in range(2, min(TOGETHER, len(self.fits)) + 1):
            logs = np.maximum([f.logs for f in self.fits[:n]], IMPOSSIBLE)
            if rows < 4:
                break
            apart = [(best_weights(logs[:, half]), logs[:, ~half]),
                     (best_weights(logs[:, ~half]), logs[:, half])]  # fmt: skip
            score = sum(float(_mixture(w, held).sum()) for w, held in apart) / rows
            self.tried.append(Tried(f"mixture of the best {n}", score, 0.0))
            if score > best:
                best, weights = score, best_weights(logs)
        chosen = [f for f, w in zip(self.fits, weights, strict=False) if w > 0]
        return chosen, weights[weights > 0]

    def _again(self, chosen: Sequence[Fit]) -> tuple[list[Learned], bool]:
        """Each of the chosen from all rows, if the budget still holds all of them."""
        more = len(self.whole) / len(self.train) / len(self.folds)
        cost = sum(f.seconds for f in chosen) * more
        before = [f.learned for f in chosen]
        if cost > self.left() or any(f.rows for f in chosen):
            return before, False
        try:
            models = [f.candidate.make(f.epochs).fit(self.whole) for f in chosen]
        except FedcircuitsError:
            return before, False
        return [(m.circuit_, m.parameters_) for m in models], True

    # ------------------------------------------------------------------ in words

    def _notes(self, chosen: Sequence[Fit], weights: Array, refitted: bool) -> tuple[str, ...]:
        score = max(t.score for t in self.tried if t.score is not None)
        names = [
            f.candidate.name if len(weights) == 1 else f"{f.candidate.name} ({w:.0%})"
            for f, w in zip(chosen, weights, strict=True)
        ]
        held = sum(len(h) for _, h in self.folds)
        how = f"{held:,} held-out rows" + (", a fifth at a time" if len(self.folds) > 1 else "")
        tried = [f"{f.candidate.name} {f.score:.3f}" for f in self.fits]
        notes = [
            f"chosen by {how}: {' + '.join(names)}, {score:.3f} nats per row",
            f"tried, by nats per row: {', '.join(tried)}",
        ]
        if late := [t.name for t in self.tried if t.score is None and not t.error]:
            notes.append(f"skipped for lack of time (budget {self.budget:g} CPU s): "
                         f"{', '.join(late)}")  # fmt: skip
        notes += [f"{t.name} learned from {t.rows:,} rows, the most that the budget allowed"
                  for t in self.tried if t.rows]  # fmt: skip
        notes += [f"{t.name} could not be learned: {t.error}" for t in self.tried if t.error]
        if not refitted:
            notes.append("not refitted with the held-out rows: no time was left")
        return tuple(notes)


def _mixture(weights: Array, logs: Array) -> Array:
    """Log-likelihoods (rows,) of a mixture of models (models, rows)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(logs + np.log(weights)[:, None], axis=0))


def best_weights(logs: Array) -> Array:
    """Weights of models (models,) that make rows likely, with a pseudo-row for each model; small
    ones are 0."""
    weights = np.full(len(logs), 1 / len(logs))
    shares = np.exp(logs - logs.max(axis=0))
    for _ in range(100):
        part = weights[:, None] * shares
        counts = (part / part.sum(axis=0)).sum(axis=1) + 1
        weights = counts / counts.sum()
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    return np.asarray(weights / weights.sum())
