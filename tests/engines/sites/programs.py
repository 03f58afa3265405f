"""A consortium whose members are programs of their own, with a folder each, for tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedcircuits.engines.sites.files import ConsortiumFile
from fedcircuits.engines.sites.provision import provision
from fedcircuits.engines.sites.serving import process_of
from tests.engines.sites.relays import SERVER, free_port
from tests.forked import python

SITE = """\
[data]
path = "data.csv"
row_id = "row"

[policy]
{policy}
"""


class Programs:
    """Sites by name with their rows, their kits in ``folder``; ``close`` ends what was started."""

    def __init__(
        self, folder: Path, tables: Mapping[str, pd.DataFrame], policy: str = "least_rows = 10"
    ) -> None:
        self.folder, self.running = folder, dict[str, subprocess.Popen[str]]()
        server = f"tls://127.0.0.1:{free_port()}"
        provision(ConsortiumFile("tests", server, tuple(tables)), folder)
        for name, frame in tables.items():
            frame.to_csv(folder / name / "data.csv", index=False)
            (folder / name / "site.toml").write_text(SITE.format(policy=policy))

    def start_server(self) -> None:
        assert SERVER is not None
        words = [SERVER, "-c", str(self.folder / "server" / "nats.conf")]
        self.running["server"] = subprocess.Popen(words, stderr=subprocess.DEVNULL, text=True)

    def start(self, *names: str, source: Path | None = None) -> None:
        """Returns when all serve; ``source``: of another fedcircuits."""
        for name in names:
            words = ("-m", "fedcircuits", "site", "start", str(self.folder / name), "--yes")
            if source is None:
                self.run(name, python(*words))
            else:
                self.run(name, [sys.executable, *words], {**os.environ, "PYTHONPATH": str(source)})
        self.wait_until_served(*names)

    def run(self, name: str, words: list[str], env: Mapping[str, str] | None = None) -> None:
        self.running[name] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env)

    def wait_until_served(self, *names: str) -> None:
        for name in names:
            line = self.running[name].stdout
            assert line is not None and "serves" in line.readline(), name

    def kill(self, name: str) -> None:
        program = self.running.pop(name)
        program.kill()
        program.communicate()

    def signal(self, name: str, number: signal.Signals) -> None:
        serving = process_of(self.folder / name / "store")
        assert serving is not None
        os.kill(serving, number)

    def audit(self, name: str) -> str:
        path = self.folder / name / "store" / "audit.jsonl"
        return path.read_text() if path.exists() else ""

    def wait_for(self, name: str, word: str, since: int = 0) -> None:
        """Until that word stands in a site's audit, after so many letters of it."""
        for _ in range(6000):
            if word in self.audit(name)[since:]:
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} has not noted {word}")

    def close(self) -> None:
        for name in [*self.running]:
            self.kill(name)


def other_version(folder: Path) -> Path:
    """The same library under another version's name."""
    import fedcircuits

    source = Path(fedcircuits.__file__).parent
    shutil.copytree(source, folder / "fedcircuits")  # with what Python has compiled of it
    (folder / "fedcircuits" / "version.py").write_text(
        '"""Another version."""\n\n__version__ = "0.0.9"\n'
    )
    return folder
