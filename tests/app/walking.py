"""Tutorials on sites as programs: their commands are run, and what they print stands on the page.

    python -m tests.app.walking [page …]     # run them, and write what they print into the page

A block of ``sh`` is run in one folder after the other; the block of ``text`` after it is what it
prints. Programs that a block starts in the background live until the walk is over.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.engines.sites.relays import free_port
from tests.forked import python

ROOT = Path(__file__).parents[2]
PAGE, METHODS = (ROOT / "docs" / f"tutorial-{name}.md" for name in ("sites", "methods"))
STEP = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
ADULT = "adult.parquet"


class Walk:
    """Runs commands in a folder, with a port of its own for the server."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.port, self.groups = folder, free_port(), list[int]()
        shutil.copy(data / ADULT, folder / ADULT)
        tools = folder / ".tools"
        tools.mkdir()
        for name, words in (("fedcircuits", ("-m", "fedcircuits")), ("python", ())):
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(python(*words))} "$@"\n')
            (tools / name).chmod(0o755)
        path = os.pathsep.join([str(tools), os.environ["PATH"], "/usr/sbin"])
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "100"}

    def run(self, commands: str) -> str:
        """What they print; numbers that are drawn anew every time are dots."""
        init = "consortium init consortium.toml\n"  # writes the usual port, which others may use
        commands = commands.replace(init, f"{init}sed -i s/4222/{self.port}/ consortium.toml\n")
        words = ["bash", "-e", "-c", commands]
        program = subprocess.Popen(
            words, cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.groups.append(program.pid)
        printed, _ = program.communicate(timeout=600)
        assert program.returncode == 0, f"{commands}\n{printed}"
        printed = printed.replace(str(self.port), "4222").replace(str(self.folder), "…")
        printed = re.sub(
            r'"time": "[^"]*"|"run": "[^"]*"', lambda m: m[0].partition(" ")[0] + ' "…"', printed
        )
        return "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"

    def close(self) -> None:
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


def steps(page: str) -> list[tuple[str, str]]:
    """Commands and what they print, "" for nothing to show."""
    return [(match[1], match[2] or "") for match in STEP.finditer(page)]


def write_anew(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    data = Path(os.environ.get("FEDCIRCUITS_DATA", ROOT.parent / "shared" / "data"))
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder), data)
        try:
            for commands, shown in steps(page):
                printed = walk.run(commands)
                print(commands, printed, sep="\n", flush=True)
                old = f"```sh\n{commands}```\n\n```text\n{shown}```\n"
                page = page.replace(old, old[: -len(shown) - 4] + f"{printed}```\n", 1)
        finally:
            walk.close()
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for path in [Path(word) for word in sys.argv[1:]] or [PAGE, METHODS]:
        write_anew(path)
