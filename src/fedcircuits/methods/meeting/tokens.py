"""Row tokens: keyed hashes of row ids, by which rows are matched without showing which they are.

    key/tokens      first party → other parties, never the coordinator: a key for tokens
    labels/target   holders of the target → parties without it: tokens of their rows and the
                    target's values. Only if the user shares the target
    rows/tokens     party → leader: a token for each row, in rising order; weights of rows if there
                    are any

Tokens rise, so their order says nothing of how a party keeps its rows. The coordinator has no key:
it learns which parties hold the same rows, and not which rows these are. Whoever has the key can
try out ids: parties that are told labels, and a first party that leads without a coordinator.

A method that sends something about single rows to the coordinator derives its message from
``TokenMessage``, and the coordinator joins such messages with ``match_messages``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, gather, receive, send
from fedcircuits.federation.messages import (
    FiniteVector,
    IntegerVector,
    Message,
    RealVector,
    require,
    require_shape,
)
from fedcircuits.federation.tokens import Labels, Tokens, matched, tokens
from fedcircuits.tables.table import Table

LEAST_KEY = 16  # bytes


class TokenKey(Message, frozen=True):
    tag: ClassVar[str] = "key/tokens"
    reveals: ClassVar[str] = "a key that hides row ids"

    key: bytes


class TokenMessage(Message, frozen=True):
    """Something about single rows: fields of its kinds have one entry for each token."""

    tokens: IntegerVector  # (rows,) of unsigned 64 bits, rising


class TargetValues(TokenMessage, frozen=True):
    """The target of a holder's rows, for parties that lack it."""

    tag: ClassVar[str] = "labels/target"

    values: RealVector  # (rows,), codes or numbers; NaN where missing


class RowTokens(TokenMessage, frozen=True):
    """Which rows a party holds."""

    tag: ClassVar[str] = "rows/tokens"
    reveals: ClassVar[str] = "sealed tokens of its rows"

    weights: FiniteVector | None  # (rows,)


# ---------------------------------------------------------------------- tokens


def key_of(me: str, parties: Sequence[str], secret: bytes) -> Flow[bytes]:
    """The key that the first of the parties has drawn, at every party."""
    first, *others = parties
    if me == first:
        yield from broadcast(others, TokenKey(secret))
        return secret
    key = (yield from receive(first, TokenKey)).key
    problem = f"expected at least {LEAST_KEY} bytes, got {len(key)}"
    require(len(key) >= LEAST_KEY, first, TokenKey, "key", problem)
    return key


def rising_tokens(ids: npt.NDArray[np.generic], key: bytes) -> tuple[Tokens, Labels]:
    """Tokens of rows in rising order, and the rows in that order."""
    unsorted = tokens(ids, key)
    order = np.argsort(unsorted)
    rising = unsorted[order]
    if (rising[1:] == rising[:-1]).any():
        raise FederationError("two rows have the same id: ids must tell rows apart")
    return rising, order


def check_tokens(message: TokenMessage, sender: str, rows: int | None = None) -> Tokens:
    """The tokens, or MessageError unless they rise; ``rows``: how many there must be."""
    sent = message.tokens
    require_shape(sent, (rows,), sender, message.tag, "tokens")
    problem = f"expected tokens of unsigned 64 bits, got {sent.dtype}"
    require(sent.dtype == np.uint64, sender, message.tag, "tokens", problem)
    found: Tokens = np.asarray(sent, np.uint64)
    require(
        bool((found[1:] > found[:-1]).all()),
        sender,
        message.tag,
        "tokens",
        "expected different tokens in rising order",
    )
    return found


def match_messages(
    messages: Mapping[str, TokenMessage], rows: Mapping[str, int] | None = None
) -> Labels:
    """(different tokens, messages): where each message has a row, −1 where it has not.

    ``rows``: how many rows each sender must list, where that is known.
    """
    sizes: Mapping[str, int] = {} if rows is None else rows
    return matched([check_tokens(m, p, sizes.get(p)) for p, m in messages.items()])


