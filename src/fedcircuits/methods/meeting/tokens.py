"""Row tokens: numbers by which rows are matched without identifying them.

    key/tokens      first party → other parties, never the coordinator: a key for tokens
    rows/tokens     party → leader: a token for each row, in rising order; weights of rows if there
                    are any
    labels/rows     coordinator → holders of the target and parties without it: which places of its
                    own list each of the others holds as well. Only if the user shares the target
    labels/target   holder → party without the target: its values in these rows, in that order

With ``rows="tokens"`` a token is a keyed hash of the row's id. The coordinator has no key: it
learns which parties hold the same rows, but cannot identify them. Anybody with the key and tokens
can test guessed ids: a coordinator that gets the key from a party, and a first party that leads
without a coordinator. No token reaches another party.

A party has at most one secret, from the operating system and never from a seed. Keys for different
purposes are derived from it, so that knowing one of them reveals none of the others.

With ``rows="private"`` no token comes from an id. Parties find the rows that all of them hold by
private set intersection (intersection.py). The token of such a row is a keyed hash of its place
among them; every other row has one that its party has drawn, which matches no other. So a
coordinator with the key can name rows for the parties that hold them, and no others.

Tokens are sorted, so their order reveals nothing about the order of a party's table. A holder of
the target learns which of its rows the receiving parties hold; these learn which of theirs it
holds.

A method that sends something about single rows to the coordinator derives its message from
``TokenMessage``, and the coordinator joins such messages with ``match_messages``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, gather, receive, send
from fedcircuits.federation.messages import (
    FiniteVector,
    IntegerVector,
    Message,
    RealVector,
    require,
    require_places,
    require_shape,
)
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.intersection import derived, key_from, shared_rows
from fedcircuits.tables.table import Table

Tokens = npt.NDArray[np.uint64]
ShortTokens = npt.NDArray[np.uint32]
RowRule: TypeAlias = Literal["tokens", "private"]  # how rows are matched
LEAST_SECRET, KEY = 16, 32  # bytes; a hash takes a key and the same with zeros behind it for one


class TokenKey(Message, frozen=True):
    tag: ClassVar[str] = "key/tokens"
    reveals: ClassVar[str] = "the key that turns row ids into tokens"

    key: bytes


class TokenMessage(Message, frozen=True):
    """Something about single rows: fields of its kinds have one entry for each token."""

    tokens: IntegerVector  # (rows,) of unsigned 64 bits, rising


class RowTokens(TokenMessage, frozen=True):
    """Which rows a party holds."""

    tag: ClassVar[str] = "rows/tokens"
    reveals: ClassVar[str] = "the sealed tokens of its rows"

    weights: FiniteVector | None  # (rows,)


class SharedPlaces(Message, frozen=True):
    """By other party, which rows of the reader's list it holds as well, in the order of tokens."""

    tag: ClassVar[str] = "labels/rows"
    reveals: ClassVar[str] = (
        "which of the reader's rows are held by the parties with which it shares the target"
    )

    places: dict[str, IntegerVector]


class TargetValues(Message, frozen=True):
    """The target of rows that a holder and the reader share, in the order of tokens."""

    tag: ClassVar[str] = "labels/target"
    needs: ClassVar[str] = "share_target"

    values: RealVector  # (rows,), codes or numbers; NaN where missing


# ---------------------------------------------------------------------- tokens


def tokens(ids: npt.NDArray[np.generic], key: bytes) -> Tokens:
    """(rows,) keyed hashes; 1 and "1" are the same id."""
    seal = hmac.new(key, digestmod=hashlib.sha256)
    hashes = np.empty(len(ids), dtype=np.uint64)
    for i, value in enumerate(ids.tolist()):
        one = seal.copy()
        one.update(str(value).encode())
        hashes[i] = int.from_bytes(one.digest()[:8], "little")
    return hashes


def retokened(of_rows: Tokens, key: bytes) -> ShortTokens:
    """(rows,) other tokens of the same rows, of 32 bits, by a block cipher: nobody without the key
    can tell which of these is which of those. In one case of 300 two of 5,000 rows have the same
    one."""
    blocks = np.zeros((len(of_rows), 2), np.uint64)
    blocks[:, 0] = of_rows
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # every block is different
    sealed = cipher.update(blocks.astype("<u8").tobytes()) + cipher.finalize()
    return np.frombuffer(sealed, "<u4").reshape(-1, 4)[:, 0].astype(np.uint32)


