"""An engine whose parties live at their own sites; every other role runs here.

Nothing crosses before all sites are ready. What a party learns stays at its site: its result here
is ``Held(run, party)``, which later programs can take as an argument. A site that is away for less
than ``patience`` seconds resumes where it was (station.py), and so does a caller that runs the same
programs again under the name of an interrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from secrets import token_bytes, token_hex
from threading import Lock
from typing import Any, TypeVar

from fedcircuits.engines.driving import Data
from fedcircuits.engines.outcome import Engine, Kept, Outcome, threads_each
from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.inquiries import SiteInquiries
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.run_folder import RunFolder
from fedcircuits.engines.sites.station import Head, LivingCarrier, Station
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.described import DescribedTable, Whereabouts, checked_name
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Program, Tell
from fedcircuits.federation.messages import Entry
from fedcircuits.federation.recipes import Held, Here, Open, Own, filled, pack, unpack

T = TypeVar("T")
LOOK = 1.0  # seconds between two looks at sites that are waited for
TO_STATION = frozenset({"mail", "have", "begin", "go", "gone", "end"})


@dataclass(slots=True)
class _Run:
    name: str
    places: dict[str, str]
    recipes: dict[str, bytes]
    outcome: Outcome[Any]
    threads: int
    at: dict[str, str]
    attempt: str = field(default_factory=lambda: token_hex(4))
    frames: SimpleQueue[tuple[str, Head, Data]] = field(default_factory=SimpleQueue)
    ready: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    heard: dict[str, float] = field(default_factory=dict)  # when a site last said something
    here: set[str] = field(default_factory=set)  # roles whose messages are seen as they come
    went: bool = False

    def hear(self, entry: Entry) -> None:
        """A message has come to a role that runs here: its sender's own list has it later."""
        if self.outcome.watch is not None:
            self.outcome.watch.sent(entry)
            self.here.add(entry.receiver)

    def sent(self, entry: Entry) -> None:
        """As its sender reports it."""
        self.outcome.ledger.add([entry])
        if self.outcome.watch is not None and entry.receiver not in self.here:
            self.outcome.watch.sent(entry)

    @property
    def open(self) -> list[str]:
        return [p for p in self.places if p not in self.over]

    def open_at(self, site: str) -> list[str]:
        return [p for p in self.open if self.places[p] == site]


