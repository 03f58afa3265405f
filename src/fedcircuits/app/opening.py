"""The model of a file, ready for questions of the command line.

A question to a file need not wait for torch and scikit-learn: what only models at sites and draws
need is imported for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.questions.queryable import Queryable
from fedcircuits.circuits.questions.small import SmallDistribution
from fedcircuits.errors import FederationError

if TYPE_CHECKING:
    from fedcircuits.estimators.model import Model


@contextmanager
def asked(path: Path, consortium: Path | None) -> Iterator[Queryable]:
    """What a file knows, for single questions. Sites are connected meanwhile."""
    if files.is_part(path):
        with opened(path, consortium) as model:
            yield model._distribution
        return
    circuit, parameters, metadata = files.read(path)
    if not circuit.is_density:
        files.require_estimator(path, metadata, None)
    yield SmallDistribution(circuit, parameters)


@contextmanager
def opened(path: Path, consortium: Path | None) -> Iterator[Model]:
    """The model of a file. One at sites is connected meanwhile."""
    from fedcircuits.app.loading import connected
    from fedcircuits.estimators.loading import load
    from fedcircuits.estimators.model import Model

    model = load(path)
    if not files.is_part(path):
        assert isinstance(model, Model)
        yield model
        return
    if not isinstance(model, Model):
        raise FederationError(
            f"{path} holds {type(model).__name__}, which is no distribution: ask it in Python, "
            "fedcircuits.load(path, federation)"
        )
    with connected(model, path, consortium) as at_sites:
        yield at_sites
