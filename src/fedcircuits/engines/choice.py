"""Engines by name; those that relay messages seal them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from fedcircuits.arguments import Choice
from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import Engine
from fedcircuits.engines.ray import RayEngine
from fedcircuits.engines.sealed import SealedEngine
from fedcircuits.errors import FederationError

Seal: TypeAlias = bool | Literal["auto"]
SEAL = Choice("auto", True, False)

ENGINES: dict[str, Engine] = {"memory": memory.run, "process": process.run, "ray": RayEngine()}


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
