"""A site's end of every run: flows of the parties that live there, their mail, what they may do.

A courier brings frames in order from sites that it has made sure of (courier.py):

    from the caller   begin run, party, attempt, places, threads, time-out, again  body: the recipe
                      go run                                    all sites are ready
                      gone run, receiver, party, count, reason  after count messages none follow
                      end run, well
                      alive run                                 a sign of life
                      describe question                         what it holds, in public words
                      forget question, model                    to delete what it keeps of a model
    from any site     mail run, sender, receiver, number, tag   body: the message
                      have run, sender, receiver, number        it lacks the messages from there on
    to the caller     ready run, party, attempt · refused …, text · at …, step
                      result …, entries · failed …, blamed, text, entries
                      alive run · described question, facts
                      of a role that runs at the caller: heard …, sender, tag, bytes ·
                      tell …, phase, round, rounds, likelihood

``places`` maps the parties of the run to sites. ``attempt`` distinguishes what a party sends in a
resumed run from what it sent before the interruption. A restarted party continues from its inbox
and its kept work: it sends again what it had sent, which others recognise by its number, and asks
them for what it lacks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock, Thread
from typing import Any, Protocol

from fedcircuits.engines.driving import Data, Driver, NumberedMail
from fedcircuits.engines.outcome import failure, with_threads
from fedcircuits.engines.sites.admission import CALLER, Admission
from fedcircuits.engines.sites.policy import Policy, PolicyError, name_of
from fedcircuits.engines.sites.run_folder import Inbox, RunFolder
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FedcircuitsError, FederationError, SiteError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program, Send, Tell
from fedcircuits.federation.recipes import pack
from fedcircuits.version import __version__

Head = list[object]
Entry = tuple[str, str, int, str]  # receiver, tag, bytes, what it reveals
DESCRIPTION = "names, kinds and categories of its columns; its number of rows; names of models"
LOG = logging.getLogger(__name__)


class Carrier(Protocol):
    def send(self, site: str, head: Head, body: Data = b"") -> None: ...


class LivingCarrier(Carrier, Protocol):
    def heard(self, site: str) -> float: ...


@dataclass(slots=True)
class PartySeat:
    """One party of one run, and where its flow's messages go."""

    station: Station
    run: str
    party: str
    places: Mapping[str, str]
    program: Program[Any] = field(repr=False)
    kept: MutableMapping[str, object] = field(repr=False)
    threads: int
    timeout: float
    attempt: str
    folder: RunFolder | None = None
    inbox: Inbox | None = None
    mail: NumberedMail = field(default_factory=NumberedMail)
    outbox: dict[str, list[tuple[Head, bytes]]] = field(default_factory=dict)  # by receiver
    entries: list[Entry] = field(default_factory=list)
    last: tuple[str, Head, bytes] | None = None  # its last word
    started: bool = False

    def put(self, sender: str, number: int, tag: str, data: Data) -> None:
        """It is stored before the flow gets it: a resumed run has read the same mail, and uses no
        mask for two different numbers."""
        if not self.mail.lacks(sender, number):
            return
        if self.inbox is not None:
            self.inbox.add(sender, number, tag, data)
        self.mail.put(sender, number, tag, data)
        if self.station.me == CALLER:
            self.say("heard", [sender, tag, len(data)])

    def send(self, effect: Send, number: int) -> None:
        self.station.policy.check_message(effect)
        to, size = effect.receiver, len(effect.data)
        head: Head = ["mail", self.run, self.party, to, number, effect.tag]
        self.outbox.setdefault(to, []).append((head, effect.data))
        self.entries.append((to, effect.tag, size, effect.reveals))
        facts = {"run": self.run, "to": to, "tag": effect.tag, "number": number, "bytes": size}
        self.station.note("sent", **facts, reveals=effect.reveals)
        self.station.carrier.send(self.places[to], head, effect.data)

    def send_again(self, receiver: str, number: int) -> None:
        for head, data in self.outbox.get(receiver, [])[number:]:
            self.station.carrier.send(self.places[receiver], head, data)

    def at(self, step: str) -> None:
        self.say("at", [step])

    def tell(self, news: Tell) -> None:
        """The progress of a party stays at its site."""
        if self.station.me == CALLER:
            self.say("tell", [news.phase, news.round, news.rounds, news.likelihood])

    def say(self, kind: str, facts: Head, body: bytes = b"") -> None:
        """Send a frame to the caller."""
        head = [kind, self.run, self.party, self.attempt, *facts]
        self.station.carrier.send(CALLER, head, body)

    def say_last(self, kind: str, *facts: object, body: bytes = b"") -> None:
        self.last = (kind, [*facts, [list(e) for e in self.entries]], body)
        self.say(*self.last)


