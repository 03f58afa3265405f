"""The key of row tokens, as it arrives."""

from __future__ import annotations

import pytest

from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow, Program, send
from fedcircuits.methods.meeting.tokens import TokenKey, key_of


def _sends(key: bytes) -> Flow[bytes]:
    yield from send("second", TokenKey(key))
    return key


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 31 + b"\0" * 2])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    """A keyed hash fills keys up with zeros: one that ends earlier could be the same key."""
    reader = {"me": "second", "parties": ["first", "second"], "secret": b""}
    programs = {"first": Program(_sends, {"key": key}), "second": Program(key_of, reader)}
    lost = memory.run(programs).lost
    assert lost["second"].party == "first"
    assert "expected 32 bytes" in str(lost["second"])
