"""Where the nodes of a circuit live, and what a party holds of it after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.distribution import Distribution
from fedcircuits.circuits.nodes import Leaf
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.errors import FederationError

Placement = Mapping[str, str]  # ψ: the party of every node


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One party's view of a federated circuit: the graph, where nodes live, and its own values."""

    me: str
    circuit: Circuit
    placement: Placement
    parameters: Parameters
    allow_collect: bool = False
    _ready: dict[str, Distribution] = field(default_factory=dict, repr=False)

    def leaf(self, name: str) -> Distribution:
        """The distribution of a leaf that lives here."""
        if self.placement.get(name) != self.me:
            raise FederationError(f"leaf {name!r} does not live at {self.me}")
        if name not in self._ready:
            self._ready[name] = Distribution(*self.parameters.circuits[name])
        return self._ready[name]

    def __reduce__(self) -> tuple[type[View], tuple[object, ...]]:
        """Without what can be made again."""
        return View, (self.me, self.circuit, self.placement, self.parameters, self.allow_collect)


def leaves_at(circuit: Circuit, placement: Placement, party: str) -> list[Leaf]:
    return [leaf for leaf in circuit.leaves() if placement[leaf.name] == party]
