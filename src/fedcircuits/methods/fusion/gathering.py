"""How the coordinator gathers representations of rows: owner by owner, or as sums over owners.

    gather/rows  owner → coordinator (query/rows in a query), for each row in the order of tokens:
                 the token, whether the owner knows anything about it, and its representation as
                 float32, float16 or int8. int8 comes with the middle and step of every component,
                 so that its error is at most half a step: 1/508 of the range on the rows sent

A complete graph without alignment mixes representations by their mean, so the fusion needs only
their sums. If the user gives a summation, representations of single owners are not gathered:

    sum/tokens   owner → coordinator: tokens of its rows, and the width of its representations
    sum/union    coordinator → owner: how many rows there are, where its own are, and the width
    sum/rows     owners add up (rows, width + 1): representations, and 1 where an owner knows the
                 row; by the summation, so on secret shares with ``Secret()``
    sum/total    first owner → coordinator, where it takes no part in adding up: the total

In training, gather/rows and sum/tokens also contain labels, which rows are held out, and which
columns were read. With ``Secret()`` everybody learns the sums; a row that only one owner holds is
not hidden.

The coordinator sorts rows by their content, an order that does not depend on the key of tokens, so
that two runs with one seed learn the same model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Party, row_ids
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import (
    AnyArray,
    AnyNumbers,
    Booleans,
    Count,
    FiniteVector,
    IntegerVector,
    Message,
    RealMatrix,
    require,
    require_places,
    require_shape,
)
from fedcircuits.federation.recipes import own_key as own_bytes
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.fusion.fitting import OwnerRows
from fedcircuits.methods.meeting.hello import Hello, RowCount
from fedcircuits.methods.meeting.tokens import TokenMessage, Tokens, match_messages
from fedcircuits.privacy.differential import draws_of
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.tables.schema import Variable

Traffic: TypeAlias = Literal["float32", "float16", "int8"]
TRAFFIC: tuple[Traffic, ...] = ("float32", "float16", "int8")
Flags: TypeAlias = npt.NDArray[np.bool_]
Width: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**18)]
LEVELS = 127
LARGEST = 1e30  # of numbers: their squares and sums stay finite


@dataclass(frozen=True, slots=True)
class Showing:
    """How representations leave their owner."""

    traffic: Traffic = "float32"
    clip: float | None = None  # the largest norm of a representation
    noise: float = 0.0  # deviation of what is added to every number, as a share of clip
    summation: Summation | None = None  # owners add representations up, and show no other
    key: bytes = field(default=b"", repr=False)  # of one owner and one run, for its noise

    def for_owner(self) -> Showing:
        """With its own keys, for noise and for dealing shares."""
        summation = None if self.summation is None else self.summation.for_party()
        return replace(self, summation=summation, key=own_bytes("noise"))


class RowFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an owner sends about its rows in training, besides representations."""

    width: Width  # of its representations; 0 of a party that holds labels only
    columns: tuple[str, ...]  # that its encoder reads
    held: Booleans  # (rows,): whether a row is held out, to stop by
    labels: AnyNumbers | None  # (rows,): codes, −1 where missing, or numbers; None if it has none


class Representations(TokenMessage, frozen=True):
    """An owner's representations of the rows of a query."""

    tag: ClassVar[str] = "query/rows"
    needs: ClassVar[str] = "share_representations"

    there: Booleans  # (rows,): whether it knows anything of a row
    values: AnyNumbers  # (rows, width)
    middle: FiniteVector | None  # (width,) for int8: values represent middle + step × values
    step: FiniteVector | None  # (width,)


class TrainingRepresentations(Representations, frozen=True):
    """The same in training."""

    tag: ClassVar[str] = "gather/rows"

    facts: RowFacts


class ListedRows(TokenMessage, frozen=True):
    """Which rows an owner will add to a sum; its facts in training."""

    tag: ClassVar[str] = "sum/tokens"
    needs: ClassVar[str] = "share_representations"

    rows: Count  # how many
    width: Width
    facts: RowFacts | None


