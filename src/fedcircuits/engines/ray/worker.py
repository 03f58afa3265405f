"""A worker: a Ray actor in which one or several parties live, from run to run.

Bytes and plain values cross between the caller and a worker:

    describe path                 the contents of a file on the worker's machine
    begin run, party, recipe      starts a party; returns which large arguments are missing here
    place run, party, mark, data  a large argument, kept here under its mark for later runs
    run run, party                a stream of reports: steps, kept work, entries of the ledger, and
                                  the result or failure
    deliver, gone                 a message from another worker; from the caller, who sends no more
    end run                       removes all parties of the run

Recipes contain no code (federation/recipes.py). Tables and learned models are placed once, and
later queries find them. Parties of one worker take turns: while one computes, the others wait, so
that at most one part of a large table is in memory.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

import threadpoolctl  # type: ignore[import-untyped]
import torch

from fedcircuits.engines.driving import Data, Driver, NumberedMail
from fedcircuits.engines.outcome import failure, failure_report
from fedcircuits.errors import FedcircuitsError, ProtocolError, TableError
from fedcircuits.federation.flow import Program, Recv, Send, Tell
from fedcircuits.federation.messages import decode_plain, encode_plain
from fedcircuits.federation.recipes import pack, unpack
from fedcircuits.tables.stored import StoredTable

PRELOAD = "fedcircuits.engines.process.preload"
ROOMS = ("circuits", "estimators", "leaves", "testing")  # whose functions a recipe may name, too
MOST_PLACED = 32  # large arguments that a worker keeps, the latest
LAST = frozenset({"result", "failed"})
Report = list[object]


class _SeatMail(NumberedMail):
    """Mail of a party that lets others of its worker compute while it waits."""

    def __init__(self, seat: ActorSeat) -> None:
        super().__init__()
        self.seat = seat

    def take(
        self, me: str, wanted: Recv, timeout: float, slow: Callable[[str], None] | None = None
    ) -> Data:
        self.seat.turn.release()
        try:
            return super().take(me, wanted, timeout, slow)
        finally:
            self.seat.turn.acquire()


class ActorSeat:
    """One party of one run: its program, its mail, and the reports that ``Worker.run`` empties."""

    def __init__(self, run: str, party: str, worker: Worker, head: Mapping[str, Any]) -> None:
        self.run, self.party, self.worker, self.turn = run, party, worker, worker.turn
        self.head, self.peers = head, dict[str, Any]()
        self.arguments: dict[str, object] = {}
        self.mail = _SeatMail(self)
        self.reports: SimpleQueue[Report] = SimpleQueue()
        self.entries: list[list[object]] = []
        self.kept: dict[str, object] = {}
        self.received: list[list[object]] = []
        self.trouble: FedcircuitsError | None = None  # with an argument
        self.step = ""  # that it is at

    def program(self) -> Program[Any]:
        """Its recipe, opened here."""
        if self.trouble is not None:
            raise self.trouble
        function, small, kept = unpack(self.head["recipe"], rooms=ROOMS)
        self.kept = _ReportedWork(self, kept)
        return Program(function, {**small, **self.arguments})

    def send(self, effect: Send, number: int) -> None:
        facts = (self.party, effect.receiver, effect.tag, len(effect.data), effect.reveals)
        self.entries.append(list(facts))
        if (peer := self.peers[effect.receiver]) is None:
            self.worker.deliver(self.run, number, *facts, effect.data)
        else:
            peer.deliver.remote(self.run, number, *facts, effect.data)

    def at(self, step: str) -> None:
        self.step = step
        self.report("at", step)

    def tell(self, news: Tell) -> None:
        self.report("tell", news.phase, news.round, news.rounds, news.likelihood)

    def report(self, kind: str, *about: object) -> None:
        entries, self.entries = self.entries, []
        self.reports.put([kind, entries, *about])


class _ReportedWork(dict[str, object]):
    """Kept work of a party, reported to the caller."""

    def __init__(self, seat: ActorSeat, kept: Mapping[str, object]) -> None:
        super().__init__(kept)
        self.seat = seat

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, value)
        what = f"the result of {self.seat.step!r}"  # the name has a digest of values in it
        self.seat.report("kept", name, packed(value, what, self.seat.party))


def packed(value: object, what: str, party: str) -> bytes:
    try:
        return pack(value)
    except ProtocolError as error:
        raise ProtocolError(
            f"{what} cannot leave the worker of {party}: {error}; take a learner of this library, "
            "or run it with engine='process' or 'memory'"
        ) from error


@dataclass(slots=True)
class Worker:
    """The actor itself. Methods are called by Ray: mail by one thread, each run by another."""

    turn: Lock = field(default_factory=Lock)
    seats: dict[tuple[str, str], ActorSeat] = field(default_factory=dict)
    placed: OrderedDict[str, object] = field(default_factory=OrderedDict)

    def ready(self) -> int:
        """Its process, once the library is loaded and its kernels are compiled: by one worker of a
        machine at a time, because they share the files of compiled kernels."""
        path = Path(tempfile.gettempdir()) / f"fedcircuits-{os.getuid()}-kernels.lock"
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            import_module(PRELOAD)
        return os.getpid()

    def describe(self, path: str, row_id: str | None, least: int) -> bytes:
        """A table that lies in a file here: what it holds, or why it cannot be read."""
        try:
            table = StoredTable.of_file(path, row_id, least)
            if (ids := table.row_ids) is not None and len(set(map(str, ids))) < len(table):
                raise TableError(f"{path}: two rows have the same id: ids must be unique")
        except FedcircuitsError as error:
            return pack(str(error))
        return pack(table)

    def begin(self, run: str, party: str, recipe: bytes, peers: list[Any]) -> list[str]:
        """Marks of the arguments that must be placed before it can run."""
        head: Any = decode_plain(recipe)
        seat = self.seats[run, party] = ActorSeat(run, party, self, head)
        mine = set(head["here"])
        seat.peers = {
            name: None if name in mine else peer
            for name, peer in zip(head["members"], peers, strict=True)
        }
        lacking = []
        for name, mark in head["marks"].items():
            if mark in self.placed:
                self.placed.move_to_end(mark)
                seat.arguments[name] = self.placed[mark]
            else:
                lacking.append(name)
        return lacking

    def place(self, run: str, party: str, name: str, data: bytes) -> None:
        """An argument; one that cannot be opened is reported when the party starts."""
        seat = self.seats[run, party]
        mark = seat.head["marks"][name]
        if mark not in self.placed:
            try:
                self.placed[mark] = unpack(data, rooms=ROOMS)
            except FedcircuitsError as error:
                seat.trouble = error
                return
        seat.arguments[name] = self.placed[mark]
        while len(self.placed) > MOST_PLACED:
            self.placed.popitem(last=False)

    def deliver(
        self,
        run: str,
        number: int,
        sender: str,
        receiver: str,
        tag: str,
        size: int,
        reveals: str,
        data: bytes,
    ) -> None:
        seat = self.seats.get((run, receiver))
        if seat is not None and seat.mail.put(sender, number, tag, data):
            seat.received.append([sender, receiver, tag, size, reveals])

    def gone(self, run: str, party: str, sent: Mapping[str, int], reason: str) -> None:
        for (name, receiver), seat in list(self.seats.items()):
            if name == run and receiver != party:
                seat.mail.end(party, sent.get(receiver, 0), reason)

    def end(self, run: str) -> list[list[object]]:
        """What had arrived here, for the ledger of parties that died."""
        reports = []
        for name, party in [key for key in self.seats if key[0] == run]:
            seat = self.seats.pop((name, party))
            seat.mail.end_all("the run has ended")
            reports += seat.received
        return reports

    def run(self, run: str, party: str) -> Iterator[bytes]:
        """Reports of a party, several at a time where they come fast."""
        seat = self.seats[run, party]
        Thread(target=self._drive, args=(seat,), daemon=True).start()
        while True:
            reports = [seat.reports.get()]
            try:
                while True:
                    reports.append(seat.reports.get_nowait())
            except Empty:
                pass
            yield encode_plain(reports)
            if reports[-1][0] in LAST:
                return

    def _drive(self, seat: ActorSeat) -> None:
        threads, members = seat.head["threads"], frozenset(seat.head["members"])
        driver = Driver(seat.party, members, seat.mail, seat, seat.kept, seat.head["timeout"])
        with self.turn:
            try:
                torch.set_num_threads(threads)
                threadpoolctl.threadpool_limits(threads)
                program = seat.program()
                driver.kept = seat.kept
                result = packed(driver.drive(program), "its result", seat.party)
            except Exception as error:
                lost = failure(seat.party, driver.at, error)
                seat.report("failed", dict(driver.sent), *failure_report(lost, error))
            else:
                seat.report("result", dict(driver.sent), result)
