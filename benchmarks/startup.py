"""How long one waits for imports, commands and a first model: CPU seconds, each in a new process.

    python -m benchmarks.startup [--repeats 3]

The least of the repeats counts; the first one after an installation also compiles kernels, which
stay on disk. The model is the demo's: breast cancer, split by columns among three hospitals.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.runner import Json, print_table

MODEL = """
import fedcircuits as fc
table = fc.datasets.load("breast_cancer")
hospitals = fc.split(table, ["north", "south", "west"], by="columns", target="diagnosis")
fc.FedPC(target="diagnosis", random_state=0).fit(hospitals).collect().save("model.fc")
"""
MIXTURES = """
import numpy as np, fedcircuits as fc
x = np.random.default_rng(0).normal(size=(4800, 9))
x[:, 1:3] += x[:, :1]
federation = fc.split(fc.Table.of(x), ["north", "south", "west"], by="{}", seed=0)
fc.FedPC(learner=fc.MixtureOfProducts(8), random_state=0).fit(federation)
"""
TASKS = {
    "import fedcircuits": ["-c", "import fedcircuits"],
    "fc.Table": ["-c", "import fedcircuits as fc; fc.Table"],
    "fc.Federation": ["-c", "import fedcircuits as fc; fc.Federation"],
    "fc.FedPC": ["-c", "import fedcircuits as fc; fc.FedPC"],
    "fedcircuits --help": ["-m", "fedcircuits", "--help"],
    "fedcircuits inspect": ["-m", "fedcircuits", "inspect", "model.fc"],
    "fedcircuits query, an event": [
        *("-m", "fedcircuits", "query", "model.fc"),
        "P(diagnosis = malignant | mean radius > 15)",
    ],
    "fedcircuits query, a mean": [
        *("-m", "fedcircuits", "query", "model.fc"),
        "E(worst area | diagnosis = malignant)",
    ],
    "fedcircuits query, given an exact real value": [
        *("-m", "fedcircuits", "query", "model.fc"),
        "P(diagnosis = malignant | mean radius = 15)",
    ],
    "FedPC of MixtureOfProducts(8), 3 × 1,600 rows": ["-c", MIXTURES.format("rows")],
    "the same by columns": ["-c", MIXTURES.format("columns")],
}


def run(repeats: int = 3) -> list[Json]:
    rows: list[Json] = []
    with tempfile.TemporaryDirectory() as folder:
        _seconds(["-c", MODEL], folder)
        for name, arguments in TASKS.items():
            found = min(_seconds(arguments, folder) for _ in range(repeats))
            rows.append({"task": name, "cpu_seconds": round(found, 2)})
    print_table(rows)
    return rows


def _seconds(arguments: list[str], folder: str) -> float:
    """CPU seconds of a process and whatever it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    source = os.pathsep.join([str(Path(__file__).parents[1] / "src"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    run(parser.parse_args().repeats)
