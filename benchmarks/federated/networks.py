"""Small neural networks for the peers that have to be run as flows: features, layers, one epoch.

Numbers are sign(x)·log(1 + |x|), then standardised by means and deviations that are given; a gap is
the mean. A category is one 0/1 column each, all 0 where it is missing.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array

BATCH = 128
RATE = 3e-3


def logs(table: fc.Table) -> Array:
    """The numeric columns, (rows, columns)."""
    x = table.values[:, [i for i, v in enumerate(table.schema) if not v.size]]
    return np.asarray(np.sign(x) * np.log1p(np.abs(x)))


def moments(table: fc.Table) -> Array:
    """Counts, sums and sums of squares of the numeric columns: (3, columns), which add up."""
    x = logs(table)
    return np.stack([(~np.isnan(x)).sum(axis=0), np.nansum(x, axis=0), np.nansum(x**2, axis=0)])


def features(table: fc.Table, sums: Array) -> Tensor:
    """(rows, features), by the moments of training rows."""
    count = np.maximum(sums[0], 1)
    mean = sums[1] / count
    deviation = np.sqrt(np.maximum(sums[2] / count - mean**2, 1e-12))
    parts = [np.nan_to_num((logs(table) - mean) / deviation)]
    for i, variable in enumerate(table.schema):
        if variable.size:
            parts.append(table.values[:, [i]] == np.arange(variable.size))
    return torch.from_numpy(np.hstack(parts).astype(np.float32))


def layers(sizes: Sequence[int], seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    found: list[nn.Module] = []
    for before, after in pairwise(sizes):
        found += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*found[:-1])


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def vector(network: nn.Module) -> Array:
    return nn.utils.parameters_to_vector(network.parameters()).detach().numpy()


def load(network: nn.Module, values: Array) -> None:
    flat = torch.from_numpy(np.array(values, dtype=np.float32))
    nn.utils.vector_to_parameters(flat, network.parameters())


def epoch(network: nn.Module, x: Tensor, y: Tensor, rng: np.random.Generator) -> None:
    """One pass over the rows by Adam."""
    steps = torch.optim.Adam(network.parameters(), lr=RATE)
    for rows in batches(len(y), rng):
        steps.zero_grad()
        nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        steps.step()


def batches(rows: int, rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    order = rng.permutation(rows)
    return [order[i : i + BATCH] for i in range(0, rows, BATCH)]


def loss(network: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.cross_entropy(network(x), y))
