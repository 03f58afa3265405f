"""One virtual environment per peer, made from the package index when it is missing.

Peers need versions of numpy and scipy that exclude each other and ours, so each lives alone under
``FEDCIRCUITS_BENCH`` (default ``~/.cache/fedcircuits/benchmarks``). Nothing of theirs is imported
by fedcircuits; workers under ``peers/`` run in the peer's own interpreter.

Two peers ask for packages that none of the measured code imports (TensorFlow, PyQt5, torchvision):
they are installed without their dependencies, and what they do import is listed here. torch is one
exact version everywhere, installed first, so that no open range can pull another build.

    python -m benchmarks.environments          # make what is missing, one line per peer
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
PLOTTING = ("matplotlib==3.11.2", "networkx==3.6.1", "pydot==4.0.1", "tqdm==4.70.1")
LEARNING = ("scikit-learn==1.9.1", "scipy==1.17.1", "joblib==1.6.0")


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to compare with: ``bare`` packages are installed without dependencies."""

    name: str
    title: str
    licence: str
    packages: tuple[str, ...]
    bare: tuple[str, ...]
    modules: tuple[str, ...]  # imported once to prove that the environment works


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "spflow_old",
            "SPFlow 0.0.48",
            "Apache-2.0",
            (
                "numpy==2.2.6",
                *LEARNING,
                *PLOTTING,
                "statsmodels==0.15.0",
                "lark-parser==0.12.0",
                "sympy==1.14.0",
            ),
            ("spflow==0.0.48",),
            ("spn.algorithms.LearningWrappers", "spn.algorithms.Inference"),
        ),
        Peer(
            "spflow_new",
            "SPFlow 1.1.0",
            "Apache-2.0",
            (TORCH, "numpy==2.4.6", "scipy==1.17.1", "spflow==1.1.0"),
            (),
            ("spflow.zoo.einet", "spflow.learn.learn_spn"),
        ),
        Peer(
            "libcirkit",
            "libcirkit 0.3.1",
            "GPL-3.0, run for comparison only",
            (TORCH, "numpy==2.2.6", "scipy==1.14.1", "libcirkit==0.3.1"),
            (),
            ("cirkit.pipeline", "cirkit.templates.region_graph"),
        ),
        Peer(
            "deeprob_kit",
            "deeprob-kit 1.1.0",
            "MIT",
            (TORCH, "numpy==1.26.4", *LEARNING, *PLOTTING),
            ("deeprob-kit==1.1.0",),
            ("deeprob.spn.models.ratspn", "deeprob.spn.learning.wrappers"),
        ),
        Peer(
            "fed_tree",
            "FedTree 1.0.5",
            "Apache-2.0",
            ("numpy==2.2.6", *LEARNING, "fedtree==1.0.5"),
            (),
            ("sklearn",),  # its own library needs libntl, which the worker looks for
        ),
        Peer(
            "tabnet",
            "pytorch-tabnet 4.1.0",
            "MIT",
            (TORCH, "numpy==2.2.6", *LEARNING),
            ("pytorch-tabnet==4.1.0",),
            ("pytorch_tabnet.tab_network",),
        ),
        Peer(
            "mpyc_arrays",
            "MPyC 0.11",
            "MIT",
            ("numpy==2.4.6", "gmpy2==2.3.2", "mpyc==0.11"),
            (),
            ("mpyc.runtime",),
        ),
        Peer(
            "crypten_arrays",
            "CrypTen 0.4.1",
            "MIT",
            (TORCH, "numpy==2.2.6", "pyyaml==6.0.3", "omegaconf==2.3.0"),
            ("crypten==0.4.1",),
            ("omegaconf", "torch"),  # it does not import as it is; the worker says why
        ),
        Peer(
            "spu_arrays",
            "SecretFlow SPU 0.9.5",
            "Apache-2.0",
            ("numpy==1.26.4", "scipy==1.17.1", "jax==0.4.34", "jaxlib==0.4.34", "spu==0.9.5"),
            (),
            ("spu",),
        ),
    )
}


def cache_folder() -> Path:
    """Where environments, learned trees and inputs are kept between runs."""
    named = os.environ.get("FEDCIRCUITS_BENCH")
    return Path(named).expanduser() if named else Path.home() / ".cache/fedcircuits/benchmarks"


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, whether or not it exists yet."""
    return cache_folder() / "environments" / name / "bin" / "python"


@functools.cache
def ensure(name: str) -> str | None:
    """Make the peer's environment unless it is there; the reason in one line if that fails.

    One attempt per run: a peer that cannot be had is not asked for again at every job.
    """
    peer, python = PEERS[name], python_of(name)
    folder = python.parent.parent
    stamp, wanted = folder / "ready.json", json.dumps([TORCH, *peer.packages, *peer.bare])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted and python.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _make(peer, folder, python)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{peer.title} is not available: {_last_line(error)}"
    stamp.write_text(wanted, encoding="utf-8")
    return None


def _make(peer: Peer, folder: Path, python: Path) -> None:
    venv.create(folder, with_pip=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join((TORCH, *peer.packages)) + "\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    if TORCH in peer.packages:
        _run([*pip, TORCH])
    _run([*pip, *peer.packages])
    if peer.bare:
        _run([*pip, "--no-deps", *peer.bare])
    _run([str(python), "-c", f"import {', '.join(peer.modules)}"])


def _run(command: list[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=1800, env=environment
    )


def _last_line(error: OSError | subprocess.SubprocessError) -> str:
    text = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(text).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [type(error).__name__])[-1].strip()


def main() -> int:
    """Make every environment; the number of peers that could not be had is the exit code."""
    missing = 0
    for name, peer in PEERS.items():
        reason = ensure(name)
        missing += reason is not None
        print(reason or f"{peer.title} ({peer.licence}) in {python_of(name).parent.parent}")
    return missing


if __name__ == "__main__":
    sys.exit(main())
