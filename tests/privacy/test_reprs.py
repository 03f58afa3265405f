"""What is printed of keys, identities, masks and shares has nothing of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.federation.flow import Flow
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.channels import Handshake
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.privacy.identity import Identity
from fedcircuits.privacy.operations.checks import checks_made
from fedcircuits.privacy.secret_counts import SecretCounts
from fedcircuits.privacy.sharing.group import Group
from tests.methods.private_forest.asking import booleans, held, parameters, stores
from tests.privacy.parties import answers, names

KEY = bytes(range(100, 132))


def beginning(me: str, members: tuple[str, ...], key: bytes, own: object) -> Flow[Any]:
    return (yield from checks_made(Group.of(me, members, key), "check", [[(FIELD, 3)]]))


def secret_things() -> dict[str, tuple[object, list[bytes | np.ndarray]]]:
    """Each with what it must not show."""
    identity, forest = Identity(KEY), Forest(mixture_of_products(booleans(2), 2))
    hands = Handshake.of("north", identity, {"north": identity.public}, "run", KEY)
    checks = answers(beginning, dict.fromkeys(names(3)))["party0"]
    store, shares = stores(forest, 3, 2)["party0"], held(forest, parameters(forest), 3)["party0"]
    batch = store.lots[0]
    return {
        "identity": (identity, [KEY]),
        "handshake": (hands, [KEY, hands.private.private_bytes_raw()]),
        "secret": (Secret(key=KEY), [KEY]),
        "sum": (Secret(key=KEY).at("a", ("a", "b", "c")), [KEY]),
        "counts": (SecretCounts("a", ("a", "b"), KEY), [KEY]),
        "group": (Group.of("a", ("a", "b", "c"), KEY), [KEY]),
        "checks": (checks, [*checks.tosses.keys, checks.blinds[0][0]]),
        "batch": (batch, [batch.covers, batch.inverses, batch.factors, batch.floods]),
        "store": (store, [batch.covers, batch.factors]),
        "shares": (shares, list(shares.arrays.values())),
    }


@pytest.mark.parametrize("name", secret_things())
def test_nothing_is_printed(name: str) -> None:
    thing, hidden = secret_things()[name]
    shown = repr(thing) + str(thing)
    for secret in hidden:
        if isinstance(secret, bytes):
            assert repr(secret)[2:-1] not in shown and secret.hex() not in shown
        else:
            assert not [v for v in np.unique(secret) if v > 1 << 20 and str(v) in shown]
