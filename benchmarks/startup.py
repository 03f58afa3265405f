"""How large an installation is, and how long one waits for it, for imports, commands and a first
model.

    python -m benchmarks.startup [--repeats 3] [--page]

Each environment is new and has the required packages alone. Each task is a new process, and the
least of the repeats counts; the first one after an installation also compiles kernels, which stay
on disk. The model is the demo's: breast cancer, split by columns among three hospitals.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.runner import Json, machine_facts, print_table

ROOT = Path(__file__).parents[1]
TORCH = "torch==2.13.0"  # the build for processors alone, where an index has it
INSTALLED = {  # constraints of an environment
    "the newest versions": [TORCH],
    "the oldest versions": ["-c", str(ROOT / "constraints-lowest.txt")],
}

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


def run(repeats: int = 3) -> tuple[list[Json], list[Json]]:
    """Installations, and tasks in the environment that runs this."""
    installed: list[Json] = []
    tasks: list[Json] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, constraints in INSTALLED.items():
            installed.append({"what": name, **_installed(Path(folder) / name, constraints)})
        print_table(installed)
        _seconds(["-c", MODEL], folder)
        for name, arguments in TASKS.items():
            found = min(_seconds(arguments, folder) for _ in range(repeats))
            tasks.append({"task": name, "cpu_seconds": round(found, 2)})
    print_table(tasks)
    return installed, tasks


def _installed(folder: Path, constraints: list[str]) -> Json:
    """Seconds and size of an installation with these constraints."""
    venv.create(folder, with_pip=True)
    packages = next(folder.glob("lib/*/site-packages"))
    before, began = _megabytes(packages), time.perf_counter()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [*pip, *constraints, str(ROOT)], check=True, capture_output=True, env=environment
    )
    return {
        "seconds": round(time.perf_counter() - began),
        "MB": round(_megabytes(packages) - before),
        "MB of torch": round(_megabytes(packages / "torch")),
        "MB of fedcircuits": round(_megabytes(packages / "fedcircuits"), 1),
    }


def _megabytes(folder: Path) -> float:
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir()) / 1e6


def page(installed: list[Json], tasks: list[Json]) -> dict[str, Any]:
    machine: dict[str, Any] = machine_facts()
    about = (
        "An installation has the required packages alone, with the CPU build of torch, from a new "
        "environment and without pip's cache; its seconds depend on the network and on other "
        "programs. A task is a new process; kernels were compiled before."
    )
    where = [{"machine": machine["processor"], "cores": machine["cores"],
              "load": f"{os.getloadavg()[0]:.1f}", "Python": machine["python"],
              **machine["versions"]}]  # fmt: skip
    blocks: list[dict[str, Any]] = [
        {"code": "python -m benchmarks.startup --page"},
        {"text": about},
    ]
    for rows in (installed, tasks, where):
        blocks.append({"columns": list(rows[0]), "rows": [list(r.values()) for r in rows]})
    return {"title": "Installing and starting", "blocks": blocks}


def _seconds(arguments: list[str], folder: str) -> float:
    """CPU seconds of a process and whatever it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    source = os.pathsep.join([str(ROOT / "src"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="write docs/results/startup.md")
    said = parser.parse_args()
    found = run(said.repeats)
    if said.page:
        pages.write(pages.RESULTS / "startup", page(*found))
