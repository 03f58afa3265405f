"""Members under users of their own: each may read its own folder, and nobody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from tests.engines.sites.programs import Programs
from tests.engines.sites.relays import SERVER, needs_server

pytest.importorskip("nats", reason="needs the extra sites")
ROWS = np.arange(100)
AGE = np.random.default_rng(0).normal(50, 9, 100).round(1)
TABLES = {
    "north": pd.DataFrame({"row": ROWS, "age": AGE}),
    "south": pd.DataFrame({"row": ROWS, "smoker": AGE > 52}),
}
USERS = {name: 51001 + i for i, name in enumerate(["server", "coordinator", *TABLES])}
ASK = """
import fedcircuits as fc
with fc.Federation.connect("kits/coordinator", timeout=60) as federation:
    model = fc.FedPC(random_state=0, clusters=2, ensemble=1).fit(federation)
    print(model.probability("smoker = true", given="age > 50"))
"""
# Python and the library may lie where other users cannot reach them: they see both in other places.
AS_USER = """
for i in "$1"/*; do mount --bind "$(readlink "$2/${i##*/}")" "$i" || exit 1; done
exec setpriv --reuid="$0" --regid="$0" --clear-groups --inh-caps=-all --no-new-privs \
  env -i HOME=/nonexistent PATH="$PATH" OMP_NUM_THREADS=1 LD_LIBRARY_PATH="$1/python/lib" \
  PYTHONPATH="$3" ${4:+NUMBA_CACHE_DIR="$4"} "${@:5}"
"""


class Users:
    """Runs commands as a member's user, who has no home; ``python`` is what they call Python."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.links = folder, folder / "seen", folder / "links"
        packages = [Path(p) for p in sys.path if p.endswith("-packages")]
        library = [Path(fc.__file__).parents[1], *packages]
        places = {"python": Path(sys.base_prefix)}
        places |= {f"library {i}": place for i, place in enumerate(library)}
        for name, place in places.items():
            (self.seen / name).mkdir(parents=True)
            self.links.mkdir(exist_ok=True)
            (self.links / name).symlink_to(place)
        self.python = self.seen / "python" / "bin" / "python3"
        self.path = os.pathsep.join(str(self.seen / name) for name in places if name != "python")

    def kernels(self, member: str) -> str:
        """A copy of the compiled kernels of these tests, if they have a place of their own."""
        place, own = os.environ.get("NUMBA_CACHE_DIR", ""), self.folder / "kernels" / member
        if place and Path(place).is_dir() and not own.exists():
            shutil.copytree(place, own, ignore=shutil.ignore_patterns("*.tmp.*"))
            for path in (own, *own.rglob("*")):
                os.chown(path, USERS[member], USERS[member])
        return str(own) if own.exists() else ""

    def words(self, member: str, *words: object) -> list[str]:
        about = [self.seen, self.links, self.path, self.kernels(member), *words]
        namespace = ["unshare", "--mount", "bash", "-c", AS_USER]
        return [*namespace, str(USERS[member]), *map(str, about)]

    def run(self, member: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = self.words(member, *words)
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300
        )


@pytest.fixture
def users() -> Iterator[Users]:
    if os.geteuid() != 0:
        pytest.skip("only root starts programs of other users")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        made = Users(folder)
        tried = made.run("north", made.python, "-c", "import numpy")
        if tried.returncode:
            pytest.skip(f"other users cannot run Python here: {tried.stderr.strip()[-200:]}")
        yield made
    finally:
        shutil.rmtree(folder)


@needs_server
def test_every_member_has_a_user_and_reads_its_own_folder_alone(users: Users) -> None:
    kits = users.folder / "kits"
    programs = Programs(kits, TABLES)
    for member, user in USERS.items():
        for path in (kits / member, *(kits / member).rglob("*")):
            os.chown(path, user, user)
    try:
        assert SERVER is not None
        words = users.words("server", SERVER, "-c", kits / "server" / "nats.conf")
        programs.run("server", words)
        for site in TABLES:
            words = users.words(
                site, users.python, "-m", "fedcircuits", "site", "start", kits / site, "--yes"
            )
            programs.run(site, words)
        programs.wait_until_served(*TABLES)
        for member, program in programs.running.items():
            status = Path(f"/proc/{program.pid}/status").read_text()
            assert f"Uid:\t{USERS[member]}\t" in status and "CapEff:\t0000000000000000" in status
        asked = users.run("coordinator", users.python, "-c", ASK)
        assert asked.returncode == 0, asked.stderr
    finally:
        programs.close()
    here = fc.FedPC(random_state=0, clusters=2, ensemble=1).fit(fc.Federation(TABLES, "row"))
    expected = here.probability("smoker = true", given="age > 50")
    assert asked.stdout.strip() == str(expected)
    for member in USERS:
        others = [p for p in kits.rglob("*") if p.is_file() and p.parts[len(kits.parts)] != member]
        assert len(others) > 20 and any("store" in p.parts for p in others)
        assert not users.run(member, "cat", *others).stdout
        own = users.run(member, "find", kits / member, "-type", "f", "-readable").stdout
        assert len(own.splitlines()) >= 4
