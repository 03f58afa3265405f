"""A real NATS server for tests, with certificates of a consortium made for them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from fedcircuits.engines.sites.nats import Access, NatsLink
from fedcircuits.engines.sites.provision import Authority, server_conf

SERVER = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
needs_server = pytest.mark.skipif(
    SERVER is None, reason="needs nats-server, which Debian's package of that name has"
)

PAYLOAD = re.compile(rb'MSG_PAYLOAD: \["(.*)"\]\n')
ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)")
SHORT = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


PORTS = count(97 * os.getpid())  # so that no two workers look at the same ones


def free_port() -> int:
    """For a server that is started later, and again: none that the system gives to connections."""
    for number in PORTS:
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port := 10_000 + number % 20_000))
            return port
    raise AssertionError("there is always another one")


class NatsServer:
    def __init__(self, folder: Path, sites: Sequence[str], traced: bool = False) -> None:
        self.folder, self.sites, self.port = folder, sites, free_port()
        self.address = f"tls://127.0.0.1:{self.port}"
        self.authority = Authority.fresh("tests")
        self.authority.kit(folder / "server", "server", ["127.0.0.1"])
        for site in sites:
            self.authority.kit(folder / site, site)
        kits = {site: folder / site for site in sites}
        text = server_conf("tests", self.address, folder / "server", kits)
        self.log = folder / "server" / "trace.log"
        if traced:  # it writes down everything that passes it
            text += f'trace: true\nmax_traced_msg_len: 0\nlog_file: "{self.log}"\n'
        (folder / "server" / "nats.conf").write_text(text)
        self.process: subprocess.Popen[bytes] | None = None

    def access(self, site: str) -> Access:
        kit = self.folder / site
        return Access(self.address, kit / "ca.crt", kit / "site.crt", kit / "site.key")

    def start(self) -> None:
        assert SERVER is not None
        conf = str(self.folder / "server" / "nats.conf")
        self.process = subprocess.Popen(
            [SERVER, "-c", conf], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("nats-server does not start")

    def seen(self) -> bytes:
        """The payloads that have passed a traced server, out of the escapes of its log."""
        return b"\0".join(map(_unquoted, PAYLOAD.findall(self.log.read_bytes())))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class NatsRelay:
    """Joins the couriers of ``LocalSites`` at a server."""

    def __init__(self, server: NatsServer) -> None:
        self.server, self.receivers, self.links = server, dict[str, object](), list[NatsLink]()

    def join(self, site: str, receive) -> NatsLink:  # type: ignore[no-untyped-def]
        link = NatsLink(site, self.server.access(site), receive)
        link.connect()
        self.links.append(link)
        return link


def _unquoted(text: bytes) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        word = match[1]
        if word[:1] == b"x":
            return bytes([int(word[1:], 16)])
        if word[:1] in b"uU":
            return chr(int(word[1:], 16)).encode()
        return SHORT.get(word, word)

    return ESCAPE.sub(plain, text)


@contextmanager
def nats_server(folder: Path, sites: Sequence[str], traced: bool = False) -> Iterator[NatsServer]:
    server = NatsServer(folder, sites, traced)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def served(kits: Path) -> Iterator[None]:
    """The server of a consortium that has been provisioned."""
    assert SERVER is not None
    conf = str(kits / "server" / "nats.conf")
    program = subprocess.Popen([SERVER, "-c", conf], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        program.kill()
        program.wait()
