"""Federated feature fusion: tables 2 and 3, missing owners, bytes, edges, cost.

python -m benchmarks.run fusion
"""

from benchmarks.fusion import cost, edges, missing, tables
from benchmarks.runner import Json


def run() -> list[Json]:
    found = [*edges.run(), *cost.run()]
    for name in ("semi-synthetic", "week", "digits"):
        found += tables.run(name, splits=("random", "time"))
    return found + missing.run()
