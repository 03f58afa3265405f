"""What a party's process and the one that started it say to each other: a head and a body.

    to the party     start  sizes, block, members, threads, time-out   body: its program, kept work
                     mail   sender, tag                                body: the message
                     gone   party, reason                              no message of it will follow
    from the party   ready                                             its program is unpacked
                     mail   receiver, tag, reveals                     body: the message
                     at     step                                       what it does now
                     kept   step                                       body: the result of the step
                     result                                            body: what its flow returned
                     failed party, text, places in the code

Heads are JSON, so that the process in between routes messages without looking into them.
"""

from __future__ import annotations

import json
import struct
from socket import socket
from threading import Lock

Field = str | int | float | list[str] | list[int]
SIZES = struct.Struct("<IQ")  # of head and body
SMALL = 1 << 16  # bytes up to which copying is cheaper than another call


class Line:
    """One end of a connection that several threads write to and one reads."""

    def __init__(self, connection: socket) -> None:
        self._connection, self._lock = connection, Lock()

    def say(self, kind: str, *fields: Field, body: bytes | memoryview = b"") -> None:
        head = json.dumps([kind, *fields]).encode()
        start = SIZES.pack(len(head), len(body)) + head
        with self._lock:
            if len(body) <= SMALL:
                self._connection.sendall(start + body)
            else:
                self._connection.sendall(start)
                self._connection.sendall(body)

    def hear(self) -> tuple[str, list[Field], memoryview]:
        """The next frame; EOFError or OSError if the other end is gone."""
        head, body = SIZES.unpack(self._exactly(SIZES.size))
        kind, *fields = json.loads(bytes(self._exactly(head)))
        return kind, fields, self._exactly(body)

    def _exactly(self, size: int) -> memoryview:
        room = memoryview(bytearray(size))
        at = 0
        while at < size:
            got = self._connection.recv_into(room[at:])
            if not got:
                raise EOFError("the other process is gone")
            at += got
        return room.toreadonly()

    def close(self) -> None:
        self._connection.close()
