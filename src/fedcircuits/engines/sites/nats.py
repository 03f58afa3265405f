"""Packets between sites through a NATS server (the extra ``sites``).

Every site dials out to the server and stays. A packet to a site goes under the subject
``fedcircuits.<receiver>.<sender>``. The server knows sites by their certificates and lets each
publish as itself and read what is for it, nothing else. It stores nothing and can read nothing:
packets are sealed (courier.py). What is lost while a connection is broken, couriers send again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcircuits.errors import ExtraMissingError, FederationError

SUBJECT = "fedcircuits"
PENDING = 1 << 26  # bytes that wait for the connection; more are dropped, and sent again
logging.getLogger("asyncio").addFilter(  # it is said of every connection over TLS that ends
    lambda record: "eof_received" not in record.getMessage()
)
Receive = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the server is, and the files that say who a site is to it."""

    server: str
    authority: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise FederationError(
                f"the certificate of this site cannot be used ({error}): is {self.key} its own, "
                "and are all files of the kit there?"
            ) from None
        return context


class NatsLink:
    """``connect`` returns when the server has let this site in."""

    def __init__(self, me: str, access: Access, receive: Receive) -> None:
        self.me, self.access, self.receive = me, access, receive
        self._loop = asyncio.new_event_loop()
        self._line: Any = None
        logging.getLogger("asyncio").addFilter(_is_news)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def connect(self, timeout: float = 30.0) -> None:
        done = asyncio.run_coroutine_threadsafe(self._connect(timeout), self._loop)
        try:
            done.result(timeout + 5)
        except FederationError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise FederationError(
                f"{self.me} cannot connect to {self.access.server} "
                f"({str(error) or type(error).__name__}): does the server run there, and does its "
                "consortium know this certificate?"
            ) from None

    async def _connect(self, timeout: float) -> None:
        try:
            import nats
        except ImportError as error:
            raise ExtraMissingError(
                "sites talk through NATS: install fedcircuits[sites]"
            ) from error
        self._line = await asyncio.wait_for(
            nats.connect(
                self.access.server,
                tls=self.access.context(),
                name=self.me,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.5,
                ping_interval=5,
                max_outstanding_pings=2,
                pending_size=PENDING,
                inbox_prefix=f"_INBOX_{self.me}".encode(),
                error_cb=_quiet,
            ),
            timeout,
        )
        await self._line.subscribe(
            f"{SUBJECT}.{self.me}.*", cb=self._heard, pending_bytes_limit=1 << 30
        )
        await self._line.flush()

    async def _heard(self, message: Any) -> None:
        self.receive(message.subject.rpartition(".")[2], message.data)

    def send(self, site: str, packet: bytes) -> None:
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._publish, f"{SUBJECT}.{site}.{self.me}", packet)

    def _publish(self, subject: str, packet: bytes) -> None:
        self._loop.create_task(self._published(subject, packet))

    async def _published(self, subject: str, packet: bytes) -> None:
        with suppress(Exception):  # not connected now: the courier sends it again
            await self._line.publish(subject, packet)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        if self._line is not None:
            with suppress(Exception):  # a connection that is broken is closed all the same
                asyncio.run_coroutine_threadsafe(self._line.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self._loop.close()


def _is_news(record: logging.LogRecord) -> bool:
    """A server that ends a TLS connection as it should is none."""
    return "eof_received() has no effect" not in record.getMessage()


async def _quiet(error: Exception) -> None:
    """Breaks of the connection are news of the log alone: couriers bridge them."""
