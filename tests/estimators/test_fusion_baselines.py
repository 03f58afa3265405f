"""What a fusion is compared with: votes; and alignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError
from tests.estimators.fusions import ROWS, SPEEDS, TEST, TRAIN, model


@pytest.mark.parametrize("head", ["vote", "threshold", "best"])
def test_owners_own_predictions(head: Any) -> None:
    found = model(head=head).fit(TRAIN, target="event")
    assert found.score(TEST) > 0.7 and found.graph_ is None and found.alignment_ is None
    assert found.history_.empty and found.fusion_.fusion.kind == head  # type: ignore[union-attr]
    said = found.opinions(TEST).argmax(axis=2)
    if head == "vote":
        assert np.allclose(found.predict_proba(TEST)[:, 1], said.mean(axis=0))
    if head == "best":
        best = found.fusion_.fusion.best  # type: ignore[union-attr]
        assert np.array_equal(found.predict(TEST), said[best] == 1)


def test_a_threshold_is_for_two_classes() -> None:
    three = np.arange(ROWS) % 3
    tables = {f"o{i}": fc.Table.from_series({"s": SPEEDS[i]}, {"y": three}, np.arange(ROWS),
              categories={"y": [0, 1, 2]}) for i in range(2)}  # fmt: skip
    with pytest.raises(FederationError, match="'y' is one of 3 classes: use head='vote'"):
        model(head="threshold").fit(fc.Federation(tables), target="y")


class Ordered:
    """An encoder of one's own: two numbers of a row, in some order."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def encode(self, X: fc.Table) -> Any:
        return X.select(self.names).values


def test_the_order_of_numbers_does_not_matter_once_they_are_aligned() -> None:
    """Which of two numbers is larger: where half of the owners swap them, the mean says nothing."""
    pairs = np.random.default_rng(5).normal(size=(ROWS, 2))
    larger = pairs[:, 0] > pairs[:, 1]
    noisy = pairs + np.random.default_rng(6).normal(0, 0.3, (4, ROWS, 2))
    parties = fc.Federation(
        {f"o{i}": {"id": range(ROWS), "a": own[:, 0], "b": own[:, 1], "larger": larger}
         for i, own in enumerate(noisy)}, row_id="id",
    )  # fmt: skip
    plain = {f"o{i}": Ordered(["a", "b"]) for i in range(4)}
    swapped = {f"o{i}": Ordered(["a", "b"] if i % 2 else ["b", "a"]) for i in range(4)}
    scores = {
        (align, mixed): model(encoder=swapped if mixed else plain, align=align, epochs=60)
        .fit(parties, target="larger").score(parties)
        for align in ("linear", None) for mixed in (False, True)
    }  # fmt: skip
    assert scores["linear", True] > scores["linear", False] - 0.05 > 0.85
    assert scores[None, True] < scores[None, False] - 0.2
