"""Frames between a party's process and the one that started it: a head and a body.

    to the party     start  sizes, block, members, threads, time-out   body: its program, kept work
                     mail   sender, tag                                body: the message
                     gone   party, reason                              no message of it will follow
    from the party   ready                                             its program is unpacked
                     mail   receiver, tag, reveals                     body: the message
                     at     step                                       what it does now
                     tell   phase, round, rounds, likelihood           how far a loop is
                     kept   name, form                                 body: the result of a step
                     result form                                       body: what its flow returned
                     failed party, text, text for others, places in the code

Heads are JSON, so that the process in between routes messages without decoding them. Memory is
allocated for what has arrived, not for what the other end announces.
"""

from __future__ import annotations

import json
import struct
from socket import socket
from threading import Lock
from typing import cast

from fedcircuits.errors import ProtocolError

Field = str | int | float | list[str] | list[int]
SIZES = struct.Struct("<IQ")  # of head and body
SMALL = 1 << 16  # bytes up to which copying is cheaper than another call
HEAD, BODY = 1 << 24, 1 << 40  # bytes at most
STEP = 1 << 26  # bytes for which there is room before they have come


class Line:
    """One end of a connection that several threads write to and one reads."""

    def __init__(self, connection: socket) -> None:
        self._connection, self._lock = connection, Lock()

    def send(self, kind: str, *fields: Field, body: bytes | memoryview = b"") -> None:
        head = json.dumps([kind, *fields]).encode()
        start = SIZES.pack(len(head), len(body)) + head
        with self._lock:
            if len(body) <= SMALL:
                self._connection.sendall(start + body)
            else:
                self._connection.sendall(start)
                self._connection.sendall(body)

    def receive(self) -> tuple[str, list[Field], memoryview]:
        """The next frame; EOFError or OSError if the other end is gone, ProtocolError for anything
        that is not a frame."""
        head, body = SIZES.unpack(self._exactly(SIZES.size))
        if head > HEAD or body > BODY:
            raise ProtocolError(
                f"a frame of {head:,} + {body:,} bytes, at most {HEAD:,} + {BODY:,}"
            )
        kind, fields = _read(self._exactly(head))
        return kind, fields, self._exactly(body)

    def _exactly(self, size: int) -> memoryview:
        room, at = bytearray(), 0
        while at < size:
            room += bytes(min(size, at + STEP) - at)
            with memoryview(room) as view:
                while at < len(room):
                    got = self._connection.recv_into(view[at:])
                    if not got:
                        raise EOFError("the other process is gone")
                    at += got
        return memoryview(room).toreadonly()

    def close(self) -> None:
        self._connection.close()


def _read(head: memoryview) -> tuple[str, list[Field]]:
    try:
        kind, *fields = json.loads(bytes(head))
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("a frame whose head is no list in JSON") from None
    if not isinstance(kind, str):
        raise ProtocolError("a frame whose head begins with no word")
    return kind, cast(list[Field], fields)
