"""The model of a file, for commands: any model, or one that must be a distribution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fedcircuits.circuits.graph import files
from fedcircuits.errors import FederationError, FileError, QueryError
from fedcircuits.estimators.circuit_model import load_circuit
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.estimators.fedtrees import CollectedTrees, Predictions
from fedcircuits.estimators.fusion_model import FusionModel
from fedcircuits.estimators.loading import load
from fedcircuits.estimators.model import Model
from fedcircuits.federation.federation import Federation

AnyModel = Model | Predictions | FusionModel
M = TypeVar("M", Model, Model | Predictions)


@contextmanager
def any_model(path: Path, consortium: Path | None = None) -> Iterator[AnyModel]:
    """The model of a file; for a model at sites, a connection is kept open meanwhile."""
    if not files.is_part(path):
        yield _whole(path)
        return
    model = load(path)
    if not isinstance(model, Model | Predictions):
        raise FederationError(
            f"{path} holds {type(model).__name__}, whose owners keep the rows it reads: query it "
            "in Python, fedcircuits.load(path, federation)"
        )
    with connected(model, path, consortium) as at_sites:
        yield at_sites


@contextmanager
def opened(path: Path, consortium: Path | None) -> Iterator[Model]:
    """The distribution of a file; for a model at sites, a connection is kept open meanwhile."""
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


def _whole(path: Path) -> AnyModel:
    _, metadata = files.read_members(path)
    match metadata.get("estimator"):
        case "FedTrees":
            return CollectedTrees.load(path)
        case "FeatureFusion":
            return FeatureFusion.load(path)
    return load_circuit(path)


@contextmanager
def connected(model: M, path: Path, consortium: Path | None) -> Iterator[M]:
    """A model whose parts are at sites, connected to them."""
    if not isinstance(model, FederatedEstimator) or model.where_ is None:
        raise FileError(f"{path} does not say where its parts are")
    place = consortium or Path(model.where_.kit)
    if not place.exists():
        raise FileError(
            f"{path}: its consortium was at {place}, which no longer exists: give --consortium"
        )
    with Federation.connect(place, sites=list(model._allow_collect)) as federation:
        yield model.reconnect(federation)


def distribution(model: AnyModel, path: Path, verb: str) -> Model:
    """The model if it is a distribution; QueryError for a predictor."""
    if isinstance(model, Model):
        return model
    kind = "FedTrees" if isinstance(model, Predictions) else type(model).__name__
    raise QueryError(
        f"{path} holds {kind}, which predicts one column and is not a distribution: {verb} needs a "
        "model of all columns, such as train --method fedpc learns"
    )
