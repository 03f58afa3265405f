"""Training of a fusion at the coordinator: a head (heads.py) over cached representations.

Owners' networks are frozen, so their representations are computed once and kept; the trained part
is small. Adam on batches; a learned graph is drawn again for every batch, and its probabilities are
kept within (0, 1). The parameters with the least loss on held-back rows are kept. A prediction
is the mean over ``graph_draws`` graphs.

Where every owner has its own matrix (alignment, "concat"), representations are standardised by the
training rows: outputs of an encoder differ in scale by a factor of a hundred, and one learning rate
suits them all only then. Without alignment they are used unchanged.

``owner_dropout`` leaves every owner out of a row with this probability while training, so that the
fusion has seen rows like those where owners are missing. For a transformer, whose cost is quadratic
in owners, they are left out of a whole batch.

Predictions of owners can also be combined without training; these are baselines for a fusion. ``h``
of ``OwnerRows`` then contains the owners' predictions (owners, rows, outputs):

    vote        the class that most owners predict; for numbers, the mean
    threshold   for two classes: the second if at least a share of owners predicts it, the share
                with the best F1 on training rows
    best        the owner that is best on held-back rows: F1 of the second of two classes, macro-F1
                for more, squared error for numbers. In rows that it lacks, the mean of the others'
                predictions
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import f1_score
from torch import Tensor

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.learning.encoders.apart import Goal, ends, losses, report_epoch
from fedcircuits.methods.fusion import heads
from fedcircuits.methods.fusion.heads import EDGE, NEIGHBOURS, FusionSettings

Floats: TypeAlias = npt.NDArray[np.float32]
Vote: TypeAlias = Literal["vote", "threshold", "best"]
VOTES: tuple[Vote, ...] = ("vote", "threshold", "best")
PIECE = 1000  # rows of one step without gradient


@dataclass(frozen=True, slots=True)
class OwnerRows:
    """What all owners have sent, row by row."""

    h: Floats  # (owners, rows, width): zeros where an owner is absent
    there: npt.NDArray[np.bool_]  # (rows, owners)

    def rows(self, where: npt.NDArray[np.generic]) -> OwnerRows:
        return OwnerRows(np.ascontiguousarray(self.h[:, where]), self.there[where])


@dataclass(frozen=True, eq=False)
class Standardisation:
    """For every entry of every representation: its mean, and one over its deviation."""

    mean: Floats  # (owners, 1, width)
    rate: Floats  # (owners, 1, width)

    @classmethod
    def of(cls, rows: OwnerRows) -> Standardisation:
        there = rows.there.T[..., None]  # (owners, rows, 1)
        count = np.maximum(there.sum(axis=1, keepdims=True), 1)
        mean = rows.h.sum(axis=1, keepdims=True, dtype=np.float64) / count  # zeros where absent
        square = np.square(rows.h, dtype=np.float64).sum(axis=1, keepdims=True) / count - mean**2
        spread = np.sqrt(np.maximum(square, 0.0))
        rate = 1 / np.where(spread > 1e-4 * (np.abs(mean) + 1e-4), spread, 1.0)
        return cls(mean.astype(np.float32), rate.astype(np.float32))

    def apply(self, h: Tensor, there: Tensor | None) -> Tensor:
        """Standardised; zeros where an owner is absent."""
        scaled = (h - torch.from_numpy(self.mean)) * torch.from_numpy(self.rate)
        return scaled if there is None else scaled * there.T[..., None]


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
    scale: Standardisation | None = None  # of representations, where they are standardised

    @property
    def alignment(self) -> Array | None:
        """(owners, width, width): h_i @ alignment[i] is aligned, h_i standardised."""
        matrices = heads.alignment(_tensors(self.values), self.settings.align)
        return None if matrices is None else matrices.numpy().astype(np.float64)

    def predict(self, rows: OwnerRows) -> Array:
        """(rows, outputs): probabilities of classes, or numbers."""
        values = _tensors(self.values)
        predictions = [np.zeros((0, len(self.values["last bias"])))]
        for at in range(0, len(rows.there), PIECE):
            part = OwnerRows(rows.h[:, at : at + PIECE], rows.there[at : at + PIECE])
            predictions.append(self._predicted(values, part))
        return np.concatenate(predictions)

    def _predicted(self, values: Mapping[str, Tensor], rows: OwnerRows) -> Array:
        h, there = batch_of(rows)
        h = h if self.scale is None else self.scale.apply(h, there)
        total: Tensor | None = None
        count = 0
        with torch.no_grad():
            for graph in self._graphs():
                out = heads.output(values, self.settings, h, graph, there).double()
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
                yield heads.drawn(pairs, len(self.graph), self.settings, generator)


def fuse(
    rows: OwnerRows,
    y: Floats,
    held: npt.NDArray[np.bool_],
    goal: Goal,
    outputs: int,
    settings: FusionSettings,
    seed: int,
    given: Array | None = None,
) -> Fusion:
    """Learn to predict y (rows,) codes, or (rows, 1) numbers, stopping by the held-out rows."""
    scale = Standardisation.of(rows.rows(~held)) if settings.standardises else None
    run = FusionTraining(rows, y, held, goal, outputs, settings, seed, given, scale)
    for epoch in range(settings.epochs):
        report_epoch("the fusion", epoch, settings.epochs)
        run.epoch()
        if ends(run.history["held back"], settings.patience):
            break
    return run.fusion()


class FusionTraining:
    """A fusion while it is trained, an epoch or a step at a time.

    Where representations change while it is trained, ``scale`` is that of their start, or None.
    """

    def __init__(
        self, rows: OwnerRows, y: Floats, held: npt.NDArray[np.bool_], goal: Goal, outputs: int,
        settings: FusionSettings, seed: int, given: Array | None,
        scale: Standardisation | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.goal, self.seed, self.scale = settings, goal, seed, scale
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.owners, _, width = rows.h.shape
        values = heads.start(settings, self.owners, width, outputs, self.rng)
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
        if not self.settings.has_graph:
            return None
        if self.settings.graph == "complete":
            return "complete"
        return None if given is None else torch.tensor(given, dtype=torch.float32)

    def _graph(self, h: Tensor, draw: bool) -> heads.Graph:
        """The graph, from standardised representations."""
        settings = self.settings
        if self.fixed is not None or not settings.has_graph:
            return self.fixed
        if settings.graph == "knn":
            matrices = heads.alignment(self.values, settings.align)
            return heads.nearest(heads.projected(self.values, matrices, h), NEIGHBOURS)
        pairs = self.values["pairs"]
        if settings.graph == "expected" or not draw:
            return heads.filled(pairs, self.owners)
        return heads.drawn(pairs, self.owners, settings, self.generator)

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
        out = heads.output(self.values, self.settings, h, graph, there)
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
        """The loss on held-out rows, and whether these parameters are the best so far."""
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
        if self.settings.has_graph:
            with torch.no_grad():
                last = self._graph(self._scaled(*self.train), draw=False)
            everybody = np.ones((self.owners, self.owners)) - np.eye(self.owners)
            graph = last.numpy().astype(np.float64) if isinstance(last, Tensor) else everybody
        values = {n: v for n, v in self.kept.items() if n != "pairs"}
        return Fusion(
            self.settings, self.goal, values, graph, self.history, self.best, self.seed, self.scale
        )


def batch_of(rows: OwnerRows) -> tuple[Tensor, Tensor | None]:
    """h, and who is there if not all are."""
    h = torch.from_numpy(rows.h)
    return h, None if rows.there.all() else torch.from_numpy(rows.there).float()


def _tensors(values: Mapping[str, Floats]) -> dict[str, Tensor]:
    return {n: torch.from_numpy(np.array(v, np.float32)) for n, v in values.items()}


# ---------------------------------------------------------------------- votes


@dataclass(frozen=True, eq=False)
class Votes:
    """How owners' predictions are combined."""

    kind: Vote
    classes: int  # 0: a number
    threshold: float = 0.5
    best: int = 0  # an owner

    def predict(self, rows: OwnerRows) -> Array:
        """(rows, outputs); a row that nobody knows gets equal shares, or NaN of a number."""
        there = rows.there.T[..., None].astype(np.float64)  # (owners, rows, 1)
        if self.kind == "best" or not self.classes:
            mean = np.asarray((rows.h * there).sum(axis=0) / np.maximum(there.sum(axis=0), 1))
            if self.kind == "best":
                mean = np.where(there[self.best] > 0, rows.h[self.best], mean)
            return mean.astype(np.float64)
        share = _shares(rows, self.classes)
        if self.kind == "vote":
            return share
        moved = _moved(share[:, 1], self.threshold)
        return np.stack([1 - moved, moved], axis=1)


