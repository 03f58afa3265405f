"""The graph of a fusion, and what each party holds of it when it is learned.

    p/encoder   a leaf of family "predictor" at owner p, over its columns and series ("p/speed"), a
                unit a number of its representation
    fusion      the root at the coordinator, a Fuse of all leaves by the head's operation, a unit an
                output

Columns carry their owner's name: of one name at two owners they are two things here, two sensors'
speeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.circuit import PREDICTOR, Circuit, Fuse, Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.placement import Placement
from fedcircuits.learning.encoders.encoders import Encoder, Silent
from fedcircuits.methods.fusion.fitting import Fusion, Gathered
from fedcircuits.methods.fusion.votes import Votes
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table


@dataclass(frozen=True, eq=False)
class OwnerView:
    """What an owner holds: its encoder, and the graph."""

    me: str
    circuit: Circuit
    placement: Placement
    target: Variable
    encoder: Encoder
    votes: bool  # whether it sends predictions instead of representations
    allow_collect: bool = False

    def vectors(self, table: Table) -> Array:
        """What it sends of rows (rows, width), NaN where it knows nothing."""
        if self.votes:
            require_predictions(self.encoder, self.target, self.me)
        return vectors_of(self.encoder, table, self.votes)


@dataclass(frozen=True, eq=False)
class FusionView:
    """What the coordinator holds: the fusion, and whose representations it reads."""

    circuit: Circuit
    placement: Placement
    target: Variable
    overall: Array  # (outputs,): shares of the classes, or the mean, of the rows learned from
    owners: tuple[str, ...]
    width: int
    fusion: Fusion | Votes
    scale: tuple[float, float] = (0.0, 1.0)  # mean and deviation of a number

    def answer(self, rows: Gathered) -> Array:
        """(rows, outputs); what holds overall where nobody knows anything of a row."""
        found = self.fusion.predict(rows) * self.scale[1] + self.scale[0]
        return np.where(rows.there.any(axis=1, keepdims=True), found, self.overall)


def require_predictions(encoder: Encoder, target: Variable, owner: str) -> None:
    """FederationError unless the owner alone can predict the target, in its codes."""
    own = getattr(encoder, "target_", None)
    if isinstance(encoder, Silent):
        return
    if own is None:
        raise FederationError(
            f"{owner} has no values of {target.name!r} to learn predictions from: "
            "share_target=True lets others tell it"
        )
    if (own.name, own.categories) != (target.name, target.categories):
        raise FederationError(
            f"the encoder of {owner} predicts {own.name!r}, {own.described()}; expected "
            f"{target.name!r}, {target.described()}: let it learn again"
        )


def vectors_of(encoder: Encoder, table: Table, votes: bool) -> Array:
    ask = getattr(encoder, "predict_vector") if votes else encoder.encode  # noqa: B009
    found = np.asarray(ask(table), dtype=np.float64)
    return found


def graph_of(
    columns: Mapping[str, Sequence[str]], widths: Mapping[str, int], operation: str, outputs: int
) -> tuple[Circuit, dict[str, str]]:
    """The graph over the columns that every owner's encoder reads, and where its nodes live."""
    leaves = [
        Leaf(f"{p}/encoder", PREDICTOR, tuple(f"{p}/{n}" for n in own), widths[p])
        for p, own in columns.items()
    ]
    root = Fuse("fusion", tuple(leaf.name for leaf in leaves), operation, outputs)
    schema = Schema.real(name for leaf in leaves for name in leaf.scope)
    placement = {f"{p}/encoder": p for p in columns} | {"fusion": COORDINATOR}
    return Circuit((*leaves, root), schema), placement
