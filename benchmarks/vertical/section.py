"""Mixtures over columns of parties: clusters, sums, cost and batches.

python -m benchmarks.run vertical vertical_trajectories
"""

from benchmarks.runner import Json
from benchmarks.vertical import batches, clusters, cost, sums


def run() -> list[Json]:
    return clusters.run() + sums.run() + cost.run() + batches.run()
