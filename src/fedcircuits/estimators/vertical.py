"""VerticalGaussianMixture: a mixture over columns that different parties hold, in scikit-learn's
manners."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.training import Run, State, run_training
from fedcircuits.estimators.vertical_model import VerticalModel
from fedcircuits.estimators.vertical_setup import (
    Setting,
    Weights,
    latest,
    numbers_of,
    vertical,
    weights_of,
)
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.methods.vertical import training as vertical_em
from fedcircuits.methods.vertical.blocks import check_leaves
from fedcircuits.methods.vertical.mixture import Init, Mixed, Plan, Progress
from fedcircuits.methods.vertical.rows import holders

HUB = Hub()


class VerticalGaussianMixture(VerticalModel):
    """A mixture over columns of different parties: one Gaussian block a party and component.

    Real columns of a party share a covariance in every component; counts, categories and booleans
    have Poisson, categorical and Bernoulli leaves beside it, or what ``leaves`` says by column.

    ``n_components``  of the mixture
    ``tol``           EM stops when the log-likelihood a row changes by less
    ``reg_covar``     added to variances, as a share of each column's own variance
    ``max_iter``      iterations at most; with ``batch_size`` passes over all rows
    ``n_init``        starts, of which the best is kept
    ``init_params``   "k-means++" (then Lloyd's rule), or "random_from_data"
    ``weights_init``, ``means_init``, ``precisions_init``  a start: means (components, real columns
                      in the order of the parties), with them weights and precisions
    ``warm_start``    go on from what the last fit has learned
    ``batch_size``    rows of a step of incremental EM; None: all
    ``summation``     who adds up: ``Hub()``, ``Tree(graph)``, ``Chebyshev(graph)``, …
    ``hops``          columns move to hubs of parties that are so many hops apart; 0: none move
    ``on_lost``       a party that is lost: "stop", or "continue" without its columns
    ``random_state``  also fixes the key that hides row ids; None draws both

    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(300, 6)) + 6 * rng.integers(2, size=(300, 1)))
    >>> model = VerticalGaussianMixture(2, random_state=0).fit(fc.split(table, 3, by="columns"))
    >>> model.converged_, model.predict_proba(table).shape
    (True, (300, 2))
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: Init = "k-means++",
        weights_init: npt.ArrayLike | None = None,
        means_init: npt.ArrayLike | None = None,
        precisions_init: npt.ArrayLike | None = None,
        random_state: int | None = None,
        warm_start: bool = False,
        batch_size: int | None = None,
        summation: Summation = HUB,
        hops: int = 0,
        leaves: Mapping[str, str] | None = None,
        on_lost: Literal["stop", "continue"] = "stop",
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.batch_size = batch_size
        self.summation = summation
        self.hops = hops
        self.leaves = leaves
        self.on_lost = on_lost

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine = "memory",
        sample_weight: Weights = None,
        resume: bool = False,
    ) -> Self:
        """Learn from a federation. ``sample_weight``: by row id, or in the order of the first
        party's rows. ``resume`` goes on from where a run has failed."""
        number = {"n_components": self.n_components}
        federation = vertical(X, "VerticalGaussianMixture", self.summation, number)
        self._check_settings()
        check_leaves({} if self.leaves is None else self.leaves, [federation.schema])
        weights = weights_of(sample_weight, federation)
        self._parties = federation.names
        start = self._start(federation)
        self._state = state = State.of(self, resume)

        def programs(left: Federation) -> dict[str, Program[Mixed]]:
            return self._programs(left, state, weights, start)

        missed = _nothing_missed if self.on_lost == "continue" else None
        with Bar("VerticalGaussianMixture"):
            run = run_training(federation, programs, engine, state, missed)
        self._keep(run)
        return self

    def _programs(
        self,
        left: Federation,
        state: State,
        weights: Mapping[str, Array] | None,
        start: Mapping[str, Progress],
    ) -> dict[str, Program[Mixed]]:
        setting = self._setting(left.names, state)
        plan = self._plan(setting, 1 if start else self.n_init)
        state.kept, found = latest(state.kept, setting.summation.members(left.names), plan)
        begin = found or start

        def of(name: str) -> dict[str, object]:
            weight = (weights or {}).get(name)
            return {"plan": plan, "weight": weight, "start": begin.get(name)}

        return setting.programs(vertical_em.member, left, of)

    def _setting(self, parties: Sequence[str], state: State | None = None) -> Setting:
        """How these parties, all of those trained or fewer, add up."""
        summation = self.summation.without_lost(self._parties, parties)
        return Setting.of(summation, self.hops, parties, state or State(), self.random_state)

    def _plan(self, setting: Setting, runs: int) -> Plan:
        return Plan(
            int(self.n_components), float(self.tol), float(self.reg_covar), int(self.max_iter),
            int(runs), self.init_params, self.batch_size,
            tuple(sorted((self.leaves or {}).items())), setting.hubs, setting.seed,
        )  # fmt: skip

    def _start(self, federation: Federation) -> dict[str, Progress]:
        """By member what EM begins with; empty if it makes a start of its own."""
        members = self.summation.members(federation.names)
        if self.warm_start and hasattr(self, "converged_"):
            if len(self.weights_) != self.n_components:
                raise FederationError(
                    f"warm_start goes on with {len(self.weights_)} components, n_components is "
                    f"{self.n_components}"
                )
            return {m: Progress(self._outside.get(m, ()), self.weights_) for m in members}
        if self.means_init is not None:
            return self._given_start(federation, members)
        if self.weights_init is not None or self.precisions_init is not None:
            raise FederationError("weights_init and precisions_init need means_init beside them")
        return {}

    def _given_start(self, federation: Federation, members: Sequence[str]) -> dict[str, Progress]:
        real = [v.name for v in federation.schema if v.kind == "real"]
        number = self.n_components
        means = _shaped("means_init", self.means_init, (number, len(real)))
        weights = np.full(number, 1 / number)
        if self.weights_init is not None:
            weights = _shaped("weights_init", self.weights_init, (number,))
            if (weights < 0).any() or abs(weights.sum() - 1) > 1e-8:
                raise FederationError("weights_init must be from 0 and add up to 1")
        found = {m: Progress(weights=weights) for m in members}
        schemas = {p.name: p.table.schema for p in federation}
        hubs = self._setting(federation.names).hubs
        for party, schema in holders(schemas, hubs).items():
            own = tuple(n for n in schema.names if n in real)
            at = [real.index(n) for n in own]
            values: dict[str, Array] = {"mean": means[:, at]}
            if self.precisions_init is not None:
                values["covariance"] = _covariances(self.precisions_init, number, len(real), at)
            found[party] = Progress(((own, values),), weights)
        return found

    def _keep(self, run: Run[Mixed]) -> None:
        results = run.results
        first = next(m for m in results.values() if m.joint is not None)  # the leader
        assert first.joint is not None
        self.joint_, self.weights_ = first.joint, np.array(first.weights)
        self.circuit_, self.placement_ = first.joint.circuit, first.joint.placement
        parties = {n: results[n] for n in run.federation.names}
        self.views_ = {n: m.view for n, m in parties.items() if m.view is not None}
        self.labels_ = {n: m.labels for n, m in parties.items()}
        self._outside = {n: m.values for n, m in parties.items()}
        self._free = sum(m.free for m in parties.values())
        self.lower_bounds_, self.n_iter_ = list(first.bounds), len(first.bounds)
        self.lower_bound_, self.converged_ = first.bound, first.converged
        self.ledger_, self.queries_ = run.ledger, Ledger()
        self.kind_, self._run = run.federation.kind, run.engine
        self.notes_ = tuple(dict.fromkeys(n for m in (first, *parties.values()) for n in m.notes))
        for state in ("_state", "_ready"):
            self.__dict__.pop(state, None)
        self._warn()

    def _warn(self) -> None:
        for note in self.notes_:
            warnings.warn(note, UserWarning, stacklevel=4)
        if not self.converged_:
            change = abs(float(np.diff(self.lower_bounds_[-2:]).sum()))
            warnings.warn(
                f"EM has not settled after {self.n_iter_} iterations: the log-likelihood a row "
                f"still changed by {change:.2g}, tol is {self.tol:g}; raise max_iter or tol, go on "
                "with warm_start=True, try other starts with n_init, or fewer components",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _check_settings(self) -> None:
        numbers = {"n_components": self.n_components, "max_iter": self.max_iter,
                   "n_init": self.n_init}  # fmt: skip
        if self.batch_size is not None:
            numbers["batch_size"] = self.batch_size
        for name, value in numbers.items():
            if not isinstance(value, int | np.integer) or value < 1:
                raise FederationError(f"{name} must be a whole number from 1, got {value!r}")
        for name, number in (("tol", self.tol), ("reg_covar", self.reg_covar)):
            if not isinstance(number, int | float | np.number) or not 0 <= number < np.inf:
                raise FederationError(f"{name} must be a number from 0, got {number!r}")
        for name, word, known in (
            ("init_params", self.init_params, ("k-means++", "random_from_data")),
            ("on_lost", self.on_lost, ("stop", "continue")),
        ):
            if word not in known:
                raise FederationError(f"{name} must be one of {', '.join(known)}, got {word!r}")


def _nothing_missed(federation: Federation, lost: str) -> str:
    """A mixture without a party is the exact marginal: its columns are summed out."""
    return "" if len(federation) > 1 else "no other party is left"


def _shaped(name: str, given: object, shape: tuple[int, ...]) -> Array:
    found = numbers_of(name, given)
    if found.shape != shape or not np.isfinite(found).all():
        raise FederationError(
            f"{name}: expected finite numbers of the shape {shape}, components first, got the "
            f"shape {found.shape}"
        )
    return found


def _covariances(given: object, components: int, width: int, at: list[int]) -> Array:
    """(components, own, own): of precisions within a party those between parties do not count."""
    own = numbers_of("precisions_init", given)
    if own.ndim == 2:
        own = np.stack([np.diag(v) for v in _shaped("precisions_init", own, (components, width))])
    own = _shaped("precisions_init", own, (components, width, width))[:, at][:, :, at]
    for k, matrix in enumerate(own):
        if np.linalg.eigvalsh((matrix + matrix.T) / 2).min(initial=1.0) <= 0:
            raise FederationError(
                f"precisions_init: expected positive definite matrices, that of component {k} is "
                "not; precisions are inverse covariances"
            )
    return np.asarray(np.linalg.inv(own), np.float64)
