"""Flows that tests run in processes of their own, which need not import the tests for it."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
import torch

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.flow import Batch, Flow, compute
from fedcircuits.tables.table import Table
from fedcircuits.testing.trials import hear, say


def greet(me: str, others: list[str]) -> Flow[list[Any]]:
    """Everybody to everybody."""
    for other in others:
        yield from say(other, "greet/name", me)
    found = []
    for other in others:
        found.append((yield from hear(other, "greet/name")))
    return found


def pass_on(before: str, after: str, first: bool) -> Flow[int]:
    """A number around the ring, one more at every party."""
    if first:
        yield from say(after, "ring/number", 1)
    number = yield from hear(before, "ring/number")
    assert isinstance(number, int)
    if not first:
        yield from say(after, "ring/number", number + 1)
    return number


def killed(to: str, by: int) -> Flow[None]:
    yield from compute("sorting rows", partial(int, 7))
    yield from say(to, "killed/word", "still here")
    yield from compute("learning cluster 3", partial(_end, by))


def _end(by: int) -> None:
    if by:
        os.kill(os.getpid(), by)
        time.sleep(10)
    os._exit(3)


def hear_all(sender: str, tags: list[str]) -> Flow[list[str]]:
    """The kind of every message, or who is lost and the text."""
    found = []
    for tag in tags:
        try:
            found.append(str((yield from hear(sender, tag))))
        except PartyLostError as lost:
            found.append(f"{lost.party}|{lost}")
    return found


def sleep(seconds: float) -> Flow[None]:
    yield from compute("sleeping", partial(time.sleep, seconds))


def sleep_until(mark: Path) -> Flow[None]:
    yield from compute("sleeping", partial(_wait_for, mark))


def _wait_for(mark: Path) -> None:
    while not mark.exists():
        time.sleep(0.02)


def hear_and_mark(sender: str, tag: str, mark: Path) -> Flow[list[str]]:
    found = yield from hear_all(sender, [tag])
    yield from compute("marking", mark.touch)
    return found


def interrupt(parent: int) -> Flow[None]:
    yield from compute("interrupting", partial(os.kill, parent, signal.SIGINT))
    yield from compute("sleeping", partial(time.sleep, 60))


def tell_process() -> Flow[tuple[int, int, list[int]]]:
    """Its number, and the threads of torch and of the libraries for linear algebra."""
    yield from ()
    pools = [int(p["num_threads"]) for p in threadpoolctl.threadpool_info()]
    return os.getpid(), torch.get_num_threads(), pools


def look(table: Table, array: Array, tensor: torch.Tensor) -> Flow[tuple[float, bool, float, str]]:
    """Whether arguments arrive, and arrays without a copy: they do not own their memory."""
    yield from ()
    owned = array.base is None
    return float(table.values.sum()), owned, float(tensor.sum()), str(tensor.dtype)


def unsendable(where: str) -> Flow[object]:
    made = yield from compute("making a function", _function if where == "step" else float)
    return made if where == "step" else _function()


def _function() -> object:
    return lambda: 0


class Bomb:
    """Opened by pickle, it runs a command."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.system, (f"touch {self.path}",)


def plant(path: str, where: str) -> Flow[object]:
    made = yield from compute("building", partial(Bomb, path) if where == "step" else float)
    return made if where == "step" else [Bomb(path)]


def babble(data: bytes) -> Flow[None]:
    """Writes to the line of its process what is no frame."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), data)
    yield from compute("sleeping", partial(time.sleep, 60))


def learned(learner: Any, rows: Array) -> Flow[object]:
    """What a learner of another package has become."""
    return (yield from compute("learning", partial(learner.fit, rows)))


def read_to_the_end() -> Flow[None]:
    """An error that an engine might take for its own."""
    yield from compute("reading a file", _end_of_file)


def _end_of_file() -> None:
    raise EOFError("file of patient 4711")


def likelihood(table: Array) -> Flow[Array]:
    """The compiled kernels, in every process."""
    from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
    from fedcircuits.circuits.graph.parameters import Parameters
    from fedcircuits.circuits.questions.distribution import Distribution
    from fedcircuits.tables.schema import Schema

    circuit = Circuit((Leaf("x", "gaussian", ("x",), 2), Sum("root", ("x",))), Schema.real(["x"]))
    normal = {"mean": np.array([[0.0], [1.0]]), "variance": np.ones((2, 1))}
    parameters = Parameters({"x": normal, "root": {"weight": np.array([[0.5, 0.5]])}})
    found = yield from compute(
        "asking", partial(Distribution(circuit, parameters).log_likelihood, table)
    )
    return found


@dataclass(frozen=True)
class Doubling:
    """Work that several parties may have done at once."""

    number: int

    def __call__(self) -> tuple[int, int]:
        if self.number < 0:
            raise ValueError("negative")
        return 2 * self.number, 1


def doubled(works: Sequence[Doubling]) -> list[tuple[int, int]]:
    """Of all parties at once: with the number of parties."""
    return [(work()[0], len(works)) for work in works]


def work(job: Doubling, batch: Batch | None) -> Flow[tuple[int, int]]:
    return (yield from compute("doubling", job, batch))
