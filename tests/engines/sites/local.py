"""Sites within one process: stations and couriers as between owners, over a relay of tests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fedcircuits.engines.sites.courier import Courier
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.engines.sites.station import CALLER, Station
from fedcircuits.engines.sites.store import Store
from fedcircuits.federation.federation import Party
from fedcircuits.privacy.channels.identity import Identity
from tests.engines.sites.links import Relay

TRIAL = Policy(roles=("fedcircuits.testing.trials:*", "fedcircuits.*", "tests.*"), results=True)


class LocalSites:
    """Sites by name; ``remote`` is the caller's engine."""

    def __init__(
        self,
        sites: Mapping[str, Party | None],
        folder: Path,
        *,
        policy: Policy = TRIAL,
        relay: Relay | None = None,
        patience: float = 5.0,
    ) -> None:
        self.sites, self.folder, self.policy = dict(sites), folder, policy
        self.relay = relay or Relay()
        self.identities = {name: Identity.fresh() for name in (*sites, CALLER)}
        self.known = {name: identity.public for name, identity in self.identities.items()}
        self.couriers: dict[str, Courier] = {}
        self.stations: dict[str, Station] = {}
        for name in sites:
            self.start(name)
        self.remote = self.connect(patience)

    def start(self, name: str) -> None:
        store = Store(self.folder / name)
        station = Station(name, self.policy, self.sites[name], store)
        self.stations[name] = station
        station.carrier = self._courier(name, station.hear)

    def kill(self, name: str) -> None:
        """As if its process had died: nothing comes in or goes out, its disk stays."""
        self.relay.receivers.pop(name, None)
        courier = self.couriers.pop(name)
        courier.link = None
        courier.close()
        self.stations.pop(name).close()

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

    def _courier(self, name: str, hear, restarted=lambda site: None) -> Courier:  # type: ignore[no-untyped-def]
        if name in self.couriers:
            with suppress(KeyError):
                self.couriers.pop(name).close()
        courier = Courier(name, self.identities[name], self.known, hear, restarted, patience=0.2)
        courier.start(self.relay.join(name, courier.receive))
        self.couriers[name] = courier
        return courier
