"""What an owner's commands know of a site on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcircuits.engines.sites.serving import RUNNING, process_of
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FederationError

SERVE = """
import sys
from pathlib import Path
from fedcircuits.engines.sites.serving import wait_until_stopped
from fedcircuits.engines.sites.store import Store
print("serves", flush=True)
wait_until_stopped(Store(Path(sys.argv[1])))
"""


def test_another_program_with_the_number_of_a_killed_site_is_left_alone(tmp_path: Path) -> None:
    assert process_of(tmp_path) is None
    site = subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert site.stdout is not None and site.stdout.readline()
        while process_of(tmp_path) is None:
            assert site.poll() is None
        assert process_of(tmp_path) == site.pid
    finally:
        site.kill()
        site.wait()
        assert site.stdout is not None
        site.stdout.close()
    assert (tmp_path / RUNNING).exists() and process_of(tmp_path) is None
    for stale in (f"{os.getpid()} 1", f"{os.getpid()}", "", "nonsense", f"{os.getpid()} x y"):
        (tmp_path / RUNNING).write_text(stale)
        assert process_of(tmp_path) is None


def test_a_store_that_cannot_be_written_is_named_to_its_owner(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FederationError, match=r"file cannot be written: File exists"):
        Store(tmp_path / "file")
    with pytest.raises(FederationError, match=r"file/store cannot be written: Not a directory"):
        Store(tmp_path / "file" / "store")


def test_one_program_uses_a_store(tmp_path: Path) -> None:
    first, second = Store(tmp_path), Store(tmp_path)
    first.hold("north")
    with pytest.raises(FederationError, match="north is already connected from another program"):
        second.hold("north")
    first.release()
    second.hold("north")
    second.release()
