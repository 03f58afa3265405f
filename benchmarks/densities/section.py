"""Densities at the state of the art: bits of images, binary tables, and what a step costs.

python -m benchmarks.run densities           # about two hours of CPU time, one thread
python -m benchmarks.densities.section speed peers images tables parties    # parts of it
"""

import sys
from collections.abc import Callable

from benchmarks.densities import images, parties, peers, speed, tables
from benchmarks.runner import Json

PARTS: dict[str, Callable[[], list[Json]]] = {
    "speed": speed.run,
    "peers": peers.run,
    "images": images.run,
    "tables": tables.run,
    "parties": parties.run,
}


def run(parts: tuple[str, ...] = tuple(PARTS)) -> list[Json]:
    results: list[Json] = []
    for part in parts:
        results += PARTS[part]()
    return results


if __name__ == "__main__":
    run(tuple(sys.argv[1:]) or tuple(PARTS))
