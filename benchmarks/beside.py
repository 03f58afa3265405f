"""Speed of this checkout beside another one, turn by turn in one run.

    git worktree add ../before COMMIT
    FEDCIRCUITS_DATA=… python -m benchmarks.beside ../before [--turns 5] [--only TEXT]

Both sides do the jobs of the sections ``evaluation`` and ``learners`` that concern fedcircuits
alone, in processes of their own with one thread. They alternate, so that other work on the machine
meets both. The ratio is of the least CPU seconds over the turns: 1.00 is equal speed.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.evaluation import TENSORISED, input_of
from benchmarks.runner import THREAD_LIMITS, Cell, Json, best, print_table, write_json

HERE = Path(__file__).parents[1]
LEARNING = """
import json, sys, time
import numpy as np, torch
from benchmarks.data import density_set
from benchmarks.learners import OURS
torch.set_num_threads(1)
name, title = sys.argv[1:]
with np.load(density_set(name)) as file:
    train = file["train"].astype(bool)
seconds = []
for _ in range(3):  # the first one compiles
    start = time.process_time()
    model = OURS[title].make(0).fit(train)
    seconds.append(time.process_time() - start)
print(json.dumps({"cpu_seconds": seconds, "check": float(model.score(train[:1000]))}))
"""
SCORING = """
import json, sys, time
import numpy as np, torch
import fedcircuits as fc
from benchmarks.data import density_set
torch.set_num_threads(1)
with np.load(density_set(sys.argv[1])) as file:
    train, test = file["train"].astype(bool), file["test"].astype(np.float64)
model = fc.LearnSPN(random_state=0).fit(train[:5000])
seconds = []
for _ in range(5):  # the first one compiles
    start = time.process_time()
    found = model.score_samples(test)
    seconds.append(time.process_time() - start)
print(json.dumps({"cpu_seconds": seconds, "check": round(float(found.mean()), 10)}))
"""
LEARNERS = (
    "mixture of 50 products",
    "Chow–Liu tree",
    "hidden Chow–Liu tree, 16 states",
    "einsum network, K = 10",
    "LearnSPN",
    "LearnSPN, Chow–Liu leaves",
    "4 × 20 Chow–Liu trees",
)


def run(other: Path, turns: int, only: str) -> list[dict[str, Cell]]:
    chosen = {title: job for title, job in _jobs().items() if only in title}
    return [_beside(title, *job, other, turns) for title, job in chosen.items()]


def _jobs() -> dict[str, tuple[list[str], dict[str, Json]]]:
    """By title a command, and what it reads."""
    jobs: dict[str, tuple[list[str], dict[str, Json]]] = {}
    for title, (kind, units, _) in TENSORISED.items():
        path = str(input_of(kind, units))
        for what in ("forward", "em", "adam"):
            job: dict[str, Json] = {"kind": kind, "pass": what, "path": path, "units": units}
            job |= {"threads": 1, "repeats": 20, "memory_gb": 8, "trees": ""}
            jobs[f"{title}: {what}"] = (["benchmarks/peers/ours.py"], job)
    for name in ("nltcs", "plants", "baudio", "bnetflix"):
        jobs[f"{name}: test rows scored by LearnSPN"] = (["-c", SCORING, name], {})
    for name in ("nltcs", "plants"):
        for title in LEARNERS:
            jobs[f"{name}: {title}"] = (["-c", LEARNING, name, title], {})
    return jobs


def _beside(
    title: str, command: list[str], job: dict[str, Json], other: Path, turns: int
) -> dict[str, Cell]:
    least: dict[Path, float] = {}
    checks: dict[Path, Json] = {}
    for turn in range(turns):
        for tree in (HERE, other) if turn % 2 else (other, HERE):
            figures = _figures(tree, command, job)
            seconds, checks[tree] = best(figures), figures.get("check")
            assert seconds is not None, f"{title} in {tree} measured nothing"
            least[tree] = min(seconds, least.get(tree, seconds))
    equal = "equal" if checks[HERE] == checks[other] else f"{checks[other]} → {checks[HERE]}"
    here, there = least[HERE] * 1e3, least[other] * 1e3
    row: dict[str, Cell] = {"job": title, "before, cpu ms": there, "now, cpu ms": here}
    row |= {"ratio": here / there, "result": equal}
    print_table([row])
    return row


def _figures(tree: Path, command: list[str], job: dict[str, Json]) -> dict[str, Json]:
    limits = dict.fromkeys(THREAD_LIMITS, "1")
    environment = {**os.environ, **limits, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=tree,
        env=environment,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command} failed in {tree}:\n{done.stderr}")
    figures: dict[str, Json] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="folder of the checkout to compare with")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="jobs whose title has this text")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/beside.json"))
    chosen = parser.parse_args()
    rows = run(chosen.other.resolve(), chosen.turns, chosen.only)
    print()
    print_table(rows)
    write_json(chosen.output, {"section": "beside", "results": [dict(row) for row in rows]})


if __name__ == "__main__":
    main()