def elect(
    kind: Vote,
    rows: OwnerRows,
    y: npt.NDArray[np.floating],
    held: npt.NDArray[np.bool_],
    classes: int,
) -> Votes:
    """What has to be learned of it: a threshold, or who is best."""
    if kind == "threshold":
        if classes != 2:
            raise ParameterError(f"a threshold needs two classes, got {classes}")
        share = _shares(rows, 2)[:, 1]
        shares = np.unique(share)
        scores = [f1_score(y, share >= t, zero_division=0.0) for t in shares]
        return Votes(kind, 2, float(shares[int(np.argmax(scores))]))
    if kind == "best":
        some = held if held.any() else ~held
        each = [Votes(kind, classes, best=i) for i in range(len(rows.h))]
        judged = [_quality(one.predict(rows.rows(some)), y[some], classes) for one in each]
        return each[int(np.argmax(judged))]
    return Votes(kind, classes)


def _shares(rows: OwnerRows, classes: int) -> Array:
    """(rows, classes): shares of the owners that are there."""
    chosen = np.eye(classes)[rows.h.argmax(axis=2)] * rows.there.T[..., None]
    count = rows.there.sum(axis=1, keepdims=True)
    return np.where(count > 0, chosen.sum(axis=0) / np.maximum(count, 1), 1 / classes)


def _moved(share: Array, threshold: float) -> Array:
    """The share on a scale where the threshold is at one half."""
    low = np.minimum(0.5 * share / max(threshold, 1e-9), np.nextafter(0.5, 0))
    high = 0.5 + 0.5 * (share - threshold) / max(1 - threshold, 1e-9)
    return np.where(share >= threshold, np.clip(high, 0.5 + 1e-9, 1), low)


def _quality(h: Array, y: npt.NDArray[np.floating], classes: int) -> float:
    if not classes:
        return -float(np.square(h[:, 0] - y.reshape(-1)).mean())
    how = "binary" if classes == 2 else "macro"
    return float(f1_score(y, h.argmax(axis=1), average=how, zero_division=0.0))
