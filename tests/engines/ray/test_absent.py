"""The engine 'ray' where Ray is not installed."""

from __future__ import annotations

import sys

import pytest

import fedcircuits as fc
from fedcircuits.engines.ray.worker import ActorSeat, Worker
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Compute, digest
from fedcircuits.federation.recipes import pack
from fedcircuits.methods.fedpc import training
from tests.federation.cases import federation


def test_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fc.errors.ExtraMissingError, match=r"pip install 'fedcircuits\[ray\]'"):
        fc.FedPC().fit(federation("rows"), engine="ray")


class Foreign:
    """Of no part of the library."""


def test_what_cannot_be_packed_is_named_without_a_digest() -> None:
    """Names of kept work hold a digest of rows; errors reach the caller."""
    work = Compute("learning north/0", Foreign, key=digest("rows"))
    seat = ActorSeat("run", "north", Worker(), {"recipe": pack((training.client, {}, {}))})
    seat.program()
    seat.at(work.step)
    told = r"'learning north/0'.* Foreign .*engine='process'"
    with pytest.raises(ProtocolError, match=told) as e:
        seat.kept[work.name] = work.work()
    assert work.key in work.name and work.key not in str(e.value)
