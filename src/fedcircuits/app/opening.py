"""The model of a file, ready for questions of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcircuits.circuits.graph import files
from fedcircuits.errors import FederationError, FileError
from fedcircuits.estimators.circuit_model import load_circuit
from fedcircuits.estimators.model import Model


@contextmanager
def asked(path: Path, consortium: Path | None) -> Iterator[Model]:
    """One at sites is connected meanwhile."""
    if not files.is_part(path):
        yield load_circuit(path)
        return
    from fedcircuits.estimators.loading import load
    from fedcircuits.federation.federation import Federation

    model = load(path)
    kind, where = type(model).__name__, getattr(model, "where_", None)
    if not isinstance(model, Model) or where is None:
        raise FederationError(
            f"{path} holds {kind}, which is no distribution: ask it in Python, "
            "fedcircuits.load(path, federation)"
        )
    place = consortium or Path(where.kit)
    if not place.exists():
        raise FileError(f"{path}: its consortium was at {place}, which is gone: give --consortium")
    with Federation.connect(place, sites=list(model._allow_collect)) as federation:
        yield model.reconnect(federation)
