"""A fusion that has been learned: what each party holds of it, and questions to it.

    p/encoder   a leaf of family "predictor" at owner p, over its columns and series ("p/speed"),
                with one unit per number of its representation
    fusion      the root at the coordinator, a Fuse of all leaves by the head's operation, with one
                unit per output

Columns carry their owner's name: columns of one name at two owners are two things here, two
sensors' speeds.

In a question, owners send what they know of new rows, and those who ask hear predictions:

    key             first owner → other owners: a key for row tokens, another one in every question
    query/rows      owner → coordinator: tokens and representations of its rows (where only sums are
                    shown: the sums of gathering.py)
    query/answers   coordinator → owner that asks: predictions of its rows

Owners may be missing, and rows at owners. A few owners ask, who together hold all rows: answers are
in the order of the rows of the first, then of those that only later ones hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.circuit import PREDICTOR, Circuit, Fuse, Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.federation.alignment import id_texts
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Flow, compute, digest, gather, receive, send
from fedcircuits.federation.messages import FiniteMatrix, Message, require, require_shape
from fedcircuits.federation.placement import Placement
from fedcircuits.federation.tokens import Labels, RowRule
from fedcircuits.learning.encoders.encoders import nothing_to_read
from fedcircuits.learning.encoders.foreign import Encoder, LabelsOnly
from fedcircuits.methods.fusion.fitting import Fusion, OwnerRows, Votes
from fedcircuits.methods.fusion.gathering import (
    JoinedRows,
    ListedRows,
    Representations,
    Showing,
    add_rows,
    gather_sums,
    ids_of,
    joined,
    masked,
    packed,
)
from fedcircuits.methods.meeting.tokens import hidden_rows
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

# ---------------------------------------------------------------------- what parties hold


@dataclass(frozen=True, eq=False)
class OwnerView:
    """What an owner holds: its encoder, and the graph."""

    me: str
    circuit: Circuit
    placement: Placement
    target: Variable
    encoder: Encoder
    votes: bool  # whether it sends predictions instead of representations

    def vectors(self, table: Table) -> Array:
        """What it sends of rows (rows, width), NaN where it knows nothing."""
        return vectors_of(self.encoder, table, self.me, self.target, self.votes)


@dataclass(frozen=True, eq=False)
class FusionView:
    """What the coordinator holds: the fusion, and whose representations it reads."""

    circuit: Circuit
    placement: Placement
    target: Variable
    overall: Array  # (outputs,): shares of the classes, or the mean, of the rows learned from
    owners: tuple[str, ...]
    width: int
    fusion: Fusion | Votes
    scale: tuple[float, float] = (0.0, 1.0)  # mean and deviation of a number

    def answer(self, rows: OwnerRows) -> Array:
        """(rows, outputs); what holds overall where nobody knows anything of a row."""
        predicted = self.fusion.predict(rows) * self.scale[1] + self.scale[0]
        return np.where(rows.there.any(axis=1, keepdims=True), predicted, self.overall)


def vectors_of(encoder: Encoder, table: Table, owner: str, target: Variable, votes: bool) -> Array:
    """Representations, or predictions (rows, width) where owners vote; NaN if nothing is known."""
    if not votes or isinstance(encoder, LabelsOnly):
        return np.asarray(encoder.encode(table), dtype=np.float64)
    predicted = getattr(encoder, "target_", None)
    if predicted is None:
        raise FederationError(
            f"{owner} has no values of {target.name!r} to learn predictions from: "
            "share_target=True lets others tell it"
        )
    if (predicted.name, predicted.categories) != (target.name, target.categories):
        raise FederationError(
            f"the encoder of {owner} predicts {predicted.name!r}, {predicted.described()}; "
            f"expected {target.name!r}, {target.described()}: let it learn again"
        )
    predict = getattr(encoder, "predict_vector")  # noqa: B009
    return np.asarray(predict(table), dtype=np.float64)


def graph_of(
    columns: Mapping[str, Sequence[str]], widths: Mapping[str, int], operation: str, outputs: int
) -> tuple[Circuit, dict[str, str]]:
    """The graph over the columns that every owner's encoder reads, and where its nodes live."""
    leaves = [
        Leaf(f"{p}/encoder", PREDICTOR, tuple(f"{p}/{n}" for n in names), widths[p])
        for p, names in columns.items()
    ]
    root = Fuse("fusion", tuple(leaf.name for leaf in leaves), operation, outputs)
    schema = Schema.real(name for leaf in leaves for name in leaf.scope)
    placement = {f"{p}/encoder": p for p in columns} | {"fusion": COORDINATOR}
    return Circuit((*leaves, root), schema), placement


# ---------------------------------------------------------------------- roles of a question


class FusionAnswers(Message, frozen=True):
    """Predictions of the rows of an owner that asks, in the order of their tokens."""

    tag: ClassVar[str] = "query/answers"

    values: FiniteMatrix  # (rows, outputs): probabilities of classes, or numbers


