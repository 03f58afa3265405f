"""CPU seconds beside the paper's released code, at its settings, one thread.

The code (github.com/matenure/federated_feature_fusion) is run as it is from a folder that
FEDCIRCUITS_FUSION names; its data are not there, ours are given. An epoch of an owner is 2,000 rows
in batches of 100 through an LSTM of width 16, with a look at the rows held back; an epoch of the
fusion is the same rows of all owners, with a learned graph and a linear alignment. Theirs runs
owners one after the other, and anew in every epoch of the fusion, and draws a graph for each row;
it is timed for a few owners and one epoch, since time grows with both.
"""

import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.fusion.sets import load
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.learning.apart import Lesson, Schedule, learn, represented, shapes_with_head
from fedcircuits.learning.fusion import FusionSettings, Gathered, fuse
from fedcircuits.learning.networks import Recurrent

NETWORK = Recurrent("lstm", 12, 2, 16)


def run(owners: int = 207, epochs: int = 3, theirs: int = 8) -> list[Json]:
    torch.set_num_threads(1)
    data = load("semi-synthetic", owners)
    speed = data.series[..., 0]
    speed = (speed - speed.mean(axis=(1, 2), keepdims=True)) / speed.std(axis=(1, 2), keepdims=True)
    y, rows = data.y.astype(np.float32), np.random.default_rng(0).permutation(len(data.y))[:2284]
    held = np.arange(2284) >= 1999
    x = np.stack([speed[:, rows], np.ones_like(speed[:, rows])], axis=-1).astype(np.float32)
    lessons = [Lesson(own, y[rows], held, (i,)) for i, own in enumerate(x)]
    own, learned = _timed(lambda: learn(NETWORK, "classes", 2, lessons, Schedule(epochs, 1e-3)))
    shapes = shapes_with_head(NETWORK, 2)
    h = np.stack([represented(NETWORK, w.weights, shapes, v)[0]
                  for w, v in zip(learned, x, strict=True)])  # fmt: skip
    gathered = Gathered(h, np.ones((len(rows), owners), bool))
    settings = FusionSettings(epochs=epochs, reference="normal")
    fused, _ = _timed(lambda: fuse(gathered, y[rows], held, "classes", 2, settings, 0))
    shown: list[dict[str, Cell]] = [
        {
            "side": "fedcircuits",
            "owners, s an epoch": own / epochs,
            "fusion, s an epoch": fused / epochs,
        }
    ]
    if folder := os.environ.get("FEDCIRCUITS_FUSION"):
        one, whole = _theirs(Path(folder), speed, data.y.astype(int), rows, held, theirs)
        shown.append(
            {"side": "released code", "owners, s an epoch": one, "fusion, s an epoch": whole}
        )
        shown.append({
            "side": "ratio", "owners, s an epoch": one * epochs / own,
            "fusion, s an epoch": whole * epochs / fused,
        })  # fmt: skip
    print(f"\nCPU seconds, {owners} owners")
    print_table(shown)
    return [{"table": "cost", "owners": owners, **row} for row in shown]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def _theirs(
    folder: Path, speed: Any, y: Any, rows: Any, held: Any, few: int
) -> tuple[float, float]:
    """CPU seconds of an epoch of all owners, and of the fusion."""
    sys.path.insert(0, str(folder))
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
        sys.modules.setdefault(name, types.ModuleType(name))  # imported there, never used
    sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]  # type: ignore[attr-defined]
    sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]  # type: ignore[attr-defined]
    from models.embedding import NodeLearner  # type: ignore[import-not-found]
    from models.fedgnn_lineartransform import Trainer  # type: ignore[import-not-found]
    from torch.utils.data import DataLoader, TensorDataset

    train, valid = rows[~held], rows[held]
    truth = torch.nn.functional.one_hot(torch.from_numpy(y), 2).float()
    nodes, total = [], 0.0
    for i in range(len(speed)):
        node = NodeLearner(1, 2, hidden_dim=16, stack_size=1, window_size=12)
        if i < few:
            own = torch.from_numpy(speed[i])[..., None]
            batches = DataLoader(TensorDataset(own[train], truth[train]), 100, shuffle=True)
            told = {"X_val": own[valid], "Y_val": truth[valid], "n_iter": 1, "verbal": False}
            total += _timed(lambda node=node, b=batches, t=told: node.fit(b, **t))[0]  # type: ignore[misc]
        nodes.append(node.predictor)
    whole = torch.from_numpy(speed).permute(1, 2, 0)[..., None]  # (rows, steps, owners, 1)
    Path("results/savedmodels").mkdir(parents=True, exist_ok=True)
    trainer = Trainer(1, 2, len(speed), nodes, hidden_dim=16, permute=True)
    batches = DataLoader(
        TensorDataset(whole[train], truth[train], torch.ones(len(train), len(speed))), 100
    )
    told = {"n_iter": 1, "period": 99, "X_val": whole[valid], "Y_val": truth[valid]}
    seconds, _ = _timed(lambda: trainer.fit(batches, Xt=whole[valid], Yt=truth[valid], **told))
    return total / few * len(speed), seconds


if __name__ == "__main__":
    run()