def matched(lists: Sequence[Tokens | ShortTokens]) -> Labels:
    """(different tokens, lists): where a token is in each party's list, −1 where it is not.

    Rows of the result are in the order of tokens, which is not the order of any party's rows.
    """
    every = np.unique(np.concatenate(lists)) if lists else np.zeros(0, np.uint64)
    where = np.full((len(every), len(lists)), -1, dtype=np.int64)
    for i, hashes in enumerate(lists):
        where[np.searchsorted(every, hashes), i] = np.arange(len(hashes))
    return where


def key_of(me: str, parties: Sequence[str], secret: bytes) -> Flow[bytes]:
    """The key that the first of the parties has from its secret, at every party."""
    first, *others = parties
    if me == first:
        _check_secret(me, secret)
        key = derived(secret, TokenKey.tag)
        yield from broadcast(others, TokenKey(key))
        return key
    key = (yield from receive(first, TokenKey)).key
    problem = f"expected {KEY} bytes, got {len(key)}"
    require(len(key) == KEY, first, TokenKey, "key", problem)
    return key


def _check_secret(me: str, secret: bytes) -> None:
    """An error for a secret that could be guessed, which would identify rows."""
    if not isinstance(secret, bytes) or len(secret) < LEAST_SECRET:
        raise ProtocolError(f"{me} needs its own secret of at least {LEAST_SECRET} bytes")


@dataclass(frozen=True, slots=True, eq=False)
class HiddenRows:
    """A party's rows as others may know them."""

    key: bytes = field(repr=False)  # that all parties have
    tokens: Tokens = field(repr=False)  # (rows,), in the order of its table

    def rising(self) -> tuple[Tokens, Labels]:
        """Tokens in rising order, and the rows in that order."""
        return rising_order(self.tokens)


def hidden_rows(
    me: str,
    ids: npt.NDArray[np.generic],
    parties: Sequence[str],
    secret: bytes,
    rule: RowRule = "tokens",
) -> Flow[HiddenRows]:
    """Tokens of a party's rows, with a key of the parties. With ``rule="tokens"`` only the first
    party needs a secret, otherwise every party needs its own."""
    key = yield from key_of(me, parties, secret)
    if rule == "tokens":
        return HiddenRows(key, tokens(ids, key))
    _check_secret(me, secret)
    texts = [str(i) for i in ids.tolist()]
    shared = yield from shared_rows(me, texts, parties, key_from(secret))
    drawn = tokens(np.arange(len(ids)), derived(secret, "rows that not all parties hold"))
    drawn[shared] = tokens(np.arange(len(shared)), key)
    return HiddenRows(key, drawn)


def rising_order(unsorted: Tokens) -> tuple[Tokens, Labels]:
    """Tokens of rows in rising order, and the rows in that order."""
    order = np.argsort(unsorted)
    rising = unsorted[order]
    if (rising[1:] == rising[:-1]).any():
        raise FederationError("two rows have the same id: ids must be unique")
    return rising, order


def check_tokens(message: TokenMessage, sender: str, rows: int | None = None) -> Tokens:
    """The tokens, or MessageError unless they rise; ``rows``: how many there must be."""
    sent = message.tokens
    require_shape(sent, (rows,), sender, message.tag, "tokens")
    problem = f"expected tokens of unsigned 64 bits, got {sent.dtype}"
    require(sent.dtype == np.uint64, sender, message.tag, "tokens", problem)
    tokens: Tokens = np.asarray(sent, np.uint64)
    require(
        bool((tokens[1:] > tokens[:-1]).all()),
        sender,
        message.tag,
        "tokens",
        "expected different tokens in rising order",
    )
    return tokens


def match_messages(
    messages: Mapping[str, TokenMessage], rows: Mapping[str, int] | None = None
) -> Labels:
    """(different tokens, messages): where each message has a row, −1 where it has not.

    ``rows``: how many rows each sender must list, where that is known.
    """
    sizes: Mapping[str, int] = {} if rows is None else rows
    return matched([check_tokens(m, p, sizes.get(p)) for p, m in messages.items()])


