"""The paper's released code and rows, from its public address; run beside ours, never kept here.

The commit is fixed. It is cloned into the cache of the benchmarks when it is first asked for;
FEDCIRCUITS_FUSION names a folder that has it already. Its archive ``traffic-la.zip`` has the rows
of the paper with labels, by a rule that neither paper nor code tells: the set "metr-la".
"""

import functools
import os
import shutil
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.environments import cache_folder

ADDRESS = "https://github.com/matenure/federated_feature_fusion"
COMMIT = "9cea7f5871b0c608fe0ec8d733cd3b690e7ba87f"
ROWS = "event_classification_data/traffic"


@functools.cache
def folder() -> Path | str:
    """Where it is, or in one line why it is not."""
    if named := os.environ.get("FEDCIRCUITS_FUSION"):
        there = (Path(named) / "models" / "fedgnn_lineartransform.py").is_file()
        return Path(named) if there else f"FEDCIRCUITS_FUSION={named} has no released code"
    found = cache_folder() / "federated_feature_fusion"
    if (found / "models").is_dir():
        return found
    try:
        shutil.rmtree(found, ignore_errors=True)
        _git("clone", "--quiet", ADDRESS, str(found))
        _git("-C", str(found), "checkout", "--quiet", COMMIT)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(found, ignore_errors=True)
        text = str(getattr(error, "stderr", "") or error).strip().splitlines() or [""]
        return f"the released code is not available: {text[-1]}"
    return found


def _git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True, text=True, timeout=600)


def metr_la() -> dict[str, npt.NDArray[np.generic]] | str:
    """x (rows, owners, steps, 1), y (rows,); or in one line why there are none."""
    where = folder()
    if isinstance(where, str):
        return where
    for name in ("metr-la.npz", "metr-la_indexed.npz"):
        for path in sorted((where / ROWS).rglob(name)):
            return _arrays(path.read_bytes())
    archive = where / ROWS / "traffic-la.zip"
    if archive.is_file():
        with zipfile.ZipFile(archive) as file:
            for member in file.namelist():
                if Path(member).name in ("metr-la.npz", "metr-la_indexed.npz"):
                    return _arrays(file.read(member))
    return f"the paper's rows are not available: no metr-la.npz in {where / ROWS}"


def _arrays(content: bytes) -> dict[str, npt.NDArray[np.generic]]:
    with np.load(BytesIO(content)) as file:
        return {"x": file["x"], "y": file["y"]}
