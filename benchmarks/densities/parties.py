"""Hidden Chow–Liu trees of parties that split images by rows: one model of all images.

Every party learns a tree of its own with the same settings. Three or more also learn one tree by
sums under masks, and rows held back decide how the two are mixed. Two parties do so only if asked,
since each can compute what the other adds: here they are asked, by ``method=``. The reference is
the same EM of all images in one place, where nothing is added up, besides the learner alone, which
makes fewer rounds over small batches.
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
IMAGES, TESTED = 3200, 1000
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
    rows = [in_one_place(train, test, **SETTINGS)] if 1 in parties else []
    rows += [measured(train, test, number, **SETTINGS) for number in parties]
    print("\nHidden Chow–Liu trees of parties that split images by rows")
    print_table(rows)
    return [{"part": "parties", **row} for row in rows]


def in_one_place(train: fc.Table, test: fc.Table, **settings: int) -> dict[str, Cell]:
    watch = Stopwatch()
    learner = fc.HiddenChowLiuTree(random_state=0).set_params(**(settings | {"epochs": ROUNDS}))
    model = learner.fit(fc.split(train, 1, seed=0), engine=watch)
    return _row(train, 1, "the same EM in one place", float(model.score(test)), watch)


def measured(train: fc.Table, test: fc.Table, number: int, **settings: int) -> dict[str, Cell]:
    watch = Stopwatch()
    learner = fc.HiddenChowLiuTree(random_state=0).set_params(**settings)
    federation = fc.split(train, number, seed=0)
    asked = fc.HiddenChowLiuTree(random_state=0).set_params(**(settings | {"epochs": ROUNDS}))
    method = asked if number == 2 else "auto"
    model = fc.FedPC(learner, method=method, random_state=0).fit(federation, engine=watch)
    how = "the learner alone" if number == 1 else "one tree by sums, and the parties' own"
    return _row(train, number, how, float(model.collect().score(test)), watch)


def _row(train: fc.Table, number: int, how: str, nats: float, watch: Stopwatch) -> dict[str, Cell]:
    return {
        "images": len(train), "parties": number, "learned": how,
        "bits per dimension": -nats / len(train.schema) / np.log(2),
        "cpu s, all": watch.total, "cpu s, slowest": watch.slowest,
    }  # fmt: skip
