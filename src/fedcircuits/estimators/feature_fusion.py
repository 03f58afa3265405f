"""FeatureFusion: owners train their own encoders apart, and one prediction is made from all."""

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
from fedcircuits.federation.tokens import RowRule
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
from fedcircuits.privacy.differential import accountant_library, spent_on_representations

Graph: TypeAlias = Literal["learned", "expected", "complete", "knn"] | npt.ArrayLike | None
GRAPHS = ("learned", "expected", "complete", "knn")


class FeatureFusion(FusionModel):
    """One prediction from owners of different features, who train apart and meet once.

    Parameters
    ----------
    encoder : encoder, str, dict of str to encoder, or None, default=None
        Of all owners, or by owner: "summary", "rocket", "recurrent", "network", or such an encoder
        with settings (``SummaryEncoder(…)`` …); any object with ``encode(table)``, a trained torch
        module, a scikit-learn transformer. By default an owner of series takes the one that
        predicts its own rows held back best ("auto", ``BestEncoder``), and one of columns alone a
        narrow network, which shows less of a row; with ``summation`` both have networks.
    align : {"linear", "sinkhorn"} or None, default="linear"
        Owners' representations have their numbers in any order; alignment finds the common one by
        a matrix per owner, any ("linear") or nearly a permutation ("sinkhorn").
    graph : {"learned", "expected", "complete", "knn"}, array-like or None, default="learned"
        Over which owners are mixed: "learned" (edges are drawn), "expected" (learned, not drawn),
        or given weights (owners, owners).
    head : {"gcn", "mean", "concat", "transformer", "vote", "threshold", "best"}, default="gcn"
        What predicts from representations; or the owners' own predictions, for comparison: their
        vote, a vote with a tuned threshold, or those of the best owner.
    reference : {"logistic", "normal"}, default="logistic"
        Distribution by which edges of a learned graph are drawn.
    temperature : float, default=0.1
        How soft drawn edges are.
    graph_draws : int, default=10
        How many graphs a prediction is the mean of.
    owner_dropout : float, default=0.3
        With which probability an owner is left out of a row in training; more of it where owners
        will be missing.
    hidden : int, default=8
        Width of the fusion's hidden layer.
    epochs : int, default=500
        At most so many passes over the rows.
    patience : int, default=50
        Training of the fusion ends after so many epochs without a lower loss on rows held back.
    learning_rate : float, default=0.01
        Of the fusion.
    batch : int, default=100
        Rows per step of the fusion.
    traffic : {"float32", "float16", "int8"}, default="float32"
        How representations cross.
    clip : float, optional
        Largest norm of a representation.
    noise : float, default=0.0
        Noise that is added to representations, as a share of ``clip``; ``epsilon_`` says what it
        guarantees at δ = 1e-6 (docs/differential-privacy.md). The extra ``dp``.
    summation : Summation, optional
        Owners add representations up and show no other, with ``Secret()`` on secret shares; for
        ``align=None`` and ``graph="complete"``, which need sums alone.
    target : str, optional
        The column to predict; ``fit`` may name it instead.
    task : {"auto", "classes", "number"}, default="auto"
        What is predicted; "auto" takes at most 20 different whole numbers as classes.
    share_target : bool, default=False
        Whether holders of the target tell it to owners without it; otherwise these learn from
        their rows alone.
    rows : {"tokens", "private"}, default="tokens"
        How rows are matched: by hashes of their ids under a key that the coordinator lacks, or by
        private set intersection (the extra ``psi``), which matches rows that all owners hold.
    validation : float, default=0.125
        Share of rows that everybody stops by.
    on_lost : {"stop", "continue"}, default="stop"
        What happens when an owner is lost: training stops, or goes on without it.
    random_state : int, optional
        Seed of everything that is drawn.

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

    _predicts: str | None = None  # the target of the present call of fit
    _found_out: TargetTask = "given"  # what parties find out about it when they meet

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

        In one process (the memory engine) owners whose encoders and rows have one shape are trained
        in one batched computation, which gives each what it would have learned alone.

        Parameters
        ----------
        X : Federation
            The owners and their tables.
        y : None
            Refused: the target is a column of a party.
        target : str, optional
            The column to predict, if not the one of the constructor.
        engine : {"memory", "process", "ray"} or callable, default="memory"
            Where the owners run.
        resume, name, callback
            As for every federated estimator (``FedPC.fit``).
        """
        self._predicts = self.target if target is None else target
        with reporting_to(tell):
            return self._train(self._checked(X, y), self._programs, engine, resume, name, callback)

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
            raise FederationError("noise is a share of clip: say clip=… too")
        if self.noise:
            accountant_library()  # an error before training if it is missing
        complete = isinstance(self.graph, str) and self.graph == "complete"
        needs_sums = self.align is None and complete and self.head == "gcn"
        if self.summation is not None and not needs_sums:
            raise FederationError(
                "summation shows the fusion sums of representations alone, which is enough for "
                "align=None, graph='complete' and head='gcn' only"
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
        """The graph that the user gave; ``began``: the parties before some were lost."""
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
        """What parties do alike."""
        graph = cast(GraphName, self.graph if isinstance(self.graph, str | None) else "given")
        settings = FusionSettings(
            self.align,
            graph if self.summation is None else None,  # of sums the mean is there already
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
        """Encoders and fusion, if every party has allowed it."""
        self._check_collect()
        views = {n: v for n, v in self.views_.items() if isinstance(v, OwnerView)}
        fusion_file.write(self, views, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], encoders: Mapping[str, object] | None = None, *,
        engine: str | Engine | None = None,
    ) -> Self:  # fmt: skip
        """A fusion that was saved.

        Parameters
        ----------
        path : str or path
            The .fc file.
        encoders : mapping of str to object, optional
            By owner, models of other libraries that it was learned with, which no file holds.
        engine : {"memory", "process", "ray"} or callable, default="memory"
            Where its questions run.
        """
        return fusion_file.read(cls, path, encoders or {}, engine)


def _check_owners(federation: Federation, target: str) -> None:
    """FederationError for what the flows would find out too, after owners have trained."""
    for party in federation:
        if target in party.table.series:
            raise FederationError(
                f"{target!r} is a series of {party.name}: what is predicted must be an ordinary "
                "column"
            )
        if not len(party.table):
            raise FederationError(f"{party.name} has no rows to learn from")
        if len(federation) > 1 and party.table.row_ids is None:
            raise FederationError(
                f"owners' rows are joined by row ids, and {party.name} has none: Federation(…, "
                "row_id='…') or Table.from_series(…, row_id=ids)"
            )
    if all(nothing_to_read(party.table, target) for party in federation):
        raise FederationError(f"nobody holds a column beside {target!r} to predict it from")