class Station:
    """``party`` and ``store`` are the site's own; the caller has no party. ``members`` are the
    sites of the consortium."""

    def __init__(
        self,
        me: str,
        policy: Policy,
        party: Party | None = None,
        store: Store | None = None,
        members: Collection[str] = (),
    ) -> None:
        self.me, self.policy, self.party, self.store = me, policy, party, store
        self.admission = Admission(me, policy, party, store, members)
        self.carrier: Carrier
        self.results: dict[tuple[str, str], object] = {}  # of parties that live at the caller
        self._seats: dict[tuple[str, str], PartySeat] = {}
        self._lock, self._closed = RLock(), False

    def note(self, event: str, **facts: object) -> None:
        if self.store is not None:
            self.store.audit(event, **facts)

    # ------------------------------------------------------------------ frames

    def hear(self, site: str, head: Head, body: Data) -> None:
        """A frame of that site. What it may not say is noted and dropped."""
        try:
            with self._lock:
                if not self._closed:
                    self._heard(site, head, body)
        except Exception as error:  # a frame must not end the site
            LOG.exception("a frame of %s", site)
            with suppress(SiteError):  # its disk may be full
                self.note("failed", site=site, frame=str(head[:1]), why=type(error).__name__)

    def _heard(self, site: str, head: Head, body: Data) -> None:
        match head:
            case ["mail", str(run), str(sender), str(receiver), int(number), str(tag)]:
                seat = self._seats.get((run, receiver))
                if seat is not None and seat.places.get(sender) == site:
                    self._put(seat, sender, number, tag, body)
            case ["have", str(run), str(sender), str(receiver), int(number)]:
                seat = self._seats.get((run, sender))
                if seat is not None and seat.places.get(receiver) == site:
                    seat.send_again(receiver, number)
            case _ if site != CALLER:
                self.note("refused", site=site, frame=str(head[:1]))
            case ["begin", str(run), str(party), str(attempt), *about]:
                self._begin(run, party, attempt, about, body)
            case ["go", str(run)]:
                for seat in self._of(run):
                    self._start(seat)
            case ["gone", str(run), str(receiver), str(party), int(count), str(reason)]:
                if (seat := self._seats.get((run, receiver))) is not None:
                    seat.mail.end(party, count, reason)
            case ["end", str(run), bool(well)]:
                self._end(run, well)
            case ["alive", str(run)]:
                self.carrier.send(CALLER, ["alive", run])
            case ["describe", str(question)]:
                self.note("asked", what="describe", reveals=DESCRIPTION)
                self.carrier.send(CALLER, ["described", question, self._description()])
            case ["forget", str(question), str(model)]:
                self.carrier.send(CALLER, ["described", question, self._forgotten(model)])
            case _:
                self.note("refused", site=site, frame=str(head[:1]))

    def _put(self, seat: PartySeat, sender: str, number: int, tag: str, body: Data) -> None:
        try:
            seat.put(sender, number, tag, body)
        except SiteError as error:  # its disk is full
            seat.mail.fail(error)

    def _of(self, run: str) -> list[PartySeat]:
        return [seat for (name, _), seat in self._seats.items() if name == run]

    def _description(self) -> dict[str, object]:
        if self.party is None:
            return {}
        table = self.party.table
        return {
            "variables": pack(table.schema.variables),
            "rows": len(table),
            "ids": table.row_ids is not None,
            "series": {name: list(array.shape[1:]) for name, array in table.series.items()},
            "allow_collect": self.party.allow_collect,
            "least_count": self.party.least_count,
            "models": [] if self.store is None else self.store.models(),
            "version": __version__,
        }

    def _forgotten(self, model: str) -> dict[str, object]:
        """Delete what is kept of a model or an interrupted training; whether there was anything."""
        try:
            if self.store is None:
                raise SiteError("this site stores nothing")
            if not self.policy.forget:
                raise PolicyError("forget = false", "this site does not delete models when asked")
            if self._of(model):
                raise SiteError(f"a run {model!r} is in progress here")
            forgotten = self.store.forget(model)
        except FederationError as error:
            self.note("refused", forget=model, why=_text_for_others(error))
            return {"forgotten": False, "why": _text_for_others(error)}
        self.note("forgotten", model=model, found=forgotten)
        self.admission.forget()
        return {"forgotten": forgotten, "why": ""}

    # ------------------------------------------------------------------ a run

    def _begin(self, run: str, party: str, attempt: str, about: Head, body: Data) -> None:
        """Refused before anything is sent, or ready; of what is refused nothing stays."""
        folder, known = None, False
        try:
            places, threads, timeout, again = _checked_begin(about)
            self.admission.check_places(party, places)
            folder = None if self.store is None else self.store.run(run, party)
            known = folder is not None and folder.begun
            if folder is not None:
                self._check_free(run, party, folder)
                folder.open(bytes(body), again)
            if (seat := self._seats.get((run, party))) is not None:
                seat.attempt = attempt
            else:
                program, kept = self.admission.opened(party, folder, bytes(body))
                seat = self.seat(
                    run, party, places, program, kept, threads, timeout, attempt, folder
                )
                facts = {"run": run, "party": party, "role": name_of(program.function)}
                self.note("begun", **facts, bytes=len(body), again=again)
        except Exception as error:
            _log(error, "run %s", run)
            why = _text_for_others(error)
            with suppress(SiteError):  # its disk may be full
                self.note("refused", run=run, party=party, why=why)
            if folder is not None and not known and (run, party) not in self._seats:
                folder.done()
            self.carrier.send(CALLER, ["refused", run, party, attempt, why])
            return
        seat.say("ready", [])
        if again:
            if seat.last is not None:
                seat.say(*seat.last)
            for other, site in places.items():
                if site != self.me:
                    have = seat.mail.received(other)
                    self.carrier.send(site, ["have", run, other, party, have])

    def _check_free(self, run: str, party: str, folder: RunFolder) -> None:
        """A model is never overwritten, but by the run that makes it."""
        if self.store is not None and self.store.has_model(run, party) and not folder.begun:
            raise SiteError(f"a model {run!r} already exists: choose another name, or forget it")

    def seat(
        self,
        run: str,
        party: str,
        places: Mapping[str, str],
        program: Program[Any],
        kept: MutableMapping[str, object],
        threads: int,
        timeout: float,
        attempt: str,
        folder: RunFolder | None = None,
    ) -> PartySeat:
        """A place in the run for one party; what had arrived before a crash is there again."""
        inbox = None if folder is None else folder.inbox()
        about = (self, run, party, places, program, kept, threads, timeout, attempt, folder, inbox)
        self._seats[run, party] = seat = PartySeat(*about)
        for sender, number, tag, data in () if inbox is None else inbox.there:
            seat.mail.put(sender, number, tag, data)
        return seat

    def received(self, run: str, party: str, sender: str) -> int:
        """How many messages of a sender have come to a party that sits here."""
        return self._seats[run, party].mail.received(sender)

    def _start(self, seat: PartySeat) -> None:
        if not seat.started:
            seat.started = True
            Thread(target=self._drive, args=(seat,), daemon=True).start()

    def _drive(self, seat: PartySeat) -> None:
        members = frozenset(seat.places)
        driver = Driver(seat.party, members, seat.mail, seat, seat.kept, seat.timeout)
        try:
            with with_threads(seat.threads):
                result = driver.drive(seat.program)
            self._keep(seat, result)
        except Exception as error:
            _log(error, "%s in run %s", seat.party, seat.run)
            lost = failure(seat.party, driver.at, error)
            with suppress(SiteError):  # its disk may be full
                self.note("failed", run=seat.run, party=seat.party, why=lost.safe_text)
            seat.say_last("failed", lost.party, lost.safe_text, body=self._shown(seat, None))

    def _shown(self, seat: PartySeat, result: object) -> bytes:
        """What the caller sees of a party's result and kept work: nothing, but in trials."""
        return pack((result, dict(seat.kept))) if self.policy.results else b""

    def _keep(self, seat: PartySeat, result: object) -> None:
        if self.me == CALLER:
            self.results[seat.run, seat.party] = result
        elif (
            not self.policy.results
            and self.store is not None
            and not isinstance(result, int | None)  # a question leaves at most a number
        ):
            self.store.keep_model(seat.run, seat.party, result)
        seat.say_last("result", body=self._shown(seat, result))

    def close(self) -> None:
        """End everything here; it is resumed when the site is restarted."""
        with self._lock:
            self._closed = True  # a frame that is on its way opens no inbox any more
            for seat in self._seats.values():
                seat.mail.end_all("the site was stopped")
                if seat.inbox is not None:
                    seat.inbox.close()

    def _end(self, run: str, well: bool) -> None:
        for seat in self._of(run):
            del self._seats[run, seat.party]
            seat.mail.end_all("the run has ended")
            if seat.inbox is not None:
                seat.inbox.close()
            if seat.folder is not None and well:
                seat.folder.done()
        self.note("ended", run=run, well=well)


def _checked_begin(about: Head) -> tuple[dict[str, str], int, float, bool]:
    match about:
        case [dict(places), int(threads), float(timeout), bool(again)] if (
            all(isinstance(word, str) for pair in places.items() for word in pair)
            and threads > 0
            and timeout > 0
        ):
            return places, min(threads, os.cpu_count() or 1), timeout, again
    raise SiteError("the request does not start a run")


def _log(error: Exception, text: str, *about: str) -> None:
    """Deliberate refusals and losses are not shown on a terminal."""
    level = logging.INFO if isinstance(error, FedcircuitsError) else logging.ERROR
    LOG.log(level, text, *about, exc_info=error)


def _text_for_others(error: Exception) -> str:
    """The text for others; the site's log has the rest."""
    return error.safe_text if isinstance(error, FedcircuitsError) else type(error).__name__
