"""A site as a program, and the caller's end of a consortium."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from threading import Event

from fedcircuits.engines.nvflare.kits import LEAD, WORKSPACE
from fedcircuits.engines.nvflare.link import NvflareLink
from fedcircuits.engines.nvflare.programs import JobKeeper, NvflareClient
from fedcircuits.engines.sites.courier import Courier
from fedcircuits.engines.sites.files import SITE, DataFile, Kit, SiteFile, coordinators_kit
from fedcircuits.engines.sites.nats import NatsLink, Receive
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.engines.sites.run_folder import write
from fedcircuits.engines.sites.station import Station
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FederationError, TableError
from fedcircuits.federation.described import Whereabouts
from fedcircuits.federation.doubts import with_ids
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.tables.declared import DeclaredTable
from fedcircuits.tables.rare import pool_rare
from fedcircuits.tables.sources import mapped, read_rows
from fedcircuits.tables.table import Table

CONNECTED: dict[Path, Remote] = {}  # connections of this process, by the coordinator's kit
RUNNING = "running"  # a file of the store with the process that serves
PATIENCE = {"sites": 30.0, "nvflare": 120.0}  # seconds: NVFlare restarts a broken job by then


def link_of(kit: Kit, receive: Receive) -> NatsLink | NvflareLink:
    """What carries this member's packets, as its consortium says."""
    if kit.consortium.engine == "nvflare":
        keeper = keeper_of(kit) if kit.name == COORDINATOR else None
        return NvflareLink(kit.name, kit.folder / WORKSPACE, receive, keeper)
    return NatsLink(kit.name, kit.access, receive)


def keeper_of(kit: Kit) -> JobKeeper:
    return JobKeeper(kit.folder / LEAD, kit.consortium.members)


def party_of(kit: Kit, site: SiteFile) -> Party:
    """The site's party: its rows in the consortium's schema, without columns it never uses, and
    with categories of few rows pooled, since others see the names of categories, unless the
    consortium has declared these names."""
    try:
        table = _table(kit, site.data, site.policy)
        declared = [n for n, column in kit.consortium.columns.items() if column.categories]
        table, _ = pool_rare(table, site.policy.least_count, declared)
    except TableError as error:
        raise FederationError(f"{kit.folder / SITE}, data: {error}") from error
    return Party(kit.name, table, site.policy.collect, site.policy.least_count)


def _table(kit: Kit, data: DataFile, policy: Policy) -> Table:
    path = kit.folder / data.path if data.path else None
    frame = mapped(
        read_rows(path, data.database, data.query, data.reading),
        data.columns, data.codes, data.scale, data.row_id, data.reading.decimal,
    )  # fmt: skip
    if unknown := [name for name in policy.never if name not in frame]:
        raise TableError(
            f"policy.never has {unknown[0]!r}, which is not a column here: there are "
            f"{', '.join(map(str, frame))}, by the consortium's names"
        )
    kept = [name for name in frame if name not in policy.never]
    declared = kit.consortium.columns
    strange = [name for name in kept if name not in declared and name != data.row_id]
    if declared and strange:
        raise TableError(
            f"{strange[0]!r} is not a column of {kit.consortium.name}, which has "
            f"{', '.join(declared)}: name the columns to use under [data.columns]"
        )
    options = DeclaredTable(data.reading, declared).options(kept)
    return with_ids(Table.of(frame[kept], row_id=data.row_id, **options), data.reading)


class ServedSite:
    """One site, connected; ``serve`` returns when it is stopped."""

    def __init__(self, kit: Kit, policy: Policy, party: Party, store: str = "store") -> None:
        self.kit, self.store = kit, Store(kit.folder / store)
        self.station = Station(kit.name, policy, party, self.store, kit.consortium.sites)
        known = kit.consortium.known
        self.courier = Courier(kit.name, kit.identity, known, self.station.hear)
        self.station.carrier = self.courier
        self.link = link_of(kit, self.courier.receive)

    def connect(self) -> None:
        self.store.hold(self.kit.name)
        self.link.connect()
        self.link.claim()
        self.courier.start(self.link)
        self.store.audit("started", site=self.kit.name)

    def serve(self) -> None:
        wait_until_stopped(self.store)
        self.store.audit("stopped", site=self.kit.name)
        self.close()

    def close(self) -> None:
        self.station.close()
        self.courier.close()
        self.link.close()
        self.store.release()


def connect(
    path: Path,
    sites: Collection[str] | None = None,
    *,
    timeout: float = 3600.0,
    patience: float | None = None,
) -> Remote:
    """The coordinator's engine, from its kit; ``sites``: only these."""
    kit = coordinators_kit(path)
    if unknown := set(sites or ()) - set(kit.consortium.sites):
        raise FederationError(
            f"{kit.consortium.name} has no site {sorted(unknown)[0]!r}: there are "
            f"{', '.join(kit.consortium.sites)}"
        )
    reached = frozenset(kit.consortium.sites)
    wanted = tuple(s for s in kit.consortium.sites if sites is None or s in sites)
    there = CONNECTED.get(kit.folder)
    if there is not None and there.users > 0 and there.sites == wanted:
        there.users += 1
        return there
    store = Store(kit.folder / "store")
    store.hold(kit.name)
    remote = Remote(
        lambda party: party if party in reached else None,
        sites=wanted,
        where=Whereabouts(kit.consortium.name, str(kit.folder), kit.consortium.sites),
        store=store,
        timeout=timeout,
        patience=PATIENCE[kit.consortium.engine] if patience is None else patience,
    )
    try:
        attach(kit, remote, store.release)
    except BaseException:
        store.release()
        raise
    CONNECTED[kit.folder] = remote
    return remote


def attach(kit: Kit, remote: Remote, *closing: Callable[[], None]) -> None:
    """Give an engine its courier and link; ``closing``: what else ends with them."""
    courier = Courier(kit.name, kit.identity, kit.consortium.known, remote.hear, remote.restarted)
    link = link_of(kit, courier.receive)
    link.connect()
    link.claim()
    courier.start(link)
    remote.attach(courier, courier.close, link.close, *closing)


def lead_nvflare(kit: Kit) -> None:
    """Keep the coordinator's NVFlare client and the standing job going until this is stopped, so
    that every program of the coordinator finds them there."""
    programs = (NvflareClient(kit.folder / WORKSPACE), keeper_of(kit))
    try:
        for program in programs:
            program.start(300.0)
        wait_until_stopped(Store(kit.folder / "store"))
    finally:
        for program in reversed(programs):
            program.stop()


def wait_until_stopped(store: Store) -> None:
    """By ``fedcircuits site stop``, or an interrupt."""
    path, stopped = store.folder / RUNNING, Event()
    write(path, f"{os.getpid()} {_began(os.getpid())}".encode())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
    path.unlink(missing_ok=True)


def process_of(store: Path) -> int | None:
    """The process that serves a site on this machine. A number that another program has been given
    since a site was killed is not taken for it."""
    try:
        number, _, began = (store / RUNNING).read_text().partition(" ")
        process = int(number)
        os.kill(process, 0)
    except PermissionError:  # it is another user's
        pass
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return process if began == _began(process) else None


def _began(process: int) -> str:
    """When a process was started, as the system counts it; "" where it does not say."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
