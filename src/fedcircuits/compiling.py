"""Where compiled kernels are kept from one start to the next, and where they can be.

Numba keeps them beside the library or in the user's home, and fails where it may write to neither:
an account of a service, an image that is read only. Then they are kept in a folder of this process
alone, or where a program says (``keep_compiled``), such as a site's store. They are loaded without
further checks, so the folder must be one that nobody else may write to.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
_given: list[str] = []  # the folder of this process, if there is one


def _may_write(folder: Path) -> bool:
    there = next((p for p in (folder, *folder.parents) if p.exists()), folder)
    return os.access(there, os.W_OK | os.X_OK)


def has_usual_place() -> bool:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    places = (Path(__file__).parent / "circuits" / "evaluation", Path(home).expanduser())
    return any(_may_write(place) for place in places)


def choose_place() -> None:
    """A folder of this process, if there is no other and nobody has named one."""
    if VARIABLE in os.environ or has_usual_place():
        return
    folder = tempfile.mkdtemp(prefix="fedcircuits-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _use(folder)
    _given.append(folder)


def keep_compiled(folder: Path) -> None:
    """There, if the usual places cannot be written and nobody has named one."""
    if os.environ.get(VARIABLE, "") not in _given:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _use(str(folder))


def _use(folder: str) -> None:
    os.environ[VARIABLE] = folder
    if (numba := sys.modules.get("numba")) is not None:
        numba.config.CACHE_DIR = folder
