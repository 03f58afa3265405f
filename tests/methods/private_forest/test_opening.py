"""Opening a private forest: all must allow it, and a wrong share is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.methods.private_forest.forests import (
    SMALL,
    opened,
    trained,
)


def test_opening_is_for_all_to_allow() -> None:
    outcome = opened(trained(replace(SMALL, combine="concatenate")), allow=False)
    assert "does not allow" in str(next(iter(outcome.lost.values())))
    assert not len(outcome.ledger)


def test_a_wrong_share_is_found() -> None:
    outcome = trained(replace(SMALL, combine="concatenate"))
    own = outcome.results["party1"].shares.arrays
    own["root"][0, 0, 0] ^= np.uint64(4)
    found = opened(outcome)
    assert "do not fit together" in str(next(iter(found.lost.values())))
    assert not found.results
