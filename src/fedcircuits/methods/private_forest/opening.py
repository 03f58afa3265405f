"""A private forest opened, by an act of all its parties: everybody has the parameters, for good.

    open/model   party → party: its shares of all parameters

A party that does not allow it ends it before it has sent anything. Shares that do not fit together
are found, as N − t − 1 of them are to spare.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.nodes import Leaf
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.dealing import PROBABILITY
from fedcircuits.methods.private_forest.model import Forest, Shares
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.sharing.group import Group, Lot, exchange
from fedcircuits.privacy.sharing.shares import reconstruct

TOLD = "its share of every parameter: all of the forest"


def opening(me: str, forest: Forest, shares: Shares, allow: bool, key: bytes) -> Flow[Parameters]:
    """A party's side, one round. ``key``: fresh, as for every group."""
    shares.check(forest)
    if not allow:
        raise FederationError(
            f"{me} does not allow the parameters to be opened: Federation(…, allow_collect=True)"
        )
    group = Group.of(me, shares.members, key, f"open/{shares.run}")
    secrets = forest.secrets(len(shares.members))
    lots = [Lot(secret.ring, secret.shape) for secret in secrets.values()]
    parts = {m: [shares.arrays[name] for name in secrets] for m in shares.members}
    found = yield from exchange(group, "open/model", parts, shares.members, lots, TOLD)
    values = {}
    for (name, secret), rows in zip(secrets.items(), found, strict=True):
        whole = reconstruct(secret.ring, rows, group.threshold, shares.members)
        plain = FixedPoint(secret.fraction, 20, secret.ring).decode(whole)
        values[name] = np.exp2(plain) if secret.log else plain
    return _parameters(forest, values)


def _parameters(forest: Forest, values: Mapping[str, Array]) -> Parameters:
    """Without what rounding left: distributions add up to 1."""
    found: dict[str, dict[str, Array]] = {}
    for name, numbers in values.items():
        node, even = forest.circuit[name], numbers / numbers.sum(axis=-1, keepdims=True)
        if not isinstance(node, Leaf):
            found[name] = {WEIGHT: even}
        elif node.family == "bernoulli":
            found[name] = {PROBABILITY: even[..., 1]}
        else:
            found[name] = {PROBABILITY: even}
    return Parameters(found)
