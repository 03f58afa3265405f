"""The model of a file, for queries on the command line.

A query of a file need not wait for torch and scikit-learn: they are imported only for models at
sites and for sampling.
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
    """The distribution in a file, for single queries; sites are connected meanwhile."""
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
    """The model of a file; for a model at sites, a connection is kept open meanwhile."""
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
            f"{path} holds {type(model).__name__}, which is not a distribution: query it in "
            "Python, fedcircuits.load(path, federation)"
        )
    with connected(model, path, consortium) as at_sites:
        yield at_sites
