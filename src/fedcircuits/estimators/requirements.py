"""What federated estimators require of a federation before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.tables.series import refuse_series


def require_federation(given: object, estimator: str, series: bool = False) -> Federation:
    """FederationError unless it is a federation; ``series``: whether series may be read."""
    if not isinstance(given, Federation):
        raise FederationError(
            f"{estimator} learns from a Federation of parties, got {type(given).__name__}: "
            "Federation({'north': table, 'south': table}), or split(table, 3) to try out"
        )
    for party in given:
        if party.table.series and not series:
            refuse_series(party.table.series, estimator, f" of {party.name}")
    return given


def check_one_each(name: str, given: object, federation: Federation) -> None:
    """FederationError unless an argument that is given by party has one for each."""
    absent = [n for n in federation.names if isinstance(given, Mapping) and n not in given]
    if absent:
        raise FederationError(f"{name} has none for {absent[0]!r}: give one for each party")


def refuse_to_collect(allowed: Mapping[str, bool]) -> None:
    """Raise unless every party has allowed what it has learned to leave it."""
    refused = [n for n, allows in allowed.items() if n != COORDINATOR and not allows]
    if refused:
        raise FederationError(
            f"{', '.join(refused)} did not allow what they have learned to leave them: "
            "Federation(…, allow_collect=True), or ask the model where it is"
        )