class Remote(SiteInquiries):
    """``place(party)`` is the site where a party lives, None for roles that run here."""

    seals = True  # couriers do, from site to site

    def __init__(
        self,
        place: Callable[[str], str | None],
        *,
        sites: Sequence[str] = (),
        where: Whereabouts | None = None,
        store: Store | None = None,
        trial: bool = False,
        timeout: float = 3600.0,
        patience: float = 30.0,
    ) -> None:
        self.place, self.sites, self.trial = place, tuple(sites), trial
        self.where = None if trial else where or Whereabouts("", "", self.sites)
        self.timeout, self.patience = timeout, patience
        super().__init__(self.sites)
        self.kept_here = CallerStore(store)
        self.station = Station(CALLER, Policy(roles=("*",)), store=store)
        self.station.carrier = self
        self._carrier: LivingCarrier
        self._closing: list[Callable[[], None]] = []
        self.users = 1
        self._runs: dict[str, _Run] = {}
        self._lock = Lock()

    def attach(self, carrier: LivingCarrier, *closing: Callable[[], None]) -> None:
        """``closing``: what is called to end the connection."""
        self._carrier, self._closing = carrier, list(closing)

    def close(self) -> None:
        """Runs that go on are broken off, and may be taken up again; not before the last of
        those who share the connection closes it."""
        self.users -= 1
        if self.users > 0:
            return
        self.station.close()
        for close in self._closing:
            close()
        self._closing = []

    def send(self, site: str, head: Head, body: Data = b"") -> None:
        """Frames to this site need no courier."""
        if site == CALLER:
            self.hear(CALLER, head, body)
        else:
            self._carrier.send(site, head, body)

    def hear(self, site: str, head: Head, body: Data) -> None:
        """Called by a courier: a frame of that site has arrived."""
        match head:
            case [str(kind), *_] if kind in TO_STATION and (
                site == CALLER or kind in ("mail", "have")
            ):
                self.station.hear(site, head, body)
            case ["described", str(question), facts] if question in self.answers:
                self.answers[question].put(facts)
            case [str(_), str(run), *_] if run in self._runs:
                self._runs[run].frames.put((site, head, body))

    def restarted(self, site: str) -> None:
        """Called by a courier: that site was restarted; its parties continue from their inboxes."""
        self.ask_again(site)
        for run in list(self._runs.values()):
            run.frames.put((site, ["restarted", run.name], b""))

    # ------------------------------------------------------------------ the engine

    def named(self, run: str, again: bool = False) -> Engine:
        """The engine for a run of that name; ``again``: of one that was broken off."""
        return partial(self, run=checked_name(run), again=again)

    def __call__(
        self,
        programs: Mapping[str, Program[T]],
        kept: Kept | None = None,
        run: str = "",
        again: bool = False,
    ) -> Outcome[T]:
        """A run without a name cannot be taken up by another caller: nothing of it stays."""
        name = run or token_hex(8)
        places = {p: self.place(p) or CALLER for p in programs}
        threads, at = threads_each(len(programs)), dict.fromkeys(places, "being started")
        this = _Run(name, places, {}, Outcome(kept=dict(kept or {})), threads, at)
        with self._lock:
            if name in self._runs:
                raise FederationError(f"a run {name!r} is already in progress: choose another name")
            self._runs[name] = this
        this.outcome.begin(places)
        try:
            for party, program in programs.items():
                steps = {step: v for (who, step), v in this.outcome.kept.items() if who == party}
                self._admit(this, party, program, steps, again)
            self._serve(this)
        finally:
            well = not this.open and not this.outcome.lost
            for site in set(places.values()):
                self.send(site, ["end", name, well or not run])
            del self._runs[name]
        done = this.outcome.results
        this.outcome.results = {p: done[p] for p in programs if p in done}
        return this.outcome

    def _admit(
        self, run: _Run, party: str, program: Program[Any], kept: dict[str, object], again: bool
    ) -> None:
        if run.places[party] != CALLER:
            given = (program, kept) if self.trial else (_left_open(program), {})
            run.recipes[party] = pack(given)
            self._begin(run, party, again)
            return
        store = self.station.store
        folder = None if store is None else store.run(run.name, party)
        if folder is not None:
            folder.open(b"", again)
        keeping = _Keeping(run.outcome.kept, party, kept)
        here = filled(program, partial(_drawn_here, folder))
        about = (here, keeping, run.threads, self.timeout, run.attempt, folder)
        self.station.seat(run.name, party, run.places, *about)
        run.ready.add(party)
        if again:
            for other, site in run.places.items():
                if site != CALLER:
                    have = self.station.received(run.name, party, other)
                    self.send(site, ["have", run.name, other, party, have])

    def _begin(self, run: _Run, party: str, again: bool) -> None:
        site = run.places[party]
        run.heard[site] = time.monotonic()
        about: Head = [run.places, run.threads, self.timeout, again]
        head = ["begin", run.name, party, run.attempt, *about]
        self.send(site, head, run.recipes[party])

    def _serve(self, run: _Run) -> None:
        self._go(run)
        looked = time.monotonic()
        while run.open:
            try:
                site, head, body = run.frames.get(timeout=LOOK)
                run.heard[site] = time.monotonic()
                self._take(run, site, head, body)
            except Empty:
                pass
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                self._look(run)

    def _go(self, run: _Run) -> None:
        if not run.went and run.ready == run.places.keys():
            run.went = True
            for site in set(run.places.values()):
                self.send(site, ["go", run.name])

    def _look(self, run: _Run) -> None:
        """Silent sites are asked for a sign of life, and given up after a while. One that reads its
        data or loads modules is silent but still accepts packets."""
        now = time.monotonic()
        for site in {run.places[p] for p in run.open} - {CALLER}:
            said = run.heard.get(site, 0.0)
            mute, silent = now - said, now - max(said, self._carrier.heard(site))
            if mute > LOOK:
                self.send(site, ["alive", run.name])
            if silent > self.patience or mute > max(self.timeout, self.patience):
                for party in run.open_at(site):
                    why = f"{party} died while {run.at[party]}: {site} is silent for {mute:.0f} s"
                    self._lost(run, party, PartyLostError(party, why), [])

    # ------------------------------------------------------------------ what sites report

    def _take(self, run: _Run, site: str, head: Head, body: Data) -> None:
        match head:
            case ["restarted", _]:
                for party in run.open_at(site):
                    run.ready.discard(party)
                    self._begin(run, party, True)
            case [str(kind), _, str(party), run.attempt, *facts] if (
                run.places.get(party) == site and party in run.open
            ):
                self._report(run, party, [kind, *facts], body)

    def _report(self, run: _Run, party: str, head: Head, body: Data) -> None:
        here = run.places[party] == CALLER
        match head:
            case ["ready"]:
                run.ready.add(party)
                if run.went:
                    self.send(run.places[party], ["go", run.name])
                self._go(run)
            case ["at", str(step)]:
                run.at[party] = step
                run.outcome.step(party, step)
            case ["tell", str(phase), int(t), int(rounds), float(likelihood)] if here:
                run.outcome.tell(party, Tell(phase, t, rounds, likelihood))
            case ["heard", str(sender), str(tag), int(size)] if here:
                run.hear(Entry(sender, party, tag, size))
            case ["result", list(entries)]:
                run.outcome.end(party, self._result(run, party, body))
                self._leave(run, party, entries, f"{party} has finished and will send nothing more")
            case ["failed", str(blamed), str(text), list(entries)]:
                self._shown(run, party, body)
                self._lost(run, party, PartyLostError(blamed, text), entries)
            case ["refused", str(text)]:
                refusal = PartyLostError(party, f"{party} does not take part: {text}")
                self._lost(run, party, refusal, [])

    def _result(self, run: _Run, party: str, body: Data) -> Any:
        if run.places[party] == CALLER:
            return self.station.results.pop((run.name, party))
        return self._shown(run, party, body) if self.trial else Held(run.name, party)

    def _shown(self, run: _Run, party: str, body: Data) -> Any:
        """In tests, sites show their results and kept work."""
        if not self.trial or not body:
            return None
        result, kept = unpack(body)
        run.outcome.kept |= {(party, step): value for step, value in kept.items()}
        return result

    def _lost(self, run: _Run, party: str, error: PartyLostError, entries: list[Any]) -> None:
        run.outcome.lose(party, error)
        if run.went:
            self._leave(run, party, entries, f"{party} is lost ({error})")
            return
        for other in run.open:  # nothing has begun, and nothing will
            run.outcome.lost.setdefault(other, error)
        run.over |= run.places.keys()

    def _leave(self, run: _Run, party: str, entries: list[Any], reason: str) -> None:
        run.over.add(party)
        for to, tag, size, says in entries:
            run.sent(Entry(party, to, tag, size, says))
        sent: dict[str, int] = {}
        for to, *_ in entries:
            sent[to] = sent.get(to, 0) + 1
        for other, site in run.places.items():
            if other != party:
                self.send(site, ["gone", run.name, other, party, sent.get(other, 0), reason])


