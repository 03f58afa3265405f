"""PrivateForest: a forest of random circuits whose parameters nobody sees, in scikit-learn's
manners."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.model import CircuitModel, Given, Model
from fedcircuits.estimators.private_answers import Holders, PrivateDistribution, covered
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.training import Run, State, require_federation, run_training
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.methods.private_forest import training as private_forest
from fedcircuits.methods.private_forest.agreement import same_variables
from fedcircuits.methods.private_forest.model import Forest, ModelShares
from fedcircuits.methods.private_forest.parameters import opening
from fedcircuits.methods.private_forest.structures import (
    ForestShape,
    LeafChoice,
    Weighting,
    sum_weights,
)
from fedcircuits.methods.private_forest.training import Combine, ForestPlan, TrainedForest
from fedcircuits.privacy.arithmetic.compiling import compile_kernels
from fedcircuits.privacy.channels.identity import Identity
from fedcircuits.privacy.operations.truncation import MASKED
from fedcircuits.privacy.secure_sum import secret_sums
from fedcircuits.privacy.sharing.group import SHARE
from fedcircuits.privacy.sharing.randomness import fresh_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASKER = "asker"  # who asks, if nobody is named


class PrivateForest(Model):
    """Random circuits learned by three parties or more that hold other rows of the same columns.

    After ``fit`` every party holds shares that say nothing alone, nor together with those of fewer
    than half. Likelihoods are computed on shares, for whoever asks alone.

    ``structures``    of the forest, with ``depth``, ``repetitions`` and ``units``: depth 0 is a
                      mixture of repetitions · units products, more are random binary structures
    ``leaf``          "auto": Bernoulli and categorical by the column, or "categorical" for all
    ``combine``       "average": each learns the forest, counts are averaged on shares, nobody sees
                      a parameter; "concatenate": each has structures of its own; "em": counts are
                      added up on shares in every iteration, parties see the parameters
    ``weighting``     of structures by rows held back: "rank", "uniform", "loglik", "loglik2"
    ``threshold``     parties that may put together what they see: "majority" (fewer than half), or
                      a number up to that
    ``public_total``  whether parties may know the number of all rows; False takes "average"
    ``together``      iterations of "average" that are as in "em", before each goes on alone
    ``validation``    part of its rows that a party holds back, to stop by and to weigh structures
    ``marginals``     whether rows to ask about may have gaps: marginals show more of a model
    ``sealed``        whether messages are sealed, so that whoever carries them cannot read them
    ``random_state``  of structures, starts and rows held back: public, never of shares

    With ``structures=1`` and ``combine="em"`` it is the mixture of products that EM would learn
    from all rows.

    >>> import numpy as np
    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.integers(2, size=(300, 1)) ^ (rng.random((300, 4)) < 0.1))
    >>> model = PrivateForest(2, units=3, random_state=0).fit(fc.split(table, 3))
    >>> model.score_samples(table).shape, model.reveals_["coordinator"]
    ((300,), [])
    """

    forest_: Forest  # the public graph
    views_: dict[str, ModelShares]  # what every party holds
    ledger_: Ledger  # of training
    queries_: Ledger  # of questions since
    total_: int | None  # number of all rows, where parties know it
    history_: tuple[tuple[float, ...], ...]  # by structure, of rows held back, where all see it
    sum_weights_: int
    kind_: str

    def __init__(
        self,
        structures: int = 3,
        *,
        depth: int = 0,
        repetitions: int = 1,
        units: int = 33,
        leaf: LeafChoice = "auto",
        combine: Combine = "average",
        weighting: Weighting = "rank",
        threshold: int | Literal["majority"] = "majority",
        public_total: bool = True,
        together: int = 0,
        validation: float = 0.1,
        max_iter: int = 150,
        tol: float = 1e-4,
        marginals: bool = False,
        target: str | None = None,
        sealed: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.structures = structures
        self.depth = depth
        self.repetitions = repetitions
        self.units = units
        self.leaf = leaf
        self.combine = combine
        self.weighting = weighting
        self.threshold = threshold
        self.public_total = public_total
        self.together = together
        self.validation = validation
        self.max_iter = max_iter
        self.tol = tol
        self.marginals = marginals
        self.target = target
        self.sealed = sealed
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine = "memory",
        resume: bool = False,
    ) -> Self:
        """Learn from a federation of three parties or more. ``resume`` takes up what parties have
        learned in a run that has failed; shares are dealt anew."""
        federation = require_federation(X, "PrivateForest")
        same_variables({p.name: p.table.schema for p in federation})
        if self.target is not None:
            federation.schema.index(self.target)
        self._state = state = State.of(self, resume)
        plan = self._plan(state)
        plan.check(len(federation))
        compile_kernels()  # here, before parties in processes of their own do it at once
        with Bar("PrivateForest"):
            run = run_training(federation, lambda f: self._programs(f, plan), engine, state, None)
        self._keep(run)
        return self

    def _plan(self, state: State) -> ForestPlan:
        self._check_numbers()
        shape = ForestShape(self.structures, self.depth, self.repetitions, self.units, self.leaf)
        seed = state.seed if self.random_state is None else self.random_state
        return ForestPlan(
            shape, self.combine, self.weighting, self.threshold, bool(self.public_total),
            int(self.together), float(self.validation), int(self.max_iter), float(self.tol),
            bool(self.marginals), int(seed), secrets.token_hex(8),
        )  # fmt: skip

    def _check_numbers(self) -> None:
        for name, value, least in (
            ("together", self.together, 0),
            ("max_iter", self.max_iter, 1),
            ("random_state", 0 if self.random_state is None else self.random_state, 0),
        ):
            if not is_whole(value, least):
                raise FederationError(f"{name} must be a whole number from {least}, got {value!r}")
        parts: dict[str, object] = {
            "tol must be a number from 0": self.tol,
            "validation must be a part from 0 to below 1": self.validation,
        }
        for expected, part in parts.items():
            if not isinstance(part, int | float | np.number) or not part >= 0:
                raise FederationError(f"{expected}, got {part!r}")

    def _programs(
        self, federation: Federation, plan: ForestPlan
    ) -> Mapping[str, Program[TrainedForest]]:
        told = {"members": federation.names, "plan": plan}
        programs: dict[str, Program[TrainedForest]] = {
            p.name: Program(
                private_forest.member,
                {"party": p, **told, "summation": secret_sums(fresh_key()), "key": fresh_key()},
            )
            for p in federation
        }
        fresh = {name: Identity.fresh() for name in programs} if self.sealed else None
        return covered(programs, fresh)

    def _keep(self, run: Run[TrainedForest]) -> None:
        first = run.results[run.federation.names[0]]
        self.forest_, self.circuit_ = first.forest, first.forest.circuit
        self.views_ = {n: run.results[n].shares for n in run.federation.names}
        self.total_, self.history_ = first.total, first.history
        self.sum_weights_ = sum_weights(self.circuit_)
        self.ledger_, self.queries_ = run.ledger, Ledger()
        self.kind_ = run.federation.kind
        self._allowed = {p.name: p.allow_collect for p in run.federation}
        self._holders = Holders(
            self.forest_, self.views_, run.engine, bool(self.sealed), self.queries_
        )
        self.__dict__.pop("_state", None)

    # ------------------------------------------------------------------ questions

    @property
    def _distribution(self) -> PrivateDistribution:  # type: ignore[override]
        self._check_fitted()
        return PrivateDistribution(self._holders, ASKER)

    def prepare(self, rows: int) -> Self:
        """Make masks for so many rows ahead: questions are then answered in two or three rounds."""
        self._check_fitted()
        if not is_whole(rows, 1):
            raise QueryError(f"masks are prepared for a whole number of rows from 1, got {rows!r}")
        self._holders.prepare(int(rows))
        return self

    def connect(self, name: str = ASKER) -> ConnectedForest:
        """The model as somebody sees it who holds nothing of it, or as a party asks it."""
        self._check_fitted()
        return ConnectedForest(self._holders, name, self.target)

    @property
    def asked_(self) -> dict[str, int]:
        """Points by who has asked about them: every answer tells a little about the parameters."""
        self._check_fitted()
        return dict(self._holders.asked)

    # ------------------------------------------------------------------ what is known

    @property
    def reveals_(self) -> dict[str, list[str]]:
        """What each party and whoever asked has learned so far, and a coordinator: nothing."""
        self._check_fitted()
        found: dict[str, list[str]] = {name: [] for name in (*self.views_, COORDINATOR)}
        for ledger in (self.ledger_, self.queries_):
            for row in ledger.revealed().itertuples():
                if row.what not in (SHARE, MASKED) and row.what not in found.setdefault(row.to, []):
                    found[row.to].append(row.what)
        return found

    def open_parameters(self) -> CircuitModel:
        """The forest in the clear, if every party allows it (``allow_collect``): all parties send
        each other their shares, and what was secret is so no more."""
        self._check_fitted()
        programs: dict[str, Program[Parameters]] = {
            me: Program(
                opening,
                {"me": me, "forest": self.forest_, "shares": own, "allow": self._allowed[me],
                 "key": fresh_key()},
            )
            for me, own in self.views_.items()
        }  # fmt: skip
        found = self._holders.ran(programs)
        return CircuitModel(self.circuit_, next(iter(found.values())), self.target)

    def save(self, path: str | os.PathLike[str]) -> None:
        raise _secret("save")

    def plot(self, given: Given = None, columns: Sequence[str] | None = None) -> Figure:
        raise _secret("plot")

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k != "_state"}


class ConnectedForest(Model):
    """A private forest from outside: its public graph, and answers for one who asks.

    Made by ``model.connect("clinic")``. Rows never leave the asker but as shares.
    """

    def __init__(self, holders: Holders, name: str, target: str | None = None) -> None:
        if not isinstance(name, str) or not name or name == COORDINATOR:
            raise FederationError(f"who asks needs a name, text other than {COORDINATOR!r}")
        self.holders = holders
        self.name = name
        self.target = target
        self.circuit_ = holders.forest.circuit

    @property
    def _distribution(self) -> PrivateDistribution:  # type: ignore[override]
        return PrivateDistribution(self.holders, self.name)

    def save(self, path: str | os.PathLike[str]) -> None:
        raise _secret("save")

    def plot(self, given: Given = None, columns: Sequence[str] | None = None) -> Figure:
        raise _secret("plot")


def is_whole(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and value is not True and int(value) >= least


def _secret(what: str) -> QueryError:
    return QueryError(
        f"{what}: nobody has the parameters of a private forest; if its parties open them, "
        f"open_parameters().{what}(…)"
    )
