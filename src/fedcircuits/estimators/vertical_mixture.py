"""VerticalGaussianMixture: a mixture over columns held by different parties."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from fedcircuits.arguments import FLAG, SEED, Choice, Declared, Real, Whole
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.distribution import FederatedCircuit
from fedcircuits.estimators.federated import (
    ON_LOST,
    ROWS,
    SUMMATION,
    FederatedRun,
    MakePrograms,
    TrainingState,
)
from fedcircuits.estimators.model import Rows
from fedcircuits.estimators.vertical import HUB, VerticalEstimator, latest, numbers
from fedcircuits.estimators.vertical_number import refuse_with_auto
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import blaming, require_shape
from fedcircuits.federation.recipes import Held, part_of
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.methods.meeting.collecting import LearnedPart
from fedcircuits.methods.meeting.rows import SampleWeights
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.vertical import training
from fedcircuits.methods.vertical.answers import posterior
from fedcircuits.methods.vertical.block import check_leaves
from fedcircuits.methods.vertical.em import EMPlan, EMProgress, Init, logarithms
from fedcircuits.methods.vertical.rows import holders
from fedcircuits.methods.vertical.training import EMResult, TrainedMixture
from fedcircuits.privacy.differential import no_privacy

Mixture = EMResult | TrainedMixture


class VerticalGaussianMixture(VerticalEstimator[Mixture], FederatedCircuit[Mixture]):
    """A mixture over columns of different parties, with a Gaussian per party and component.

    In every component the real columns of a party have a full covariance; counts, categories and
    booleans have Poisson, categorical and Bernoulli leaves, or the families given by ``leaves``.

    Parameters
    ----------
    n_components : int or "auto", default=1
        The number of components. "auto" trains with 1, 2, … components and keeps the model with
        the lowest Bayesian information criterion (``criteria_``).
    tol : float, default=1e-3
        EM stops when the log-likelihood per row changes by less than this.
    reg_covar : float, default=1e-6
        Added to variances, relative to the variance of each column.
    max_iter : int, default=100
        The maximum number of iterations; with ``batch_size``, of passes over all rows.
    n_init : int, default=1
        The number of initialisations, the best of which is kept.
    init_params : {"k-means++", "random_from_data"}, default="k-means++"
        How EM is initialised: by k-means from random rows, or by random rows.
    weights_init, means_init, precisions_init : array-like, optional
        Initial parameters: means (components, real columns in the order of the parties) and,
        optionally, weights (components,) and precisions as matrices or diagonals.
    random_state : int, optional
        The seed. The same seed gives the same model up to rounding; with ``batch_size``, only for
        rows without ids.
    warm_start : bool, default=False
        Whether to continue from the result of the previous fit.
    batch_size : int, optional
        The number of rows per step of incremental EM; None uses all.
    summation : Summation, default=Hub()
        How sums are computed: ``Hub()``, ``Tree(graph)``, ``Chebyshev(graph)``, …
    hops : int, default=0
        Columns move to hubs of parties that are up to this many hops apart in the graph of the
        summation; 0 moves none.
    rows : {"tokens", "private"}, default="tokens"
        How rows are matched: by hashes of their ids under a key unknown to the coordinator, or by
        private set intersection (the extra ``psi``), which matches the rows that all parties hold.
    leaves : mapping of str to str, optional
        Leaf families by column, such as ``{"income": "gamma"}``.
    on_lost : {"stop", "continue"}, default="stop"
        Whether to stop when a party is lost, or to continue without its columns.
    privacy : None
        Differential privacy is refused: parties exchange statistics of single rows without noise.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(300, 6)) + 6 * rng.integers(2, size=(300, 1)))
    >>> model = VerticalGaussianMixture(2, random_state=0).fit(fc.split(table, 3, by="columns"))
    >>> model.converged_, model.predict_proba(table).shape
    (True, (300, 2))
    """

    allowed: ClassVar[Declared] = {
        "n_components": Whole(1, or_=("auto",)),
        "tol": Real(least=0),
        "reg_covar": Real(least=0),
        "max_iter": Whole(1),
        "n_init": Whole(1),
        "init_params": Choice(*get_args(Init)),
        "random_state": SEED,
        "privacy": no_privacy("messages about single rows have no noise"),
        "warm_start": FLAG,
        "batch_size": Whole(1, or_=(None,)),
        "summation": SUMMATION,
        "hops": Whole(0),
        "rows": ROWS,
        "on_lost": ON_LOST,
    }

    number_argument = "n_components"
    weights_: Array  # (components,)
    converged_: bool
    n_iter_: int
    lower_bound_: float  # log-likelihood per row of the fitted model
    lower_bounds_: list[float]  # log-likelihood per row before every iteration
    _n_parameters: int

    def __init__(
        self,
        n_components: int | Literal["auto"] = 1,
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
        rows: RowRule = "tokens",
        leaves: Mapping[str, str] | None = None,
        on_lost: Literal["stop", "continue"] = "stop",
        privacy: None = None,
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
        self.privacy = privacy
        self.batch_size = batch_size
        self.summation = summation
        self.hops = hops
        self.rows = rows
        self.leaves = leaves
        self.on_lost = on_lost

    # ------------------------------------------------------------------ training

    def _check_federation(self, federation: Federation) -> Federation:
        super()._check_federation(federation)
        check_leaves({} if self.leaves is None else self.leaves, federation.schema)
        return federation

    def _programs_for(
        self, federation: Federation, weights: Mapping[str, SampleWeights]
    ) -> MakePrograms[Mixture]:
        given, before = self._start(federation)

        def programs(left: Federation, state: TrainingState) -> dict[str, Program[Mixture]]:
            plan = EMPlan(
                int(self.n_components), float(self.tol), float(self.reg_covar), int(self.max_iter),
                1 if given else int(self.n_init), self.init_params, self.batch_size,
                tuple(sorted((self.leaves or {}).items())), self._hubs(left.names), state.seed,
                self.rows,
            )  # fmt: skip
            members = self._summation(left.names).members(left.names)
            state.kept, last = latest(state.kept, members, plan, EMProgress)
            start = last or given
            arguments = {"weight": weights, "start": start, "before": {} if last else before}
            roles, server = (training.member, training.coordinator), start.get(COORDINATOR)
            return self._members(*roles, left, state, plan, arguments, {"start": server})

        return programs

    def _start(
        self, federation: Federation
    ) -> tuple[dict[str, EMProgress], dict[str, EMProgress | Held]]:
        """Initial parameters by member and previous results by party; both empty if EM initialises
        itself."""
        members = self.summation.members(federation.names)
        if self.warm_start and hasattr(self, "converged_"):
            if len(self.weights_) != self.n_components:
                raise FederationError(
                    f"warm_start continues with {len(self.weights_)} components, but n_components "
                    "is "
                    f"{self.n_components}"
                )
            before = {n: part_of(kept, "progress") for n, kept in self._kept.items()}
            return {m: EMProgress(weights=self.weights_) for m in members}, before
        if self.means_init is not None:
            return self._given_start(federation, members), {}
        if self.weights_init is not None or self.precisions_init is not None:
            raise FederationError("weights_init and precisions_init need means_init as well")
        return {}, {}

    def _given_start(self, federation: Federation, members: Sequence[str]) -> dict[str, EMProgress]:
        real = [v.name for v in federation.schema if v.kind == "real"]
        number = int(self.n_components)
        means = _shaped("means_init", self.means_init, (number, len(real)))
        weights = np.full(number, 1 / number)
        if self.weights_init is not None:
            weights = _shaped("weights_init", self.weights_init, (number,))
            if (weights < 0).any() or abs(weights.sum() - 1) > 1e-8:
                raise FederationError("weights_init must be from 0 and add up to 1")
        start = {m: EMProgress(weights=weights) for m in members}
        schemas = {p.name: p.table.schema for p in federation}
        for party, schema in holders(schemas, self._hubs(federation.names)).items():
            names = tuple(n for n in schema.names if n in real)
            at = [real.index(n) for n in names]
            values: dict[str, Array] = {"mean": means[:, at]}
            if self.precisions_init is not None:
                values["covariance"] = _covariances(self.precisions_init, number, len(real), at)
            start[party] = EMProgress(((names, values),), weights)
        return start

    def _keep(self, run: FederatedRun[Mixture]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, TrainedMixture)
        outcome, self.joint_ = trained.outcome, trained.joint
        self.circuit_, self.placement_ = self.joint_.circuit, self.joint_.placement
        self.weights_ = np.array(outcome.weights, np.float64)
        self._set_kept(run, trained.columns, len(self.weights_), "view")
        self.views_ = {n: part_of(kept, "view") for n, kept in self._kept.items()}
        self._n_parameters = len(self.weights_) * (trained.numbers + 1) - 1
        self._n_rows, self._sound = outcome.rows, trained.sound
        self.lower_bounds_ = outcome.bounds.tolist()
        self.n_iter_, self.lower_bound_ = len(self.lower_bounds_), outcome.bound
        self.converged_, self.notes_ = outcome.settled, trained.notes
        if not self.converged_:
            change = abs(float(np.diff(self.lower_bounds_[-2:]).sum()))
            warnings.warn(
                f"EM has not converged after {self.n_iter_} iterations: the log-likelihood per row "
                f"still changed by {change:.2g}, tol is {self.tol:g}; raise max_iter or tol, "
                "continue with warm_start=True, try other starts with n_init, or use fewer "
                "components",
                ConvergenceWarning,
                stacklevel=4,
            )

    def criterion(self) -> float:
        """The Bayesian information criterion of the training rows; infinite if a component has
        collapsed, or has too few rows for its covariances."""
        widths = [sum(v.kind == "real" for v in s) for s in self._columns.values()]
        least = float(self.weights_.min()) * self._n_rows
        if len(self.weights_) > 1 and (not self._sound or least <= max(widths) + 1):
            return np.inf
        penalty = self._n_parameters * np.log(self._n_rows)
        return float(-2 * self._n_rows * self.lower_bound_ + penalty)

    def most_components(self) -> int:
        """Two rows per component."""
        return max(self._n_rows // 2, 1)

    def _check_with_auto(self) -> None:
        given = {n: getattr(self, n) is not None for n in ("means_init", "weights_init")}
        given["precisions_init"] = self.precisions_init is not None
        refuse_with_auto("n_components", {**given, "warm_start": bool(self.warm_start)})

    # ------------------------------------------------------------------ components of rows

    def predict_proba(self, X: Rows | Federation, target: str | None = None) -> Array:
        """Responsibilities (rows, components); with ``target``, class probabilities of that column.
        Rows of a federation are in the order of its first party, followed by rows it does not
        hold."""
        if target is not None:
            return super().predict_proba(_require_table(X), target)
        return self._answers(X)[:, :-1]

    def predict(self, X: Rows | Federation, target: str | None = None) -> npt.NDArray[np.generic]:
        """The most probable component of every row; with ``target``, the value of that column."""
        if target is not None:
            return super().predict(_require_table(X), target)
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def score_samples(self, X: Rows | Federation) -> Array:
        """Log-likelihood of every row; NaN, absent columns and absent parties are summed out."""
        return self._answers(X)[:, -1] if isinstance(X, Federation) else super().score_samples(X)

    def score(self, X: Rows | Federation, y: object = None) -> float:
        """Mean log-likelihood per row; y is not allowed."""
        if y is not None:
            raise QueryError("y is not used: a mixture has no target; call score(X)")
        return float(self.score_samples(X).mean())

    def bic(self, X: Rows | Federation) -> float:
        """The Bayesian information criterion of the rows: lower is better."""
        logs = self.score_samples(X)
        return float(-2 * logs.sum() + self._n_parameters * np.log(len(logs)))

    def aic(self, X: Rows | Federation) -> float:
        """Akaike's information criterion of the rows: lower is better."""
        return float(-2 * self.score_samples(X).sum() + 2 * self._n_parameters)

    def _answers(self, X: Rows | Federation) -> Array:
        """(rows, components + 1): responsibilities and the log-likelihood."""
        self._check_fitted()
        log_weights = logarithms(self.weights_)
        if isinstance(X, Federation):
            result = self._party_answers(X, log_weights)
        else:
            result = posterior(log_weights, self._table_terms(X))
        first, logs = result[:-1], result[-1:]
        last = np.maximum(1 - first.sum(axis=0), 0.0)[None]
        return np.vstack([first, last, logs]).T

    # ------------------------------------------------------------------ what was learned

    @property
    def means_(self) -> Array:
        """(components, real columns in the order of ``schema_``), if all parties allow it."""
        means: dict[str, Array] = {}
        for names, values in self._gaussians().values():
            means.update(zip(names, values["mean"].T, strict=True))
        return np.stack([means[n] for n in self.schema_.names if n in means], axis=1)

    @property
    def covariances_(self) -> dict[str, Array]:
        """By party (components, its real columns, its real columns), if all parties allow it."""
        return {party: values["covariance"] for party, (_, values) in self._gaussians().items()}

    def _gaussians(self) -> dict[str, tuple[tuple[str, ...], Arrays]]:
        """Columns and parameters of the Gaussians, by party that has one."""
        gaussians = {}
        for party, progress in self._parts("progress", EMProgress).items():
            with blaming(party, LearnedPart, "part"):
                for names, values in progress.values:
                    if "covariance" in values:
                        gaussians[party] = self._columns[party].select(names).names, values
        for party, (names, values) in gaussians.items():
            shape = self._components, len(names)
            require_shape(values["mean"], shape, party, LearnedPart, "part")
            square = (*shape, len(names))
            require_shape(values["covariance"], square, party, LearnedPart, "part")
        return gaussians


def _require_table(X: Rows | Federation) -> Rows:
    if isinstance(X, Federation):
        raise QueryError("predicting a column needs rows of a table, got a Federation")
    return X


def _shaped(name: str, given: object, shape: tuple[int, ...]) -> Array:
    array = numbers(name, given)
    if array.shape != shape or not np.isfinite(array).all():
        raise FederationError(
            f"{name}: expected finite numbers of the shape {shape}, components first, got the "
            f"shape {array.shape}"
        )
    return array


def _covariances(given: object, components: int, width: int, at: list[int]) -> Array:
    """(components, columns, columns) of one party; precisions between parties are ignored."""
    name, precisions = "precisions_init", numbers("precisions_init", given)
    if precisions.ndim == 2:
        precisions = np.stack([np.diag(v) for v in _shaped(name, precisions, (components, width))])
    within = _shaped(name, precisions, (components, width, width))[:, at][:, :, at]
    for k, matrix in enumerate(within):
        if np.linalg.eigvalsh((matrix + matrix.T) / 2).min(initial=1.0) <= 0:
            raise FederationError(
                f"{name}: expected positive definite matrices, that of component {k} is not; "
                "precisions are inverse covariances"
            )
    return np.asarray(np.linalg.inv(within), np.float64)
