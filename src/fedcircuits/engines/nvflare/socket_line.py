"""Packets between a member's program and NVFlare's job process beside it, on a local socket.

    length of the name (2 bytes), length of the packet (4 bytes), name, packet

The name is that of the other member: the receiver for outgoing packets, the sender for incoming
ones. The socket is in NVFlare's workspace; only its user may open it.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

SOCKET = "fedcircuits.sock"
LONGEST = 100  # bytes of a path that every system takes as the address of a socket
HEAD = struct.Struct("<HI")


class SocketLine:
    """One end of a connection; writers must hold a lock."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = connection.makefile("rb", buffering=1 << 16)

    def write(self, name: str, packet: bytes) -> None:
        words = name.encode()
        self.connection.sendall(HEAD.pack(len(words), len(packet)) + words + packet)

    def read(self) -> tuple[str, bytes]:
        """The next one; EOFError when either end has closed."""
        name, size = HEAD.unpack(self._exactly(HEAD.size))
        return self._exactly(name).decode(), self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        try:
            data: bytes = self._reader.read(size)
        except ValueError:  # closed here, by a thread whose write has failed
            data = b""
        if len(data) < size:
            raise EOFError("the connection is closed")
        return data

    def close(self) -> None:
        with suppress(OSError):  # wakes up the reader
            self.connection.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self.connection.close()


def dialled(folder: Path) -> SocketLine:
    """A connection to the member's program; OSError if it does not run."""
    connection = socket.socket(socket.AF_UNIX)
    with _Address(folder) as address:
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
    return SocketLine(connection)


def listening(folder: Path) -> socket.socket:
    """A socket for future job processes; OSError if another program listens there already."""
    made = socket.socket(socket.AF_UNIX)
    try:
        dialled(folder).close()
    except OSError:
        (folder / SOCKET).unlink(missing_ok=True)  # left by a program that was killed
    with _Address(folder) as address:
        try:
            made.bind(address)
        except OSError:
            made.close()
            raise
    (folder / SOCKET).chmod(0o600)  # before it listens
    made.listen()
    return made


class _Address:
    """The address of the socket in a folder; a path that is too long uses an open folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open = folder, -1

    def __enter__(self) -> str:
        path = str(self.folder / SOCKET)
        if len(os.fsencode(path)) <= LONGEST:
            return path
        self.open = os.open(self.folder, os.O_RDONLY)
        return f"/proc/self/fd/{self.open}/{SOCKET}"

    def __exit__(self, *_: object) -> None:
        if self.open >= 0:
            os.close(self.open)
