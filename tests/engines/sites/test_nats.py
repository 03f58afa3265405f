"""Sites that meet at a real NATS server, over mutual TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.courier import Courier
from fedcircuits.engines.sites.nats import Access, NatsLink
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.provision import Authority
from fedcircuits.errors import FederationError
from fedcircuits.privacy.identity import Identity
from fedcircuits.testing import check_engine
from tests.engines.sites.local import LocalSites
from tests.engines.sites.relays import NatsRelay, nats_server, needs_server

pytest.importorskip("nats", reason="needs the extra sites")
pytestmark = needs_server
Packets = SimpleQueue[tuple[str, bytes]]


def test_every_law_of_engines_holds(tmp_path: Path) -> None:
    with nats_server(tmp_path / "server", ["x", "y", "z", "coordinator"]) as server:
        relay = NatsRelay(server)
        sites = LocalSites(dict.fromkeys("xyz"), tmp_path, relay=relay)  # type: ignore[arg-type]
        check_engine(sites.remote)


@contextmanager
def connected(local: fc.Federation, folder: Path) -> Iterator[fc.Federation]:
    """The same parties at sites that meet at a server."""
    with nats_server(folder / "server", [*local.names, "coordinator"]) as server:
        relay: Any = NatsRelay(server)
        parties = {p.name: p for p in local}
        yield LocalSites(parties, folder, policy=Policy(), relay=relay).federation()
        for link in relay.links:
            link.close()


@pytest.mark.filterwarnings("ignore")
def test_columns_of_owners(tmp_path: Path) -> None:
    """Rows are matched privately, before a mixture and for it."""
    rng = np.random.default_rng(0)
    table = fc.Table.of(rng.normal(size=(40, 3)) + 4 * rng.integers(2, size=(40, 1)))
    local = fc.split(table, ["x", "y", "z"], by="columns")
    with connected(local, tmp_path) as sites:
        there = fc.aligned(sites, private=True)
        here = fc.aligned(local, private=True)
        models = [
            fc.VerticalGaussianMixture(2, rows="private", random_state=0).fit(parties)
            for parties in (here, there)
        ]
        np.testing.assert_allclose(*[m.score_samples(table) for m in models], atol=1e-9)
        answers = [models[0].predict_proba(here), models[1].predict_proba(there)]
        np.testing.assert_allclose(*answers, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_rows_of_owners(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    flags = fc.Table.of({name: rng.random(60) < 0.4 for name in "abc"})
    local = fc.split(flags, ["x", "y", "z"])
    with connected(local, tmp_path) as there:
        trees = [fc.FedTrees(target="a", trees=2, random_state=0).fit(f) for f in (local, there)]
        assert np.array_equal(*[model.predict_proba(flags) for model in trees])
        counted = [fc.ChowLiuTree(summation=fc.Secret()).fit(f) for f in (local, there)]
        assert np.array_equal(*[model.score_samples(flags) for model in counted])


def test_a_site_publishes_as_itself_and_reads_what_is_for_it(tmp_path: Path) -> None:
    with nats_server(tmp_path, ["north", "south", "spy"]) as server:
        boxes: dict[str, Packets] = {site: SimpleQueue() for site in server.sites}
        links = {}
        for site in server.sites:
            box = boxes[site]
            links[site] = NatsLink(site, server.access(site), lambda *p, box=box: box.put(p))
            links[site].connect()
        links["spy"].me = "north"  # pretends to be another
        links["spy"].send("south", b"forged")
        links["north"].send("south", b"true")
        assert boxes["south"].get(timeout=60) == ("north", b"true")
        with pytest.raises(Empty):
            boxes["south"].get(timeout=0.5)
        assert boxes["spy"].empty()


def test_strangers_and_missing_servers_are_named(tmp_path: Path) -> None:
    stranger = Authority.fresh("others")
    stranger.kit(tmp_path / "stranger", "north")
    with nats_server(tmp_path / "server", ["north"]) as server:
        kit = tmp_path / "stranger"
        access = Access(
            server.address, server.access("north").authority, kit / "site.crt", kit / "site.key"
        )
        with pytest.raises(FederationError, match=r"north cannot connect to tls://127\.0\.0\.1"):
            NatsLink("north", access, lambda *packet: None).connect(3)
        mine = server.access("north")
    with pytest.raises(FederationError, match="is the server running"):
        NatsLink("north", mine, lambda *packet: None).connect(2)


def test_frames_survive_a_server_that_is_started_again(tmp_path: Path) -> None:
    with nats_server(tmp_path, ["north", "south"]) as server:
        identities = {name: Identity.fresh() for name in server.sites}
        known = {name: identity.public for name, identity in identities.items()}
        heard: SimpleQueue[int] = SimpleQueue()
        couriers = {}
        for name in server.sites:
            courier = Courier(
                name,
                identities[name],
                known,
                lambda site, head, body: heard.put(head[1]),
                patience=0.3,
            )
            link = NatsLink(name, server.access(name), courier.receive)
            link.connect()
            courier.start(link)
            couriers[name] = courier
        for number in range(60):
            couriers["north"].send("south", ["mail", number], b"x" * 5000)
            if number == 20:
                server.stop()
                time.sleep(0.5)
            if number == 40:
                server.start()
        assert [heard.get(timeout=60) for _ in range(60)] == list(range(60))
