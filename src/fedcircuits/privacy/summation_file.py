"""How parties add up, in files: Hub(), Tree(…), Chebyshev(…), Metropolis(…), Secret(), Masked().

Keys are never written. A graph is written as its name, or as pairs of parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from fedcircuits.circuits.graph.records import Json, Place, fields_of, record_of
from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Chebyshev, Hub, Metropolis, Tree
from fedcircuits.federation.sums.topology import Links, Topology
from fedcircuits.privacy.hidden_sums import Masked, Secret

Known = Hub | Tree | Chebyshev | Metropolis | Secret | Masked
KINDS: dict[str, type[Known]] = {
    "Hub": Hub, "Tree": Tree, "Chebyshev": Chebyshev, "Metropolis": Metropolis, "Secret": Secret,
    "Masked": Masked,
}  # fmt: skip


def summation_stored(summation: Summation | None) -> Json | None:
    if summation is None:
        return None
    kind = type(summation).__name__
    if KINDS.get(kind) is not type(summation):
        raise FileError(f"summation={kind} is a class of your own, which a file cannot store")
    settings = {name: getattr(summation, name) for name in _settings(kind)}
    plain = {n: v.edges if isinstance(v, Links | Topology) else v for n, v in settings.items()}
    return fields_of({"kind": kind, **plain})


def _settings(kind: str) -> list[str]:
    return [f.name for f in fields(KINDS[kind]) if f.name != "key"]


def summation_of(stored: Json | None, parties: Sequence[str]) -> Summation | None:
    """The summation that a file names, if these parties can add up so."""
    if stored is None:
        return None
    what, kind = "the summation", stored.get("kind")
    if kind not in KINDS:
        raise FileError(f"{what}: 'kind' must be one of {', '.join(KINDS)}, got {kind!r}")
    for name in _settings(kind):
        if name not in stored:
            raise FileError(f"{what} has no field {name!r}")
        if name in ("fraction", "magnitude"):
            record_of(Place, stored[name], f"{name!r} of {what}")
    try:
        summation = KINDS[kind](**{name: stored[name] for name in _settings(kind)})
        summation.prepare("summation")
        summation.at(parties[0], summation.members(parties))
    except FedcircuitsError as error:
        raise FileError(f"{what}: {error}") from error
    return summation
