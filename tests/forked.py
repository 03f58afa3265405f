"""Programs that start without loading the libraries again, which takes seconds of each.

A server loads the library once for a worker of the tests. It is asked for a program by words as
Python takes them, and forks one: a process of its own, with the folder, the environment and the
three streams of the one who asks. ``python(…)`` are the words that ask; what they start ends with
the program, with its exit code or by its signal, and kills it when it is killed itself.

Programs that start from nothing are tested by themselves: test_light.py, test_release.py,
test_cli.py, test_demo.py and test_users.py.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
PASSED_ON = (signal.SIGINT, signal.SIGTERM)
LIBRARY = ("fedcircuits.engines.process.preload", "fedcircuits.app.cli", "fedcircuits.app.analyst")


def python(*words: object) -> list[str]:
    """A command like ``python *words``."""
    if not hasattr(os, "pidfd_open"):
        return [sys.executable, *map(str, words)]
    return [sys.executable, "-ISB", __file__, "ask", address(), *map(str, words)]


@cache
def address() -> str:
    """Where the server of this process listens; it ends with this process."""
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "programs")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", "serve", path],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.read() == b"ready"
    server.stdout.close()

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return path


# ---------------------------------------------------------------------- who asks


def ask(path: str, words: list[str]) -> NoReturn:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: connection.send(b"%d" % number))
    about = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(connection, [json.dumps(about).encode()], [0, 1, 2])
    for stream in range(3):  # the program has them: a reader hears when it ends
        os.close(stream)
    code = int(connection.recv(16) or 1)
    if code < 0:
        with suppress(OSError):  # of one that nobody can catch
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# ---------------------------------------------------------------------- who forks


def serve(path: str) -> list[str]:
    """Returns in each of the programs, with its words."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"ready")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return begin(connection)
        connection.close()


def begin(connection: socket.socket) -> list[str]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 2**20, 3)
    if program := os.fork():
        for number in (*streams, 0, 2):
            os.close(number)
        keep(connection, program)
    connection.close()
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    about = json.loads(message)
    os.chdir(about["folder"])
    os.environ.clear()
    os.environ.update(about["environment"])
    words: list[str] = about["words"]
    return words


def keep(connection: socket.socket, program: int) -> NoReturn:
    """Passes signals on to the program, and says how it has ended."""
    process, heard = os.pidfd_open(program), [connection]
    while process not in (ready := select.select([process, *heard], [], [])[0]):
        assert ready == heard
        number = connection.recv(16)
        if not number:
            heard = []
        signal.pidfd_send_signal(process, int(number or signal.SIGKILL))
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    if heard:
        connection.send(b"%d" % code)
    os._exit(0)


def run(words: list[str]) -> None:
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2], sys.argv[3:])
    for name in LIBRARY:
        __import__(name)
    run(serve(sys.argv[2]))