def respond(
    view: OwnerView,
    party: Party,
    members: Sequence[str],
    showing: Showing,
    secret: bytes,
    asks: bool,
    rows: RowRule = "tokens",
) -> Flow[Array | Labels]:
    """An owner sends what it knows of new rows; where it asks, it hears predictions of them.

    Else it ends with the order of its rows in what it has sent.
    """
    hidden = yield from hidden_rows(party.name, ids_of(party), members, secret, rows)
    tokens, order = hidden.rising()
    vectors = yield from compute("encoding its rows", lambda: view.vectors(party.table))
    shown = masked(vectors, showing)
    if showing.summation is not None and not view.votes:
        yield from add_rows(party.name, members, showing.summation, tokens, shown[order], None)
    else:
        message = packed(Representations, tokens, shown[order], showing.traffic)
        what = "predictions" if view.votes else "representations"
        what = f"noisy {what}" if showing.noise else what
        reveals = f"{what} of single rows, {vectors.shape[1]} numbers each"
        yield from send(COORDINATOR, message, reveals=reveals)
    if not asks:
        return order
    answers = (yield from receive(COORDINATOR, FusionAnswers)).values
    require_shape(
        answers, (len(order), view.target.size or 1), COORDINATOR, FusionAnswers, "values"
    )
    fits = not view.target.size or bool(((answers >= 0) & (answers <= 1 + 1e-9)).all())
    require(fits, COORDINATOR, FusionAnswers, "values", "expected probabilities")
    predictions = np.empty_like(answers)
    predictions[order] = answers
    return np.asarray(predictions, np.float64)


def ask(
    view: FusionView, members: Sequence[str], askers: Sequence[str], showing: Showing
) -> Flow[None]:
    """The coordinator predicts rows that owners have sent, and tells those who ask."""
    if showing.summation is not None:
        listed = yield from gather(members, ListedRows)
        for party, message in listed.items():
            fits = message.width == view.width and message.facts is None
            require(fits, party, ListedRows, "width", f"expected {view.width}, and no facts")
        every = yield from gather_sums(listed, showing.summation)
    else:
        messages = yield from gather(members, Representations)
        widths = {p: view.circuit.units[f"{p}/encoder"] for p in view.owners}
        every = joined(messages, widths, showing.traffic)
    key = digest(every.rows.h)
    answers = yield from compute("predicting", lambda: view.answer(every.rows), key=key)
    for party in askers:
        places = every.where[:, members.index(party)]
        values = np.empty((int((places >= 0).sum()), answers.shape[1]))
        values[places[places >= 0]] = answers[places >= 0]
        reveals = f"predictions of {view.target.name} of its rows"
        yield from send(party, FusionAnswers(values), reveals=reveals)


def opinions(members: Sequence[str], width: int, showing: Showing) -> Flow[JoinedRows]:
    """The coordinator puts what owners predict of their rows side by side, in their own order."""
    messages = yield from gather(members, Representations)
    return joined(messages, dict.fromkeys(members, width), showing.traffic)


# ---------------------------------------------------------------------- rows of a question


def require_owners(given: object, owners: Sequence[str], target: str) -> Federation:
    """QueryError unless these are rows of a fusion's owners; without those with labels only."""
    if not isinstance(given, Federation):
        raise QueryError(
            f"a fusion is asked with a Federation of new rows, got {type(given).__name__}: "
            "Federation({'owner': table, …}) with the names of training"
        )
    for party in given:
        if len(given) > 1 and party.table.row_ids is None:
            raise QueryError(
                f"owners' rows are joined by row ids, and {party.name} has none: Federation(…, "
                "row_id='…')"
            )
    asked = [p for p in given if p.name in owners or not _has_labels_only(p.table, target)]
    strange = [p.name for p in asked if p.name not in owners]
    if strange:
        raise QueryError(
            f"{strange[0]!r} is no owner of this fusion: {', '.join(owners[:8])} are; "
            "Federation.select(names) leaves others out"
        )
    if not any(len(p.table) for p in asked):
        raise QueryError("there are no rows to predict: expected at least one of some owner")
    return given.select([p.name for p in asked]) if len(asked) < len(given) else given


def _has_labels_only(table: Table, target: str) -> bool:
    """Whether it has values to compare with, and nothing to predict from."""
    return target in table.schema and nothing_to_read(table, target)


def cover(federation: Federation) -> tuple[list[str], dict[str, list[str]]]:
    """All ids in their first order; and parties that together hold all rows, with their ids."""
    seen: dict[str, None] = {}
    askers: dict[str, list[str]] = {}
    for party in federation:
        ids = _ids(party)
        if any(i not in seen for i in ids):
            seen |= dict.fromkeys(ids)
            askers[party.name] = ids
    return list(seen), askers


def _ids(party: Party) -> list[str]:
    if party.table.row_ids is None:
        return [str(i) for i in range(len(party.table))]
    return id_texts(party)


def in_order(federation: Federation, every: JoinedRows, orders: Mapping[str, Labels]) -> Array:
    """(owners, rows, width): what owners have sent, rows in the order of ``cover``, else NaN."""
    ids, _ = cover(federation)
    place = {text: i for i, text in enumerate(ids)}
    at = np.full(len(every.where), -1)
    for i, party in enumerate(federation):
        own = np.array([place[text] for text in _ids(party)])[orders[party.name]]
        has = every.where[:, i] >= 0
        at[has] = own[every.where[has, i]]
    values = np.full((len(federation), len(ids), every.rows.h.shape[2]), np.nan)
    values[:, at] = np.where(every.rows.there.T[..., None], every.rows.h, np.nan)
    return values


def truth_of(
    federation: Federation, ids: list[str], target: Variable, given: npt.ArrayLike | None
) -> Array:
    """(rows,) codes or numbers: those given, or what parties hold; NaN where nobody knows."""
    if given is not None:
        values = np.asarray(given)
        if values.shape != (len(ids),):
            raise QueryError(
                f"y must have a value for each of {len(ids)} rows, got an array of the shape "
                f"{values.shape}"
            )
        return Table.of({target.name: values}, schema=Schema((target,))).values[:, 0]
    codes: dict[str, float] = {}
    for party in federation:
        if target.name in party.table.schema:
            column = party.table.column(target.name)
            for i, value in zip(_ids(party), column.tolist(), strict=True):
                if i not in codes or np.isnan(codes[i]):
                    codes[i] = target.encode(value)
    return np.array([codes.get(i, np.nan) for i in ids])
