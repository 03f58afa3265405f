"""A real NATS server for tests, with certificates of a consortium made for them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcircuits.engines.sites.nats import Access, NatsLink
from fedcircuits.engines.sites.provision import Authority, server_conf

SERVER = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
needs_server = pytest.mark.skipif(
    SERVER is None, reason="needs nats-server, which Debian's package of that name has"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        self.folder, self.sites, self.port = folder, sites, free_port()
        self.address = f"tls://127.0.0.1:{self.port}"
        self.authority = Authority.fresh("tests")
        self.authority.kit(folder / "server", "server", ["127.0.0.1"])
        for site in sites:
            self.authority.kit(folder / site, site)
        kits = {site: folder / site for site in sites}
        text = server_conf("tests", self.address, folder / "server", kits)
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


@contextmanager
def nats_server(folder: Path, sites: Sequence[str]) -> Iterator[NatsServer]:
    server = NatsServer(folder, sites)
    server.start()
    try:
        yield server
    finally:
        server.stop()