def send_tokens(
    table: Table, key: bytes, weight: Array | None = None, leader: str = COORDINATOR
) -> Flow[Labels]:
    """A party lists its rows at the leader; its rows in the order in which they are listed."""
    message, order = listed_rows(table, key, weight)
    reveals = RowTokens.reveals + ("" if weight is None else " and their weights")
    yield from send(leader, message, reveals=reveals)
    return order


def match_tokens(rows: Mapping[str, int]) -> Flow[Labels]:
    """At the coordinator: where each party lists a row (rows, parties), −1 where it lacks it.

    ``rows``: by party how many rows it has said to hold.
    """
    listed = yield from gather(tuple(rows), RowTokens)
    return match_messages(listed, rows)


def listed_rows(table: Table, key: bytes, weight: Array | None) -> tuple[RowTokens, Labels]:
    """A party's list of rows, and its rows in that order."""
    assert table.row_ids is not None
    rising, order = rising_tokens(table.row_ids, key)
    weights = None if weight is None else weight[order]
    return RowTokens(rising, weights), order  # type: ignore[arg-type]


# ---------------------------------------------------------------------- what holders tell


def target_of(
    table: Table,
    target: str,
    key: bytes | None,
    receivers: Sequence[str],
    senders: Sequence[str],
    size: int | None = None,
) -> Flow[Array]:
    """The target of every row (rows,): held here, or told by those who hold it; else NaN.

    ``size`` is the number of the target's categories, 0 of a number, None where it is not known.
    """
    if target in table.schema:
        y = table.values[:, table.schema.index(target)]
        if receivers:
            assert key is not None and table.row_ids is not None
            rising, order = rising_tokens(table.row_ids, key)
            message = TargetValues(rising, y[order])  # type: ignore[arg-type]
            yield from broadcast(receivers, message, reveals=f"{target} of its rows")
        return y
    y = np.full(len(table), np.nan)
    if not senders:
        return y
    assert key is not None and table.row_ids is not None
    own = tokens(table.row_ids, key)
    for sender in senders:
        heard = yield from receive(sender, TargetValues)
        values = _target_values(heard, sender, size)
        where = matched([own, check_tokens(heard, sender)])
        both = where[(where >= 0).all(axis=1)]
        y[both[:, 0]] = values[both[:, 1]]
    return y


def _target_values(heard: TargetValues, sender: str, size: int | None) -> Array:
    require_shape(heard.values, heard.tokens.shape, sender, TargetValues, "values")
    known = heard.values[~np.isnan(heard.values)]
    fits = bool(np.isfinite(known).all())
    if size:
        fits = bool(np.isin(known, np.arange(size)).all())
    problem = f"expected codes below {size}" if size else "expected finite numbers"
    require(fits, sender, TargetValues, "values", f"{problem}, or NaN where one is missing")
    return np.asarray(heard.values, np.float64)


def agreed_values(
    where: Labels, sent: Sequence[npt.NDArray[np.generic]], parties: Sequence[str], what: str
) -> Array:
    """(rows,): a number that parties have sent of their rows, NaN if none has; they must agree.

    ``where`` (rows, parties) is the place of a row in what each party has sent, −1 for nowhere.
    Who knows nothing has sent an empty array.
    """
    values = np.full(len(where), np.nan)
    first = np.full(len(where), -1)
    for i, own in enumerate(sent):
        if not len(own):
            continue
        theirs = np.where(where[:, i] >= 0, own.astype(np.float64)[where[:, i]], np.nan)
        apart = ~np.isnan(theirs) & ~np.isnan(values) & (theirs != values)
        if apart.any():
            raise FederationError(
                f"{parties[int(first[apart][0])]} and {parties[i]} hold different values of "
                f"{what!r} for {apart.sum()} of the rows they share: one of them is wrong"
            )
        new = np.isnan(values) & ~np.isnan(theirs)
        values[new], first[new] = theirs[new], i
    return values
