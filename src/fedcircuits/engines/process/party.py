"""One party in its own process: its flow in the main thread, its mail read by another.

Mail is read all the time, so two parties that send each other large arrays never block.
The process ends when its flow does, and at once when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import defaultdict, deque
from socket import socket
from threading import Condition, Thread
from typing import Any

import threadpoolctl  # type: ignore[import-untyped]
import torch

from fedcircuits.engines.outcome import check_other_party, failure, waiting_for, waits
from fedcircuits.engines.process import parcels
from fedcircuits.engines.process.frames import Line
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import Compute, Effect, Program, Recv, Send, Tell, driven


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


class Mailbox:
    """Messages by sender and tag, in their order, and who will send no more."""

    def __init__(self) -> None:
        self._mail: dict[tuple[str, str], deque[memoryview]] = defaultdict(deque)
        self._gone: dict[str, str] = {}
        self._changed = Condition()

    def listen(self, line: Line) -> None:
        try:
            while True:
                kind, (sender, word), body = line.hear()
                with self._changed:
                    if kind == "mail":
                        self._mail[str(sender), str(word)].append(body)
                    else:
                        self._gone[str(sender)] = str(word)
                    self._changed.notify_all()
        except (EOFError, OSError, ProtocolError):
            os._exit(1)  # the starter is gone, or out of its mind

    def waiting(self, wanted: Recv) -> bool:
        with self._changed:
            return not self._mail[wanted.sender, wanted.tag]

    def take(self, me: str, wanted: Recv, timeout: float) -> memoryview:
        box = self._mail[wanted.sender, wanted.tag]
        with self._changed:
            self._changed.wait_for(lambda: box or wanted.sender in self._gone, timeout)
            if box:
                return box.popleft()
        late = f"it is alive and has sent nothing for {timeout:g} s"
        reason = self._gone.get(wanted.sender, late)
        raise PartyLostError(wanted.sender, waits(me, wanted, reason))


class PartyProcess:
    def __init__(self, me: str, line: Line) -> None:
        self.me, self.line, self.mail = me, line, Mailbox()
        self.at = "being started"
        self.members: frozenset[str] = frozenset()
        self.kept: dict[str, object] = {}
        self.timeout = 0.0

    def run(self) -> None:
        _, fields, body = self.line.hear()
        Thread(target=self.mail.listen, args=(self.line,), daemon=True).start()
        try:
            program = self._start(fields, body)
            self.at = "its first step"
            form, packed = self._packed(driven(program.start(), self._do), "its result")
        except Exception as error:
            lost = failure(self.me, self.at, error)
            places = [
                f"{f.filename}:{f.lineno} in {f.name}"
                for f in traceback.extract_tb(error.__traceback__)
            ]
            self.line.say("failed", lost.party, str(lost), lost.safe_text, places)
        else:
            self.line.say("result", form, body=packed)

    def _start(self, fields: list[Any], body: memoryview) -> Program[Any]:
        sizes, block, members, threads, self.timeout = fields
        self.members = frozenset(members)
        torch.set_num_threads(threads)
        threadpoolctl.threadpool_limits(threads)
        try:
            program, self.kept = parcels.opened(body, sizes, block)
        except Exception as error:
            raise ProtocolError(
                f"its program cannot be opened ({type(error).__name__}): functions and classes "
                "must stand in a module that can be imported, not in a notebook or a prompt"
            ) from error
        self.line.say("ready")
        assert isinstance(program, Program)
        return program

    def _do(self, effect: Effect) -> object:
        if isinstance(effect, Send):
            self.at = f"sending {effect.tag!r} to {effect.receiver}"
            check_other_party(self.me, effect, self.members)
            self.line.say("mail", effect.receiver, effect.tag, effect.reveals, body=effect.data)
            return None
        if isinstance(effect, Recv):
            return self._receive(effect)
        if isinstance(effect, Tell):
            self.line.say("tell", effect.phase, effect.round, effect.rounds, effect.likelihood)
            return None
        return self._compute(effect)

    def _receive(self, effect: Recv) -> object:
        self.at = waiting_for(effect)
        check_other_party(self.me, effect, self.members)
        if self.mail.waiting(effect):
            self.line.say("at", self.at)
        return self.mail.take(self.me, effect, self.timeout)

    def _compute(self, effect: Compute[object]) -> object:
        self.at = effect.step
        if effect.name not in self.kept:
            self.line.say("at", effect.step)
            self.kept[effect.name] = effect.work()
            form, packed = self._packed(self.kept[effect.name], f"the result of {effect.step!r}")
            self.line.say("kept", effect.name, form, body=packed)
        return self.kept[effect.name]

    def _packed(self, value: object, what: str) -> tuple[str, bytes]:
        try:
            return parcels.pack(value)
        except Exception as error:
            raise ProtocolError(
                f"{what} cannot leave the process of {self.me} ({type(error).__name__}): return "
                "arrays and instances of classes that stand in a module, no functions or handles"
            ) from error
