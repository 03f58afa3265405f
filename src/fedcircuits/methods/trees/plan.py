"""What all parties do alike that learn trees: the choices of whoever calls fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fedcircuits.federation.federation import LEAST_COUNT
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.federation.tokens import RowRule
from fedcircuits.methods.meeting.task import TargetTask
from fedcircuits.privacy.differential.noise import Noise
from fedcircuits.tables.schema import Variable

Weights: TypeAlias = Literal["rows", "equal"]
Join: TypeAlias = Literal["auto", "mean"]
Grow: TypeAlias = Literal["auto", "bagged", "together"]
BAGGED, BOOSTED = 20, 50  # trees, where nobody says how many


@dataclass(frozen=True, slots=True)
class TreesPlan:
    """What all parties of a run do alike."""

    target: str
    share_target: bool = False
    trees: int | Literal["auto"] = "auto"
    columns: float | Literal["auto"] = "auto"  # share of a party's columns that a bagged tree reads
    weights: Weights = "rows"  # of parties in a mean
    fuse: Join = "auto"
    seed: int = 0
    grow: Grow = "bagged"
    threshold: bool = False
    summation: Summation = field(default_factory=Hub)  # of groups that grow together
    least: int = LEAST_COUNT  # rows of all parties in a cell or node of trees grown together
    noise: Noise | None = None  # of trees grown together with differential privacy
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # public, of numbers
    rows: RowRule = "tokens"  # how they are matched
    task: TargetTask = "given"  # what the target is

    def boosts(self, group: Sequence[str], target: Variable) -> bool:
        """Whether these parties, which hold the same columns, have boosted trees."""
        alone = self.grow == "auto" and len(group) == 1
        return bool(target.size) and (alone or self.grow == "together")

    def adds_up(self, group: Sequence[str]) -> bool:
        """Whether trees of parties that boost them are grown by sums that others see."""
        return len(group) > 1 or self.noise is not None

    def number(self, boosted: bool) -> int:
        return self.trees if self.trees != "auto" else (BOOSTED if boosted else BAGGED)

    def share(self, target: Variable) -> float:
        """Of columns. No share from 0.5 to 1 was best for classes in all splits of adult and breast
        cancer; numbers were predicted best from all columns."""
        return self.columns if self.columns != "auto" else (0.8 if target.size else 1.0)
