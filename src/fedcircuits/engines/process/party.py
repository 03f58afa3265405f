"""One party in its own process: its flow in the main thread, its mail read by another.

Mail is read all the time, so two parties that send each other large arrays never block.
The process ends when its flow does, and at once when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from socket import socket
from threading import Thread
from typing import Any

import threadpoolctl  # type: ignore[import-untyped]
import torch

from fedcircuits.engines.driving import Data, Driver, NumberedMail
from fedcircuits.engines.outcome import failure, failure_report, waiting_for
from fedcircuits.engines.process import parcels
from fedcircuits.engines.process.parcels import Line
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Program, Recv, Send, Tell


def main(me: str, connection: socket) -> None:
    """Never returns, so that nothing is taken down that arrays in shared memory still need."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter handles Ctrl-C and ends this process
    line = Line(connection)
    try:
        PartyProcess(me, line).run()
    except (EOFError, OSError):
        os._exit(1)  # nobody is left to report to
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class OrderedMail(NumberedMail):
    """Mail over one connection, which keeps the order of messages; every wait is reported."""

    def listen(self, line: Line) -> None:
        try:
            while True:
                kind, (sender, word), body = line.receive()
                count = self.received(str(sender))
                if kind == "mail":
                    self.put(str(sender), count, str(word), body)
                else:
                    self.end(str(sender), count, str(word))
        except (EOFError, OSError, ProtocolError):
            os._exit(1)  # the starter is gone, or out of its mind

    def take(
        self, me: str, wanted: Recv, timeout: float, slow: Callable[[str], None] | None = None
    ) -> Data:
        if slow is not None and self.is_empty(wanted):
            slow(waiting_for(wanted))
        return super().take(me, wanted, timeout)


class PartyProcess:
    """One party; as the driver's ``Outgoing`` it sends everything to the starter."""

    def __init__(self, me: str, line: Line) -> None:
        self.me, self.line, self.mail = me, line, OrderedMail()
        self.driver: Driver | None = None

    def run(self) -> None:
        _, fields, body = self.line.receive()
        Thread(target=self.mail.listen, args=(self.line,), daemon=True).start()
        try:
            program, driver = self._start(fields, body)
            form, packed = self.packed(driver.drive(program), "its result")
        except Exception as error:
            at = "being started" if self.driver is None else self.driver.at
            self.line.send("failed", *failure_report(failure(self.me, at, error), error))
        else:
            self.line.send("result", form, body=packed)

    def _start(self, fields: list[Any], body: memoryview) -> tuple[Program[Any], Driver]:
        sizes, block, members, threads, timeout = fields
        torch.set_num_threads(threads)
        threadpoolctl.threadpool_limits(threads)
        try:
            program, kept = parcels.opened(body, sizes, block)
        except Exception as error:
            raise ProtocolError(
                f"its program cannot be opened ({type(error).__name__}): functions and classes "
                "must be defined in an importable module, not in a notebook or at a prompt"
            ) from error
        self.line.send("ready")
        assert isinstance(program, Program)
        work = _SentWork(self, kept)
        self.driver = Driver(self.me, frozenset(members), self.mail, self, work, timeout)
        return program, self.driver

    def send(self, effect: Send, number: int) -> None:
        self.line.send("mail", effect.receiver, effect.tag, effect.reveals, body=effect.data)

    def at(self, step: str) -> None:
        self.line.send("at", step)

    def tell(self, news: Tell) -> None:
        self.line.send("tell", news.phase, news.round, news.rounds, news.likelihood)

    def packed(self, value: object, what: str) -> tuple[str, bytes]:
        try:
            return parcels.pack(value)
        except Exception as error:
            raise ProtocolError(
                f"{what} cannot leave the process of {self.me} ({type(error).__name__}): return "
                "arrays and instances of classes defined in a module, not functions or handles"
            ) from error


class _SentWork(dict[str, object]):
    """Kept work of a party, which the starter gets, too."""

    def __init__(self, party: PartyProcess, kept: dict[str, object]) -> None:
        super().__init__(kept)
        self.party = party

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, value)
        assert self.party.driver is not None
        form, packed = self.party.packed(value, f"the result of {self.party.driver.at!r}")
        self.party.line.send("kept", name, form, body=packed)
