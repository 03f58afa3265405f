"""Private forests and arithmetic on secrets: likelihoods, times, other libraries.

python -m benchmarks.run private
"""

from benchmarks.private import forests, peers, times
from benchmarks.runner import Json


def run() -> list[Json]:
    return forests.run() + times.run() + peers.run()