def send_tokens(
    hidden: HiddenRows, weight: Array | None = None, leader: str = COORDINATOR
) -> Flow[Labels]:
    """A party lists its rows at the leader; its rows in the order in which they are listed."""
    message, order = listed_rows(hidden, weight)
    reveals = RowTokens.reveals + ("" if weight is None else " and the weights of these rows")
    yield from send(leader, message, reveals=reveals)
    return order


def match_tokens(rows: Mapping[str, int], holders: Sequence[str] | None = None) -> Flow[Labels]:
    """At the coordinator: where each party lists a row (rows, parties), −1 where it lacks it.

    ``rows``: the number of rows of each party according to its hello; ``holders``: holders of the
    target that send its values to the others, which then learn which rows they share.
    """
    where = match_messages((yield from gather(tuple(rows), RowTokens)), rows)
    yield from _tell_shared(where, tuple(rows), holders or ())
    return where


def listed_rows(hidden: HiddenRows, weight: Array | None) -> tuple[RowTokens, Labels]:
    """A party's list of rows, and its rows in that order."""
    rising, order = hidden.rising()
    weights = weight if weight is None or not len(weight) else weight[order]
    return RowTokens(rising, weights), order  # type: ignore[arg-type]


# ---------------------------------------------------------------------- values of the target


def _tell_shared(where: Labels, members: Sequence[str], holders: Sequence[str]) -> Flow[None]:
    """Send holders of the target and the others which rows they share."""
    lists = dict(zip(members, where.T, strict=True))
    others = [m for m in members if m not in holders]
    for one in members if others and holders else ():
        with_whom = others if one in holders else holders
        both = {p: lists[one][(lists[one] >= 0) & (lists[p] >= 0)] for p in with_whom}
        yield from send(one, SharedPlaces(both))


def target_of(
    table: Table,
    target: str,
    order: Labels | None,
    receivers: Sequence[str],
    senders: Sequence[str],
    size: int | None = None,
) -> Flow[Array]:
    """The target of every row (rows,): held here, or received from holders; otherwise NaN.

    ``order``: its rows in the order of its list of tokens, where values are exchanged. ``size``:
    the number of the target's categories, 0 for a number, None if unknown.
    """
    y = np.full(len(table), np.nan)
    if target in table.schema:
        y = table.values[:, table.schema.index(target)]
    if not receivers and not senders:
        return y
    assert order is not None, "rows must be matched before values of the target are sent"
    shared = yield from receive(COORDINATOR, SharedPlaces)
    rows = {
        p: order[places_of]
        for p, places_of in _places(shared, (*receivers, *senders), len(order)).items()
    }
    for receiver in receivers:
        classes = TargetValues(y[rows[receiver]])
        yield from send(
            receiver, classes, reveals=f"the values of {target} in the rows that both parties hold"
        )
    for sender in senders:
        heard = yield from receive(sender, TargetValues)
        y[rows[sender]] = _target_values(heard, sender, len(rows[sender]), size)
    return y


def _places(shared: SharedPlaces, others: Sequence[str], rows: int) -> dict[str, Labels]:
    """By other party, the positions in a list of this many rows that it holds as well."""
    problem = f"expected those of {', '.join(others)}"
    require(shared.places.keys() == set(others), COORDINATOR, SharedPlaces, "places", problem)
    return {
        p: require_places(places, rows, COORDINATOR, SharedPlaces, "places")
        for p, places in shared.places.items()
    }


def _target_values(heard: TargetValues, sender: str, rows: int, size: int | None) -> Array:
    if len(heard.values) != rows:
        raise FederationError(
            f"{sender} sent {len(heard.values):,} values of the target, but according to the "
            f"{COORDINATOR} it shares {rows:,} rows: one of the two is wrong"
        )
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
    for i, row in enumerate(sent):
        if not len(row):
            continue
        theirs = np.where(where[:, i] >= 0, row.astype(np.float64)[where[:, i]], np.nan)
        apart = ~np.isnan(theirs) & ~np.isnan(values) & (theirs != values)
        if apart.any():
            raise FederationError(
                f"{parties[int(first[apart][0])]} and {parties[i]} hold different values of "
                f"{what!r} for {apart.sum()} of the rows they share: one of them is wrong"
            )
        new = np.isnan(values) & ~np.isnan(theirs)
        values[new], first[new] = theirs[new], i
    return values
