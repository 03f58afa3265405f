"""One operating-system process per party on one machine: all cores are used, and crashes isolated.

Messages go through the process that called ``run``: one connection per party instead of one per
pair, so 64 parties need 64 file handles, the ledger is written where messages pass, and a party
learns of a lost one after everything that it had sent. One thread per party moves bytes without
reading them: on two slow cores 0.2 ms per small message and 0.1 s for 20 MB, little compared with
the computation between two messages. Three parties start in 0.2 s, the first time in 4 s while the
server below loads, or in 20 s if kernels have never been compiled.

Processes are forked from a server that has imported the library and compiled its kernels
(preload.py), never from the caller, which may have used threads. Where forking is not available,
they are started from scratch. A program must be a function of a module with arguments that can be
sent (parcels.py). The cores are divided among parties. All processes belong to one owner: results
and kept work return to the caller, who has the tables anyway, and are not in the ledger.

A party waits at most ``timeout`` seconds for a message; only this detects a deadlock.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from socket import socketpair
from threading import Lock, Thread
from typing import Generic, TypeVar

from fedcircuits.engines.outcome import Kept, Outcome, failure, threads_each
from fedcircuits.engines.process import party
from fedcircuits.engines.process.parcels import Field, Line, Parcel, unpack
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import Program, Tell
from fedcircuits.federation.messages import Entry

T = TypeVar("T")
PRELOAD = "fedcircuits.engines.process.preload"
PATIENCE = 10.0  # seconds that a process which has said its last word may take to end
AWAKE = 0.5  # seconds after which the caller looks whether it was interrupted
GUARD = '; a script must start its run under: if __name__ == "__main__":'


def run(
    programs: Mapping[str, Program[T]],
    kept: Kept | None = None,
    *,
    timeout: float = 3600.0,
    trusted: Collection[str] = (),
) -> Outcome[T]:
    """Every party's result; ``kept`` is the work of an earlier run that failed. ``trusted`` are
    packages whose classes results may hold, beside this one and those that programs hold."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)  # a party's process, which runs an unguarded script again: the caller says so
    hub: _Switchboard[T] = _Switchboard(tuple(programs), Outcome(kept=dict(kept or {})), timeout)
    hub.trusted |= {*trusted}
    hub.outcome.begin(programs)
    try:
        for name, program in programs.items():
            hub.admit(name, program)
        hub.serve()
    finally:
        hub.end()
    done = hub.outcome.results
    hub.outcome.results = {name: done[name] for name in programs if name in done}
    return hub.outcome


run.relays = True  # type: ignore[attr-defined]  # messages pass the caller's process: sealed


@cache
def _context() -> ForkServerContext | SpawnContext:
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fedcircuits", party.__name__, PRELOAD])
        return context
    import_module(PRELOAD)  # here, so that processes find kernels on the disk
    return multiprocessing.get_context("spawn")


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, even while they import the library: the process that
    started them handles it and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class _Seat:
    """A party as seen from here."""

    name: str
    parcel: Parcel
    line: Line
    process: BaseProcess
    at: str = "being started"
    over: bool = False


