"""Engines by name. Engines that relay messages encrypt them end to end.

Where an engine relays messages, the relay could read what parties send each other. With
``SealedEngine`` every program of a run is wrapped (privacy/channels.py), and the relay sees only
tags, endpoints and sizes. ``engine_of`` wraps every engine that relays.

Identities are created here for one run, by the caller. This protects messages on the way between
parties: connections, threads and processes that pass them on, and anybody who listens there. It
does not protect them from the caller itself, which holds all programs with their tables and keys.
Between owners, each party has an identity of its own and gives ``sealed`` the public keys that it
knows of the others.

The ledger counts what crosses: sealed messages, 24 bytes and the names of two fields longer than
the plain ones, and one ``seal/hello`` from each party to each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from fedcircuits.arguments import Choice
from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.engines.ray import RayEngine
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import fresh_key
from fedcircuits.privacy.channels import sealed
from fedcircuits.privacy.identity import Identity

T = TypeVar("T")
Seal: TypeAlias = bool | Literal["auto"]
SEAL = Choice("auto", True, False)
ENGINES: dict[str, Engine] = {"memory": memory.run, "process": process.run, "ray": RayEngine()}


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


def engine_of(engine: object, seal: Seal = "auto") -> Engine:
    """The engine of that name, or the engine itself; None is the one in memory.

    ``seal``: whether its messages are sealed; "auto": where it says that it ``relays`` them. One
    that ``seals`` them itself is left alone: the keys are the parties' own, and not drawn here.
    """
    engine = "memory" if engine is None else engine
    if isinstance(engine, str) and engine in ENGINES:
        engine = ENGINES[engine]
    if not callable(engine):
        known = ", ".join(map(repr, ENGINES))
        raise FederationError(
            f"unknown engine {engine!r}: expected {known}, or a function that runs programs"
        )
    relays = getattr(engine, "relays", False) if seal == "auto" else seal
    done = isinstance(engine, SealedEngine) or getattr(engine, "seals", False)
    return SealedEngine(engine) if relays and not done else engine
