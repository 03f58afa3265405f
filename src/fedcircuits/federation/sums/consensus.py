"""Averages by gossip: the number of rounds, their steps, and a bound on the error.

Every party holds x, and in a round replaces it by its own and its neighbours' values:

    x⁺ = x + s (W − I) x + m (x − x⁻)        x⁻ is x of one round before

W has Metropolis weights 1 / (1 + the larger degree of both ends), which makes it symmetric with
eigenvalue 1 for the average and all others inside (−1, 1). Metropolis' consensus has s = 1 and
m = 0: what is left of eigenvalue λ after k rounds is λᵏ. Chebyshev's acceleration lets s and m
change so that k rounds leave T_k(y) / T_k(z), the polynomial that is smallest on the eigenvalues
other than 1; the number of rounds is about the square root of what Metropolis needs. (I − αL with
the Laplacian L would also work, for 0 < α < 2 / λ_max(L); the paper's λ_max(L) is too large by
half.)

If x differs from the average by Σ_j (P − J)_ij x_j after k rounds, it is off by at most
√N ‖(P − J)_i‖₂ max |x|. That bound, over the worst party, is what ``tolerance`` means. It follows
from the graph, so every party computes the same number of rounds and needs no signal to stop.

Where changes of x are sent rounded, by at most u of a change, the last message leaves an error of a
few u × the error of x two rounds before. That is added; it matters only if one round suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.sums.topology import Topology

Step: TypeAlias = tuple[float, float]  # s and m of one round
PLAIN: Step = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class GossipSchedule:
    steps: tuple[Step, ...]
    off: float  # at most, relative to max |x|


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Eigenvalues of W without the average, and the squares of its eigenvectors."""

    values: Array  # (modes,)
    squares: Array  # (parties, modes)

    def off(self, left: Array) -> float:
        """The distance from the average, relative to max |x|, if this much of every mode is
        left."""
        worst = (self.squares @ left**2).max(initial=0.0)
        return float(np.sqrt(len(self.squares) * worst))


def weight(degree: int, other: int) -> float:
    """The weight of a link between parties of these degrees."""
    return 1.0 / (1.0 + max(degree, other))


@lru_cache(maxsize=64)
def spectrum(topology: Topology) -> Spectrum:
    linked = topology.adjacency
    degrees = linked.sum(1)
    matrix = linked / (1.0 + np.maximum.outer(degrees, degrees))  # (parties, parties)
    matrix[np.diag_indices_from(matrix)] = 1.0 - matrix.sum(1)
    values, vectors = np.linalg.eigh(matrix)
    return Spectrum(values[:-1], vectors[:, :-1] ** 2)


def chebyshev(values: Spectrum) -> Iterator[Step]:
    """The steps for eigenvalues between the least and the largest one; they depend on no k."""
    if not len(values.values):
        return
    low, high = float(values.values[0]), float(values.values[-1])
    first = 2.0 / (2.0 - low - high)
    narrow = (high - low) / (2.0 - low - high)  # 1 / z
    ratio = narrow  # T_k(z) / T_k+1(z)
    yield first, 0.0
    while True:
        step = first * 2.0 / (2.0 - narrow * ratio)
        following = narrow / (2.0 - narrow * ratio)
        yield step, ratio * following
        ratio = following


def left_after(values: Spectrum, steps: Iterator[Step]) -> Iterator[Array]:
    """What is left of every mode, after each of the steps."""
    left, change = np.ones_like(values.values), np.zeros_like(values.values)
    for step, momentum in steps:
        change = step * (values.values - 1.0) * left + momentum * change
        left = left + change
        yield left


@lru_cache(maxsize=64)
def chebyshev_schedule(
    topology: Topology, tolerance: float, rounds: int | None, unit: float = 0.0
) -> GossipSchedule:
    values = spectrum(topology)
    if not len(values.values):
        return GossipSchedule((), 0.0)
    offs = [1.0, values.off(np.ones_like(values.values))]  # the first message is all of x
    for left in islice(left_after(values, chebyshev(values)), rounds):
        offs.append(values.off(left))
        if rounds is None and _rounded(offs[-1], offs[-3], unit) <= tolerance:
            break
    steps = islice(chebyshev(values), len(offs) - 2)
    return GossipSchedule(tuple(steps), _rounded(offs[-1], offs[-3], unit))


@lru_cache(maxsize=64)
def metropolis_schedule(
    topology: Topology, tolerance: float, rounds: int | None, unit: float = 0.0
) -> GossipSchedule:
    values = spectrum(topology)
    if not len(values.values):
        return GossipSchedule((), 0.0)

    def off(count: int) -> float:
        before = values.off(values.values ** (count - 2)) if count > 1 else 1.0
        return _rounded(values.off(values.values**count), before, unit)

    count = _first(lambda k: off(k) <= tolerance) if rounds is None else rounds
    return GossipSchedule((PLAIN,) * count, off(count))


def _rounded(off: float, before: float, unit: float) -> float:
    return off + 8.0 * unit * before


def _first(holds: Callable[[int], bool]) -> int:
    """The least number from 1 for which it holds, as it does for all above."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
