"""The tables of the benchmarks as npz files with ``train`` and ``test``, where workers find them.

The binary density sets lie under ``FEDCIRCUITS_DATA`` or ``../shared/data``; breast cancer comes
with scikit-learn: 398 training rows by a fixed permutation, standardised by the training rows.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks.environments import cache_folder


def density_set(name: str) -> Path:
    """The file of a binary density set (nltcs, plants, baudio, bnetflix, tretail)."""
    shared = Path(__file__).parents[2] / "shared" / "data"
    named = os.environ.get("FEDCIRCUITS_DATA")
    folders = [Path(named).expanduser(), shared] if named else [shared]
    for folder in folders:
        if (path := folder / "debd" / f"{name}.npz").is_file():
            return path
    looked = ", ".join(str(folder / "debd") for folder in folders)
    raise FileNotFoundError(f"{name}.npz is in none of {looked}; set FEDCIRCUITS_DATA")


def breast_cancer() -> Path:
    """The file of the breast cancer columns, written on first use."""
    path = cache_folder() / "inputs" / "breast_cancer.npz"
    if not path.is_file():
        values = np.asarray(load_breast_cancer().data)[np.random.default_rng(0).permutation(569)]
        train = values[:398]
        scaled = (values - train.mean(0)) / train.std(0)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, train=scaled[:398], test=scaled[398:])
    return path
