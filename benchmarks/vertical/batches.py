"""Passes over the rows until EM is at its optimum, all rows at once and in 20 batches; and traffic
in single precision.

Both begin at the same rows. The optimum is where EM of all rows ends after 150 iterations; passes
are counted until the exact log-likelihood per row is within 1e-3 of it. A start that is not there
after 128 passes in batches is counted apart ("not there"), for whatever reason. HTRU2 has 8
parties, the synthetic rows (15,000 of 20 columns) have 10. With float32 the log-likelihood that
parties tell each other is rounded too ("as said"); that of the model is asked for after training,
in float64.
"""

import warnings

import numpy as np

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from benchmarks.vertical.clusters import between
from benchmarks.vertical.sets import columns_of, htru2, synthetic
from fedcircuits.circuits.graph.family import Array

STARTS = 3
BATCHES = 20
NEAR = 1e-3  # nats per row
PASSES, MOST = 150, 128  # of all rows, in batches


def run() -> list[Json]:
    sets = {
        "HTRU2, K = 2": (htru2()[0], 8, 2),
        "HTRU2, K = 3": (htru2()[0], 8, 3),
        "synthetic, K = 3": (synthetic(15_000, 20, 0), 10, 3),
    }
    rows: list[dict[str, Cell]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for title, (x, parties, number) in sets.items():
            rows.append({"": title, **_passes(x, columns_of(x, parties), number)})
            rows[-1] |= _single(x, columns_of(x, parties), number)
            print(f"  {title}: done", flush=True)
    print(f"\nPasses to the optimum, {STARTS} starts; and float32 in place of float64")
    print_table(rows)
    return [{"table": "batches", **row} for row in rows]


def _model(x: Array, number: int, start: int) -> fc.VerticalGaussianMixture:
    chosen = np.random.default_rng(start).choice(len(x), number, replace=False)
    return fc.VerticalGaussianMixture(number, tol=0.0, random_state=0, means_init=x[chosen])


def _passes(x: Array, parties: fc.Federation, number: int) -> dict[str, Cell]:
    whole, batched, apart = [], [], 0
    for start in range(STARTS):
        model = _model(x, number, start).set_params(max_iter=PASSES).fit(parties)
        best = model.lower_bound_
        seen = np.array([*model.lower_bounds_[1:], best])  # after each update
        model.set_params(batch_size=-(-len(x) // BATCHES))
        count = _least(model, parties, best)
        if count is None:
            apart += 1
            continue
        whole.append(int(np.argmax(seen > best - NEAR)) + 1)
        batched.append(count)
    ratios = [b / w for b, w in zip(batched, whole, strict=True)]
    return {
        "passes, all rows": between(whole, 0),
        "passes, 20 batches": between(batched, 0),
        "middle ratio": float(np.median(ratios)),
        "not there": apart,
    }


def _least(model: fc.VerticalGaussianMixture, parties: fc.Federation, best: float) -> int | None:
    """The first pass after which the exact log-likelihood is as good; None if that takes long."""

    def reached(passes: int) -> bool:
        return bool(model.set_params(max_iter=passes).fit(parties).lower_bound_ > best - NEAR)

    high = 4
    while not reached(high):
        high *= 2
        if high > MOST:
            return None
    low = high // 2 if high > 4 else 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _single(x: Array, parties: fc.Federation, number: int) -> dict[str, Cell]:
    said, true, sizes = [], [], []
    table = fc.Table.of(
        x, names=parties.schema.names, kinds=dict.fromkeys(parties.schema.names, "real")
    )
    for dtype in ("float64", "float32"):
        model = _model(x, number, 0).set_params(max_iter=100, summation=fc.Hub(dtype))
        said.append(model.fit(parties).lower_bound_)
        true.append(model.score(table))
        sizes.append(model.ledger_.bytes)
    return {
        "float32: off, nats per row": f"{abs(true[1] - true[0]):.1e}",
        "as said": f"{abs(said[1] - said[0]):.1e}",
        "bytes": f"{sizes[1] / sizes[0]:.3f}",
    }
