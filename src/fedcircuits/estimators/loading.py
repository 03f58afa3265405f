"""Models from .fc files: whole ones, and those whose parts are at sites."""

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
    """The model in an .fc file, ready for questions.

    FeatureFusion and FedTrees that were collected are predictors and no distributions: they have
    their own ``load``.

    Parameters
    ----------
    path : str or path
        The file.
    federation : Federation, optional
        For a model whose parts are at sites, these sites: ``Federation.connect(…)``. Without it the
        model has the coordinator's part, and ``reconnect(federation)`` later asks the sites.
    """
    part = parts.read(path)
    if part is None:
        return load_circuit(path)
    if not isinstance(part, FederatedEstimator):
        raise _damaged(path, f"{type(part).__name__} is no federated estimator")
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
