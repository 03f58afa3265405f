"""Table 2's trend: one einsum network against a mixture of one per party, in bits per dimension.

    python -m benchmarks.run federated_images

The network of "1 party" has the size of every other party's and learns from all rows; 2 to 16
parties split the same rows, and each goes as often over its own. Pixels count as masses, as in
images.py. "slowest" is the CPU time of the slowest party and the coordinator: what training takes
where each has a core.
"""

from dataclasses import replace

import numpy as np
import torch
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated.clock import Stopwatch
from benchmarks.images import TOP
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import DatasetError

PARTIES = (1, 2, 4, 8, 16)
SETS = {"mnist": (20_000, 2000), "cifar10_subset": (10_000, 1000)}  # images to learn, to test
EPOCHS, BATCH, UNITS, PIECES = 5, 64, 10, 4


def run(sets: tuple[str, ...] = tuple(SETS), parties: tuple[int, ...] = PARTIES) -> list[Json]:
    torch.set_num_threads(1)
    rows: list[dict[str, Cell]] = []
    for name in sets:
        try:
            with threadpool_limits(1):
                rows += measured(name, *SETS[name], parties)
        except DatasetError as error:
            print(f"  {name} left out: {error}")
    print("\nEinsum networks of parties that split the rows")
    print_table(rows)
    return [dict(row) for row in rows]


def measured(name: str, learn: int, tested: int, parties: tuple[int, ...]) -> list[dict[str, Cell]]:
    """A row for each number of parties, of so many images to learn from and to test."""
    train, test = _images(name, (learn, tested))
    return [_row(name, train, test, number) for number in parties]


def _images(name: str, sizes: tuple[int, int]) -> tuple[Array, Array]:
    """(rows, height, width, channels), from 0 to 1."""
    found = fc.datasets.arrays(name)
    parts = zip(("x_train", "x_test"), sizes, strict=True)
    train, test = (found[part][:most].astype(float) / TOP for part, most in parts)
    return train.reshape(*train.shape[:3], -1), test.reshape(*test.shape[:3], -1)


def _row(name: str, train: Array, test: Array, number: int) -> dict[str, Cell]:
    values = train.reshape(len(train), -1)
    schema = fc.Schema(tuple(fc.Variable(f"x{i}") for i in range(values.shape[1])))
    federation = fc.split(fc.Table(schema, values), number, seed=0)
    height, width, channels = train.shape[1:]
    network = fc.EinsumNetwork(UNITS, image=(height, width, channels), pieces=PIECES)
    network.set_params(epochs=EPOCHS, batch_size=BATCH, validation=0.0)
    watch = Stopwatch()
    model = fc.FedPC(network, random_state=0).fit(federation, engine=watch)
    leaves = [c for v in model.views_.values() for c in v.parameters.circuits.values()]
    shares = np.array([len(p.table) for p in federation]) / len(values)
    x = test.reshape(len(test), -1)
    logs = np.stack([_masses(*leaf, x) for leaf in leaves]) + np.log(shares)[:, None]
    return {
        "images": name,
        "rows": len(values),
        "parties": number,
        "bits per dimension": float(-logsumexp(logs, axis=0).mean() / x.shape[1] / np.log(2)),
        "density, nats": float(model.collect().score_samples(x).mean()),
        "cpu s, all": watch.total,
        "cpu s, slowest": watch.slowest,
        "bytes": model.ledger_.bytes,
    }


def _masses(circuit: Circuit, parameters: Parameters, x: Array) -> Array:
    """Log of the mass of images over the 256 levels of every pixel."""
    nodes = (
        replace(n, family="gaussian_mass") if isinstance(n, fc.Leaf) else n for n in circuit.nodes
    )
    masses = fc.Circuit(tuple(nodes), circuit.schema)
    return fc.Distribution(masses, parameters, torch.float32).log_likelihood(x)
