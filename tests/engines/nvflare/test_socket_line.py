"""Packets on the socket between a member's program and NVFlare's job process."""

from __future__ import annotations

import stat
from pathlib import Path
from threading import Thread

import pytest

from fedcircuits.engines.nvflare.socket_line import SOCKET, SocketLine, dialled, listening


@pytest.mark.parametrize("depth", [0, 5])
def test_packets_pass_whole_and_in_order(tmp_path: Path, depth: int) -> None:
    """Also in a folder whose path is too long for the address of a socket."""
    folder = tmp_path.joinpath(*["a folder with a long name"] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    packets = [("north", b""), ("süd", b"x"), ("west", bytes(range(256)) * 5000)]
    with listening(folder) as server:
        assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600
        line = dialled(folder)
        other = SocketLine(server.accept()[0])
        writer = Thread(target=lambda: [line.write(*packet) for packet in packets])
        writer.start()
        assert [other.read() for _ in packets] == packets
        writer.join()
        line.close()
        with pytest.raises(EOFError):
            other.read()
        other.close()


def test_one_program_listens_at_a_time(tmp_path: Path) -> None:
    with listening(tmp_path), pytest.raises(OSError, match="in use"):
        listening(tmp_path)
    with listening(tmp_path):  # what a killed program has left behind is no hindrance
        dialled(tmp_path).close()
    with pytest.raises(OSError):
        dialled(tmp_path)


def test_a_line_closed_at_this_end_has_ended_for_who_reads_it(tmp_path: Path) -> None:
    """A reader that meets any other error would not dial again."""
    with listening(tmp_path) as server:
        line = dialled(tmp_path)
        other = SocketLine(server.accept()[0])
        other.write("north", b"x")
        line.close()
        with pytest.raises(EOFError):
            line.read()
        other.close()
