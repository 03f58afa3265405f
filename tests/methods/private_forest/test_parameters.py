"""Shares of parameters: dealt by their owners, and opened only if all allow it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedcircuits.circuits.graph.circuit import Leaf
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Program
from fedcircuits.methods.private_forest.model import (
    Forest,
    probabilities,
)
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.sharing.group import SHARE
from fedcircuits.privacy.sharing.shares import reconstruct
from fedcircuits.testing import check_protocol
from tests.methods.private_forest.asking import (
    booleans,
    circuits,
    dealing,
    deals,
    held,
    known,
    parameters,
    run,
    side_by_side,
)
from tests.methods.private_forest.learning import SMALL, opened, trained
from tests.privacy.parties import key, messages, names

# ---------------------------------------------------------------------- dealing


@pytest.mark.parametrize("name", ["flat", "depth 2"])
@pytest.mark.parametrize("count", [3, 4])
def test_dealt_parameters(name: str, count: int) -> None:
    forest = Forest(circuits()[name])
    learned = parameters(forest)
    shares = held(forest, learned, count)
    for node, secret in forest.layouts(count).items():
        rows = np.stack([own.arrays[node] for own in shares.values()])
        opened = reconstruct(secret.ring, rows, (count - 1) // 2, names(count))
        found = FixedPoint(secret.fraction, 20, secret.ring).decode(opened)
        own = forest.circuit[node]
        plain = probabilities(own, learned) if isinstance(own, Leaf) else learned[node]["weight"]
        expected = np.log2(plain) if secret.log else plain
        assert np.abs(found - expected).max() < 2.0**-secret.fraction


def test_owners_deal_their_own_components() -> None:
    """The sharing of one party's part does not depend on what it thinks of the others'."""
    forest = Forest(side_by_side(booleans(3), (2, 1, 2)))
    members, learned = names(3), parameters(Forest(side_by_side(booleans(3), (2, 1, 2))))
    owners = {leaf.name: members[i] for i, leaf in enumerate(forest.circuit.leaves())}
    made = {}
    for i, me in enumerate(members):
        name = f"{i}/component"
        weight = np.full((1, 5), np.nan)
        start = (0, 2, 3)[i]
        stop = start + forest.circuit.units[name]
        weight[:, start:stop] = learned["root"]["weight"][:, start:stop]
        own = Parameters({name: learned[name], "root": {"weight": weight}})
        given_ = {"me": me, "members": members, "key": key(me), "forest": forest}
        made[me] = Program(deals, {**given_, "owners": owners, "own": own})
    outcome = run(made)
    rows = np.stack([own.arrays["root"] for own in outcome.results.values()])
    opened = FixedPoint(36, 20).decode(reconstruct(FIELD, rows, 1, members))
    assert np.allclose(opened, np.log2(learned["root"]["weight"]), atol=1e-10)
    assert len(outcome.ledger) == 6 and {e.reveals for e in outcome.ledger} == {SHARE}
    check_protocol(made, run=memory.run)


def test_plain_parameters_never_cross() -> None:
    forest = Forest(mixture_of_products(booleans(6), 3))
    learned = parameters(forest)
    _, sent = messages(dealing(forest, learned, 3))
    data = b"".join(m.data for own in sent.values() for m in own)
    assert len(sent["party0"]) == 2
    for secret in known(forest, learned, "party0", names(3)).arrays.values():
        for element in secret.reshape(-1, 2):
            assert FIELD.packed(element[None]).tobytes()[:8] not in data
    for own in learned.values.values():
        for values in own.values():
            single = np.concatenate([values, np.log2(values)]).ravel()
            assert all(v.tobytes() not in data for v in single)


# ---------------------------------------------------------------------- opening


def test_opening_is_for_all_to_allow() -> None:
    outcome = opened(trained(replace(SMALL, combine="concatenate")), allow=False)
    assert "does not allow" in str(next(iter(outcome.lost.values())))
    assert not len(outcome.ledger)


def test_a_wrong_share_is_found() -> None:
    outcome = trained(replace(SMALL, combine="concatenate"))
    own = outcome.results["party1"].shares.arrays
    own["root"][0, 0, 0] ^= np.uint64(4)
    found = opened(outcome)
    assert "inconsistent shares" in str(next(iter(found.lost.values())))
    assert "coordinator" not in found.results
