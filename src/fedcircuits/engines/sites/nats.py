"""Packets between sites through a NATS server (the extra ``sites``).

Every site dials out to the server and stays connected. A packet to a site has the subject
``fedcircuits.<receiver>.<sender>``. The server identifies sites by their certificates and lets each
only publish as itself and read its own packets. It stores nothing and can read nothing: packets are
sealed (courier.py). Couriers resend what is lost while a connection is down.

A member is one program. A program that connects asks under its own name, ``fedcircuits.<me>.<me>``,
whether it is already running, and a running one answers: a copy of a kit elsewhere is noticed.

    ?token    from a program that connects    !token    from a program that is already running
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any

from fedcircuits.engines.sites.credentials import (
    REVOKED,
    check_dates,
    check_private,
    check_there,
    refuse_revoked,
)
from fedcircuits.errors import ExtraMissingError, FederationError

SUBJECT = "fedcircuits"
PENDING = 1 << 26  # bytes that wait for the connection; more are dropped, and sent again
GRACE = 0.3  # seconds in which another program of this member answers
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
        for path in (self.authority, self.certificate, self.key):
            check_there(path)
        check_private(self.key)
        check_dates(self.certificate)
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise FederationError(
                f"{self.certificate} cannot be used ({error}): is {self.key} its own key, and "
                f"{self.authority} the certificate of the consortium?"
            ) from None
        refuse_revoked(context, self.authority.with_name(REVOKED), self.certificate, self.authority)
        return context


class NatsLink:
    """``connect`` returns when the server has let this site in."""

    def __init__(self, me: str, access: Access, receive: Receive) -> None:
        self.me, self.access, self.receive = me, access, receive
        self._loop = asyncio.new_event_loop()
        self._line: Any = None
        self._connected, self._problem = False, "it does not answer"
        self._token, self._claimed = token_bytes(16), False
        self._asked, self._taken = threading.Event(), threading.Event()
        logging.getLogger("asyncio").addFilter(_is_news)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def connect(self, timeout: float = 30.0) -> None:
        done = asyncio.run_coroutine_threadsafe(self._connect(timeout), self._loop)
        try:
            done.result(timeout + 5)
        except (FederationError, ExtraMissingError):
            self.close()
            raise
        except Exception as error:
            self.close()
            if not isinstance(error, TimeoutError):
                self._problem = _unreachable(error)
            raise FederationError(
                f"{self.me} cannot connect to {self.access.server}: {self._problem}"
            ) from None

    async def _connect(self, timeout: float) -> None:
        try:
            from nats.aio.client import Client
        except ImportError as error:
            raise ExtraMissingError(
                "sites talk through NATS: install fedcircuits[sites]"
            ) from error
        self._line = Client()
        await asyncio.wait_for(
            self._line.connect(
                self.access.server,
                tls=self.access.context(),
                name=self.me,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.5,
                ping_interval=5,
                max_outstanding_pings=2,
                pending_size=PENDING,
                inbox_prefix=f"_INBOX_{self.me}".encode(),
                error_cb=self._noticed,
            ),
            timeout,
        )
        await self._line.subscribe(
            f"{SUBJECT}.{self.me}.*", cb=self._heard, pending_bytes_limit=1 << 30
        )
        await self._line.flush()
        self._connected = True

    async def _noticed(self, error: Exception) -> None:
        """What will not mend itself is raised; later breaks of the connection couriers bridge."""
        if not self._connected:
            self._problem = _unreachable(error)
            if _is_final(error):
                raise error

    def claim(self) -> None:
        """FederationError if another program is connected as this member."""
        self.send(self.me, b"?" + self._token)
        self._asked.wait(10)  # the server has brought it to all that read what is for this member
        if self._taken.wait(GRACE):
            self.close()
            raise FederationError(
                f"{self.me} is already connected from another program, perhaps on another machine "
                "with a copy of this kit: stop that one first"
            )
        self._claimed = True

    def _presence(self, packet: bytes) -> None:
        token = packet[1:]
        if packet == b"?" + self._token:
            self._asked.set()
        elif packet == b"!" + self._token:
            self._taken.set()
        elif packet[:1] == b"?" and (self._claimed or self._token > token):
            self.send(self.me, b"!" + token)

    async def _heard(self, message: Any) -> None:
        sender = message.subject.rpartition(".")[2]
        if sender == self.me:
            self._presence(message.data)
        else:
            self.receive(sender, message.data)

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
                ending = asyncio.wait_for(self._line.close(), 10 if self._connected else 0.5)
                asyncio.run_coroutine_threadsafe(ending, self._loop).result(15)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self._loop.close()


def _is_news(record: logging.LogRecord) -> bool:
    """A server that closes a TLS connection properly is not worth a log entry."""
    return "eof_received() has no effect" not in record.getMessage()


def _is_final(error: Exception) -> bool:
    """Whether one of the two does not accept the other: trying again changes nothing."""
    if isinstance(error, ssl.SSLError):
        return "ALERT" in (error.reason or "") or isinstance(error, ssl.SSLCertVerificationError)
    return "Authorization Violation" in str(error)


def _unreachable(error: BaseException) -> str:
    """Why a server could not be reached, and what to do."""
    match error:
        case ConnectionRefusedError():
            return "nothing listens there; is the server running?"
        case socket.gaierror():
            return "there is no such host; is the address in consortium.toml right?"
        case ssl.SSLCertVerificationError():
            why = error.verify_message
            return (
                f"the certificate of the server is not accepted ({why}); was it made for this "
                "consortium and this address, and is the clock of this machine right?"
            )
        case TimeoutError():
            return "it does not answer; is the server running and reachable?"
    return (
        f"it ended the connection ({str(error) or type(error).__name__}); was this certificate "
        "renewed, or the member removed? See the server's log"
    )
