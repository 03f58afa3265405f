"""Rows and graphs of the paper on vertically partitioned EM (Valdeira, Soares and Xavier, 2022).

HTRU2 has 17,898 candidates for pulsars with 8 features, left as they are, and a label that nobody
learns from. The synthetic rows are drawn from a mixture of 3 Gaussians over 100 features, "created
at random": the paper says no more. Here weights are Dirichlet(5), means normal with deviation 0.3,
and a covariance is A Aᵀ with A = I + normal entries of deviation 0.05. A party has one feature.

Geometric graphs have exactly as many links as asked for: 100 parties with 1,550 (the paper's dense
graphs, of average degree 31) or 485 (its sparse one, 9.7), 8 parties with 16 (average degree 4).
Places that so few links do not connect are drawn anew. A scale-free graph over 8 parties with 3
links for each new party has 15.
"""

import numpy as np
import numpy.typing as npt

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.sums.topology import named

DENSE, SPARSE = 1550, 485  # links
PARTIES = 100
COMPONENTS = 3
Labels = npt.NDArray[np.int64]


def htru2() -> tuple[Array, Labels]:
    """(rows, 8) and whether a row is a pulsar."""
    table = fc.datasets.load("htru2")
    names = [n for n in table.names if n != "class"]
    return table.select(names).values, table.select(["class"]).values[:, 0].astype(np.int64)


def synthetic(rows: int, features: int, seed: int, apart: float = 0.3) -> Array:
    """(rows, features) of a mixture of three Gaussians."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet([5.0] * COMPONENTS)
    means = rng.normal(0.0, apart, (COMPONENTS, features))
    group = rng.choice(COMPONENTS, size=rows, p=weights)
    x = np.empty((rows, features))
    for k in range(COMPONENTS):
        spread = np.eye(features) + rng.normal(0.0, 0.05, (features, features))
        own = group == k
        x[own] = means[k] + rng.normal(size=(own.sum(), features)) @ spread.T
    return x


def columns_of(x: Array, parties: int) -> fc.Federation:
    """Equally many columns a party; rows in one order, without ids."""
    tables = {}
    for i, own in enumerate(np.array_split(np.arange(x.shape[1]), parties)):
        columns = {f"x{j}": x[:, j] for j in own}
        tables[f"party {i}"] = fc.Table.of(columns, kinds=dict.fromkeys(columns, "real"))
    return fc.Federation(tables, allow_collect=True)


def names_of(parties: int) -> tuple[str, ...]:
    return tuple(f"party {i}" for i in range(parties))


def geometric(parties: int, links: int, seed: int) -> fc.Topology:
    """The graph with so many links over random places, the first that is connected."""
    for trial in range(1000 * seed, 1000 * (seed + 1)):
        low, high = 0.0, 1.5
        for _ in range(50):
            middle = (low + high) / 2
            few = len(named("geometric", parties, middle, 2, trial)[0]) < links
            low, high = (middle, high) if few else (low, middle)
        try:
            return fc.Topology.of("geometric", names_of(parties), radius=high, seed=trial)
        except FederationError:  # falls apart
            continue
    raise ValueError(f"{links} links do not connect {parties} parties")
