"""PrivateForest: a forest of random circuits whose parameters nobody sees. Training and queries run
between its parties on secret shares."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from fedcircuits.arguments import COLUMN, SEED, Declared, Real, Whole, is_whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.circuit_model import CircuitModel
from fedcircuits.estimators.engine_choice import SEAL, Seal
from fedcircuits.estimators.federated import FederatedEstimator, FederatedRun, TrainingState
from fedcircuits.estimators.forest_holders import Holders
from fedcircuits.estimators.model import Given, Model
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import Held, own_key
from fedcircuits.methods.meeting.hello import same_variables
from fedcircuits.methods.private_forest.model import Forest, ForestView
from fedcircuits.methods.private_forest.parameters import opened, opening
from fedcircuits.methods.private_forest.query import NOTHING, PrivateDistribution
from fedcircuits.methods.private_forest.structures import (
    ForestShape,
    LeafChoice,
    Weighting,
    sum_weights,
)
from fedcircuits.methods.private_forest.training import (
    FOREST,
    SETTINGS,
    Combine,
    ForestPlan,
    PublicForest,
    client,
    coordinator,
)
from fedcircuits.privacy.differential import no_privacy
from fedcircuits.privacy.hidden_sums import secret_sums
from fedcircuits.privacy.operations.powers import compile_kernels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ASKER = "asker"  # the default name of the asker
ForestResult: TypeAlias = ForestView | Held | PublicForest


class ModelOnShares(Model):
    """A model whose parameters nobody holds: it can be queried, but not saved or plotted."""

    def save(self, path: str | os.PathLike[str]) -> None:
        raise _secret("save")

    def plot(
        self, given: Given = None, columns: Sequence[str] | None = None, ax: Axes | None = None
    ) -> Figure:
        raise _secret("plot")


class PrivateForest(ModelOnShares, FederatedEstimator[ForestResult]):
    """Random circuits learned by three or more parties with different rows of the same columns.

    After ``fit`` every party holds shares that reveal nothing by themselves, nor combined with
    those of fewer than half of the parties. Likelihoods are computed on shares and revealed only to
    whoever asks.

    Parameters
    ----------
    structures : int, default=3
        The number of random structures.
    depth : int, default=0
        0: each structure is a mixture of repetitions · units products. 1 or more: random binary
        structures of this depth.
    repetitions : int, default=1
        The number of random divisions of the columns per structure.
    units : int, default=33
        The number of units per node.
    leaf : {"auto", "categorical"}, default="auto"
        "auto": Bernoulli leaves for booleans, categorical ones for categories. "categorical": for
        all columns.
    combine : {"average", "concatenate", "em"}, default="average"
        "average": each party learns the forest, counts are averaged on shares, and nobody sees a
        parameter. "concatenate": each party has structures of its own. "em": counts are summed on
        shares in every iteration, and parties see the parameters.
    weighting : {"rank", "uniform", "loglik", "loglik2"}, default="rank"
        How structures are weighted by the likelihood of held-out rows.
    threshold : int or "majority", default="majority"
        How many colluding parties learn nothing. "majority": fewer than half of them, the maximum
        possible.
    public_total : bool, default=True
        Whether parties may learn the total number of rows. False needs combine="average".
    together : int, default=0
        How many iterations of "average" run as in "em" before each party continues alone.
    validation : float, default=0.1
        The share of its rows that a party holds out, to stop EM and to weight structures.
    max_iter : int, default=150
        The maximum number of EM iterations.
    tol : float, default=1e-4
        The smallest improvement of an iteration in nats per row.
    marginals : bool, default=False
        Whether queried rows may have missing values. Marginals reveal more about a model.
    target : str, optional
        The column that ``predict`` predicts by default.
    sealed : bool or "auto", default="auto"
        Whether messages are encrypted against whoever relays them. "auto": if the engine relays
        them.
    random_state : int, optional
        The seed of structures, initial parameters and held-out rows. It is public; shares never
        depend on it.
    privacy : None
        Differential privacy is refused: EM on shares adds no noise, and answers reveal its sums.

    With ``structures=1`` and ``combine="em"`` the model is the mixture of products that EM learns
    from all rows.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.integers(2, size=(300, 1)) ^ (rng.random((300, 4)) < 0.1))
    >>> model = PrivateForest(2, units=3, random_state=0).fit(fc.split(table, 3))
    >>> model.score_samples(table).shape, model.reveals_["coordinator"]
    ((300,), ['the public graph; the number of all rows'])
    """

    forest_: Forest  # the public graph
    views_: dict[str, ForestView | Held]  # each party's part, or a handle to it
    total_: int | None  # the total number of rows, if parties know it
    history_: tuple[tuple[float, ...], ...]  # likelihoods of held-out rows per structure, if public
    sum_weights_: int

    allowed: ClassVar[Declared] = {
        **ForestShape.allowed,
        **SETTINGS,
        "threshold": Whole(1, or_=("majority",)),
        "tol": Real(least=0),
        "target": COLUMN,
        "sealed": SEAL,
        "random_state": SEED,
        "privacy": no_privacy("EM on shares adds no noise, and answers reveal its sums"),
    }

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
        sealed: Seal = "auto",
        random_state: int | None = None,
        privacy: None = None,
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
        self.privacy = privacy

    # ------------------------------------------------------------------ training

    def _check_federation(self, federation: Federation) -> Federation:
        same_variables({p.name: p.table.schema for p in federation}, FOREST)
        if self.target is not None:
            federation.schema.index(self.target)
        self._plan(0).check(len(federation))
        compile_kernels()  # here, before parties in processes of their own do it at once
        return federation

    def _plan(self, seed: int, run: str = "") -> ForestPlan:
        given: dict[str, Any] = {  # values of Python: parties compare their settings as text
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params(deep=False).items()
        }
        shape = ForestShape(**{name: given[name] for name in ForestShape.allowed})
        settings = {name: given[name] for name in (*SETTINGS, "threshold", "tol")}
        return ForestPlan(shape, seed=seed, run=run, **settings)

    def _programs(
        self, federation: Federation, state: TrainingState
    ) -> Mapping[str, Program[ForestResult]]:
        members, plan = federation.names, self._plan(state.seed, state.run)
        programs: dict[str, Program[ForestResult]] = {
            COORDINATOR: Program(coordinator, {"members": members})
        }
        keys = {"summation": secret_sums(own_key("sums")), "key": own_key("shares")}
        for party in federation:
            arguments = {"party": party, "members": members, "plan": plan, **keys}
            programs[party.name] = Program(client, arguments)
        return programs

    def _keep(self, run: FederatedRun[ForestResult]) -> None:
        public = run.results[COORDINATOR]
        assert isinstance(public, PublicForest)
        self.views_ = {n: v for n, v in run.results.items() if isinstance(v, ForestView | Held)}
        self.forest_, self.total_, self.history_ = public.forest, public.total, public.history
        self.circuit_ = self.forest_.circuit
        self.sum_weights_ = sum_weights(self.circuit_)
        self._holders = Holders(self.forest_, self.views_)

    # ------------------------------------------------------------------ questions

    @property
    def _distribution(self) -> PrivateDistribution:  # type: ignore[override]
        return self._reached().asked_by(ASKER)

    def _reached(self) -> Holders:
        """The parties that hold shares, connected to the current engine."""
        self._check_fitted()
        self._holders.engine, self._holders.ledger = self._engine, self.queries_
        return self._holders

    def prepare(self, rows: int) -> Self:
        """Prepare masks for this number of rows: queries then take two or three rounds."""
        self._check_fitted()
        if not is_whole(rows):
            raise QueryError(f"masks are prepared for a whole number of rows from 1, got {rows!r}")
        self._reached().prepare(int(rows))
        return self

    def connect(self, name: str = ASKER) -> ConnectedForest:
        """The model as seen by an outsider, or by a party that asks."""
        return ConnectedForest(self._reached(), name, self.target)

    def score_party(self, party: Party) -> Array | Held:
        """Log-likelihoods of a party's rows, revealed only to that party, trained or not.

        If the party is a site, neither its rows nor the answers leave it: the answers stay in its
        store, and a handle is returned.
        """
        self._check_fitted()
        if not isinstance(party, Party) or not len(party.table):
            raise QueryError(f"expected a party with rows, federation['…'], got {party!r}")
        return self._reached().ask(party.name, party, len(party.table))

    @property
    def asked_(self) -> dict[str, int]:
        """Queried rows by asker: every answer reveals a little about the parameters."""
        self._check_fitted()
        return dict(self._holders.asked)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save where the sites are that hold shares; nobody can save the parameters."""
        FederatedEstimator.save(self, path)

    def _save_collected(self, path: str | os.PathLike[str]) -> None:
        raise _secret("save")

    # ------------------------------------------------------------------ what is known

    @property
    def reveals_(self) -> dict[str, list[str]]:
        """What each party, each asker and the coordinator have learned so far."""
        self._check_fitted()
        learned: dict[str, list[str]] = {name: [] for name in (*self.views_, COORDINATOR)}
        for ledger in (self.ledger_, self.queries_):
            for row in ledger.revealed().itertuples():
                known = learned.setdefault(row.to, [])
                if row.what not in (*NOTHING, *known):
                    known.append(row.what)
        return learned

    def open_parameters(self) -> CircuitModel:
        """The forest in the clear, if every party allows it (``allow_collect``): all parties send
        their shares to the coordinator, which ends the secrecy."""
        holders = self._reached()
        programs: dict[str, Program[Parameters | None]] = {
            me: Program(opening, {"view": view}) for me, view in self.views_.items()
        }
        knows = {"members": tuple(self.views_), "forest": self.forest_}
        programs[COORDINATOR] = Program(opened, knows)
        parameters = holders.run(programs)[COORDINATOR]
        assert parameters is not None, "the coordinator receives them"
        return CircuitModel(self.circuit_, parameters, self.target)


class ConnectedForest(ModelOnShares):
    """A private forest seen from outside: its public graph, and answers for one asker.

    Made by ``model.connect("clinic")``. Rows leave the asker only as shares.
    """

    def __init__(self, holders: Holders, name: str, target: str | None = None) -> None:
        if not isinstance(name, str) or not name or name == COORDINATOR:
            raise FederationError(
                f"the querying party needs a name, a text other than {COORDINATOR!r}"
            )
        self.holders = holders
        self.name = name
        self.target = target
        self.circuit_ = holders.forest.circuit

    @property
    def _distribution(self) -> PrivateDistribution:  # type: ignore[override]
        return self.holders.asked_by(self.name)


def _secret(what: str) -> QueryError:
    return QueryError(
        f"{what}: no party has the parameters of a private forest; if its parties open them, use "
        f"open_parameters().{what}(…)"
    )
