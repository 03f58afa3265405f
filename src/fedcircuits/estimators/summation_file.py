"""How parties add up, as JSON and back: Hub(), Tree(…), Chebyshev(…), Metropolis(…), Secret().

Keys are never written. A graph is written as its name, or as pairs of parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from fedcircuits.errors import FedcircuitsError, FileError
from fedcircuits.estimators.training import require_summation
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Chebyshev, Hub, Metropolis, Tree
from fedcircuits.federation.sums.topology import Links, Topology
from fedcircuits.learning.stored import Fields, plain
from fedcircuits.privacy.secure_sum import Secret

Known = Hub | Tree | Chebyshev | Metropolis | Secret
KINDS: dict[str, type[Known]] = {
    "Hub": Hub, "Tree": Tree, "Chebyshev": Chebyshev, "Metropolis": Metropolis, "Secret": Secret,
}  # fmt: skip


def summation_stored(summation: Summation | None) -> object:
    if summation is None:
        return None
    kind = type(summation).__name__
    if KINDS.get(kind) is not type(summation):
        raise FileError(f"summation={kind} is a class of yours, which a file cannot hold")
    found: dict[str, object] = {"kind": kind}
    for name in _settings(kind):
        value = getattr(summation, name)
        found[name] = plain(value.edges if isinstance(value, Links | Topology) else value)
    return found


def _settings(kind: str) -> list[str]:
    return [f.name for f in fields(KINDS[kind]) if f.name != "key"]


def summation_of(about: Fields, parties: Sequence[str]) -> Summation | None:
    """The setting of that name, if these parties can add up so."""
    if about.none("summing"):
        return None
    said = about.inner("summing")
    kind = said.word("kind", tuple(KINDS))
    settings = {name: said[name] for name in _settings(kind)}
    for name in ("fraction", "magnitude"):
        if name in settings:
            settings[name] = said.whole(name)
    try:
        found = KINDS[kind](**settings)  # type: ignore[arg-type]
        require_summation("summation", found)
        found.at(parties[0], found.members(parties))
    except FedcircuitsError as error:
        raise FileError(f"{said.what}: {error}") from error
    return found
