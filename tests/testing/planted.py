"""A small protocol, the mean of all rows, that goes wrong in the way that ``fault`` says.

It stands apart because processes of parties import it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import (
    Flow,
    Program,
    compute,
)
from fedcircuits.testing.trials import hear, say

MEMBERS = ("north", "south", "west")
RUNS = count()
SIDE: list[float] = []  # what parties of one process see of each other
TAG = "mean/sums"


def programs(fault: str = "", **more: object) -> dict[str, Program[Array]]:
    rng = np.random.default_rng(0)
    tables = {me: rng.normal(size=(8, 3)) for me in MEMBERS}
    told: dict[str, object] = {"spare": tables if fault == "spare" else {}, "fault": fault}
    found = {"hub": Program(coordinator, told)}
    for me in MEMBERS:
        own = {"table": tables[me], "fault": fault if me == "south" else "", "seed": 4}
        found[me] = Program(client, {**own, **more})
    return found


def client(table: Array, fault: str, seed: int, **more: object) -> Flow[Array]:
    rng = np.random.default_rng(seed)
    shift = yield from compute("drawing a number", partial(rng.normal))
    if fault == "in place":
        table -= table.mean()
    own = (yield from compute("adding up", partial(table.sum, axis=0))) + _off(fault, shift, rng)
    yield from _told("hub", own, fault)
    if fault == "late":
        yield from say("hub", "mean/more/1", 1, "nothing of use")
    mean: Array = yield from hear("hub", "mean/all")
    if fault == "process":
        return mean + os.getpid()
    return mean.astype(np.float64)


def _off(fault: str, shift: float, rng: np.random.Generator) -> float:
    """What is added to the sums by mistake."""
    if fault == "counter":
        return float(next(RUNS))
    if fault == "side":
        return sum(SIDE)
    if fault == "numpy":
        np.random.seed(3)  # noqa: NPY002
        return float(np.random.normal())  # noqa: NPY002
    if fault == "python":
        random.seed(3)
        return random.random()
    if fault == "torch":
        torch.manual_seed(3)
        return float(torch.rand(1))
    return shift + float(rng.normal()) if fault == "stream" else 0.0


def _told(to: str, own: Any, fault: str) -> Flow[None]:
    if fault == "kinds":
        yield from say(to, TAG, 3, "a number of rows")
    tag = {"tag": "sums", "number": "3/sums", "empty": "mean//sums"}.get(fault, TAG)
    yield from say(to, tag, own, "" if fault == "silent" else "sums of its rows")


def coordinator(spare: Mapping[str, Array], fault: str) -> Flow[Array]:
    if fault == "side":
        SIDE.append(1.0)
    found = {}
    for me in MEMBERS:
        try:
            found[me] = yield from _heard(me, fault)
        except PartyLostError as lost:
            if fault == "blames":
                raise ProtocolError("somebody is not there") from lost
            if fault not in ("spare", "goes on"):
                raise
            if me in spare:
                found[me] = spare[me].sum(axis=0)
    mean = np.asarray(np.sum(list(found.values()), axis=0) / (8 * len(found)))
    for me in MEMBERS:
        yield from say(me, "mean/all", mean, "the mean of all rows")
    if fault == "side":
        SIDE.clear()
    return mean


def _heard(me: str, fault: str) -> Flow[Array]:
    tag = TAG
    if me == "south":
        tag = {"tag": "sums", "number": "3/sums", "empty": "mean//sums"}.get(fault, TAG)
        tag = "mean/other" if fault == "waits" else tag
    while fault == "for ever":
        try:
            return np.asarray((yield from hear(me, tag)))
        except PartyLostError:
            continue
    if fault == "kinds" and me == "south":
        yield from hear(me, tag)
    return np.asarray((yield from hear(me, tag)))
