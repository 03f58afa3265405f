"""Models from .fc files: complete ones, and those whose parts are held by sites."""

from __future__ import annotations

import os

from fedcircuits.arguments import check_arguments
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.estimators import parts
from fedcircuits.estimators.circuit_model import CircuitModel, load_circuit
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.federation.federation import Federation


def load(
    path: str | os.PathLike[str], federation: Federation | None = None
) -> CircuitModel | FederatedEstimator[object]:
    """The model in an .fc file.

    Collected FeatureFusion and FedTrees models are predictors rather than distributions and have a
    ``load`` method of their own.

    Parameters
    ----------
    path : str or path
        The file.
    federation : Federation, optional
        For a model whose parts are held by sites, the connection to them,
        ``Federation.connect(…)``. Without it the model holds the coordinator's part only, until
        ``reconnect(federation)`` is called.
    """
    part = parts.read(path)
    if part is None:
        return load_circuit(path)
    if not isinstance(part, FederatedEstimator):
        raise _damaged(path, f"{type(part).__name__} is not a federated estimator")
    try:
        check_arguments(part, FileError)
        part._check_fitted()
        sound = part.where_ is not None and isinstance(part._allow_collect, dict)
    except (FedcircuitsError, AttributeError, TypeError, ValueError) as error:
        raise _damaged(path, f"{type(part).__name__} is not whole ({error})") from error
    if not sound:
        raise _damaged(path, "it does not say where its parts are")
    return part if federation is None else part.reconnect(federation)


def _damaged(path: object, problem: str) -> FileError:
    return FileError(f"{path} is damaged: {problem}; get the file again, or save the model anew")
