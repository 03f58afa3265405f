"""The standing job: what NVFlare's processes run to carry packets between members.

At a member, its process passes packets from the member's program (link.py) to NVFlare, and packets
of other members to the program. At the server it only keeps running. The job is three JSON files
that name the two classes below; it carries no code and no data, and none of its processes sees a
table or a key: packets are sealed by the programs (courier.py).

The sender of a packet is determined by NVFlare: its server passes a message on only if it carries
the token given to that client when it proved its certificate, and if the message's origin is that
client. A message that did not come through the server, or whose origin is not part of the job, is
dropped. Nothing in the packet itself is trusted.

NVFlare imports this module; nothing else of the library does.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from nvflare.apis.client import from_dict
from nvflare.apis.controller_spec import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message

from fedcircuits.engines.nvflare.socket_line import SocketLine, dialled

CHANNEL, TOPIC = "fedcircuits", "packet"
AGAIN = 0.2  # seconds until the program's socket is tried again
LOG = logging.getLogger(__name__)


class StandingJob(Controller):  # type: ignore[misc]
    """At the server: lasts until it is aborted."""

    def start_controller(self, fl_ctx: FLContext) -> None: ...

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        over = Event()
        while not abort_signal.triggered:
            over.wait(0.5)

    def stop_controller(self, fl_ctx: FLContext) -> None: ...

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None: ...


class PacketCarrier(Executor):  # type: ignore[misc]
    """At a member: between its program and NVFlare."""

    def __init__(self) -> None:
        super().__init__()
        self._line: SocketLine | None = None
        self._writing, self._over = Lock(), Event()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            self._begin(fl_ctx)
        elif event_type in (EventType.END_RUN, EventType.ABORT_TASK):
            self._over.set()
            self._hang_up(self._line)

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        return make_reply(ReturnCode.TASK_UNKNOWN)  # there are no tasks

    def _begin(self, fl_ctx: FLContext) -> None:
        clients = [
            from_dict(c) for c in fl_ctx.get_prop(FLContextKey.JOB_META)[JobMetaKey.JOB_CLIENTS]
        ]
        job = fl_ctx.get_job_id()
        self._cells = {c.name: FQCN.join([c.get_fqcn(), job]) for c in clients}
        self._names = {cell: name for name, cell in self._cells.items()}
        self._folder = Path(fl_ctx.get_workspace().get_root_dir()).resolve()
        self._core: Any = fl_ctx.get_engine().get_cell().core_cell
        self._core.register_request_cb(CHANNEL, TOPIC, self._heard)
        Thread(target=self._carry, daemon=True).start()

    def _heard(self, message: Message) -> None:
        sender = self._names.get(message.get_header(MessageHeaderKey.ORIGIN))
        if sender is None or not self._core.is_server_transit_return(message):
            LOG.warning(
                "a packet that is of no member, or that did not pass the server, is dropped"
            )
            return
        line = self._line
        if line is None:
            return  # couriers send again
        try:
            with self._writing:
                line.write(sender, bytes(message.payload))
        except OSError:
            self._hang_up(line)

    def _carry(self) -> None:
        """Packets of the program go out; a program that is away is waited for."""
        while not self._over.is_set():
            line = None
            try:
                self._line = line = dialled(self._folder)
                while True:
                    self._send(*line.read())
            except (OSError, EOFError):
                self._hang_up(line)
                self._over.wait(AGAIN)

    def _send(self, receiver: str, packet: bytes) -> None:
        if (cell := self._cells.get(receiver)) is None:
            return
        try:
            self._core.fire_and_forget(CHANNEL, TOPIC, cell, Message({}, packet), optional=True)
        except Exception as error:  # couriers send again
            LOG.warning("a packet to %s is lost: %s: %s", receiver, type(error).__name__, error)

    def _hang_up(self, line: SocketLine | None) -> None:
        if line is not None:
            if self._line is line:
                self._line = None
            line.close()
