"""Private set intersection: which rows all parties hold, without showing the others.

Roles: the first party, and every other one. No coordinator takes part. Each pair (first, other)
runs the Diffie–Hellman protocol on an elliptic curve of openmined.psi: a row id is hashed to a
point, and both raise it to secret powers a and b; the points of two ids are equal where the ids
are. Lists of points are sent whole, not as a filter, so that no row is matched by mistake.

    psi/request   first → other: the points of its ids, to the power a (35 bytes per id)
    psi/answer    other → first: these to the power b, in the same order; and the points of its own
                  ids to the power b, sorted
    psi/shared    first → other: the ids that all parties hold, in the clear

The first party learns how many rows every other one holds, and which of its own rows each of them
holds as well (with two parties, that is the answer). The others learn how many rows the first one
holds, and the ids that all hold. Nobody sees an id that it does not hold, and a third party sees
only points. This is true of parties that follow the protocol: one that puts invented ids into its
list learns whether others hold them, and the first party decides which ids it announces.

A lost party ends the run.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from fedcircuits.errors import ExtraMissingError, MessageError, ProtocolError
from fedcircuits.federation.flow import Flow, broadcast, compute, digest, receive, send
from fedcircuits.federation.messages import Message, require
from fedcircuits.federation.sums.counting import Labels

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T")


def derived(secret: bytes, purpose: str) -> bytes:
    """32 bytes for one purpose, from which neither the secret nor those for others follow."""
    if not isinstance(secret, bytes):  # an array, which a hash takes too, may be anybody's
        raise ProtocolError(f"a secret of {type(secret).__name__}: expected bytes")
    return hmac.digest(secret, purpose.encode(), "sha256")


class SealedIds(Message, frozen=True):
    """The first party's ids as points; what the library calls a request."""

    tag: ClassVar[str] = "psi/request"
    reveals: ClassVar[str] = "its number of rows"

    points: bytes


class SealedTwice(Message, frozen=True):
    """Another party's ids as points, and the first party's points sealed once more."""

    tag: ClassVar[str] = "psi/answer"
    reveals: ClassVar[str] = "its number of rows, and which of the reader's rows it holds too"

    setup: bytes
    response: bytes


class SharedIds(Message, frozen=True):
    """The ids that all parties hold, in the common order."""

    tag: ClassVar[str] = "psi/shared"
    reveals: ClassVar[str] = "the ids of the rows that all parties hold"

    ids: list[str]


def openmined() -> ModuleType:
    """openmined.psi, or an error that explains how to install it."""
    try:
        import private_set_intersection.python as psi  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ExtraMissingError(
            "private set intersection needs openmined.psi: pip install 'fedcircuits[psi]'"
        ) from None
    module: ModuleType = psi
    return module


def key_from(secret: bytes) -> bytes:
    """A party's secret exponent, derived from its secret so that a repeated run sends the same;
    anybody who has it can test guesses of ids."""
    first, *others = derived(secret, "power of its row ids")
    return bytes([first & 0x7F, *others])  # below the order of the curve


def shared_rows(me: str, ids: Sequence[str], parties: Sequence[str], key: bytes) -> Flow[Labels]:
    """At every party: where its rows are that all parties hold, in the common order."""
    leads, *others = parties
    if me == leads:
        return (yield from _first(ids, others, key))
    return (yield from _other(me, ids, leads, key))


# ---------------------------------------------------------------------- the first party


def _first(ids: Sequence[str], others: Sequence[str], key: bytes) -> Flow[Labels]:
    of_ids = digest(key, *ids)
    request = yield from compute("sealing its row ids", partial(_request, ids, key), key=of_ids)
    yield from broadcast(others, SealedIds(request))
    held = [list(ids)]
    for other in others:
        answer = yield from receive(other, SealedTwice)
        work = partial(_intersection, key, answer, other, len(ids))
        step, of_both = f"comparing its row ids with those of {other}", (of_ids, answer.setup)
        rows = yield from compute(step, work, key=digest(*of_both, answer.response))
        held.append([ids[i] for i in rows])
    shared = common(held)
    yield from broadcast(others, SharedIds(shared))
    return positions(ids, shared)


def _request(ids: Sequence[str], key: bytes) -> bytes:
    request = openmined().client.CreateFromKey(key, True).CreateRequest(list(ids))
    return bytes(request.SerializeToString())


def _intersection(key: bytes, answer: SealedTwice, other: str, rows: int) -> list[int]:
    """Which of the own rows the other party holds as well."""
    psi = openmined()
    setup = _read(lambda: psi.ServerSetup.FromString(answer.setup), other, answer, "setup")
    response = _read(lambda: psi.Response.FromString(answer.response), other, answer, "response")
    client = psi.client.CreateFromKey(key, True)
    shared = _read(lambda: client.GetIntersection(setup, response), other, answer, "response")
    same = len(response.encrypted_elements) == rows and all(0 <= i < rows for i in shared)
    require(same, other, SealedTwice, "response", f"expected {rows} points, as many as were sent")
    return sorted(set(map(int, shared)))


# ---------------------------------------------------------------------- every other one


def _other(me: str, ids: Sequence[str], first: str, key: bytes) -> Flow[Labels]:
    work_key = digest(key, *ids)
    setup = yield from compute("sealing its row ids", partial(_setup, ids, key), key=work_key)
    request = yield from receive(first, SealedIds)
    work = partial(_response, key, request, first)
    step, work_key = f"sealing the row ids of {first}", digest(key, request.points)
    response = yield from compute(step, work, key=work_key)
    yield from send(first, SealedTwice(setup, response))
    shared = (yield from receive(first, SharedIds)).ids
    sound = set(shared) <= set(ids) and shared == common([shared])
    problem = f"expected different ids of rows that {me} holds, in their order"
    require(sound, first, SharedIds, "ids", problem)
    return positions(ids, shared)


def _setup(ids: Sequence[str], key: bytes) -> bytes:
    psi = openmined()
    server = psi.server.CreateFromKey(key, True)
    points = server.CreateSetupMessage(0.0, len(ids), list(ids), psi.DataStructure.RAW)
    return bytes(points.SerializeToString())


def _response(key: bytes, request: SealedIds, first: str) -> bytes:
    psi = openmined()
    server = psi.server.CreateFromKey(key, True)
    points = _read(lambda: psi.Request.FromString(request.points), first, request, "points")
    response = _read(lambda: server.ProcessRequest(points), first, request, "points")
    return bytes(response.SerializeToString())


def _read(work: Callable[[], T], sender: str, message: Message, field: str) -> T:
    """The library's result for received bytes; its errors blame the sender."""
    try:
        return work()
    except Exception as error:
        problem = "it is not a message of private set intersection"
        raise MessageError(sender, message.tag, field, problem) from error


def common(sets: Iterable[Iterable[str]]) -> list[str]:
    """The ids that are in all sets, in the common order."""
    shared = set.intersection(*map(set, sets))
    return sorted(shared, key=lambda text: (len(text), text))


def positions(ids: Sequence[str], wanted: Sequence[str]) -> Labels:
    """Where the wanted ids are among a party's."""
    at = {text: i for i, text in enumerate(ids)}
    return np.array([at[text] for text in wanted], dtype=np.int64)