class AllRows(Message, frozen=True):
    """How many rows all owners hold together, and where the reader's are among them."""

    tag: ClassVar[str] = "sum/union"
    reveals: ClassVar[str] = "the positions of the reader's rows among the rows of all parties"

    rows: RowCount
    at: IntegerVector  # (rows of the owner,), rising
    width: Width


class RowTotals(Message, frozen=True):
    """The sum over owners of the representations of every row."""

    tag: ClassVar[str] = "sum/total"
    reveals: ClassVar[str] = "per row, the sum of the owners' representations"

    values: RealMatrix  # (rows, width + 1): the last column counts owners


R = TypeVar("R", bound=Representations)


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """All rows that some party has sent, of all owners of a fusion."""

    rows: OwnerRows
    where: Labels  # (rows, parties that sent): where each has the row in its message, or −1


# ---------------------------------------------------------------------- what owners send


def packed(kind: type[R], tokens: Tokens, values: Array, traffic: Traffic, **more: RowFacts) -> R:
    """A message of rows in the order of tokens; values (rows, width), NaN if nothing is known."""
    there = np.asarray(~np.isnan(values).any(axis=1))
    plain = np.where(there[:, None], values, 0.0)
    if traffic == "int8":
        some = plain[there] if there.any() else plain[:0].reshape(0, plain.shape[1])
        low, high = some.min(axis=0, initial=0.0), some.max(axis=0, initial=0.0)
        middle, step = (low + high) / 2, np.maximum(high - low, 1e-30) / (2 * LEVELS)
        codes = np.clip(np.rint((plain - middle) / step), -LEVELS, LEVELS).astype(np.int8)
        scale = {"middle": middle.astype(np.float32), "step": step.astype(np.float32)}
        return kind(tokens=tokens, there=there, values=codes, **scale, **more)  # type: ignore[arg-type]
    with np.errstate(over="ignore"):
        small = plain.astype(traffic)
    if np.isinf(small).any():
        other = "traffic='float32' or 'int8'" if traffic == "float16" else "an encoder of less"
        raise FederationError(
            f"representations up to {np.abs(plain).max():.3g} do not fit into {traffic}: use "
            f"{other}"
        )
    return kind(tokens=tokens, there=there, values=small, middle=None, step=None, **more)  # type: ignore[arg-type]


def ids_of(party: Party) -> AnyArray:
    """The ids of its rows; row numbers if there are none."""
    return np.arange(len(party.table)) if party.table.row_ids is None else row_ids(party)


def masked(vectors: Array, showing: Showing) -> Array:
    """Clipped, and with discrete Gaussian noise (privacy/differential) of the owner's own key.

    Any two clipped vectors are at most twice ``clip`` apart: that is the sensitivity of one.
    """
    clip, noise = showing.clip, showing.noise
    if clip is None:
        return vectors
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    clipped = np.asarray(vectors * np.minimum(1.0, clip / np.maximum(norm, 1e-12)))
    if not noise:
        return clipped
    step = 2.0 ** np.floor(np.log2(noise * clip)) * 2.0**-24
    variance = ceil((noise * clip / step) ** 2 * (1 + 1e-5))  # rounding moves vectors by less
    drawn = draws_of(Stream(showing.key, "noise"), variance, vectors.shape, float(step))
    return np.asarray(np.rint(clipped / step) * step + drawn)


def held_back(ids: npt.NDArray[np.generic], share: float, seed: int) -> Flags:
    """Which rows all owners stop by: drawn by id, so that they agree without talking."""
    return _drawn(tuple(map(str, ids.tolist())), seed) < share


@lru_cache(maxsize=8)  # in one process many owners ask for the same ids
def _drawn(ids: tuple[str, ...], seed: int) -> Array:
    digests = (hashlib.sha256(f"{seed}/{text}".encode()).digest() for text in ids)
    return np.array([int.from_bytes(d[:8], "little") for d in digests], np.float64) / 2.0**64


# ---------------------------------------------------------------------- what the coordinator reads


