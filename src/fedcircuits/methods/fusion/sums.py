"""A gather that shows nobody's representations, only their sums over owners.

A complete graph without alignment mixes representations by their mean, so sums are all that the
fusion needs:

    sum/tokens  owner → coordinator: tokens of its rows; labels, and which are held back
    sum/union   coordinator → owner: tokens of all rows, and the width
    sum/rows    owners add up (rows, width + 1): representations, and 1 where an owner knows the
                row; by a summation, so on secret shares with ``Secret()``
    sum/total   first owner → coordinator, where it takes no part in adding up: the total

With ``Secret()`` everybody learns the sums, and with one owner in a row nobody is hidden in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import (
    Summation,
    broadcast_payload,
    gather_payloads,
)
from fedcircuits.federation.tokens import Labels, Tokens, matched
from fedcircuits.federation.wire import AnyArray
from fedcircuits.methods.fusion.fitting import Gathered


@dataclass(frozen=True, slots=True)
class Summed:
    """What the coordinator knows: sums of rows, and what parties told of their rows."""

    rows: Gathered  # of one owner that stands for all: the mean
    where: Labels  # (rows, parties)
    sent: Mapping[str, Mapping[str, AnyArray]]
    width: int


def give(
    me: str, members: Sequence[str], summation: Summation, own: Tokens, values: Array,
    columns: Mapping[str, AnyArray], others: Mapping[str, AnyArray],
) -> Flow[Labels]:  # fmt: skip
    """An owner's part; the order in which the coordinator knows its rows."""
    order = np.argsort(own)
    told: dict[str, AnyArray] = {name: a[order] for name, a in columns.items()}
    wide = np.array([values.shape[1]])
    message: dict[str, AnyArray] = {"tokens": own[order], "width": wide, **told, **others}
    what = "tokens of its rows" + (", and their labels" if "labels" in columns else "")
    yield from send_payload(COORDINATOR, "sum/tokens", message, what)
    heard = expect(
        (yield from recv_payload(COORDINATOR, "sum/union")), dict, COORDINATOR, "sum/union"
    )
    union = np.asarray(heard["tokens"], np.uint64)
    there = ~np.isnan(values).any(axis=1, keepdims=True)
    array = np.zeros((len(union), int(heard["width"][0]) + 1))
    if values.shape[1]:  # else it holds the target alone
        array[np.searchsorted(union, own)] = np.concatenate(
            [np.where(there, values, 0.0), there], axis=1
        )
    everybody = summation.members(members)
    total = yield from summation.at(me, everybody).sum(
        "sum/rows", array, "representations of single rows"
    )
    if COORDINATOR not in everybody and me == members[0]:
        what = "the sum of representations of single rows"
        yield from send_payload(COORDINATOR, "sum/total", np.asarray(total), what)
    return order


def take(members: Sequence[str], summation: Summation) -> Flow[Summed]:
    """The coordinator's part."""
    found = yield from gather_payloads(members, "sum/tokens")
    sent = {p: expect(found[p], dict, p, "sum/tokens") for p in members}
    widths = {int(m["width"][0]) for m in sent.values()} - {0}
    if not widths:
        raise FederationError("nobody holds a column beside the target: there is nothing to add up")
    if len(widths) > 1:
        raise FederationError(
            f"representations of {min(widths)} and {max(widths)} numbers cannot be added up: "
            "owners need encoders of equal width"
        )
    (width,) = widths
    owned = [np.asarray(m["tokens"], np.uint64) for m in sent.values()]
    union = np.unique(np.concatenate(owned))
    told: dict[str, AnyArray] = {"tokens": union, "width": np.array([width])}
    yield from broadcast_payload(members, "sum/union", told, "tokens of rows that others hold")
    shape, everybody = (len(union), width + 1), summation.members(members)
    if COORDINATOR in everybody:
        end = summation.at(COORDINATOR, everybody)
        total = yield from end.sum("sum/rows", np.zeros(shape), "representations of single rows")
    else:
        heard = yield from recv_payload(members[0], "sum/total")
        total = expect(heard, np.ndarray, members[0], "sum/total")
    count = np.rint(total[:, -1:])
    mean = (total[:, :-1] / np.maximum(count, 1)).astype(np.float32)
    return Summed(Gathered(mean[None], count > 0), matched(owned), sent, width)
