"""FeatureFusion: owners train encoders separately, and one head predicts from all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self, TypeAlias, cast, get_args

import numpy.typing as npt

from fedcircuits.arguments import COLUMN, FLAG, ROWS_HELD_BACK, SEED, Choice, Declared, Real, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.engines.watching import Callback
from fedcircuits.errors import FederationError, ParameterError, TableError
from fedcircuits.estimators import fusion_file
from fedcircuits.estimators.federated import (
    ON_LOST,
    ROWS,
    SUMMATION,
    FederatedRun,
    TrainingState,
    check_one_each,
)
from fedcircuits.estimators.fusion_model import FusionModel, FusionResult
from fedcircuits.estimators.progress import tell
from fedcircuits.estimators.targets import Task, task_of_parties
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import Held
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.learning.encoders.apart import reporting_to
from fedcircuits.learning.encoders.choosing import BestEncoder, encoder_for, nothing_to_read
from fedcircuits.learning.encoders.encoders import NetworkEncoder
from fedcircuits.learning.encoders.fixed import FixedEncoder
from fedcircuits.learning.encoders.foreign import Encoder
from fedcircuits.methods.fusion import training
from fedcircuits.methods.fusion.fitting import VOTES, Vote
from fedcircuits.methods.fusion.gathering import TRAFFIC, Traffic
from fedcircuits.methods.fusion.heads import (
    Align,
    FusionSettings,
    GraphName,
    Head,
    Reference,
    given_graph,
)
from fedcircuits.methods.fusion.query import OwnerView
from fedcircuits.methods.fusion.training import FusionPlan, TrainedFusion
from fedcircuits.methods.meeting.task import TargetTask
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.privacy.differential import accountant_library, spent_on_representations

Graph: TypeAlias = Literal["learned", "expected", "complete", "knn"] | npt.ArrayLike | None
GRAPHS = ("learned", "expected", "complete", "knn")


class FeatureFusion(FusionModel):
    """Predict one column from features of different owners, who train separately and meet once.

    Parameters
    ----------
    encoder : encoder, str, dict of str to encoder, or None, default=None
        The encoder of all owners, or one per owner: "summary", "rocket", "recurrent", "network", an
        encoder object (``SummaryEncoder(…)`` …), any object with ``encode(table)``, a trained torch
        module, or a scikit-learn transformer. By default an owner of series takes the encoder that
        predicts its held-out rows best ("auto", ``BestEncoder``), and an owner of columns a narrow
        network, which reveals less about a row; with ``summation`` both use networks.
    align : {"linear", "sinkhorn"} or None, default="linear"
        Representations of different owners have no common order of dimensions. Alignment learns a
        matrix per owner: any matrix ("linear"), or nearly a permutation ("sinkhorn").
    graph : {"learned", "expected", "complete", "knn"}, array-like or None, default="learned"
        The graph over owners: learned with sampled edges ("learned") or with their expectation
        ("expected"), fixed, or given as weights (owners, owners).
    head : {"gcn", "mean", "concat", "transformer", "vote", "threshold", "best"}, default="gcn"
        The head that predicts from representations; or, for comparison, a combination of the
        owners' predictions: a vote, a vote with a tuned threshold, or the best owner.
    reference : {"logistic", "normal"}, default="logistic"
        The distribution from which edges of a learned graph are sampled.
    temperature : float, default=0.1
        The temperature of sampled edges.
    graph_draws : int, default=10
        The number of sampled graphs over which a prediction is averaged.
    owner_dropout : float, default=0.3
        The probability that an owner is dropped from a row in training; larger values suit
        federations whose owners will often be absent.
    hidden : int, default=8
        The width of the hidden layer of the fusion.
    epochs : int, default=500
        The maximum number of passes over the rows.
    patience : int, default=50
        Training stops after this many epochs without a lower loss on held-out rows.
    learning_rate : float, default=0.01
        The learning rate of the fusion.
    batch : int, default=100
        The number of rows per step of the fusion.
    traffic : {"float32", "float16", "int8"}, default="float32"
        The precision in which representations are sent.
    clip : float, optional
        The largest norm of a representation.
    noise : float, default=0.0
        Noise added to representations, as a share of ``clip``; ``epsilon_`` is the guarantee at
        δ = 1e-6 (docs/differential-privacy.md). It needs the extra ``dp``.
    summation : Summation, optional
        Owners reveal only the sum of their representations, with ``Secret()`` on secret shares.
        It requires ``align=None`` and ``graph="complete"``.
    target : str, optional
        The column to predict; it can be passed to ``fit`` instead.
    task : {"auto", "classes", "number"}, default="auto"
        What is predicted; "auto" treats at most 20 distinct whole numbers as classes.
    share_target : bool, default=False
        Whether holders of the target send it to owners without it; otherwise these learn from
        their own rows only.
    rows : {"tokens", "private"}, default="tokens"
        How rows are matched: by hashes of their ids under a key unknown to the coordinator, or by
        private set intersection (the extra ``psi``), which matches the rows that all owners hold.
    validation : float, default=0.125
        The share of rows held out for early stopping.
    on_lost : {"stop", "continue"}, default="stop"
        Whether to stop when an owner is lost, or to continue without it.
    random_state : int, optional
        The seed.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> clinics = fc.split(fc.datasets.load("breast_cancer"), 3, by="columns", target="diagnosis")
    >>> encoder = fc.TabularEncoder(epochs=5)
    >>> model = FeatureFusion(encoder, share_target=True, epochs=5, random_state=0)
    >>> model.fit(clinics, target="diagnosis").predict_proba(clinics).shape
    (569, 2)
    >>> model.circuit_.root.operation, model.score(clinics) > 0.8
    ('gcn', True)
    """

    _predicts: str | None = None  # the target of the current call of fit
    _found_out: TargetTask = "given"  # what the parties decide about it when they meet

    reads_series = True
    allowed: ClassVar[Declared] = {
        "align": Choice("linear", "sinkhorn", None),
        "head": Choice(*get_args(Head), *VOTES),
        "reference": Choice(*get_args(Reference)),
        **dict.fromkeys(("graph_draws", "hidden", "epochs", "patience", "batch"), Whole(1)),
        **dict.fromkeys(("temperature", "learning_rate"), Real(above=0)),
        "owner_dropout": Real(least=0, below=1, what="a share"),
        "traffic": Choice(*TRAFFIC),
        "clip": Real(above=0, or_=(None,)),
        "noise": Real(least=0, what="a share of clip,"),
        "summation": replace(SUMMATION, or_=(None,)),
        "target": COLUMN,
        "share_target": FLAG,
        "rows": ROWS,
        "validation": ROWS_HELD_BACK,
        "on_lost": ON_LOST,
        "random_state": SEED,
    }

    def __init__(
        self,
        encoder: object | Mapping[str, object] | None = None,
        *,
        align: Align = "linear",
        graph: Graph = "learned",
        head: Head | Vote = "gcn",
        reference: Reference = "logistic",
        temperature: float = 0.1,
        graph_draws: int = 10,
        owner_dropout: float = 0.3,
        hidden: int = 8,
        epochs: int = 500,
        patience: int = 50,
        learning_rate: float = 0.01,
        batch: int = 100,
        traffic: Traffic = "float32",
        clip: float | None = None,
        noise: float = 0.0,
        summation: Summation | None = None,
        target: str | None = None,
        task: Task = "auto",
        share_target: bool = False,
        rows: RowRule = "tokens",
        validation: float = 0.125,
        on_lost: Literal["stop", "continue"] = "stop",
        random_state: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.align: Align = align
        self.graph = graph
        self.head: Head | Vote = head
        self.reference: Reference = reference
        self.temperature = temperature
        self.graph_draws = graph_draws
        self.owner_dropout = owner_dropout
        self.hidden = hidden
        self.epochs = epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.batch = batch
        self.traffic: Traffic = traffic
        self.clip = clip
        self.noise = noise
        self.summation = summation
        self.target = target
        self.task: Task = task
        self.share_target = share_target
        self.rows: RowRule = rows
        self.validation = validation
        self.on_lost = on_lost
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        target: str | None = None,
        engine: str | Engine | None = None,
        resume: bool | str = False,
        name: str | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn to predict a column.

        In one process (the memory engine), owners whose encoders and rows have the same shape are
        trained in one batched computation, with the same result as separate training.

        Parameters
        ----------
        X : Federation
            The owners and their tables.
        y : None
            Not allowed: the target is a column of a party.
        target : str, optional
            The column to predict; by default the one of the constructor.
        engine : {"memory", "process", "ray"} or callable, default="memory"
            Where the owners run.
        resume, name, callback
            See ``FedPC.fit``.
        """
        self._predicts = self.target if target is None else target
        federation = self._checked(X, y)
        with reporting_to(tell):
            return self._train(federation, self._programs, engine, resume, name, callback)

    def _check_federation(self, federation: Federation) -> Federation:
        name, schema = self._predicts, federation.schema
        self._found_out = task_of_parties(schema, name, self.task)
        if not isinstance(name, str):
            raise FederationError("name the column to predict: fit(federation, target='…')")
        self._check_arguments_together()
        _check_owners(federation, name)
        if self._found_out == "given":  # else the parties say it
            training.check_vote(self._vote, schema[name])
        self._check_encoders(federation, name)
        self._given(federation, name, federation.names)
        return federation

    def _check_arguments_together(self) -> None:
        if isinstance(self.graph, str) and self.graph not in GRAPHS:
            raise FederationError(
                f"graph must be one of {', '.join(map(repr, GRAPHS))}, None, or weights (owners, "
                f"owners), got {self.graph!r}"
            )
        if self.noise and self.clip is None:
            raise FederationError("noise is a fraction of clip: give clip=…, too")
        if self.noise:
            accountant_library()  # an error before training if it is missing
        complete = isinstance(self.graph, str) and self.graph == "complete"
        needs_sums = self.align is None and complete and self.head == "gcn"
        if self.summation is not None and not needs_sums:
            raise FederationError(
                "with summation= the fusion sees only sums of representations, which suffices "
                "only for align=None, graph='complete' and head='gcn'"
            )

    def _encoder_of(self, party: Party) -> Encoder:
        added, target = self.summation is not None, self._predicts
        return encoder_for(self.encoder, party.name, party.table, added, target)

    def _check_encoders(self, federation: Federation, target: str) -> None:
        owners = [p for p in federation if not nothing_to_read(p.table, target)]
        check_one_each("encoder", self.encoder, federation.select([p.name for p in owners]))
        for party in owners:
            try:
                encoder = self._encoder_of(party)
                if isinstance(encoder, NetworkEncoder | FixedEncoder | BestEncoder):
                    encoder.check(party.table, target)
            except (ParameterError, TableError) as error:
                raise type(error)(f"{party.name}: {error}") from None

    def _given(self, federation: Federation, target: str, began: Sequence[str]) -> Array | None:
        """The user's graph; ``began``: the parties before any were lost."""
        if isinstance(self.graph, str | None):
            return None
        owners = [p.name for p in federation if not nothing_to_read(p.table, target)]
        return given_graph(self.graph, federation.names, owners, began)

    @property
    def _vote(self) -> Vote | None:
        return self.head if self.head in VOTES else None

    def _plan(
        self, target: str, seed: int, members: tuple[str, ...] = (), given: Array | None = None
    ) -> FusionPlan:
        """The plan common to all parties."""
        graph = cast(GraphName, self.graph if isinstance(self.graph, str | None) else "given")
        settings = FusionSettings(
            self.align,
            graph if self.summation is None else None,  # sums already contain the mean
            "gcn" if self._vote else cast(Head, self.head),
            self.reference,
            float(self.temperature), int(self.graph_draws), float(self.owner_dropout),
            int(self.hidden), int(self.epochs), int(self.patience), float(self.learning_rate),
            int(self.batch),
        )  # fmt: skip
        return FusionPlan(
            members, target, settings, self._vote, bool(self.share_target), float(self.validation),
            given, seed, self._showing, self.rows, self._found_out,
        )  # fmt: skip

    def _programs(
        self, federation: Federation, state: TrainingState
    ) -> dict[str, Program[FusionResult]]:
        target = str(self._predicts)
        given = self._given(federation, target, state.parties)
        plan = self._plan(target, state.seed, federation.names, given)
        programs: dict[str, Program[FusionResult]] = {
            COORDINATOR: Program(training.coordinator, {"plan": plan})
        }
        secret = state.secrets_of(federation.names, self.rows)
        for party in federation:
            arguments: dict[str, object] = {
                "party": party, "plan": plan.for_owner(), "secret": secret[party.name],
                "encoder": self._encoder_of(party),
            }  # fmt: skip
            programs[party.name] = Program(training.owner, arguments)
        return programs

    def _missing_without(self, federation: Federation, lost: str) -> str:
        held = any(self._predicts in p.table.schema for p in federation if p.name != lost)
        return "" if held else f"nobody else holds {self._predicts!r}"

    def _keep(self, run: FederatedRun[FusionResult]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, TrainedFusion)
        views = {n: v for n, v in run.results.items() if isinstance(v, OwnerView | Held)}
        self._set_learned(views, trained.view, trained.notes, run.seed)
        if self.noise:
            self.ledger_.privacy = spent_on_representations(float(self.noise))
            self.epsilon_ = self.ledger_.privacy.epsilon

    # ------------------------------------------------------------------ files

    def _save_collected(self, path: str | os.PathLike[str]) -> None:
        """Write encoders and fusion, if every party allows it."""
        self._check_collect()
        views = {n: v for n, v in self.views_.items() if isinstance(v, OwnerView)}
        fusion_file.write(self, views, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], encoders: Mapping[str, object] | None = None, *,
        engine: str | Engine | None = None,
    ) -> Self:  # fmt: skip
        """Load a saved fusion.

        Parameters
        ----------
        path : str or path
            The .fc file.
        encoders : mapping of str to object, optional
            Encoders of other libraries by owner, which files do not hold.
        engine : {"memory", "process", "ray"} or callable, default="memory"
            Where predictions run.
        """
        return fusion_file.read(cls, path, encoders or {}, engine)


def _check_owners(federation: Federation, target: str) -> None:
    """FederationError for problems that the flows would only find after owners have trained."""
    for party in federation:
        if target in party.table.series:
            raise FederationError(
                f"{target!r} is a series of {party.name}: the target must be an ordinary column"
            )
        if not len(party.table):
            raise FederationError(f"{party.name} has no rows to learn from")
        if len(federation) > 1 and party.table.row_ids is None:
            raise FederationError(
                f"owners' rows are joined by row ids, and {party.name} has none: Federation(…, "
                "row_id='…') or Table.from_series(…, row_id=ids)"
            )
    if all(nothing_to_read(party.table, target) for party in federation):
        raise FederationError(f"no party holds a column besides {target!r} to predict it from")