def check_facts(
    facts: Mapping[str, RowFacts], kind: type[Message], hellos: Mapping[str, Hello],
    target: Variable,
) -> None:  # fmt: skip
    """MessageError unless what parties send about their rows fits their hello."""
    for party, fact in facts.items():
        rows, schema, columns = hellos[party].rows, hellos[party].schema, fact.columns
        require_shape(fact.held, (rows,), party, kind, "facts.held")
        fits = bool(fact.width) or set(schema.names) <= {target.name}
        require(fits, party, kind, "facts.width", "expected at least 1")
        fits = len(set(columns)) == len(columns) and bool(columns or not fact.width)
        require(fits, party, kind, "facts.columns", "expected the names of different columns")
        holds = target.name in schema
        problem = f"expected {'values of the target' if holds else 'none'}, as in its hello"
        require((fact.labels is not None) == holds, party, kind, "facts.labels", problem)
        if fact.labels is not None:
            require_shape(fact.labels, (rows,), party, kind, "facts.labels")
            _check_labels(fact.labels, party, kind, target)


def _check_labels(y: AnyArray, party: str, kind: type[Message], target: Variable) -> None:
    if target.size:
        fits = y.dtype.kind == "i" and bool(((y >= -1) & (y < target.size)).all())  # type: ignore[operator]
        problem = f"expected codes below {target.size}, or −1 where one is missing"
    else:
        plain = y.astype(np.float64)
        fits = y.dtype.kind == "f" and bool((np.abs(plain[~np.isnan(plain)]) <= LARGEST).all())
        problem = f"expected numbers up to {LARGEST:g}, or NaN where one is missing"
    require(fits, party, kind, "facts.labels", problem)


def labels_of(facts: RowFacts) -> Array:
    """(rows,) codes or numbers, NaN where missing; nothing if it has none."""
    if facts.labels is None:
        return np.zeros(0)
    plain = facts.labels.astype(np.float64)
    return np.where(plain < 0, np.nan, plain) if facts.labels.dtype.kind == "i" else plain


def unpacked(
    message: Representations, sender: str, traffic: Traffic, width: int
) -> tuple[npt.NDArray[np.float32], Flags]:
    """Representations (rows, width) as float32, zeros where nothing is known; and where it is."""
    rows = len(message.tokens)
    require_shape(message.there, (rows,), sender, message.tag, "there")
    require_shape(message.values, (rows, width), sender, message.tag, "values")
    problem = f"expected numbers of {traffic}, got {message.values.dtype}"
    require(message.values.dtype == traffic, sender, message.tag, "values", problem)
    values = message.values.astype(np.float32)
    for part, array in (("middle", message.middle), ("step", message.step)):
        problem = f"expected {'numbers' if traffic == 'int8' else 'nothing'} beside {traffic}"
        require((array is not None) == (traffic == "int8"), sender, message.tag, part, problem)
        if array is not None:
            require_shape(array, (width,), sender, message.tag, part)
            require(bool((np.abs(array) <= LARGEST).all()), sender, message.tag, part, "too large")
    if message.middle is not None and message.step is not None:
        step, middle = (np.asarray(a, np.float32) for a in (message.step, message.middle))
        values = values * step + middle
    fits = bool(np.isfinite(values).all())
    require(fits, sender, message.tag, "values", "expected finite numbers")
    return np.where(message.there[:, None], values, np.float32(0)).astype(np.float32), message.there


def joined(
    messages: Mapping[str, Representations],
    widths: Mapping[str, int],
    traffic: Traffic,
    rows: Mapping[str, int] | None = None,
) -> JoinedRows:
    """The rows of all messages, in the order of tokens.

    ``widths``: by owner of the fusion; owners that sent nothing are absent. Parties that are not
    owners list their rows and send nothing else. ``rows``: how many each party must list.
    """
    where = match_messages(messages, rows)
    owners = list(widths)
    h = np.zeros((len(owners), len(where), max(widths.values(), default=0)), np.float32)
    there = np.zeros((len(where), len(owners)), np.bool_)
    for i, (party, message) in enumerate(messages.items()):
        values, known = unpacked(message, party, traffic, widths.get(party, 0))
        if party in widths:
            at, places = owners.index(party), where[:, i]
            has = places >= 0
            h[at, has, : values.shape[1]] = values[places[has]]
            there[has, at] = known[places[has]]
    return JoinedRows(OwnerRows(h, there), where)


