"""A real PostgreSQL for tests: on a socket of its own, by a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PLACES = os.pathsep.join(
    [os.environ.get("PATH", ""), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
)
INITDB, PG_CTL = (shutil.which(name, path=PLACES) for name in ("initdb", "pg_ctl"))
needs_postgres = pytest.mark.skipif(
    INITDB is None, reason="needs PostgreSQL, which Debian's package postgresql has"
)


def _owner() -> str | None:
    """Who runs the server: root may not."""
    if os.geteuid():
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.skip("root may not run PostgreSQL, and there is no user postgres or nobody")


@contextmanager
def postgres() -> Iterator[str]:
    """The address of an empty database, ``postgresql:///…``."""
    owner = _owner()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pg") as name:
        folder = Path(name)
        if owner is not None:
            shutil.chown(folder, owner)

        def run(*words: object) -> None:
            with (folder / "words.log").open("a") as log:
                done = subprocess.run(
                    [str(word) for word in words], user=owner, check=False, cwd=folder,
                    stdout=log, stderr=log,
                )  # fmt: skip
            assert done.returncode == 0, (folder / "words.log").read_text()

        (folder / "words.log").touch()
        if owner is not None:
            shutil.chown(folder / "words.log", owner)
        run(INITDB, "-D", folder / "data", "-U", "reader", "-A", "trust", "-E", "UTF8")
        listens = f"-c listen_addresses='' -c unix_socket_directories='{folder}'"
        run(
            PG_CTL, "-D", folder / "data", "-l", folder / "server.log", "-w", "-o", listens, "start"
        )
        try:
            yield f"postgresql:///postgres?host={folder}&user=reader"
        finally:
            run(PG_CTL, "-D", folder / "data", "-m", "immediate", "stop")
