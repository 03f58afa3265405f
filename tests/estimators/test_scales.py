"""Learners do not depend on the unit of a column: metres or nanometres, from any origin."""

from collections.abc import Callable

import numpy as np
import pytest

import fedcircuits as fc

LEARNERS: dict[str, Callable[[], fc.Model]] = {
    "mixture": lambda: fc.MixtureOfProducts(3, random_state=0),
    "normals": lambda: fc.MixtureOfNormals(3, random_state=0),
    "hidden tree": lambda: fc.HiddenChowLiuTree(3, epochs=6, random_state=0),
    "einsum": lambda: fc.EinsumNetwork(3, epochs=4, random_state=0),
    "learn_spn": lambda: fc.LearnSPN(random_state=0),
}


def three_kinds(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=(250, 1))
    return rng.normal(size=(250, 3)) * [1, 0.5, 2] + kind * [3, -2, 4]


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(
    ("unit", "origin"), [(1e-7, 0), (1e-10, 0), (1e12, 0), (1e-5, 1), (1e-2, 65536)]
)
def test_a_column_in_another_unit(name: str, unit: float, origin: float) -> None:
    x, new = three_kinds(0), three_kinds(1)
    plain = LEARNERS[name]().fit(fc.Table.of(x)).score(fc.Table.of(new))
    other = LEARNERS[name]().fit(fc.Table.of(unit * x + origin))
    scored = other.score(fc.Table.of(unit * new + origin)) + 3 * np.log(unit)
    assert scored == pytest.approx(plain, abs=0.05)
