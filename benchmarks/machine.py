"""The machine's own limit: float32 matrix products, one large and many small.

The best rate over several square sizes is what "fraction of the limit" is measured against; the
batched products have the shape of a circuit's sums, W (F, K, K²) times E (F, K², rows). Each thread
count is measured in a process of its own, so that no pool of an earlier one is left over. Rates
are by wall time, the best of several repeats.

    python -m benchmarks.machine
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from benchmarks.runner import THREAD_LIMITS, print_table

SIZES = (512, 1024, 2048)
BATCHED = {"units_10": (80, 10, 100, 256), "units_32": (80, 32, 1024, 256)}


@dataclass(frozen=True, slots=True)
class Limit:
    """Rates in GFLOP/s."""

    threads: int
    product: float
    units_10: float
    units_32: float


def limit(threads: int) -> Limit:
    """Measure in a fresh process with this many threads."""
    environment = {**os.environ, **dict.fromkeys(THREAD_LIMITS, str(threads))}
    command = [sys.executable, "-m", "benchmarks.machine", str(threads)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=300, env=environment
    )
    return Limit(**json.loads(done.stdout))


def _measure(threads: int) -> Limit:
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    square = max(_square(size, generator) for size in SIZES)
    batched = {name: _batched(shape, generator) for name, shape in BATCHED.items()}
    return Limit(threads, square, batched["units_10"], batched["units_32"])


def _square(size: int, generator: torch.Generator) -> float:
    left = torch.randn(size, size, generator=generator)
    right = torch.randn(size, size, generator=generator)
    return _rate(lambda: torch.mm(left, right), 2 * size**3)


def _batched(shape: tuple[int, int, int, int], generator: torch.Generator) -> float:
    folds, out, inner, rows = shape
    weight = torch.randn(folds, out, inner, generator=generator)
    values = torch.randn(folds, inner, rows, generator=generator)
    return _rate(lambda: torch.bmm(weight, values), 2 * folds * out * inner * rows)


def _rate(action: Callable[[], torch.Tensor], operations: int) -> float:
    """The best GFLOP/s of repeats that fill about half a second."""
    action()
    best, end = float("inf"), time.perf_counter() + 0.5
    while time.perf_counter() < end:
        begin = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - begin)
    return operations / best / 1e9


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asdict(_measure(int(sys.argv[1])))))
    else:
        print_table([asdict(limit(threads)) for threads in (1, 2)])
