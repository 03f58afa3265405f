"""Programs of NVFlare that a member's program starts, and starts again when they end.

NVFlare's client is started by the script of its kit, unless it runs already: then it is left alone,
also at the end. Its output is in ``start.log`` and ``log.txt`` of the kit.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread

from fedcircuits.errors import ExtraMissingError, FederationError

REGISTERED = b"Successfully registered client"  # NVFlare's words for: the server has let it in
AGAIN, RAREST = 1.0, 30.0  # seconds until one that has ended is started again
LOG = logging.getLogger(__name__)


def check_extra() -> None:
    """ExtraMissingError unless NVFlare is installed."""
    if find_spec("nvflare") is None:
        raise ExtraMissingError(
            "this consortium's members meet at NVFlare: install fedcircuits[nvflare]"
        )


class NvflareProgram:
    """A program that is started here, and restarted when it ends."""

    def __init__(self, folder: Path, log: str) -> None:
        self.folder, self.log = folder, folder / log
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0  # where in the log what it says now begins
        self._lock, self._over = Lock(), Event()

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self, timeout: float) -> None:
        self._launch()
        Thread(target=self._watch, daemon=True).start()

    def _launch(self) -> None:
        places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        with self._lock, self.log.open("ab") as log:
            if not self._over.is_set():
                self._begun = log.tell()
                self._close_input()
                self._process = subprocess.Popen(
                    self.command(),
                    cwd=self.folder,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PATH": os.pathsep.join(places)},
                    start_new_session=True,
                )

    def _watch(self) -> None:
        wait = AGAIN
        while not self._over.wait(AGAIN):
            if self._ended():
                LOG.warning("%s has ended and is being restarted", self.command()[1])
                self._over.wait(wait)
                wait = min(2 * wait, RAREST)
                self._launch()

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        with self._lock:
            self._over.set()
        if (process := self._process) is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with job processes that are left
        process.wait()
        self._close_input()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


class NvflareClient(NvflareProgram):
    """NVFlare's client of one member, by the script of its kit."""

    DAEMON = "daemon_pid.fl"  # of NVFlare's own start.sh
    PROCESS, OWNER = "client.pid", "owner.pid"  # of one that was started here, and who did it

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace, "start.log")
        self._left = 0  # one that was left by a program that was killed
        if not (workspace / "startup" / "fed_client.json").is_file():
            raise FederationError(
                f"{workspace} is not a startup kit of an NVFlare client: it has no "
                "startup/fed_client.json"
            )

    def command(self) -> list[str]:
        return ["bash", "startup/sub_start.sh", "--once"]

    def start(self, timeout: float) -> None:
        if _lives(_number(self.folder / self.DAEMON), b"sub_start"):
            return
        client = _number(self.folder / self.PROCESS)
        if _lives(client, b"nvflare"):
            if _lives(_number(self.folder / self.OWNER), b"python"):
                return
            self._left = client
            (self.folder / self.OWNER).write_text(str(os.getpid()))
            Thread(target=self._watch, daemon=True).start()
            return
        super().start(timeout)
        until = time.monotonic() + timeout
        while REGISTERED not in self.log.read_bytes()[self._begun :]:
            if time.monotonic() > until:
                self.stop()
                raise FederationError(
                    f"NVFlare's server has not let {self.folder.parent.name} in within "
                    f"{timeout:g} s: is it running, and does it accept this certificate? Details "
                    f"are in {self.log}"
                )
            time.sleep(0.1)

    def _ended(self) -> bool:
        return not _lives(self._left) if self._left else super()._ended()

    def _launch(self) -> None:
        self._left = 0
        super()._launch()
        if self._process is not None:
            (self.folder / self.PROCESS).write_text(str(self._process.pid))
            (self.folder / self.OWNER).write_text(str(os.getpid()))

    def stop(self) -> None:
        super().stop()
        if self._left:
            _end(self._left)
        if self._left or self._process is not None:
            (self.folder / self.PROCESS).unlink(missing_ok=True)


class JobKeeper(NvflareProgram):
    """Keeps the standing job going (keeper.py), from an administrator's kit."""

    def __init__(self, lead: Path, members: Sequence[str]) -> None:
        super().__init__(lead, "keeper.log")
        self.members = tuple(members)
        if not (lead / "startup" / "fed_admin.json").is_file():
            raise FederationError(
                f"{lead} is not a kit of an NVFlare administrator: it has no startup/fed_admin.json"
            )

    def command(self) -> list[str]:
        module = "fedcircuits.engines.nvflare.keeper"
        return [sys.executable, "-m", module, str(self.folder), *self.members]


def _number(path: Path) -> int:
    """The id of a process according to a file; 0 if there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _lives(number: int, words: bytes = b"") -> bool:
    """Whether there is such a process, and its command has these words."""
    try:
        command = Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False
    return number > 0 and bool(command) and words in command  # one that has ended has none


def _end(number: int) -> None:
    """End a client that was not started here, with its job processes."""
    with suppress(OSError):
        os.killpg(number, signal.SIGTERM)
        until = time.monotonic() + 10
        while _lives(number) and time.monotonic() < until:
            time.sleep(0.1)
        os.killpg(number, signal.SIGKILL)
