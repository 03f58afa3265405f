"""How representations travel, and how the coordinator puts those of one row side by side.

A message has, for each row in the order of its token: the token, whether its owner knows anything
of it, and the representation, as float32, float16 or int8. int8 goes with the middle and step of
every component, so that its error is at most half a step: 1/508 of the range on the rows sent.

The coordinator sorts rows by what they hold: an order that does not depend on the key of tokens, so
that two runs with one seed learn the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.tokens import Labels, Tokens, matched
from fedcircuits.federation.wire import AnyArray
from fedcircuits.methods.fusion.fitting import Gathered

Traffic: TypeAlias = Literal["float32", "float16", "int8"]
TRAFFIC: tuple[Traffic, ...] = ("float32", "float16", "int8")
Flags: TypeAlias = npt.NDArray[np.bool_]
LEVELS = 127


def packed(values: Array, traffic: Traffic) -> dict[str, AnyArray]:
    """Representations (rows, width), NaN where nothing is known, as they travel."""
    there = np.asarray(~np.isnan(values).any(axis=1))
    plain = np.where(there[:, None], values, 0.0)
    if traffic != "int8":
        with np.errstate(over="ignore"):
            small = plain.astype(traffic)
        if np.isinf(small).any():
            other = "traffic='float32' or 'int8'" if traffic == "float16" else "an encoder of less"
            raise FederationError(
                f"representations up to {np.abs(plain).max():.3g} do not fit into {traffic}: take "
                f"{other}"
            )
        return {"there": there, "values": small}
    some = plain[there] if there.any() else plain[:0].reshape(0, plain.shape[1])
    low, high = some.min(axis=0, initial=0.0), some.max(axis=0, initial=0.0)
    middle, step = (low + high) / 2, np.maximum(high - low, 1e-30) / (2 * LEVELS)
    codes = np.clip(np.rint((plain - middle) / step), -LEVELS, LEVELS).astype(np.int8)
    return {
        "there": there,
        "values": codes,
        "middle": middle.astype(np.float32),
        "step": step.astype(np.float32),
    }


def unpacked(sent: Mapping[str, AnyArray], party: str) -> tuple[npt.NDArray[np.float32], Flags]:
    """Representations (rows, width) as float32, zeros where nothing is known; and where it is."""
    values, there = np.asarray(sent.get("values", 0)), np.asarray(sent.get("there", 0))
    if values.ndim != 2 or there.shape != values.shape[:1] or there.dtype != np.bool_:
        raise ProtocolError(f"{party} sent representations of the shape {values.shape}")
    found = values.astype(np.float32)
    if values.dtype == np.int8:
        step, middle = (np.asarray(sent[n], np.float32) for n in ("step", "middle"))
        found = found * step + middle
    if not np.isfinite(found).all():
        raise ProtocolError(f"{party} sent representations that are not finite")
    return np.where(there[:, None], found, np.float32(0)).astype(np.float32), there


@dataclass(frozen=True, slots=True)
class Joined:
    """All rows that some party has sent, of all owners of a fusion."""

    rows: Gathered
    where: Labels  # (rows, parties that sent): where each has the row in its message, or −1


def joined(sent: Mapping[str, Mapping[str, AnyArray]], owners: Sequence[str], width: int) -> Joined:
    """The rows of all messages, in the order of tokens; owners that sent nothing are absent.

    Parties that are no owners say which rows there are, and nothing of them.
    """
    where = matched([np.asarray(message["tokens"], np.uint64) for message in sent.values()])
    h = np.zeros((len(owners), len(where), width), np.float32)
    there = np.zeros((len(where), len(owners)), np.bool_)
    for i, (party, message) in enumerate(sent.items()):
        if party not in owners:
            continue
        found, known = unpacked(message, party)
        if found.shape[1] > width:
            raise ProtocolError(
                f"{party} sent representations of {found.shape[1]} numbers, expected {width}"
            )
        at, mine = owners.index(party), where[:, i]
        has = mine >= 0
        h[at, has, : found.shape[1]] = found[mine[has]]
        there[has, at] = known[mine[has]]
    return Joined(Gathered(h, there), where)


def told(where: Labels, sent: Sequence[AnyArray], parties: Sequence[str], what: str) -> Array:
    """(rows,): a number that parties have sent of their rows, NaN if none has; they must agree."""
    found = np.full(len(where), np.nan)
    first = np.full(len(where), -1)
    for i, own in enumerate(sent):
        if not len(own):
            continue
        mine = np.where(where[:, i] >= 0, own.astype(np.float64)[where[:, i]], np.nan)
        apart = ~np.isnan(mine) & ~np.isnan(found) & (mine != found)
        if apart.any():
            other = parties[int(first[apart][0])]
            raise FederationError(
                f"{other} and {parties[i]} hold different values of {what!r} for {apart.sum()} of "
                "the rows they share: one of them is wrong"
            )
        new = np.isnan(found) & ~np.isnan(mine)
        found[new], first[new] = mine[new], i
    return found


def content_order(rows: Gathered, y: Array) -> Labels:
    """Rows sorted by a number that depends on all they hold, and little on its rounding."""
    weight = np.random.default_rng(0).normal(size=(len(rows.h), 1, rows.h.shape[2]))
    key = np.einsum("orw,ozw->r", rows.h, weight, dtype=np.float64, optimize=False)
    return np.lexsort((y, key))


def held_back(ids: npt.NDArray[np.generic], share: float, seed: int) -> Flags:
    """Which rows all owners stop by: drawn by id, so that they agree without talking."""
    return _drawn(tuple(map(str, ids.tolist())), seed) < share


@lru_cache(maxsize=8)  # in one process many owners ask for the same ids
def _drawn(ids: tuple[str, ...], seed: int) -> Array:
    digests = (hashlib.sha256(f"{seed}/{text}".encode()).digest() for text in ids)
    return np.array([int.from_bytes(d[:8], "little") for d in digests], np.float64) / 2.0**64


def by_token(
    own: Tokens, values: Array, traffic: Traffic, **columns: AnyArray
) -> tuple[Labels, dict[str, AnyArray]]:
    """The order of tokens, and a message with its rows in that order."""
    order = np.argsort(own)
    others = {name: column[order] for name, column in columns.items()}
    return order, {"tokens": own[order], **packed(values[order], traffic), **others}


def masked(vectors: Array, clip: float | None, noise: float, party: str, key: bytes) -> Array:
    """Clipped, and with noise that only the owners could recompute."""
    if clip is None:
        return vectors
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    clipped = vectors * np.minimum(1.0, clip / np.maximum(norm, 1e-12))
    digest = hashlib.sha256(key + party.encode() + np.nan_to_num(vectors).tobytes()).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    return np.asarray(clipped + rng.normal(0.0, noise * clip, vectors.shape))
