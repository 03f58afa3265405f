"""What it costs: parties, bytes, and EM in place of one pass.

python -m benchmarks.run federated_scale
"""

from benchmarks.federated import communication, em, parties
from benchmarks.runner import Json


def run() -> list[Json]:
    return parties.run() + communication.run() + em.run()
