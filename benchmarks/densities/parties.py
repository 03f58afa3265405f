"""Hidden Chow–Liu trees of parties that split images by rows: one model of all images.

Every party learns a tree of its own with the same settings. Three or more also learn one tree by
sums under masks, and rows held back decide how the two are mixed. Two parties do so only if asked,
since each can compute what the other adds: here they are asked, by ``method=``.
"slowest" is the CPU time of the slowest party and the coordinator: what training takes where each
has a core. Test images are read once.
"""

import numpy as np
import torch

import fedcircuits as fc
from benchmarks.federated.clock import Stopwatch
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.errors import DatasetError

PARTIES = (1, 2, 4, 8, 16)
IMAGES, TESTED = 1600, 1000
ROUNDS = 20  # of two parties; more of them make as many by default
SETTINGS = {"units": 16, "epochs": 4}


def run(parties: tuple[int, ...] = PARTIES, images: int = IMAGES) -> list[Json]:
    torch.set_num_threads(1)
    try:
        arrays = fc.datasets.arrays("mnist")
    except DatasetError as error:
        print(f"  densities: parties left out: {error}")
        return []
    train = fc.Table.of(arrays["x_train"][:images])
    test = fc.Table.of(arrays["x_test"][:TESTED], schema=train.schema)
    rows = [measured(train, test, number, **SETTINGS) for number in parties]
    print("\nHidden Chow–Liu trees of parties that split images by rows")
    print_table(rows)
    return [{"part": "parties", **row} for row in rows]


def measured(train: fc.Table, test: fc.Table, number: int, **settings: int) -> dict[str, Cell]:
    watch = Stopwatch()
    learner = fc.HiddenChowLiuTree(random_state=0).set_params(**settings)
    federation = fc.split(train, number, seed=0)
    asked = fc.HiddenChowLiuTree(random_state=0).set_params(**(settings | {"epochs": ROUNDS}))
    method = asked if number == 2 else "auto"
    model = fc.FedPC(learner, method=method, random_state=0).fit(federation, engine=watch)
    nats = float(model.collect().score(test))
    return {
        "images": len(train), "parties": number,
        "bits per dimension": -nats / len(train.schema) / np.log(2),
        "cpu s, all": watch.total, "cpu s, slowest": watch.slowest,
    }  # fmt: skip
