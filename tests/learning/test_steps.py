"""The falling step, and learning that settles before it ends."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.learning.em import SETTLING, EMSchedule, FallingStep


@pytest.mark.parametrize("done", [0, 3, 17])
def test_a_step_that_settles_reaches_its_last_and_never_rises(done: int) -> None:
    step = FallingStep(0.3, 0.01, epochs=30, updates_per_epoch=2.0)
    before = [step.next() for _ in range(done)]
    assert step.settle() and not step.settle()
    after = []
    while not step.over:
        after.append(step.next())
    assert len(after) == 2 * SETTLING
    assert (np.diff([*before, *after]) < 0).all()
    assert step.next() == pytest.approx(0.01)


def test_rows_held_back_end_learning_only_when_the_step_has_fallen() -> None:
    plan = EMSchedule(epochs=40, batch_size=10, patience=2)
    step, scores = plan.falling(rows=100), [-3.0]
    epochs = 0
    while not plan.stopped(scores, step):
        for _ in range(10):
            step.next()
        scores.append(-3.0)
        epochs += 1
    assert epochs == 2 + SETTLING and step.next() == pytest.approx(plan.last_step)


def test_em_over_all_rows_has_no_step_and_ends_at_once() -> None:
    plan = EMSchedule(epochs=40, patience=2)
    assert plan.stopped([-3.0, -3.0, -3.0], plan.falling(rows=100))


def test_what_is_nearly_settled_does_not_settle_again() -> None:
    step = FallingStep(0.3, 0.3, epochs=3, updates_per_epoch=1.0)
    assert not step.settle()
