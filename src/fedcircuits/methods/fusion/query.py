"""Questions to a fusion: owners send what they know of new rows, those who ask hear predictions.

    key             first owner → other owners: a key for row tokens, another one in every question
    query/rows      owner → coordinator: tokens and representations of its rows (where only sums are
                    shown: the steps of fusion_sums.py)
    query/answers   coordinator → owner that asks: predictions of its rows

Owners may be missing, and rows at owners.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import gather_payloads
from fedcircuits.federation.tokens import Labels, tokens
from fedcircuits.methods.fusion import sums as fusion_sums
from fedcircuits.methods.fusion.fitting import Gathered
from fedcircuits.methods.fusion.fused import FusionView, OwnerView
from fedcircuits.methods.fusion.rows import by_token, joined, masked
from fedcircuits.methods.fusion.training import Plan, ids_of
from fedcircuits.methods.meeting import hello as agreement


def respond(
    view: OwnerView, party: Party, members: Sequence[str], plan: Plan, secret: bytes, asks: bool
) -> Flow[Array | Labels]:
    """An owner sends what it knows of new rows; where it asks, it hears predictions of them.

    Else it ends with the order of its rows in what it has sent.
    """
    key = yield from agreement.key_of(party.name, members, secret)
    vectors = yield from compute("encoding its rows", lambda: view.vectors(party.table))
    own = tokens(ids_of(party.table, party), key)
    shown = masked(vectors, plan.clip, plan.noise, party.name, key)
    if plan.summation is not None and not view.votes:
        order = yield from fusion_sums.give(party.name, members, plan.summation, own, shown, {}, {})
    else:
        order, message = by_token(own, shown, plan.traffic)
        what = f"{'predictions' if view.votes else 'representations'} of single rows"
        told = f"{what}, {vectors.shape[1]} numbers each"
        yield from send_payload(COORDINATOR, "query/rows", message, told)
    if not asks:
        return order
    heard = yield from recv_payload(COORDINATOR, "query/answers")
    answers = expect(heard, np.ndarray, COORDINATOR, "query/answers")
    found = np.empty_like(answers)
    found[order] = answers
    return np.asarray(found, np.float64)


def ask(view: FusionView, members: Sequence[str], askers: Sequence[str], plan: Plan) -> Flow[None]:
    """The coordinator predicts rows that owners have sent, and tells those who ask."""
    if plan.summation is not None:
        summed = yield from fusion_sums.take(members, plan.summation)
        rows, where = summed.rows, summed.where
    else:
        rows, where = yield from _gathered(members, view.owners, view.width)
    answers = yield from compute("predicting", lambda: view.answer(rows))
    for party in askers:
        mine = where[:, list(members).index(party)]
        found = np.empty((int((mine >= 0).sum()), answers.shape[1]))
        found[mine[mine >= 0]] = answers[mine >= 0]
        what = f"predictions of {view.target.name} of its rows"
        yield from send_payload(party, "query/answers", found, what)


def opinions(members: Sequence[str], width: int) -> Flow[tuple[Gathered, Labels]]:
    """The coordinator puts what owners predict of their rows side by side, in their own order."""
    rows, where = yield from _gathered(members, members, width)
    return rows, where


def _gathered(
    members: Sequence[str], owners: Sequence[str], width: int
) -> Flow[tuple[Gathered, Labels]]:
    found = yield from gather_payloads(members, "query/rows")
    whole = joined(
        {p: expect(found[p], dict, p, "query/rows") for p in members}, list(owners), width
    )
    return whole.rows, whole.where
