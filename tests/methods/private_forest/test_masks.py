"""What is made ahead: used once, by all parties in the same order; rounds and bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.engines import memory
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.messages import encode_message
from fedcircuits.methods.private_forest.masks import MaskBatch
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.privacy.operations.checks import ALIKE, CHECKED, COMMITTED, TOSSED
from fedcircuits.privacy.sharing.dealing import DIGEST, PAIR_KEY
from fedcircuits.privacy.sharing.group import SHARE, Shares
from fedcircuits.privacy.sharing.shares import reconstruct
from fedcircuits.testing import check_protocol
from tests.methods.private_forest.asking import (
    ASKER,
    CLOSE,
    asking,
    booleans,
    exact,
    held,
    next_of,
    parameters,
    points,
    preparing,
    run,
    stores,
    taken,
)
from tests.privacy.parties import names

FOREST = Forest(mixture_of_products(booleans(3), 2))


def test_none_is_used_twice() -> None:
    """The same masks for another query are refused by every party; for the same one again they
    are not, since it would show nothing new."""
    learned, x = parameters(FOREST), points(booleans(3), 2)
    shares, batches = held(FOREST, learned, 3), taken(stores(FOREST, 3, 2), 2)
    first = run(asking(FOREST, shares, batches, x)).results[ASKER]
    again = run(asking(FOREST, shares, batches, x)).results[ASKER]
    assert np.array_equal(first, again)
    outcome = memory.run(asking(FOREST, shares, batches, 1 - x, label="another"))
    assert not outcome.results
    assert "masks of 2 rows were used for another query" in str(outcome.lost["party0"])
    assert not any(e.tag.startswith(("query/check/", "query/exp")) for e in outcome.ledger)


def test_what_is_taken_is_gone() -> None:
    prepared = stores(FOREST, 3, 5)["party0"]
    assert len(prepared) == 5
    first, second = prepared.hand_out(0, 2), prepared.hand_out(3, 5)
    assert len(prepared) == 1 and len(first) == len(second) == 2
    assert first.name != second.name and not np.array_equal(first.covers, second.covers)
    for span in ((2, 4), (1, 3), (0, 5), (4, 5)):
        with pytest.raises(ProtocolError, match="were handed out before"):
            prepared.hand_out(*span)
    prepared.hand_out(2, 3)
    assert len(prepared) == 0 and prepared.given == [(0, 5)]
    for span in ((5, 6), (-1, 1), (0, 0)):
        with pytest.raises(ProtocolError, match="were requested, but 5 were prepared"):
            prepared.hand_out(*span)


def test_several_preparations() -> None:
    """Rows made in groups, and more of them later; a query takes from one and the next."""
    learned, x = parameters(FOREST), points(booleans(3), 6)
    outcome = run(preparing(FOREST, 3, 7, room=900))  # two rows at a time
    tags = {e.tag for e in outcome.ledger}
    assert {f"prepare/masks/{k}" for k in range(4)} <= tags and "prepare/masks/4" not in tags
    prepared = outcome.results
    more = stores(FOREST, 3, 4, "more", room=900)
    for own in prepared.values():
        next_of(own, 3)
    batches = {
        me: MaskBatch.joined([next_of(own, 4), next_of(more[me], 2)])
        for me, own in prepared.items()
    }
    assert len(batches["party0"].spans) == 4
    found = run(asking(FOREST, held(FOREST, learned, 3), batches, x)).results[ASKER]
    assert np.abs(found - exact(FOREST, learned, x)).max() < CLOSE


def test_parties_must_use_the_same() -> None:
    learned, x = parameters(FOREST), points(booleans(3), 2)
    prepared = stores(FOREST, 3, 4)
    next_of(prepared["party1"], 2)
    outcome = memory.run(asking(FOREST, held(FOREST, learned, 3), taken(prepared, 2), x))
    assert not outcome.results
    assert "party1 is about to use other masks than party0" in str(outcome.lost["party0"])
    assert "query/exponents" not in {e.tag for e in outcome.ledger}


def test_a_row_stands_once_in_a_query() -> None:
    """Where somebody puts the same masks together twice."""
    shares, prepared = held(FOREST, parameters(FOREST), 3), taken(stores(FOREST, 3, 2), 2)
    batches = {me: MaskBatch.joined([b, b.rows(1, 2)]) for me, b in prepared.items()}
    outcome = memory.run(asking(FOREST, shares, batches, points(booleans(3), 3)))
    assert not outcome.results
    assert "masks of one row occur twice" in str(outcome.lost["party0"])
    assert not any(e.tag.startswith("query/checks") for e in outcome.ledger)


def test_a_run_that_goes_on_uses_masks_for_the_same_points() -> None:
    """What they are used for is kept with the run, wherever it goes on."""
    learned, x = parameters(FOREST), points(booleans(3), 2)
    shares, batches = held(FOREST, learned, 3), taken(stores(FOREST, 3, 2), 2)
    first = run(asking(FOREST, shares, batches, x))
    fresh = {me: replace(b, used={}) for me, b in batches.items()}  # as after a restart
    again = memory.run(asking(FOREST, shares, fresh, x), first.kept)
    assert np.array_equal(again.results[ASKER], first.results[ASKER])
    fresh = {me: replace(b, used={}) for me, b in batches.items()}
    other = memory.run(asking(FOREST, shares, fresh, 1 - x), first.kept)
    assert not other.results
    assert "were used for another query" in str(other.lost["party0"])
    assert "query/exponents" not in {e.tag for e in other.ledger}


def test_masks_of_another_model_are_refused() -> None:
    shares = held(FOREST, parameters(FOREST), 3)
    batches = {me: replace(b, run="before") for me, b in taken(stores(FOREST, 3, 1), 1).items()}
    outcome = memory.run(asking(FOREST, shares, batches, points(booleans(3), 1)))
    assert not outcome.results and len(outcome.ledger) <= 3
    assert "made for the model of 'before', that of 'training 1'" in str(outcome.lost["party2"])


@pytest.mark.parametrize(
    ("count", "pairs", "levels"), [(3, 3, 2), (4, 2, 1), (5, 4, 2), (8, 4, 2), (12, 6, 3)]
)
def test_what_crosses(count: int, pairs: int, levels: int) -> None:
    """Keys, masks, products in ⌈log2(pairs)⌉ rounds and their check; nothing that tells."""
    rows, outcome = 2, run(preparing(FOREST, count, 2))
    most, size = (count - 1) // 2, FOREST.ring(count).bytes
    tags: dict[str, int] = {}
    for e in outcome.ledger:
        tags[e.tag] = tags.get(e.tag, 0) + 1
    all_to_all, products = count * (count - 1), (2 * most + 1) * (count - 1)
    assert tags == {
        "prepare/masks/0/keys": pairs,
        "prepare/masks/0": pairs * (count - 2),
        "prepare/masks/0/digests": pairs * (count - 2),
        **{f"prepare/powers/0/{k}": products for k in range(levels)},
        "prepare/checks/0/blinds": (most + 1) * (count - 1),
        "prepare/checks/0/commit": all_to_all,
        "prepare/checks/0/same": all_to_all,
        "prepare/checks/0/toss/0": all_to_all,
        "prepare/checks/0/values": products,
        "prepare/checks/0/toss/1": all_to_all,
        "prepare/checks/0/opened": all_to_all,
    }
    each = rows * 2 * (32 + size) + 2 * rows * size + 16
    assert {e.bytes for e in outcome.ledger if e.tag == "prepare/masks/0"} == {
        len(encode_message(Shares(np.zeros(each, np.uint8))))
    }
    assert {e.reveals for e in outcome.ledger} == {
        SHARE, PAIR_KEY, DIGEST, COMMITTED, ALIKE, TOSSED, CHECKED,
    }  # fmt: skip


def test_noise_is_what_the_scale_says() -> None:
    """R between 2^shift and (1 + 2^−16)·2^shift; the addend below its bits."""
    prepared = stores(FOREST, 5, 40)
    batches: Any = taken(prepared, 40)
    scale = FOREST.scale(5)

    def opened(what: str, degree: int) -> list[int]:
        rows = np.stack([getattr(b, what) for b in batches.values()])
        return [
            int(v) for v in scale.ring.integers(reconstruct(scale.ring, rows, degree, names(5)))
        ]

    relative = [r / 2.0**scale.shift - 1 for r in opened("factors", 2)]
    assert 0 < min(relative) and max(relative) < 2.0**-16 and max(relative) > 2.0**-18
    floods = opened("floods", 2)
    assert max(floods) < 4 << scale.flood and max(floods) > 1 << scale.flood
    assert len(set(floods)) == len(floods)


def test_laws_of_protocols() -> None:
    check_protocol(preparing(FOREST, 3, 2), run=memory.run)