class _Switchboard(Generic[T]):
    def __init__(self, members: tuple[str, ...], outcome: Outcome[T], timeout: float) -> None:
        self.members, self.outcome, self.timeout = members, outcome, timeout
        self.seats: dict[str, _Seat] = {}
        self.running: set[str] = set()
        self.trusted: set[str] = set()
        self.ended: SimpleQueue[str] = SimpleQueue()
        self.lock = Lock()

    # ------------------------------------------------------------------ beginning and end

    def admit(self, name: str, program: Program[T]) -> None:
        parcel = self._parcel(name, program)
        self.trusted |= parcel.packages
        try:
            ours, theirs = socketpair()
        except OSError:
            parcel.free()
            raise
        with theirs:
            process = _context().Process(
                target=party.main, name=name, args=(name, theirs), daemon=True
            )
            self.seats[name] = _Seat(name, parcel, Line(ours), process)
            with _deaf():
                process.start()

    def _parcel(self, name: str, program: Program[T]) -> Parcel:
        kept = {work: value for (who, work), value in self.outcome.kept.items() if who == name}
        try:
            return Parcel.of((program, kept))
        except Exception as error:
            raise ProtocolError(
                f"the program of {name} cannot be sent to a process: {error}; use a function "
                "defined in a module, and arguments whose classes are defined in modules"
            ) from error

    def serve(self) -> None:
        for seat in self.seats.values():
            self._hand_over(seat)  # all of them before any message
        for seat in self.seats.values():
            self.running.add(seat.name)
            Thread(target=self._serve, args=(seat,), daemon=True).start()
        while self.running:
            self._wait(AWAKE)

    def _wait(self, patience: float) -> None:
        """Until every thread has ended, or none has for so long. (A join that Ctrl-C interrupts
        leaves threads in doubt; a wait without end may miss it.)"""
        with suppress(Empty):
            while self.running:
                self.running.discard(self.ended.get(timeout=patience))

    def end(self) -> None:
        """Nothing stays behind, whatever has happened."""
        for seat in self.seats.values():
            if seat.process.pid is not None and not seat.over:
                seat.process.kill()
        self._wait(PATIENCE)
        for seat in self.seats.values():
            if seat.process.pid is not None:
                seat.process.join(PATIENCE)
                seat.process.kill()
                seat.process.join()
            seat.process.close()
            seat.line.close()
            seat.parcel.free()

    # ------------------------------------------------------------------ one party

    def _serve(self, seat: _Seat) -> None:
        try:
            while not seat.over:
                self._answer(seat, *seat.line.receive())
        except (EOFError, OSError):
            self._died(seat)
        except Exception as error:  # what it sent cannot be opened here
            self._lose(seat, failure(seat.name, seat.at, error))
            seat.process.kill()
        finally:
            self.ended.put(seat.name)

    def _hand_over(self, seat: _Seat) -> None:
        parcel, threads = seat.parcel, threads_each(len(self.members))
        about = (list(parcel.sizes), parcel.block_name, list(self.members), threads, self.timeout)
        with suppress(OSError):  # its thread will see that it has died
            seat.line.send("start", *about, body=parcel.data)

    def _answer(self, seat: _Seat, kind: str, fields: list[Field], body: memoryview) -> None:
        match kind, *fields:
            case "mail", str(receiver), str(tag), str(reveals):
                seat.at = f"sending {tag!r} to {receiver}"
                if receiver not in self.seats:
                    raise ProtocolError(f"mail for {receiver!r}, which is not a party of this run")
                with self.lock:
                    self.outcome.send(Entry(seat.name, receiver, tag, len(body), reveals))
                self._tell(receiver, "mail", seat.name, tag, body)
            case "at", str(step):
                seat.at = step
                self.outcome.step(seat.name, step)
            case "tell", str(phase), int(t), int(rounds), float(likelihood):
                self.outcome.tell(seat.name, Tell(phase, t, rounds, likelihood))
            case "kept", str(name), str(form):
                value = unpack(form, body, self.trusted)
                with self.lock:
                    self.outcome.kept[seat.name, name] = value
            case ("ready",):
                seat.at = "its first step"
                seat.parcel.free()
            case "result", str(form):
                self.outcome.end(seat.name, unpack(form, body, self.trusted))
                self._leave(seat, f"{seat.name} has finished and will send nothing more")
            case "failed", str(blamed), str(text), str(safe_text), places:
                lost = PartyLostError(blamed, text, safe_text)
                lost.add_note(f"in the process of {seat.name}, where these lines called each other")
                for place in places if isinstance(places, list) else ():
                    lost.add_note(f"  {place}")
                self._lose(seat, lost)
            case _:
                raise ProtocolError(f"{kind!r} with {len(fields)} fields, which nobody says")

    def _tell(
        self, receiver: str, kind: str, sender: str, word: str, body: bytes | memoryview = b""
    ) -> None:
        with suppress(OSError):  # it has ended
            self.seats[receiver].line.send(kind, sender, word, body=body)

    def _died(self, seat: _Seat) -> None:
        seat.process.join(PATIENCE)
        hint = GUARD if seat.at == "being started" else ""
        text = f"{seat.name} died while {seat.at} (exit code {seat.process.exitcode}){hint}"
        self._lose(seat, PartyLostError(seat.name, text))

    def _lose(self, seat: _Seat, lost: PartyLostError) -> None:
        with self.lock:
            self.outcome.lose(seat.name, lost)
        self._leave(seat, f"{seat.name} is lost ({lost.safe_text})")

    def _leave(self, seat: _Seat, reason: str) -> None:
        seat.over = True
        for other in self.members:
            if other != seat.name:
                self._tell(other, "gone", seat.name, reason)
