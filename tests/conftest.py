"""How all tests run: repeatable properties, one thread a worker, pictures without a screen.

Workers of pytest-xdist get a folder each for compiled kernels: numba writes the index of a cache
and its entries one after the other, so two processes that compile at once can mix them up.
"""

import gc
import os
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]


def pytest_configure() -> None:
    """Before any test module loads the libraries that read these."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    gc.set_threshold(100_000, 20, 20)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".pytest_cache" / "numba" / worker)
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch

        torch.set_num_threads(1)
        import fedcircuits.engines.process.preload  # noqa: F401  # no test waits for a compiler


def pytest_collection_finish() -> None:
    """Libraries and tests are there until the end: they need not be looked through for garbage."""
    gc.collect()
    gc.freeze()


hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with data sets; without one the test is skipped."""
    named = os.environ.get("FEDCIRCUITS_DATA")
    folder = Path(named).expanduser() if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}: set FEDCIRCUITS_DATA to a folder that has them")
    return folder