def content_order(rows: OwnerRows, y: Array) -> Labels:
    """Rows sorted by a number that depends on all they hold, and little on its rounding."""
    weight = np.random.default_rng(0).normal(size=(len(rows.h), 1, rows.h.shape[2]))
    key = np.einsum("orw,ozw->r", rows.h, weight, dtype=np.float64, optimize=False)
    return np.lexsort((y, key))


# ---------------------------------------------------------------------- sums


def add_rows(
    me: str, members: Sequence[str], summation: Summation, tokens: Tokens, values: Array,
    facts: RowFacts | None,
) -> Flow[None]:  # fmt: skip
    """An owner's part: its rows, in the order of tokens, are added to those of others."""
    width = values.shape[1]
    labelled = facts is not None and facts.labels is not None
    reveals = "tokens of its rows" + (", and their labels" if labelled else "")
    yield from send(COORDINATOR, ListedRows(tokens, len(tokens), width, facts), reveals=reveals)  # type: ignore[arg-type]
    every = yield from receive(COORDINATOR, AllRows)
    require_shape(every.at, tokens.shape, COORDINATOR, AllRows, "at")
    at = require_places(every.at, every.rows, COORDINATOR, AllRows, "at")
    require(width in (0, every.width), COORDINATOR, AllRows, "width", f"expected {width}")
    there = ~np.isnan(values).any(axis=1, keepdims=True)
    array = np.zeros((every.rows, every.width + 1))
    if width:  # else it holds labels only
        array[at] = np.concatenate([np.where(there, values, 0.0), there], axis=1)
    everybody = summation.members(members)
    collective = summation.at(me, everybody)
    total = yield from collective.sum("sum/rows", array, "representations of single rows")
    if COORDINATOR not in everybody and me == members[0]:
        yield from send(COORDINATOR, RowTotals(np.asarray(total)))


def gather_sums(listed: Mapping[str, ListedRows], summation: Summation) -> Flow[JoinedRows]:
    """The coordinator's part: rows of one owner that represents all, with the mean of all."""
    members, where = tuple(listed), match_messages(listed, {p: m.rows for p, m in listed.items()})
    widths = {m.width for m in listed.values()} - {0}
    if not widths:
        raise FederationError(
            "no party holds a column besides the target: there is nothing to add up"
        )
    if len(widths) > 1:
        by_width = {m.width: party for party, m in listed.items()}
        (a, one), (b, other) = ((w, by_width[w]) for w in (min(widths), max(widths)))
        raise FederationError(
            f"representations of {a} numbers ({one}) and {b} ({other}) cannot be added up: owners "
            "need encoders of equal width"
        )
    (width,) = widths
    for i, party in enumerate(members):
        yield from send(party, AllRows(len(where), np.flatnonzero(where[:, i] >= 0), width))
    shape, everybody = (len(where), width + 1), summation.members(members)
    if COORDINATOR in everybody:
        end = summation.at(COORDINATOR, everybody)
        total = yield from end.sum("sum/rows", np.zeros(shape), "representations of single rows")
    else:
        total = (yield from receive(members[0], RowTotals)).values
        require_shape(total, shape, members[0], RowTotals, "values")
    _check_total(total, members)
    count = np.rint(total[:, -1:])
    mean = (total[:, :-1] / np.maximum(count, 1)).astype(np.float32)
    return JoinedRows(OwnerRows(mean[None], count > 0), where)


def _check_total(total: Array, members: Sequence[str]) -> None:
    """FederationError unless sums may be those of all members; whose part is wrong is not seen."""
    counts = total[:, -1]
    whole = (np.abs(counts - np.rint(counts)) < 1e-3) & (np.rint(counts) >= 0)
    if not (np.abs(total) <= LARGEST).all() or not (whole & (counts < len(members) + 0.5)).all():
        raise FederationError(
            f"representations of {', '.join(members)} add up to numbers that are not finite, "
            f"exceed {LARGEST:g}, or count more owners than there are: one of them sent wrong "
            "numbers"
        )
