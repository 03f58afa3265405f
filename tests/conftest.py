"""How all tests run: repeatable properties, one thread per worker, pictures without a screen."""

import gc
import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
WORKER = os.environ.get("PYTEST_XDIST_WORKER")


def pytest_configure() -> None:
    """Before any test module loads the libraries that read these."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # workers would compile all tests again
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(100_000, 20, 20)
    if WORKER:
        folder = ROOT / ".pytest_cache" / "numba"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch

        from tests.compiled import take_turns

        torch.set_num_threads(1)
        take_turns(folder)
    if WORKER == "gw0":  # the others meanwhile read the tests
        compile_kernels()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, since tests of programs and of sites wait much of their time;
    fewer where memory is short: a worker takes up to 2 GB."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    room = 4
    if hasattr(os, "sysconf"):
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**31
    return max(1, min((cores or 1) + 1, room))


LONG = ("test_readme.py", "test_mixing.py", "test_runs.py", "test_walk.py", "test_docs.py",
        "test_faults.py", "test_demo.py", "test_suspects.py", "test_latent.py", "test_alone.py",
        "test_bounds.py", "test_release.py", "test_fuzz.py")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest start first, one after the other: at the end no worker is left
    alone with one."""
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONG)))


def pytest_collection_finish() -> None:
    """Libraries and tests are there until the end: they need not be looked through for garbage."""
    if WORKER:
        compile_kernels()
    gc.collect()
    gc.freeze()


def compile_kernels() -> None:
    """Or read those that another worker has compiled: no test waits for a compiler."""
    import fedcircuits.engines.process.preload  # noqa: F401


hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=20,
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
