"""Products of secrets in one round (Gennaro, Rabin and Rabin 1998).

A member's product of two shares is its share of the product, of degree 2t. The first 2t + 1 members
deal theirs anew at degree t; the sum of what they dealt, with the whole-number weights of the value
at 0, is a share of the product of degree t. Any sum of products takes the same one round.
"""

from __future__ import annotations

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.shares import weights
from fedcircuits.privacy.sharing.sharing import shared_mix


def reduced(group: Group, tag: str, products: Elements) -> Flow[Elements]:
    """Shares of degree 2t as shares of degree t."""
    needed = 2 * group.threshold + 1
    own = products if group.me in group.members[:needed] else None
    return (yield from shared_mix(group, tag, own, products.shape[:-1], weights(needed, 0)))


def product(group: Group, tag: str, a: Elements, b: Elements) -> Flow[Elements]:
    """Shares of a·b, of degree t as theirs are."""
    return (yield from reduced(group, tag, group.ring.multiply(a, b)))
