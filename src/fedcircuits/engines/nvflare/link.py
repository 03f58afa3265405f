"""Packets between members through NVFlare (the extra ``nvflare``): a member's end of the job.

A member runs two programs: NVFlare's client with its standing job (job.py), which dials out to the
server and authenticates by certificate, and the member's own, which holds the keys and the rows.
They connect through a socket in NVFlare's workspace. If a job or the server ends, the member's
program continues: couriers resend what was lost, and runs continue when the job is back.
"""

from __future__ import annotations

import atexit
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread

from fedcircuits.engines.nvflare.programs import (
    JobKeeper,
    NvflareClient,
    NvflareProgram,
    check_extra,
)
from fedcircuits.engines.nvflare.socket_line import SOCKET, SocketLine, listening
from fedcircuits.errors import FederationError

Receive = Callable[[str, bytes], None]
PENDING = 1 << 26  # bytes that wait for the job; more are dropped, and sent again by couriers
LOG = logging.getLogger(__name__)


class NvflareLink:
    """``workspace`` is NVFlare's startup kit; with a ``keeper`` this member leads."""

    def __init__(
        self, me: str, workspace: Path, receive: Receive, keeper: JobKeeper | None = None
    ) -> None:
        self.me, self.workspace, self.receive = me, workspace, receive
        self.programs: list[NvflareProgram] = [NvflareClient(workspace)]
        self.leads = keeper is not None
        if keeper is not None:
            self.programs.append(keeper)
        self._queue: deque[tuple[str, bytes]] = deque()
        self._size = 0
        self._line: SocketLine | None = None
        self._changed, self._closed = Condition(), False

    def connect(self, timeout: float = 300.0) -> None:
        """Returns when NVFlare has let this member in, and for who leads, when the job is here."""
        check_extra()
        try:
            self._listening = listening(self.workspace)
        except OSError as error:
            raise FederationError(
                f"{self.me} cannot listen at {self.workspace / SOCKET} ({error}): is another "
                "program of this member already running?"
            ) from None
        for work in (self._accept, self._write):
            Thread(target=work, daemon=True).start()
        atexit.register(self.close)
        try:
            for program in self.programs:
                program.start(timeout)
            if self.leads:
                self._wait_for_the_job(timeout)
        except FederationError:
            self.close()
            raise

    def claim(self) -> None:
        """NVFlare's server lets a client of one name in once."""

    def _wait_for_the_job(self, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._line is not None, timeout)
            if self._line is None:
                raise FederationError(
                    f"NVFlare did not start the standing job within {timeout:g} s: the reason is "
                    f"in {self.programs[-1].log} and {self.workspace / 'log.txt'}"
                )

    def send(self, site: str, packet: bytes) -> None:
        with self._changed:
            if self._line is not None and self._size + len(packet) <= PENDING:
                self._queue.append((site, packet))
                self._size += len(packet)
                self._changed.notify_all()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._queue)
                if self._closed:
                    return
                site, packet = self._queue.popleft()
                self._size -= len(packet)
                line = self._line
            if line is not None:
                with suppress(OSError):  # its end is noticed by who reads
                    line.write(site, packet)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # closed
            line = SocketLine(connection)
            with self._changed:
                old, self._line = self._line, line
                self._changed.notify_all()
            LOG.info("NVFlare's job is here")
            if old is not None:
                old.close()
            Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line: SocketLine) -> None:
        with suppress(OSError, EOFError, ValueError):
            while True:
                self.receive(*line.read())
        with self._changed:
            if self._line is line:
                self._line = None
                LOG.info("NVFlare's job has gone")
        line.close()

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        atexit.unregister(self.close)
        for program in reversed(self.programs):
            program.stop()
        if hasattr(self, "_listening"):
            self._listening.close()
            (self.workspace / SOCKET).unlink(missing_ok=True)
        if self._line is not None:
            self._line.close()
