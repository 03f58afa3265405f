"""Fusion of representations at one place: a head (heads.py) is trained over cached ones.

Owners' networks are frozen, so their representations are computed once and kept; what is trained is
small. Adam on batches; a graph that is learned is drawn anew for every batch (consensus_graph.py),
and its probabilities are held within (0, 1). The parameters with the least loss on held-back rows
are kept. A prediction is the mean over ``graph_draws`` graphs.

Where every owner has a matrix of its own (alignment, "concat"), representations are standardised by
the rows learned from: numbers of an encoder differ in scale by a factor of a hundred, and one rate
of learning suits them all only then. Without alignment they are taken as they come.

``owner_dropout`` leaves every owner out of a row with this probability while training, so that the
fusion has seen rows like those where owners are missing. For a transformer, whose cost is quadratic
in owners, they are left out of a whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.encoders.apart import Goal, losses, report_epoch
from fedcircuits.methods.fusion import heads
from fedcircuits.methods.fusion.consensus_graph import (
    EDGE,
    NEIGHBOURS,
    Reference,
    drawn,
    filled,
    nearest,
)
from fedcircuits.methods.fusion.heads import Align, Head

GraphName: TypeAlias = Literal["learned", "expected", "complete", "knn", "given"] | None
Floats: TypeAlias = npt.NDArray[np.float32]
PIECE = 1000  # rows of one step without gradient


@dataclass(frozen=True, slots=True)
class FusionSettings:
    align: Align = "linear"
    graph: GraphName = "learned"
    head: Head = "gcn"
    reference: Reference = "logistic"
    temperature: float = 0.1
    graph_draws: int = 10
    owner_dropout: float = 0.0
    hidden: int = 8
    epochs: int = 500
    patience: int = 50
    learning_rate: float = 0.01
    batch: int = 100
    weight_decay: float = 0.0

    @property
    def learns_graph(self) -> bool:
        return self.head == "gcn" and self.graph in ("learned", "expected")

    @property
    def standardises(self) -> bool:
        return self.head == "concat" or self.align is not None


@dataclass(frozen=True, slots=True)
class Gathered:
    """What all owners have sent, row by row."""

    h: Floats  # (owners, rows, width): zeros where an owner is absent
    there: npt.NDArray[np.bool_]  # (rows, owners)

    def rows(self, where: npt.NDArray[np.generic]) -> Gathered:
        return Gathered(np.ascontiguousarray(self.h[:, where]), self.there[where])


@dataclass(frozen=True, eq=False)
class Scale:
    """Of every number of every representation: its mean, and one over its deviation."""

    mean: Floats  # (owners, 1, width)
    rate: Floats  # (owners, 1, width)

    @classmethod
    def of(cls, rows: Gathered) -> Scale:
        there = rows.there.T[..., None]  # (owners, rows, 1)
        count = np.maximum(there.sum(axis=1, keepdims=True), 1)
        mean = rows.h.sum(axis=1, keepdims=True, dtype=np.float64) / count  # zeros where absent
        square = np.square(rows.h, dtype=np.float64).sum(axis=1, keepdims=True) / count - mean**2
        spread = np.sqrt(np.maximum(square, 0.0))
        rate = 1 / np.where(spread > 1e-4 * (np.abs(mean) + 1e-4), spread, 1.0)
        return cls(mean.astype(np.float32), rate.astype(np.float32))

    def apply(self, h: Tensor, there: Tensor | None) -> Tensor:
        """Standardised; zeros where an owner is absent."""
        found = (h - torch.from_numpy(self.mean)) * torch.from_numpy(self.rate)
        return found if there is None else found * there.T[..., None]


@dataclass(frozen=True, eq=False)
class Fusion:
    """A fusion that has learned: parameters, graph, history."""

    settings: FusionSettings
    goal: Goal
    values: Mapping[str, Floats]
    graph: Array | None  # (owners, owners): weights or probabilities of edges, without loops
    history: Mapping[str, list[float]] = field(default_factory=dict)
    best: int = 0
    seed: int = 0
    scale: Scale | None = None  # of representations, where they are standardised

    @property
    def alignment(self) -> Array | None:
        """(owners, width, width): h_i @ alignment[i] is aligned, h_i standardised."""
        found = heads.alignment(_tensors(self.values), self.settings.align)
        return None if found is None else found.numpy().astype(np.float64)

    def predict(self, rows: Gathered) -> Array:
        """(rows, outputs): probabilities of classes, or numbers."""
        values, found = _tensors(self.values), []
        for at in range(0, len(rows.there), PIECE):
            part = Gathered(rows.h[:, at : at + PIECE], rows.there[at : at + PIECE])
            found.append(self._predicted(values, part))
        outputs = len(self.values["last bias"])
        return np.concatenate(found) if found else np.zeros((0, outputs))

    def _predicted(self, values: Mapping[str, Tensor], rows: Gathered) -> Array:
        h, there = batch_of(rows)
        h = h if self.scale is None else self.scale.apply(h, there)
        total: Tensor | None = None
        count = 0
        with torch.no_grad():
            for graph in self._graphs():
                out = heads.output(
                    values, self.settings.align, self.settings.head, h, graph, there
                ).double()
                out = torch.softmax(out, dim=1) if self.goal == "classes" else out
                total, count = out if total is None else total + out, count + 1
        assert total is not None
        return np.asarray((total / count).numpy())

    def _graphs(self) -> Iterator[heads.Graph]:
        if self.graph is None:
            yield None
        elif self.settings.graph == "complete":
            yield "complete"
        elif self.settings.graph != "learned":
            yield torch.tensor(self.graph, dtype=torch.float32)
        else:
            generator = torch.Generator().manual_seed(self.seed)
            pairs = torch.tensor(self.graph[np.triu_indices(len(self.graph), 1)]).float()
            for _ in range(self.settings.graph_draws):
                yield drawn(
                    pairs, len(self.graph), self.settings.temperature, self.settings.reference,
                    generator,
                )  # fmt: skip


def fuse(
    rows: Gathered,
    y: Floats,
    held: npt.NDArray[np.bool_],
    goal: Goal,
    outputs: int,
    settings: FusionSettings,
    seed: int,
    given: Array | None = None,
) -> Fusion:
    """Learn to predict y (rows,) codes, or (rows, 1) numbers, stopping by the rows held back."""
    scale = Scale.of(rows.rows(~held)) if settings.standardises else None
    run = FusionTraining(rows, y, held, goal, outputs, settings, seed, given, scale)
    for epoch in range(settings.epochs):
        report_epoch("the fusion", epoch, settings.epochs)
        run.epoch()
        if len(run.history["held back"]) - run.best >= settings.patience:
            break
    return run.fusion()


class FusionTraining:
    """A fusion while it is trained, an epoch or a step at a time.

    Where representations change while it is trained, ``scale`` is that of their start, or None.
    """

    def __init__(
        self, rows: Gathered, y: Floats, held: npt.NDArray[np.bool_], goal: Goal, outputs: int,
        settings: FusionSettings, seed: int, given: Array | None, scale: Scale | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.goal, self.seed, self.scale = settings, goal, seed, scale
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.owners, _, width = rows.h.shape
        parts = settings.align, settings.head
        values = heads.start(self.owners, width, outputs, settings.hidden, *parts, self.rng)
        if goal == "numbers" and settings.head in ("gcn", "mean"):
            values["presence"] = np.zeros(1)
        if settings.learns_graph:
            values["pairs"] = self.rng.uniform(EDGE, 1 - EDGE, self.owners * (self.owners - 1) // 2)
        self.values = {n: torch.tensor(v).float().requires_grad_() for n, v in values.items()}
        self.adam = torch.optim.Adam(
            list(self.values.values()), settings.learning_rate,
            weight_decay=settings.weight_decay, fused=True,
        )  # fmt: skip
        self.fixed = self._fixed(given)
        self.train, self.y = batch_of(rows.rows(~held)), torch.from_numpy(y[~held])
        self.valid = batch_of(rows.rows(held)) if held.any() else self.train
        self.truth = torch.from_numpy(y[held]) if held.any() else self.y
        self.history: dict[str, list[float]] = {"training": [], "held back": []}
        self.best, self.kept, self.least = 0, self._copy(), np.inf

    def _fixed(self, given: Array | None) -> heads.Graph:
        if self.settings.head != "gcn" or self.settings.graph is None:
            return None
        if self.settings.graph == "complete":
            return "complete"
        return None if given is None else torch.tensor(given, dtype=torch.float32)

    def _graph(self, h: Tensor, draw: bool) -> heads.Graph:
        """Of standardised representations."""
        settings = self.settings
        if self.fixed is not None or settings.head != "gcn" or settings.graph is None:
            return self.fixed
        if settings.graph == "knn":
            matrices = heads.alignment(self.values, settings.align)
            return nearest(heads.projected(self.values, matrices, h), NEIGHBOURS)
        pairs = self.values["pairs"]
        if settings.graph == "expected" or not draw:
            return filled(pairs, self.owners)
        return drawn(pairs, self.owners, settings.temperature, settings.reference, self.generator)

    def epoch(self) -> None:
        order = torch.from_numpy(self.rng.permutation(len(self.y)))
        h, there = self.train
        total = 0.0
        for at in range(0, len(order), self.settings.batch):
            where = order[at : at + self.settings.batch]
            present = None if there is None else there[where]
            total += self.step(h.index_select(1, where), present, self.y[where]) * len(where)
        self.history["training"].append(total / len(order))
        self.judge()

    def step(self, h: Tensor, there: Tensor | None, y: Tensor) -> float:
        """One step by a batch of rows; its loss. Where h asks for it, it has its gradient then."""
        seen, mask = self._dropped(self._scaled(h, there), there)
        loss = self._loss(seen, mask, y, self._graph(seen, draw=True))
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        if "pairs" in self.values:
            self.values["pairs"].data.clamp_(EDGE, 1 - EDGE)
        return float(loss.item())

    def _scaled(self, h: Tensor, there: Tensor | None) -> Tensor:
        return h if self.scale is None else self.scale.apply(h, there)

    def _loss(self, h: Tensor, there: Tensor | None, y: Tensor, graph: heads.Graph) -> Tensor:
        out = heads.output(self.values, self.settings.align, self.settings.head, h, graph, there)
        return losses(self.goal, out[None], y[None])[0]

    def _dropped(self, h: Tensor, there: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if not self.settings.owner_dropout:
            return h, there
        if self.settings.head == "transformer" and "align" not in self.values:
            return self._fewer(h, there)
        kept = torch.rand((h.shape[1], h.shape[0]), generator=self.generator)
        mask = (kept >= self.settings.owner_dropout).float()
        mask = mask if there is None else mask * there
        return h * mask.T[..., None], mask

    def _fewer(self, h: Tensor, there: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Without some of the owners, in all rows of a batch; one is always left."""
        kept = torch.rand(len(h), generator=self.generator) >= self.settings.owner_dropout
        kept[int(torch.randint(len(h), (), generator=self.generator))] = True
        return h[kept], None if there is None else there[:, kept]

    def judge(self) -> None:
        """The loss on rows held back, and whether these parameters are the best so far."""
        with torch.no_grad():
            h, there = self.valid
            seen = self._scaled(h, there)
            loss = self._loss(seen, there, self.truth, self._graph(seen, draw=False)).item()
        self.history["held back"].append(loss)
        if loss < self.least:
            self.least, self.best, self.kept = loss, len(self.history["held back"]), self._copy()

    def _copy(self) -> dict[str, Floats]:
        return {n: v.detach().numpy().copy() for n, v in self.values.items()}

    def fusion(self) -> Fusion:
        self.values = _tensors(self.kept)
        graph = None
        if self.settings.head == "gcn" and self.settings.graph is not None:
            with torch.no_grad():
                found = self._graph(self._scaled(*self.train), draw=False)
            everybody = np.ones((self.owners, self.owners)) - np.eye(self.owners)
            graph = found.numpy().astype(np.float64) if isinstance(found, Tensor) else everybody
        values = {n: v for n, v in self.kept.items() if n != "pairs"}
        return Fusion(
            self.settings, self.goal, values, graph, self.history, self.best, self.seed, self.scale
        )


def batch_of(rows: Gathered) -> tuple[Tensor, Tensor | None]:
    """h, and who is there if not all are."""
    h = torch.from_numpy(rows.h)
    return h, None if rows.there.all() else torch.from_numpy(rows.there).float()


def _tensors(values: Mapping[str, Floats]) -> dict[str, Tensor]:
    return {n: torch.from_numpy(np.array(v, np.float32)) for n, v in values.items()}
