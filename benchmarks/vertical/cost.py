"""CPU seconds of an iteration, all parties together, beside scikit-learn's on the pooled columns.

150,000 rows, 100 columns, 3 components, one thread. Both begin at the same means; a fit of 11
iterations less one of 1 iteration, over 10, is an iteration. Before each of these pairs of fits one
is made that does not count: the first fit after the other side's has to get its memory back from
the system, which would make the fit of 1 iteration longer and so the difference too small. "Whole
fit" is the ratio of the fits of 11 iterations with all that comes before and after, in which
nothing is taken off. Sides take turns, and the middle ratio of the pairs counts. All parties run in
one process, so its CPU time is the sum over parties, with encoding and decoding of every message;
"parties alone" leaves these out.
"""

import time
import warnings
from collections.abc import Callable
from statistics import median

from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fedcircuits as fc
from benchmarks.federated.clock import Stopwatch
from benchmarks.runner import Cell, Json, print_table
from benchmarks.vertical.sets import COMPONENTS, columns_of, synthetic
from fedcircuits.circuits.graph.family import Array

ROWS, COLUMNS = 150_000, 100
MORE = 10  # iterations
PAIRS = 5
GOAL = 0.35  # of scikit-learn's CPU time, for 10 parties


def run(rows: int = ROWS, pairs: int = PAIRS) -> list[Json]:
    x = synthetic(rows, COLUMNS, 0)
    start = x[:COMPONENTS]
    ours = {n: columns_of(x, n) for n in (10, 100)}
    found: list[dict[str, Cell]] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for pair in range(pairs):
            theirs, long = _iteration(lambda n: _pooled(x, start, n))
            row: dict[str, Cell] = {"pair": pair, "scikit-learn, s": theirs}
            for parties in ours if not pair else (10,):
                own, whole, alone = _parties(ours[parties], start)
                row |= {f"{parties} parties, s": own, f"ratio, {parties}": own / theirs}
                row |= {f"whole fit, {parties}": whole / long}
                row[f"parties alone, {parties}"] = alone / theirs
            found.append(row)
    print(f"\nCPU seconds of an iteration, {rows:,} rows, {COLUMNS} columns")
    print_table([{**dict.fromkeys(found[0], ""), **row} for row in found])
    for title in ("ratio, 10", "whole fit, 10"):
        middle = median(float(row[title] or 0) for row in found)
        print(f"middle of {title} parties: {middle:.3f} (goal: at most {GOAL})")
    return [{"table": "cost", **row} for row in found]


def _iteration(fitted: Callable[[int], None]) -> tuple[float, float]:
    """Seconds of an iteration, and of the longer fit."""
    seconds = []
    fitted(1)
    for number in (1, 1 + MORE):
        begin = time.process_time()
        fitted(number)
        seconds.append(time.process_time() - begin)
    return (seconds[1] - seconds[0]) / MORE, seconds[1]


def _pooled(x: Array, start: Array, iterations: int) -> None:
    model = GaussianMixture(COMPONENTS, tol=0.0, max_iter=iterations, means_init=start)
    model.set_params(init_params="random_from_data", random_state=0).fit(x)


def _parties(parties: fc.Federation, start: Array) -> tuple[float, float, float]:
    watches: list[Stopwatch] = []

    def fitted(iterations: int) -> None:
        watches.append(Stopwatch())
        model = fc.VerticalGaussianMixture(COMPONENTS, tol=0.0, max_iter=iterations)
        model.set_params(means_init=start, random_state=0).fit(parties, engine=watches[-1])

    own, whole = _iteration(fitted)
    return own, whole, (watches[2].total - watches[1].total) / MORE
