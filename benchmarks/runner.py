"""Run a peer's worker in its own interpreter; print a table; write the results.

A job is a small JSON object (README.md lists its fields). A peer that cannot be installed, fails or
takes too long or too much memory costs one line, never the run or the machine: its result then
holds ``error`` and no figures.
"""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeAlias

from benchmarks.environments import PEERS, cache_folder, ensure, python_of

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Cell: TypeAlias = "str | int | float | None"

THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


OURS = "ours"


def run_peer(peer: str, job: Mapping[str, Json], timeout: float = 1800) -> dict[str, Json]:
    """The worker's figures with ``peer`` and ``title``; ``error`` in one line where it failed.

    ``ours`` is fedcircuits itself, run by this interpreter.
    """
    title = "fedcircuits" if peer == OURS else PEERS[peer].title
    labels: dict[str, Json] = {"peer": peer, "title": title}
    reason = None if peer == OURS else ensure(peer)
    if reason is not None:
        return {**labels, "error": reason}
    python = sys.executable if peer == OURS else str(python_of(peer))
    worker = Path(__file__).parent / "peers" / f"{peer}.py"
    complete: dict[str, Json] = {"threads": 1, "repeats": 5, "memory_gb": 8, **job}
    complete["trees"] = str(cache_folder() / "trees")
    try:
        done = subprocess.run(
            [python, str(worker)],
            check=False,
            input=json.dumps(complete),
            capture_output=True,
            text=True,
            timeout=timeout,
            env=_environment(complete["threads"]),
        )
    except subprocess.TimeoutExpired:
        return {**labels, "error": f"{peer} did not finish {job.get('kind')} in {timeout:.0f} s"}
    if done.returncode:
        found = _reason(done.stderr) or f"exit code {done.returncode}"
        return {**labels, "error": f"{peer} failed at {job.get('kind')}: {found}"}
    figures: dict[str, Json] = json.loads(done.stdout.splitlines()[-1])
    return {**labels, **figures}


def _reason(stderr: str) -> str:
    """The line that names the exception, else the last one: some messages run over many lines."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return (named or lines or [""])[-1][:200]


def _environment(threads: Json) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**kept, **dict.fromkeys(THREAD_LIMITS, str(threads)), "PYTHONWARNINGS": "ignore"}


def best(result: Mapping[str, Json], clock: str = "cpu_seconds") -> float | None:
    """The least seconds over the repeats, None where the peer gave none."""
    seconds = result.get(clock)
    if not isinstance(seconds, list) or not seconds:
        return None
    return min(float(value) for value in seconds if isinstance(value, int | float))


PRINTED: list[dict[str, Json]] = []  # every table of this run, for the pages of docs/results


def print_table(rows: Sequence[Mapping[str, Cell]]) -> None:
    """Print rows under their keys; a missing cell reads "not available"."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names] + [[_text(row.get(name)) for name in names] for row in rows]
    PRINTED.append({"columns": list(names), "rows": [list(line) for line in lines[1:]]})
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for number, line in enumerate(lines):
        print("  ".join(_aligned(text, width) for text, width in zip(line, widths, strict=True)))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def _text(value: Cell) -> str:
    if value is None:
        return "not available"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def _aligned(text: str, width: int) -> str:
    return text.rjust(width) if text[:1].isdigit() or text[:1] == "-" else text.ljust(width)


def machine_facts() -> dict[str, Json]:
    """Processor, cores, memory and versions: what a figure cannot be read without."""
    packages = ("torch", "numpy", "numba", "scipy")
    facts: dict[str, Json] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    facts["versions"] = {name: _version(name) for name in packages}
    facts["peers"] = {name: peer.title for name, peer in PEERS.items()}
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_json(path: Path, payload: Mapping[str, Json]) -> None:
    """Write the payload with the machine's facts; an older file survives a failed write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    text = json.dumps(_finite({"machine": machine_facts(), **payload}), indent=1, allow_nan=False)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def _finite(value: Json) -> Json:
    """JSON has no infinity: null stands for it, and a note beside it says what it was."""
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if not isinstance(value, dict):
        return None if _endless(value) else value
    notes = [f"{name} is {v}" for name, v in value.items() if _endless(v)]
    kept: dict[str, Json] = {name: _finite(v) for name, v in value.items()}
    return {**kept, "note": ", ".join(notes)} if notes else kept


def _endless(value: Json) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


if __name__ == "__main__":
    print(json.dumps(run_peer(sys.argv[1], json.load(sys.stdin)), indent=1))
