"""An engine whose messages only their receivers read.

Where an engine relays messages, whoever relays them sees what parties send each other. With
``SealedEngine`` every program of a run is wrapped (``sealed``): the relay sees tags, ends, sizes.
``engine_of`` wraps the engines that relay, so every method is sealed there without asking.

Identities are made here for one run, by whoever calls it. So this hides messages from the way
between parties: connections, threads and processes that pass them on, and whatever listens there.
It does not hide them from the caller itself, which holds all programs, with their tables and keys,
and could read them there. Between owners each party has an identity of its own, and gives
``sealed`` the public keys that it knows of the others.

The ledger counts what crosses: sealed bytes, 24 and the names of two fields more than the message,
and one ``seal/hello`` from each party to each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.federation.flow import Program
from fedcircuits.privacy.channels.identity import Identity
from fedcircuits.privacy.channels.sealing import sealed
from fedcircuits.privacy.sharing.randomness import fresh_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SealedEngine:
    """The same engine, its messages sealed: ``fit(…, engine=SealedEngine(memory.run))``."""

    engine: Engine

    def __call__(self, programs: Mapping[str, Program[T]], kept: Kept | None = None) -> Outcome[T]:
        return self.engine(covered(programs), kept)


def covered(programs: Mapping[str, Program[T]]) -> dict[str, Program[T]]:
    """The programs of one run, with messages sealed between all of them."""
    identities = {me: Identity.fresh() for me in programs}
    known = {me: identity.public for me, identity in identities.items()}
    common = {"known": known, "run": fresh_key().hex()}
    return {
        me: Program(sealed, {"program": program, "me": me, "identity": identities[me], **common})
        for me, program in programs.items()
    }
