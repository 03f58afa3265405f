"""CPU seconds of the paper's released code, in a process of its own: JSON job in, one line out.

    folder   of the released code
    rows     npz: speed (owners, rows, steps), y (rows,), train and valid (indices)
    owners   so many owners are trained for one epoch: time grows with their number
    fuses    whether the fusion's epoch is timed
    anomaly  torch's anomaly detection, which the code turns on when it is imported

Names that it imports and does not use (torchvision) are empty modules here.
"""

import json
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    job = json.load(sys.stdin)
    torch.set_num_threads(1)
    sys.path.insert(0, job["folder"])
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]  # type: ignore[attr-defined]
    sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]  # type: ignore[attr-defined]
    with np.load(job["rows"]) as file:
        given = {n: torch.from_numpy(file[n]) for n in file.files}
    given["truth"] = torch.nn.functional.one_hot(given["y"].long(), 2).float()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes models where it stands
        os.makedirs("results/savedmodels")
        found = _measured(job, given)
    print(json.dumps(found))


def _measured(job: dict[str, Any], given: dict[str, Any]) -> dict[str, float]:
    from models.embedding import NodeLearner  # type: ignore[import-not-found]

    torch.autograd.set_detect_anomaly(bool(job["anomaly"]))
    nodes, total = [], 0.0
    for i, own in enumerate(given["speed"][..., None]):  # (rows, steps, 1)
        node = NodeLearner(1, 2, hidden_dim=16, stack_size=1, window_size=12)
        if i < job["owners"]:
            total += _seconds(lambda n=node, o=own: _one_epoch(n, o, given))  # type: ignore[misc]
        nodes.append(node.predictor)
    found = {"owners": total / job["owners"] * len(nodes)}
    if job["fuses"]:
        found["fusion"] = _fused(nodes, given)
    return found


def _one_epoch(node: Any, own: Any, given: dict[str, Any]) -> None:
    train, valid, truth = given["train"], given["valid"], given["truth"]
    batches = DataLoader(TensorDataset(own[train], truth[train]), 100, shuffle=True)
    node.fit(batches, X_val=own[valid], Y_val=truth[valid], n_iter=1, verbal=False)


def _fused(nodes: list[Any], given: dict[str, Any]) -> float:
    from models.fedgnn_lineartransform import Trainer  # type: ignore[import-not-found]

    train, valid, truth = given["train"], given["valid"], given["truth"]
    whole = given["speed"].permute(1, 2, 0)[..., None]  # (rows, steps, owners, 1)
    trainer = Trainer(1, 2, len(nodes), nodes, hidden_dim=16, permute=True)
    everybody = torch.ones(len(train), len(nodes))
    batches = DataLoader(TensorDataset(whole[train], truth[train], everybody), 100, shuffle=True)
    told = {"X_val": whole[valid], "Y_val": truth[valid], "Xt": whole[valid], "Yt": truth[valid]}
    said, sys.stdout = sys.stdout, sys.stderr
    try:
        return _seconds(lambda: trainer.fit(batches, n_iter=1, period=99, **told))
    finally:
        sys.stdout = said


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
