"""MNIST in Table 1: densities of images, one place and parties.

Einsum networks on random structures of the pixels that a party holds. The centralised one and that
of each party have the same settings; columns are split between pixels at random, so that no party
sees a whole part of an image. Values are grey levels from 0 to 1 with a little uniform noise, or
pixels that are always 0 would be spikes.
"""

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated.clock import Stopwatch
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.errors import DatasetError

ROWS, TESTED = 10_000, 1_000
NETWORK = fc.EinsumNetwork(
    10, depth=3, repetitions=4, epochs=5, batch_size=64, validation=0.0, minimum_variance=1e-3
)
CLUSTERS = 4
HYBRID = 0.2  # of the pixels at both parties


def run() -> list[Json]:
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            rows = compared(ROWS, TESTED)
    except DatasetError as error:
        print(f"  mnist left out: {error}")
        return []
    print(f"\nmnist, {ROWS:,} images to learn from, {TESTED:,} to test: nats, one seed")
    print_table(rows)
    return [{"table": "splits", "set": "mnist", **row} for row in rows]


def _rows(learn: int, tested: int) -> tuple[fc.Table, fc.Table, fc.Table]:
    found, rng = fc.datasets.arrays("mnist"), np.random.default_rng(0)
    parts = []
    for part, most in (("x_train", learn), ("x_test", tested)):
        grey = found[part][:most].reshape(most, -1).astype(float)
        parts.append((grey + rng.random(grey.shape)) / 256)
    schema = fc.Schema(tuple(fc.Variable(f"x{i}") for i in range(parts[0].shape[1])))
    train, test = (fc.Table(schema, p, np.arange(len(p))) for p in parts)
    return train, test, fc.Table.of({"digit": found["y_train"][:learn].astype(str)})


def compared(learn: int, tested: int) -> list[dict[str, Cell]]:
    """A row for one place and each split, of so many images."""
    train, test, digit = _rows(learn, tested)
    labelled = fc.Table.of(train.to_pandas().assign(digit=digit.column("digit")))
    by_label = fc.split(labelled, 5, skew="label", target="digit", seed=0)
    plain = {p.name: p.table.select(train.names) for p in by_label}
    federations = {
        "centralised": fc.Federation({"all": train}, allow_collect=True),
        "horizontal, 5": fc.Federation(plain, allow_collect=True),
        "vertical, 2": fc.split(train, 2, by="columns", seed=0),
        "hybrid, 2": fc.split(train, 2, by="both", overlap=HYBRID, seed=0),
    }
    rows: list[dict[str, Cell]] = []
    for split, federation in federations.items():
        watch = Stopwatch()
        model = fc.FedPC(NETWORK, clusters=CLUSTERS, ensemble=1, random_state=0)
        asked = model.fit(federation, engine=watch).collect()
        rows.append(
            {
                "": split,
                "log-likelihood": asked.score(test),
                "cpu s": watch.total,
                "slowest, of centralised": watch.slowest / float(rows[0]["cpu s"]) if rows else 1.0,
                "bytes": model.ledger_.bytes,
            }
        )
    return rows
