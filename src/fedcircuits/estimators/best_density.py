"""The best density that a budget of CPU time finds: learners tried by one rule, judged on held-back
rows.

1  A share of the rows is held back. Nothing is learned from them until the choice is made.
2  Learners are tried from the cheap to the dear (``candidates``), sizes of one kind in ascending
   order. Of a kind that has not gained by growing, larger ones are left out.
3  What a learner will cost is told by a trial on a few hundred rows, or by the size before it. Of a
   learner that runs EM over batches as many epochs are planned as half of the budget that is left
   holds; a learner that does not fit is left out, and noted.
4  Mixtures of the best two to five, with equal weights, are candidates as well.
5  The best on the rows held back is learned again from all rows if the budget still holds it, and
   is returned as it is otherwise.
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
from fedcircuits.estimators.einsum import EinsumNetwork
from fedcircuits.estimators.hidden_tree import HiddenChowLiuTree
from fedcircuits.estimators.learn_spn import LearnSPN, mixed
from fedcircuits.estimators.learner import Learner
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.estimators.trees import ChowLiuTree, MixtureOfChowLiuTrees
from fedcircuits.learning.stopping import mean_of_rows
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.series import refuse_series
from fedcircuits.tables.table import Table

Clock = Callable[[], float]  # CPU seconds
Learned = tuple[Circuit, Parameters]
TRIAL = 400  # rows that a cost is judged by
EPOCHS = 40  # at most
FEWEST = 3  # epochs that are worth it
SHARED = 0.2  # costs grow more slowly than rows, by this power: some of them come once
GROWTH = 1.3  # how costs grow with a size
TOGETHER = 5  # models in a mixture, at most
ALLOWED: Declared = {
    "budget": Real(above=0), "validation": Real(above=0, below=1), "random_state": SEED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A learner: one size of a kind."""

    kind: str
    size: int
    make: Callable[[int], Learner]  # of a number of epochs
    epochs: bool = False  # whether it counts by them

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}" if self.size else self.kind


@dataclass(frozen=True, slots=True)
class Tried:
    """One line of ``model.tried_``."""

    name: str
    score: float | None  # mean log-likelihood of the rows held back; None: left out
    seconds: float  # of CPU; expected ones where it was left out
    epochs: int | None = None


def candidates(schema: Schema, seed: int | None) -> list[Candidate]:
    """Learners that suit the columns, cheap ones first."""
    learners = [_products(k, seed) for k in (1, 8, 32)]
    if all(v.size for v in schema):
        learners.append(Candidate("Chow–Liu tree", 0, lambda _: ChowLiuTree(random_state=seed)))
    learners += [_hidden_tree(k, seed) for k in (8, 16, 32)]
    learners.append(Candidate("LearnSPN", 0, lambda _: LearnSPN(random_state=seed)))
    if all(v.size for v in schema):
        learners += [_tree_mixture(n, seed) for n in (10, 20, 40)]
    learners.append(
        Candidate("LearnSPN mixed", 8, lambda _: LearnSPN(ensemble=8, random_state=seed))
    )
    learners.append(
        Candidate(
            "einsum network", 16, lambda n: EinsumNetwork(16, epochs=n, random_state=seed), True
        )
    )
    return learners + [_hidden_tree(k, seed) for k in (64, 128, 256)]


def _products(components: int, seed: int | None) -> Candidate:
    def make(epochs: int) -> Learner:
        return MixtureOfProducts(components, random_state=seed)

    return Candidate("mixture of products", components, make)


def _hidden_tree(units: int, seed: int | None) -> Candidate:
    def make(epochs: int) -> Learner:
        return HiddenChowLiuTree(units, epochs=epochs, random_state=seed)

    return Candidate("hidden Chow–Liu tree", units, make, True)


