"""A trained fusion: what each party holds of it, and queries.

    p/encoder   a leaf of family "predictor" at owner p, over its columns and series ("p/speed"),
                with one unit per number of its representation
    fusion      the root at the coordinator, a Fuse of all leaves by the head's operation, with one
                unit per output

Columns carry their owner's name: columns of one name at two owners are different things here, such
as the speeds at two sensors.

In a query, owners send representations of new rows, and the coordinator predicts:

    key             first owner → other owners: a key for row tokens, a new one in every query
    query/rows      owner → coordinator: tokens and representations of its rows (where only sums are
                    shown: the sums of gathering.py)
    query/truth     party → coordinator, if predictions are to be compared with known values: the
                    target of its rows
    query/asked     coordinator → party: whether the order of its rows is needed
    query/order     owner → coordinator: where its rows are in its table

Owners may be missing, and owners may lack rows. Answers are in the order of the rows of the first
owner, then of rows that only later ones hold. The coordinator learns representations, predictions
and the order in which owners keep these rows, but cannot identify them; owners learn nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.circuit import PREDICTOR, Circuit, Fuse, Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, QueryError, SiteError
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Flow, compute, digest, gather, receive, send
from fedcircuits.federation.messages import (
    IntegerVector,
    Message,
    RealVector,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Placement
from fedcircuits.learning.encoders.choosing import nothing_to_read
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
from fedcircuits.methods.meeting.tokens import RowRule, hidden_rows
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

# ---------------------------------------------------------------------- what parties hold


@dataclass(frozen=True, eq=False)
class OwnerView:
    """What an owner holds: its encoder, and the graph."""

    whole: ClassVar[bool] = True

    me: str
    circuit: Circuit
    placement: Placement
    target: Variable
    encoder: Encoder
    votes: bool  # whether it sends predictions instead of representations
    clip: float | None = None  # as in Showing, whatever a question asks for
    noise: float = 0.0


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


def shown_rows(votes: bool, showing: Showing, width: int, encoder: Encoder | None) -> str:
    """What an owner shows of single rows, in the words of a ledger: encoders that do not learn may
    show columns as they are."""
    what = "predictions" if votes else "representations"
    what = f"noisy {what}" if showing.noise else what
    tells = "" if votes else getattr(encoder, "tells", "")
    size = f"{width} number{'s' * (width != 1)} each"
    return f"{what} of single rows, {size}{f' ({tells})' if tells else ''}"


def vectors_of(encoder: Encoder, table: Table, owner: str, target: Variable, votes: bool) -> Array:
    """Representations, or predictions (rows, width) where owners vote; NaN if nothing is known."""
    if not votes or isinstance(encoder, LabelsOnly):
        return np.asarray(encoder.encode(table), dtype=np.float64)
    predicted = getattr(encoder, "target_", None)
    if predicted is None:
        raise FederationError(
            f"{owner} has no values of {target.name!r} to learn predictions from: with "
            "share_target=True other parties send them"
        )
    if (predicted.name, predicted.categories) != (target.name, target.categories):
        raise FederationError(
            f"the encoder of {owner} predicts {predicted.name!r}, {predicted.described()}; "
            f"expected {target.name!r}, {target.described()}: train it again"
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


class RowTruth(Message, frozen=True):
    """What a party knows of the target, in the order of its tokens."""

    tag: ClassVar[str] = "query/truth"
    needs: ClassVar[str] = "share_target"

    values: RealVector  # (rows,): codes or numbers, NaN where missing


class OrderAsked(Message, frozen=True):
    tag: ClassVar[str] = "query/asked"
    reveals: ClassVar[str] = "whether it holds rows that earlier owners lack"

    asked: bool


class OwnerOrder(Message, frozen=True):
    tag: ClassVar[str] = "query/order"
    reveals: ClassVar[str] = "the order of its rows"

    rows: IntegerVector  # (rows,): position of each in its table, in the order of tokens


@dataclass(frozen=True, slots=True)
class FusionPredictions:
    """Answers for all rows of owners: in the order of the first, then rows that it lacks."""

    values: Array  # (rows, outputs), or (owners, rows, outputs)
    truth: Array | None = None  # (rows,), if parties have sent it


def respond(
    view: OwnerView | None,
    party: Party,
    members: Sequence[str],
    target: Variable,
    showing: Showing,
    secret: bytes,
    rows: RowRule = "tokens",
    alone: bool = False,
    tells: bool = False,
) -> Flow[None]:
    """An owner sends what it knows of new rows, and in which order they are if that is needed.

    alone   whether it sends its own predictions
    tells   whether it sends its values of the target; a party without a view has nothing else
    """
    me, votes = party.name, alone or (view is not None and view.votes)
    _check_asked(view, party, target, showing)
    hidden = yield from hidden_rows(me, ids_of(party), members, secret, rows)
    tokens, order = hidden.rising()
    vectors = yield from compute("encoding its rows", lambda: _vectors(view, party.table, votes))
    shown = masked(vectors, showing)
    if showing.summation is not None and not votes:
        yield from add_rows(me, members, showing.summation, tokens, shown[order], None)
    else:
        message = packed(Representations, tokens, shown[order], showing.traffic)
        encoder = None if view is None else view.encoder
        reveals = shown_rows(votes, showing, vectors.shape[1], encoder)
        yield from send(COORDINATOR, message, reveals=reveals)
    if tells:
        known = RowTruth(_truth(party.table, target)[order])
        yield from send(COORDINATOR, known, reveals=f"values of {target.name} of its rows")
    if (yield from receive(COORDINATOR, OrderAsked)).asked:
        yield from send(COORDINATOR, OwnerOrder(order))


def _check_asked(view: OwnerView | None, party: Party, target: Variable, showing: Showing) -> None:
    """SiteError where a question is about another target, or is to show more than the training."""
    if view is None:
        if not _has_labels_only(party.table, target.name):
            raise SiteError(
                f"{party.name} has more columns than a target: a query of a fusion uses what it "
                "has learned for it"
            )
        return
    if target != view.target:
        raise SiteError(
            f"{view.me} learned to predict {view.target.name!r}: a query is about this target, in "
            "the same form"
        )
    if (showing.clip, showing.noise) != (view.clip, view.noise):
        raise SiteError(
            f"{view.me} shows representations with clip={view.clip} and noise={view.noise}, as in "
            f"training, got clip={showing.clip!r:.40} and noise={showing.noise!r:.40}"
        )


def _vectors(view: OwnerView | None, table: Table, votes: bool) -> Array:
    if view is None:
        return np.zeros((len(table), 0))
    if votes and not view.votes and getattr(view.encoder, "target_", None) is None:
        raise SiteError(f"{view.me} learned without labels and cannot predict on its own")
    return vectors_of(view.encoder, table, view.me, view.target, votes)


def _truth(table: Table, target: Variable) -> Array:
    """(rows,): codes or numbers of the target, NaN where they are not known."""
    if target.name not in table.schema:
        return np.full(len(table), np.nan)
    return Table.of(table.select([target.name]), schema=Schema((target,))).values[:, 0]


def ask(
    view: FusionView, members: Sequence[str], showing: Showing, truth: bool = False
) -> Flow[FusionPredictions]:
    """The coordinator predicts rows that owners have sent."""
    if showing.summation is not None and isinstance(view.fusion, Fusion):
        listed = yield from gather(members, ListedRows)
        for party, message in listed.items():
            width = view.width if party in view.owners else 0
            fits = message.width == width and message.facts is None
            require(fits, party, ListedRows, "width", f"expected {width}, and no facts")
        every = yield from gather_sums(listed, showing.summation)
    else:
        messages = yield from gather(members, Representations)
        widths = {p: view.circuit.units[f"{p}/encoder"] for p in view.owners}
        every = joined(messages, widths, showing.traffic)
    known = (yield from _truths(every, members, view.target)) if truth else None
    key = digest(every.rows.h)
    answers = yield from compute("predicting", lambda: view.answer(every.rows), key=key)
    at = yield from _ordered(every, members, view.owners)
    return FusionPredictions(answers[at], None if known is None else known[at])


def opinions(members: Sequence[str], width: int, showing: Showing) -> Flow[FusionPredictions]:
    """The coordinator puts what owners predict of their rows side by side, NaN where they do not
    know a row."""
    messages = yield from gather(members, Representations)
    every = joined(messages, dict.fromkeys(members, width), showing.traffic)
    at = yield from _ordered(every, members, members)
    rows = every.rows
    return FusionPredictions(
        np.where(rows.there.T[..., None], rows.h, np.nan)[:, at].astype(np.float64)
    )


def _truths(every: JoinedRows, members: Sequence[str], target: Variable) -> Flow[Array]:
    """(rows,): what the first party knows that knows it."""
    truths = np.full(len(every.where), np.nan)
    for i, (party, truth) in enumerate((yield from gather(members, RowTruth)).items()):
        places, values = every.where[:, i], np.asarray(truth.values, np.float64)
        require_shape(values, (int((places >= 0).sum()),), party, RowTruth, "values")
        codes = values[~np.isnan(values)]
        fits = np.isin(codes, np.arange(target.size)) if target.size else np.isfinite(codes)
        require(bool(fits.all()), party, RowTruth, "values", f"expected {target.described()}")
        missing = np.isnan(truths) & (places >= 0)
        truths[missing] = values[places[missing]]
    return truths


def _ordered(
    every: JoinedRows, members: Sequence[str], owners: Collection[str]
) -> Flow[npt.NDArray[np.int64]]:
    """Positions of rows in the order of the first owner's table, then of rows it lacks, and so on.
    An owner whose rows are all held by owners before it is not asked."""
    left = {p: every.where[:, i] >= 0 for i, p in enumerate(members)}
    seen = np.zeros(len(every.where), np.bool_)
    for party, tokens in left.items():
        tokens &= ~seen if party in owners else False
        seen |= tokens
        yield from send(party, OrderAsked(bool(tokens.any())))
    places = [np.zeros(0, np.int64)]
    for i, (party, tokens) in enumerate(left.items()):
        if tokens.any():
            order = (yield from receive(party, OwnerOrder)).rows
            size = int((every.where[:, i] >= 0).sum())
            require_shape(order, (size,), party, OwnerOrder, "rows")
            fits = bool((np.sort(order) == np.arange(size)).all())
            require(fits, party, OwnerOrder, "rows", f"expected every number below {size} once")
            rows = np.flatnonzero(tokens)
            places.append(rows[np.argsort(np.asarray(order)[every.where[rows, i]])])
    return np.concatenate(places)


# ---------------------------------------------------------------------- rows of a question


def require_owners(
    given: object, owners: Sequence[str], target: str, labels: bool = False
) -> Federation:
    """QueryError unless these are rows of a fusion's owners; ``labels``: with those, too, that hold
    the target alone."""
    if not isinstance(given, Federation):
        raise QueryError(
            f"a fusion predicts for a Federation of new rows, got {type(given).__name__}: "
            "Federation({'owner': table, …}) with the same names as in training"
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
            f"{strange[0]!r} is not an owner of this fusion, whose owners are "
            f"{', '.join(owners[:8])}: drop it with Federation.select(names)"
        )
    if not any(len(p.table) for p in asked):
        raise QueryError("there are no rows to predict: expected at least one row at an owner")
    return given if labels or len(asked) == len(given) else given.select([p.name for p in asked])


def _has_labels_only(table: Table, target: str) -> bool:
    """Whether it has values of the target, and nothing to predict from."""
    return target in table.schema and nothing_to_read(table, target)


def given_truth(target: Variable, given: npt.ArrayLike, rows: int) -> Array:
    """(rows,) codes or numbers of what the user says; QueryError unless there is one per row."""
    values = np.asarray(given)
    if values.shape != (rows,):
        raise QueryError(
            f"y must have a value for each of {rows} rows, got an array of the shape {values.shape}"
        )
    return Table.of({target.name: values}, schema=Schema((target,))).values[:, 0]
