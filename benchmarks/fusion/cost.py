"""CPU seconds beside the paper's released code, at its settings, one thread.

Owners: an LSTM of width 16 each, 1,999 rows in batches of 100, a look at the 285 rows held back in
every epoch, 60 epochs, no early end. Fusion: the same rows of all owners, a learned graph with the
normal reference and a linear alignment, no owner dropout, as theirs.

Theirs runs owners one after the other, runs them again in every epoch of the fusion, draws a graph
for every row, and judges every epoch by 10 graphs; it is timed for a few owners and one epoch, as
time grows with both. It also turns on torch's anomaly detection: its time without is given too.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.fusion import released
from benchmarks.fusion.sets import load
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.encoders.apart import (
    Schedule,
    TrainingJob,
    learn,
    represented,
    shapes_with_head,
)
from fedcircuits.learning.encoders.networks import Recurrent
from fedcircuits.methods.fusion.fitting import OwnerRows, fuse
from fedcircuits.methods.fusion.heads import FusionSettings

NETWORK = Recurrent("lstm", 12, 2, 16)
EPOCHS = 60


def run(owners: int = 207, theirs: int = 8) -> list[Json]:
    torch.set_num_threads(1)
    data = load("semi-synthetic", owners)
    speed = data.series[..., 0]
    speed = (speed - speed.mean(axis=(1, 2), keepdims=True)) / speed.std(axis=(1, 2), keepdims=True)
    y = data.y.astype(np.float32)
    rows = np.random.default_rng(0).permutation(len(y))[:2284]
    held = np.arange(2284) >= 1999
    own, fit, epochs = _ours(speed[:, rows], y[rows], held)
    shown: list[dict[str, Cell]] = [
        {"side": "fedcircuits", "owners, 60 epochs, s": own, "fusion, s per epoch": fit / epochs,
         "fusion, s per fit": fit}
    ]  # fmt: skip
    where = released.folder()
    if isinstance(where, str):
        print(where)
    else:
        shown += _theirs(where, speed, y, rows, held, theirs, (own, fit, epochs))
    print(f"\nCPU seconds, {owners} owners; a fit of the fusion is {epochs} epochs")
    print_table(shown)
    return [{"table": "cost", "owners": owners, "epochs": epochs, **row} for row in shown]


def _ours(speed: Array, y: Array, held: Array) -> tuple[float, float, int]:
    """Seconds of the owners, of the fusion, and the fusion's epochs."""
    x = np.stack([speed, np.ones_like(speed)], axis=-1).astype(np.float32)
    jobs = [TrainingJob(series, y, held, (i,)) for i, series in enumerate(x)]
    learn(NETWORK, "classes", 2, jobs[:1], Schedule(1, 1e-3))  # what is done once in a process
    schedule = Schedule(EPOCHS, 1e-3, patience=EPOCHS)
    own, learned = _timed(lambda: learn(NETWORK, "classes", 2, jobs, schedule))
    shapes = shapes_with_head(NETWORK, 2)
    h = np.stack([
        represented(NETWORK, w.weights, shapes, v)[0] for w, v in zip(learned, x, strict=True)
    ])  # fmt: skip
    gathered = OwnerRows(h, np.ones((len(y), len(x)), bool))
    settings = FusionSettings(reference="normal")
    fit, fused = _timed(lambda: fuse(gathered, y, held, "classes", 2, settings, 0))
    return own, fit, len(fused.history["training"])


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def _theirs(
    where: Path, speed: Array, y: Array, rows: Array, held: Array, few: int,
    ours: tuple[float, float, int],
) -> list[dict[str, Cell]]:  # fmt: skip
    shown: list[dict[str, Cell]] = []
    own, fit, epochs = ours
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, speed=speed, y=y, train=rows[~held], valid=rows[held])
        for anomaly in (True, False):
            job = {"folder": str(where.resolve()), "rows": str(path), "owners": few,
                   "fuses": True, "anomaly": anomaly}  # fmt: skip
            found = _worker(job)
            name = "released code" + ("" if anomaly else ", no anomaly detection")
            if "error" in found:
                shown.append({"side": f"{name}: {found['error']}"})
                continue
            one, whole = float(found["owners"]), float(found["fusion"])
            shown.append({
                "side": name, "owners, 60 epochs, s": EPOCHS * one, "fusion, s per epoch": whole,
                "fusion, s per fit": epochs * whole,
            })  # fmt: skip
            shown.append({"side": "ratio", "owners, 60 epochs, s": EPOCHS * one / own,
                          "fusion, s per epoch": whole * epochs / fit,
                          "fusion, s per fit": whole * epochs / fit})  # fmt: skip
    return shown


def _worker(job: dict[str, Any]) -> dict[str, Any]:
    worker = Path(__file__).with_name("released_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker)], check=False, input=json.dumps(job), capture_output=True,
        text=True, timeout=3600,
    )  # fmt: skip
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    run()