def _tree_mixture(components: int, seed: int | None) -> Candidate:
    def make(epochs: int) -> Learner:
        return MixtureOfChowLiuTrees(
            components, ensemble=8, smoothing=10.0, max_iter=15, random_state=seed
        )

    return Candidate("mixtures of Chow–Liu trees", components, make)


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
        CPU seconds. The cheapest learner is tried whatever it costs.
    validation : float, default=0.15
        The share of rows held back, by which learners are compared.
    target : str or None, default=None
        The column that ``predict`` predicts unless told otherwise; it does not affect the choice.
    random_state : int or None, default=None
        The seed of the rows held back and of all learners; None draws one.
    clock : callable, default=time.process_time
        Tells the seconds that count.

    Returns
    -------
    CircuitModel
        With ``tried_``, what each learner gave and took, ``chosen_``, the name of the best, and
        ``refitted_``, whether it was learned again from all rows.

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
    seconds: float
    score: float
    learned: Learned


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
        self.begin = self.clock()
        rng = np.random.default_rng(self.seed)
        kept = np.flatnonzero(np.isfinite(self.whole.values).any(axis=1))
        held = max(1, round(self.share * len(kept)))
        if len(kept) < 2:
            raise TableError(f"best_density needs two rows with values, got {len(kept)}")
        order = rng.permutation(kept)
        self.train, self.held = self.whole.rows(order[held:]), self.whole.rows(order[:held])
        self.trial = self.train.rows(slice(0, TRIAL))

    def left(self) -> float:
        return self.budget - (self.clock() - self.begin)

    def model(self, target: str | None) -> CircuitModel:
        MixtureOfProducts(1, max_iter=2).fit(self.trial)  # what is loaded once costs no learner
        for candidate in candidates(self.whole.schema, self.seed):
            if candidate.kind not in self.grown:
                self._try(candidate)
        if not self.fits:
            raise TableError("best_density: no learner could be learned from this table")
        self.fits.sort(key=lambda f: -f.score)
        chosen = self.fits[: self._together()]
        learned, refitted = self._again(chosen)
        circuit, parameters = _one(self.whole.schema, learned)
        model = CircuitModel(circuit, parameters, target)
        model.__dict__["tried_"] = tuple(self.tried)
        model.__dict__["chosen_"] = " + ".join(f.candidate.name for f in chosen)
        model.__dict__["refitted_"] = refitted
        return model

    # ------------------------------------------------------------------ one candidate

    def _try(self, candidate: Candidate) -> None:
        epochs, cost = self._planned(candidate)
        if self.tried and (cost > self.left() / 2 or (candidate.epochs and epochs < FEWEST)):
            self.tried.append(Tried(candidate.name, None, cost))
            return
        begin = self.clock()
        try:
            model = candidate.make(epochs).fit(self.train)
        except FedcircuitsError:
            self.tried.append(Tried(candidate.name, None, self.clock() - begin))
            return
        took, score = self.clock() - begin, self._score(model)
        rounds = len(getattr(model, "history_", ())) if candidate.epochs else 1
        self.costs[candidate.kind] = candidate.size, took / max(rounds, 1) / len(self.train)
        before = [f.score for f in self.fits if f.candidate.kind == candidate.kind]
        if before and score <= max(before):
            self.grown.add(candidate.kind)
        learned = (model.circuit_, model.parameters_)
        self.fits.append(Fit(candidate, epochs, took, score, learned))
        self.tried.append(Tried(candidate.name, score, took, epochs if candidate.epochs else None))

    def _score(self, model: Model) -> float:
        return mean_of_rows(model.score_samples(self.held))

    def _planned(self, candidate: Candidate) -> tuple[int, float]:
        """Epochs, and what they are expected to cost."""
        if not self.tried:
            return EPOCHS, 0.0
        if candidate.kind in self.costs:
            size, seconds = self.costs[candidate.kind]
            seconds *= (candidate.size / max(size, 1)) ** GROWTH
        else:
            seconds = self._trial_cost(candidate)
        epoch = seconds * len(self.train)
        if not candidate.epochs:
            return EPOCHS, epoch
        epochs = int(min(EPOCHS, self.left() / 2 / max(epoch, 1e-9)))
        return max(epochs, 1), epoch * max(epochs, FEWEST)

    def _trial_cost(self, candidate: Candidate) -> float:
        """Seconds a row and epoch, by a fit to a few rows."""
        if len(self.train) <= 2 * TRIAL and not candidate.epochs:
            return 0.0
        begin = self.clock()
        try:
            candidate.make(2).fit(self.trial)
        except FedcircuitsError:
            return 0.0
        rounds = 2 if candidate.epochs else 1
        fewer = len(self.trial) / len(self.train)
        return float((self.clock() - begin) / rounds / len(self.trial) * fewer**SHARED)

    # ------------------------------------------------------------------ several together

    def _together(self) -> int:
        """How many of the best, mixed, are better than fewer."""
        best, number = self.fits[0].score, 1
        logs = [self._log_likelihoods(self.fits[0].learned)]
        for n, fit in enumerate(self.fits[1:TOGETHER], start=2):
            if self.left() <= 0:
                break
            logs.append(self._log_likelihoods(fit.learned))
            score = mean_of_rows(np.logaddexp.reduce(logs, axis=0) - np.log(n))
            self.tried.append(Tried(f"mixture of the best {n}", score, 0.0))
            if score > best:
                best, number = score, n
        return number

    def _log_likelihoods(self, learned: Learned) -> Array:
        return CircuitModel(*learned).score_samples(self.held)

    def _again(self, chosen: Sequence[Fit]) -> tuple[list[Learned], bool]:
        """Each of the chosen from all rows, if the budget still holds all of them."""
        cost = sum(f.seconds for f in chosen) * len(self.whole) / len(self.train)
        if cost > self.left():
            return [f.learned for f in chosen], False
        models = [f.candidate.make(f.epochs).fit(self.whole) for f in chosen]
        return [(m.circuit_, m.parameters_) for m in models], True


def _one(schema: Schema, learned: list[Learned]) -> Learned:
    return learned[0] if len(learned) == 1 else mixed(schema, learned)
