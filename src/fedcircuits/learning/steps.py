"""How far an update of EM over batches goes: a step that falls, and falls at once when it must.

The step falls evenly from the first to the last over all planned updates. A long step keeps the
parameters moving, so that rows held back soon gain nothing more, however much a shorter step would
still give them. Where that happens learning does not end: the step falls to its last within
``SETTLING`` epochs, and then it does.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTLING = 4  # epochs
SETTLED = 2.0  # times the last step: nothing is left to fall


@dataclass
class FallingStep:
    """The step of every update.

    >>> step = FallingStep(0.3, 0.1, epochs=10, updates_per_epoch=1.0)
    >>> [round(step.next(), 2) for _ in range(3)], step.settle()
    ([0.3, 0.28, 0.26], True)
    >>> [round(step.next(), 2) for _ in range(5)], step.settle()
    ([0.24, 0.2, 0.17, 0.14, 0.1], False)
    """

    first: float
    last: float
    epochs: int
    updates_per_epoch: float

    def __post_init__(self) -> None:
        self.planned = self.epochs * max(1.0, self.updates_per_epoch)
        self.done = 0
        self.settling = False

    def next(self) -> float:
        """Of the next update, which is counted as done."""
        found = self._now()
        self.done += 1
        return found

    def settle(self) -> bool:
        """Whether the step is to fall within a few epochs from here; it does so once."""
        now = self._now()
        if self.settling or now <= SETTLED * self.last:
            return False
        left = SETTLING * max(1.0, self.updates_per_epoch)
        self.first, self.planned, self.done = now, min(left, self.planned - self.done), 0
        self.settling = True
        return True

    @property
    def over(self) -> bool:
        """Whether a step that was to settle has done so."""
        return self.settling and self.done >= self.planned

    def _now(self) -> float:
        return self.first + min(1.0, self.done / self.planned) * (self.last - self.first)
