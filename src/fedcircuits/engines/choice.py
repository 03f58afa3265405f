"""Engines by name."""

from __future__ import annotations

from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError

ENGINES: dict[str, Engine] = {"memory": memory.run, "process": process.run}


def engine_of(engine: str | Engine) -> Engine:
    """The engine of that name, or the engine itself."""
    if callable(engine):
        return engine
    if not isinstance(engine, str) or engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise FederationError(
            f"unknown engine {engine!r}: expected {known}, or a function that runs programs"
        )
    return ENGINES[engine]