def _left_open(program: Program[Any]) -> Program[Any]:
    """Described parties are replaced by those at sites."""
    arguments = {
        name: _there(value) if isinstance(value, Party) else value
        for name, value in program.arguments.items()
    }
    return Program(program.function, arguments)


def _drawn_here(folder: RunFolder | None, place: Open) -> object:
    """Bytes drawn for a role that runs here; it has no other open places."""
    if not isinstance(place, Own):
        return place
    return token_bytes(32) if folder is None else folder.own_key(place.what)


def _there(party: Party) -> Here:
    chosen = party.table.chosen if isinstance(party.table, DescribedTable) else ()
    return Here("party", chosen)


class _Keeping(dict[str, object]):
    """Kept work of a party that runs here, recorded in the outcome."""

    def __init__(
        self, kept: dict[tuple[str, str], object], party: str, steps: dict[str, object]
    ) -> None:
        super().__init__(steps)
        self.all, self.party = kept, party

    def __setitem__(self, step: str, value: object) -> None:
        super().__setitem__(step, value)
        self.all[self.party, step] = value


class CallerStore:
    """What the caller keeps in its kit: interrupted trainings, and its parts of models.

    Nothing is kept without a store.
    """

    def __init__(self, store: Store | None) -> None:
        self.store = store

    def remember(self, run: str, training: bytes) -> None:
        """What is trained, until ``keep``: so that a new process can go on by the run's name."""
        if self.store is not None:
            self.store.remember(run, training)

    def recall(self, run: str) -> bytes | None:
        return None if self.store is None else self.store.recall(run)

    def trainings(self) -> list[str]:
        """Names of those that were broken off."""
        return [] if self.store is None else self.store.trainings()

    def keep(self, run: str, part: object) -> None:
        """The coordinator's part of a model whose training has come to its end."""
        if self.store is not None:
            self.store.keep_model(run, COORDINATOR, part)
            self.store.give_up(run)

    def forget(self, model: str) -> bool:
        """The caller's own part of a model, and of a training broken off."""
        return self.store is not None and self.store.forget(model)

    def kept(self, model: str) -> object:
        if self.store is None:
            raise FederationError(f"nothing is stored here of a model {model!r}")
        return self.store.model(model, COORDINATOR)
