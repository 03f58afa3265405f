"""Private set intersection: which rows all parties hold, without showing the others.

Roles: the first party, and every other one. No coordinator takes part. Each pair (first, other)
runs the Diffie–Hellman protocol on an elliptic curve of openmined.psi: a row id is hashed to a
point, and both raise it to secret powers a and b; the points of two ids are equal where the ids
are. Lists of points are sent whole, not as a filter, so that no row is matched by mistake.

    psi/request   first → other: the points of its ids, to the power a (35 bytes an id)
    psi/answer    other → first: these to the power b, in the same order; and the points of its own
                  ids to the power b, sorted
    psi/shared    first → other: the ids that all parties hold, in the clear

The first party learns how many rows every other one holds, and which of its own rows each of them
holds as well (with two parties, that is the answer). The others learn how many rows the first one
holds, and the ids that all hold. Nobody sees an id that is not its own, and a third party sees
points only. This holds for parties that follow the protocol: one that puts invented ids into its
list learns whether they are there, and the first one decides what it tells.

A lost party ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import ExtraMissingError, ProtocolError
from fedcircuits.federation.alignment import common, id_texts, positions
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import broadcast_payload
from fedcircuits.federation.tokens import Labels
from fedcircuits.federation.wire import AnyArray, Json

if TYPE_CHECKING:
    from types import ModuleType

Message = npt.NDArray[np.uint8]  # bytes of the library's own messages


def openmined() -> ModuleType:
    """openmined.psi, or an error that says how to get it."""
    try:
        import private_set_intersection.python as psi  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ExtraMissingError(
            "private set intersection needs openmined.psi: pip install 'fedcircuits[psi]'"
        ) from None
    found: ModuleType = psi
    return found


def new_key() -> bytes:
    """A party's secret power; whoever has it can try out ids."""
    return bytes(openmined().client.CreateWithNewKey(True).GetPrivateKeyBytes())


# ---------------------------------------------------------------------- the first party


def first(party: Party, others: Sequence[str], key: bytes) -> Flow[Labels]:
    """Where its rows are that all parties hold, in the common order."""
    own = id_texts(party)
    request = yield from compute("sealing its row ids", partial(_request, own, key))
    yield from broadcast_payload(others, "psi/request", request, "how many rows it holds")
    both = [own]
    for other in others:
        answer = expect((yield from recv_payload(other, "psi/answer")), dict, other, "psi/answer")
        setup, response = (
            _message(answer.get(part), other, "psi/answer") for part in ("setup", "response")
        )
        work = partial(_intersection, key, setup, response, other, len(own))
        found = yield from compute(f"comparing its row ids with those of {other}", work)
        both.append([own[i] for i in found])
    shared = common(both)
    told: Json = list(shared)
    yield from broadcast_payload(others, "psi/shared", told, "row ids that all parties hold")
    return positions(own, shared)


def _request(ids: Sequence[str], key: bytes) -> Message:
    made = openmined().client.CreateFromKey(key, True).CreateRequest(list(ids))
    return _bytes(made.SerializeToString())


def _intersection(
    key: bytes, setup: Message, response: Message, other: str, rows: int
) -> list[int]:
    """Which of the own rows the other party holds as well."""
    psi = openmined()
    try:
        points = psi.ServerSetup.FromString(setup.tobytes())
        answer = psi.Response.FromString(response.tobytes())
        found = psi.client.CreateFromKey(key, True).GetIntersection(points, answer)
    except Exception as error:  # the library raises a kind of its own, and RuntimeError
        raise _unreadable(other, "psi/answer") from error
    if any(not 0 <= i < rows for i in found):
        raise _unreadable(other, "psi/answer")
    return sorted(set(map(int, found)))


# ---------------------------------------------------------------------- every other one


def other(party: Party, first: str, key: bytes) -> Flow[Labels]:
    """Where its rows are that all parties hold, in the common order."""
    own, tag = id_texts(party), "psi/request"
    setup = yield from compute("sealing its row ids", partial(_setup, own, key))
    request = _message((yield from recv_payload(first, tag)), first, tag)
    work = partial(_response, key, request, first)
    response = yield from compute(f"sealing the row ids of {first}", work)
    answer: dict[str, AnyArray] = {"setup": setup, "response": response}
    told = "how many rows it holds, and which of the reader's it holds as well"
    yield from send_payload(first, "psi/answer", answer, told)
    shared = expect((yield from recv_payload(first, "psi/shared")), list, first, "psi/shared")
    if not set(shared) <= set(own):
        raise ProtocolError(
            f"{first} says that {party.name} holds row ids that it does not: it runs another "
            "protocol, or others' messages"
        )
    return positions(own, shared)


def _setup(ids: Sequence[str], key: bytes) -> Message:
    psi = openmined()
    server = psi.server.CreateFromKey(key, True)
    points = server.CreateSetupMessage(0.0, len(ids), list(ids), psi.DataStructure.RAW)
    return _bytes(points.SerializeToString())


def _response(key: bytes, request: Message, first: str) -> Message:
    psi = openmined()
    try:
        asked = psi.Request.FromString(request.tobytes())
        found = psi.server.CreateFromKey(key, True).ProcessRequest(asked)
    except Exception as error:
        raise _unreadable(first, "psi/request") from error
    return _bytes(found.SerializeToString())


def _bytes(data: bytes) -> Message:
    return np.frombuffer(data, np.uint8)


def _message(found: object, sender: str, tag: str) -> Message:
    if isinstance(found, np.ndarray) and found.dtype == np.uint8:
        return found
    raise _unreadable(sender, tag)


def _unreadable(sender: str, tag: str) -> ProtocolError:
    return ProtocolError(
        f"what {sender} sent under {tag!r} is no message of private set intersection: it runs "
        "another protocol or another version"
    )
