"""Where the nodes of a circuit live, and what is held of it after training: a party has its own
leaves and nothing of others, the coordinator the graph above them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedcircuits.circuits.graph.circuit import Circuit, Leaf
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import FederationError
from fedcircuits.tables.schema import Schema

Placement = Mapping[str, str]  # ψ: the party of every node


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """What the coordinator holds: the graph, where its nodes live, the weights of its sums."""

    circuit: Circuit
    placement: Placement
    parameters: Parameters


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a party holds: its leaves, each a circuit over some of its columns."""

    me: str
    schema: Schema  # of its own columns, as agreed
    leaves: tuple[Leaf, ...]
    parameters: Parameters
    allow_collect: bool = False
    _ready: dict[str, Distribution] = field(default_factory=dict, repr=False)

    def leaf(self, name: str) -> Distribution:
        """The distribution of a leaf that lives here."""
        if name not in self.parameters.circuits:
            raise FederationError(f"leaf {name!r} does not live at {self.me}")
        if name not in self._ready:
            self._ready[name] = Distribution(*self.parameters.circuits[name])
        return self._ready[name]

    def __reduce__(self) -> tuple[type[View], tuple[object, ...]]:
        """Without what can be made again."""
        return View, (self.me, self.schema, self.leaves, self.parameters, self.allow_collect)


def leaves_at(circuit: Circuit, placement: Placement, party: str) -> list[Leaf]:
    return [leaf for leaf in circuit.leaves() if placement[leaf.name] == party]
