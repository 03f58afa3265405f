"""Sites within one process: stations and couriers as between owners, over a relay of tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock

from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.courier import Courier
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.engines.sites.station import Carrier, Head, Station
from fedcircuits.engines.sites.store import Store
from fedcircuits.federation.described import DescribedTable
from fedcircuits.federation.federation import Federation, Party
from fedcircuits.privacy.identity import Identity
from fedcircuits.tables.schema import Schema
from tests.engines.sites.links import Relay

Watch = Callable[[str, Head], None]  # site, head of a frame that it has sent
TRIAL = Policy(roles=("fedcircuits.testing.trials:*", "fedcircuits.*", "tests.*"), results=True)


OPENED: list[LocalSites] = []  # to be closed when their test has ended


class Watched:
    """A courier whose frames are told to a test when they have been sent."""

    def __init__(self, me: str, courier: Courier, watch: Watch, bodies: list[bytes]) -> None:
        self.me, self.courier, self.watch, self.bodies = me, courier, watch, bodies

    def send(self, site: str, head: Head, body: bytes | memoryview = b"") -> None:
        self.bodies.append(bytes(body))
        self.courier.send(site, head, body)
        self.watch(self.me, head)


class LocalSites:
    """Sites by name; ``remote`` is the caller's engine. ``watch`` hears what sites send."""

    def __init__(
        self,
        sites: Mapping[str, Party | None],
        folder: Path,
        *,
        policy: Policy = TRIAL,
        relay: Relay | None = None,
        patience: float = 60.0,
        watch: Watch = lambda site, head: None,
    ) -> None:
        self.sites, self.folder, self.policy = dict(sites), folder, policy
        self.watch, self.bodies = watch, list[bytes]()
        self.relay = relay or Relay()
        self.identities = {name: Identity.fresh() for name in (*sites, CALLER)}
        self.known = {name: identity.public for name, identity in self.identities.items()}
        self.changing, self.closed = RLock(), False
        self.couriers: dict[str, Courier] = {}
        self.stations: dict[str, Station] = {}
        for name in sites:
            self.start(name)
        self.remote = self.connect(patience)
        OPENED.append(self)

    def close(self) -> None:
        """Their threads end; what is on disk stays."""
        with self.changing:  # one that is being started again is up by then
            for name in list(self.stations):
                self.kill(name)
            for courier in self.couriers.values():
                courier.close()
            self.couriers.clear()
            self.closed = True

    def start(self, name: str) -> None:
        store = Store(self.folder / name)
        station = Station(name, self.policy, self.sites[name], store, self.sites)
        self.stations[name] = station
        courier = self._courier(name, station.hear)
        carrier: Carrier = Watched(name, courier, lambda *frame: self.watch(*frame), self.bodies)
        station.carrier = carrier

    def restart(self, name: str) -> None:
        """A site dies and comes back, unless its test has ended."""
        with self.changing:
            if not self.closed:
                self.kill(name)
                self.start(name)

    def kill(self, name: str) -> None:
        """As if its process had died: nothing comes in or goes out, its disk stays."""
        self.relay.receivers.pop(name, None)
        courier = self.couriers.pop(name)
        courier.link = None
        courier.close()
        self.stations.pop(name).close()

    def federation(self) -> Federation:
        """As ``Federation.connect`` makes it."""
        parties = {}
        for name, facts in self.remote.describe_all().items():
            about = facts["rows"], facts["ids"], facts["series"]
            table = DescribedTable(Schema(facts["variables"]), *about)
            parties[name] = Party(name, table, facts["allow_collect"], facts["least_count"])
        return Federation.of_sites(parties, self.remote)

    def connect(self, patience: float) -> Remote:
        trial = self.policy.results
        homes = list(self.sites)
        placed: dict[str, str] = {}

        def place(party: str) -> str | None:
            if party in self.sites:
                return party
            if not trial:
                return None
            return placed.setdefault(party, homes[len(placed) % len(homes)])

        store = None if trial else Store(self.folder / CALLER)
        remote = Remote(
            place, sites=homes, store=store, trial=trial, timeout=30.0, patience=patience
        )
        remote.attach(self._courier(CALLER, remote.hear, remote.restarted))
        return remote

    def new_caller(self, patience: float = 60.0) -> Federation:
        """As from another process of the caller, with the disk of the old one."""
        self.relay.receivers.pop(CALLER, None)
        self.remote.station.close()
        self.remote = self.connect(patience)
        return self.federation()

    def _courier(self, name: str, hear, restarted=lambda site: None) -> Courier:  # type: ignore[no-untyped-def]
        if name in self.couriers:
            with suppress(KeyError):
                self.couriers.pop(name).close()
        courier = Courier(name, self.identities[name], self.known, hear, restarted, patience=0.2)
        courier.start(self.relay.join(name, courier.receive))
        self.couriers[name] = courier
        return courier
