"""The tables of the benchmarks as npz files with ``train`` and ``test``, where workers find them.

The binary density sets lie under ``FEDCIRCUITS_DATA`` or ``../shared/data``; breast cancer comes
with scikit-learn: 398 training rows by a fixed permutation, standardised by the training rows.

Mixed tables have codes for categories and their class last; reals are standardised by the training
rows. Of adult, rows with gaps are left out, which the peers do not learn from; the survey weight
and the number of the education (its name is a column) too; capital gain and loss are whether there
was any. Ages and hours are whole numbers.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import fedcircuits as fc
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


def mixed_breast_cancer() -> tuple[fc.Table, fc.Table]:
    """398 rows to learn from and 171 to test."""
    return _split(fc.datasets.load("breast_cancer"), 398, 171)


def mixed_adult(rows: int = 4000) -> tuple[fc.Table, fc.Table]:
    """As many complete rows to learn from as to test."""
    frame = fc.datasets.load("adult").to_pandas().dropna()
    frame = frame.drop(columns=["fnlwgt", "education-num"])
    gains = {name: frame[name] > 0 for name in ("capital-gain", "capital-loss")}
    return _split(fc.Table.of(frame.assign(**gains)), rows, rows)


def _split(table: fc.Table, train: int, test: int) -> tuple[fc.Table, fc.Table]:
    order = np.random.default_rng(0).permutation(len(table))[: train + test]
    values = table.values[order]
    real = [v.kind == "real" for v in table.schema]
    seen = values[:train, real]
    values[:, real] = (values[:, real] - seen.mean(0)) / seen.std(0)
    return fc.Table(table.schema, values[:train]), fc.Table(table.schema, values[train:])
