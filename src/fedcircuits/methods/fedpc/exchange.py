"""Parties hear which clusters others have put the shared rows into.

    clusters/own      client → coordinator: the cluster of every row, by the columns it models but
                      the target, in the order of the tokens it has sent; for every division.
    clusters/others   coordinator → client: the clusters of at most ``MOST_TOLD`` other parties for
                      the rows that all parties of the division hold (rows, parties), −1 for rows
                      they do not: those that say most about its own (mutual information).

Clusters are numbers without meaning. A client learns which of its rows fall together at another
party, and which rows all hold; classes of the target are never told so. The coordinator
learns the same of rows that it cannot name.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import gather_payloads
from fedcircuits.federation.sums.counting import compact
from fedcircuits.federation.tokens import Labels
from fedcircuits.federation.wire import AnyArray
from fedcircuits.methods.fedpc.clusters import clusters_by_others, clusters_of
from fedcircuits.methods.fedpc.divisions import Division
from fedcircuits.tables.table import Table

MOST_TOLD = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """What a client does in one division: it clusters its rows by these columns."""

    division: int
    number: int  # among its own, whatever divisions of others there are
    columns: list[str]
    clusters: int | Literal["auto"]
    told: bool  # whether it tells its clusters and hears of others'

    @property
    def mark(self) -> str:
        """What kept work goes by."""
        return f"circuit {self.number}, {zlib.crc32(str(self.columns).encode()):08x}"


def client(
    pieces: Sequence[Piece],
    table: Table,
    order: Labels | None,
    classes: Array | None,
    target: str | None,
    seed: Sequence[int],
    stamp: str,
    given: Labels | None = None,
) -> Flow[dict[int, Labels]]:
    """The clusters of this party's rows by division; ``order``: of its rows by tokens; ``given``:
    clusters that the parties have found together before, in place of own ones."""
    heard: dict[int, Labels] = {}
    if order is not None and any(piece.told for piece in pieces):
        heard = yield from _heard(pieces, table, order, target, seed, stamp)
    found = {}
    for piece in pieces:
        if given is not None and piece.clusters != 1:
            found[piece.division] = np.unique(given, return_inverse=True)[1].reshape(-1)
            continue
        rng = np.random.default_rng([*seed, piece.number, 1])
        free = [n for n in piece.columns if n != target or classes is None] or piece.columns
        others = heard.get(piece.division)
        found[piece.division] = yield from compute(
            f"clustering its rows ({piece.mark}, {stamp}, {_mark(others)})",
            lambda piece=piece, others=others, free=free, rng=rng: (  # type: ignore[misc]
                clusters_of(table, piece.columns, piece.clusters, classes, rng)
                if others is None
                else clusters_by_others(table, free, others, piece.clusters, classes, rng)
            ),
        )
    return found


def _mark(others: Labels | None) -> str:
    return "own" if others is None else f"told {zlib.crc32(others.tobytes()):08x}"


def _heard(
    pieces: Sequence[Piece],
    table: Table,
    order: Labels,
    target: str | None,
    seed: Sequence[int],
    stamp: str,
) -> Flow[dict[int, Labels]]:
    told: dict[str, AnyArray] = {}
    for piece in pieces:
        if piece.told:
            rng = np.random.default_rng([*seed, piece.number, 0])
            free = [n for n in piece.columns if n != target]
            own = yield from compute(
                f"first clusters ({piece.mark}, {stamp})",
                lambda free=free, piece=piece, rng=rng: (  # type: ignore[misc]
                    clusters_of(table, free, piece.clusters, None, rng)
                    if free
                    else np.zeros(len(table), np.int64)
                ),
            )
            told[str(piece.division)] = compact(own[order])
    reveals = "which of its rows are alike (sealed tokens)"
    yield from send_payload(COORDINATOR, "clusters/own", told, reveals)
    tag = "clusters/others"
    answer = expect((yield from recv_payload(COORDINATOR, tag)), dict, COORDINATOR, tag)
    found = {}
    for name, others in answer.items():
        placed = np.empty((len(order), others.shape[1]), np.int64)
        placed[order] = others
        found[int(name)] = placed
    return found


def coordinator(
    divisions: Mapping[int, Division], members: Sequence[str], where: Labels
) -> Flow[None]:
    """``where`` (rows, parties): where each lists a row, −1 where it has not."""
    taking = [p for p in members if any(p in d.parties for d in divisions.values())]
    found = yield from gather_payloads(taking, "clusters/own")
    sent = {p: expect(found[p], dict, p, "clusters/own") for p in taking}
    answers: dict[str, dict[str, AnyArray]] = {p: {} for p in taking}
    for number, division in divisions.items():
        at = where[:, [members.index(p) for p in division.parties]]
        at = at[(at >= 0).all(axis=1)]
        labels = [
            np.asarray(sent[p][str(number)], np.int64)[at[:, i]]
            for i, p in enumerate(division.parties)
        ]
        for i, party in enumerate(division.parties):
            others = _told(labels, i)
            size = len(sent[party][str(number)])
            answer = np.full((size, len(others)), -1, dtype=np.int64)
            answer[at[:, i]] = np.stack([labels[j] for j in others], axis=1)
            answers[party][str(number)] = compact(answer)
    for party in taking:
        reveals = "which of the shared rows are alike at other parties"
        yield from send_payload(party, "clusters/others", answers[party], reveals)


def _told(labels: Sequence[Labels], own: int) -> list[int]:
    others = [j for j in range(len(labels)) if j != own]
    if len(others) <= MOST_TOLD:
        return others
    return sorted(others, key=lambda j: -_information(labels[own], labels[j]))[:MOST_TOLD]


def _information(a: Labels, b: Labels) -> float:
    """The mutual information of two labellings, in nats."""
    if not len(a):
        return 0.0
    table = np.bincount(
        a * (int(b.max()) + 1) + b, minlength=(int(a.max()) + 1) * (int(b.max()) + 1)
    )
    p = table.reshape(int(a.max()) + 1, -1) / len(a)
    apart = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / apart[seen])).sum())
