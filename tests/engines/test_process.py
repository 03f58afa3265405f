"""The process engine: the laws of engines, parties that die, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcircuits.engines import memory, process
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Program
from fedcircuits.federation.sums.collectives import TreeSum
from fedcircuits.federation.sums.topology import star
from fedcircuits.tables.table import Table
from fedcircuits.testing import check_engine, check_summation
from tests.engines import flows
from tests.forked import python

SHARED = Path("/dev/shm")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No process and no shared memory of this test's runs."""
    handles = len(os.listdir("/proc/self/fd"))
    yield
    assert not multiprocessing.active_children()
    assert not list(SHARED.glob(f"fedcircuits-{os.getpid()}-*"))
    assert len(os.listdir("/proc/self/fd")) <= handles + 4  # those of the server, once


def hub_of(me: str, members: tuple[str, ...]) -> TreeSum:
    return TreeSum(me, star(members, members[-1]))


def test_keeps_every_law() -> None:
    check_engine(process.run)


def test_sums() -> None:
    check_summation(hub_of, process.run)


@pytest.mark.parametrize(("by", "code"), [(0, 3), (signal.SIGKILL, -9)])
def test_a_process_that_dies(by: int, code: int) -> None:
    tags = ["killed/word", "killed/other", "killed/third"]
    programs: dict[str, Program[Any]] = {
        "a": Program(flows.killed, {"to": "b", "by": int(by)}),
        "b": Program(flows.hear_all, {"sender": "a", "tags": tags}),
    }
    outcome = process.run(programs)
    death = f"a died while learning cluster 3 (exit code {code})"
    assert str(outcome.lost["a"]) == death and outcome.lost["a"].party == "a"
    heard = [f"a|b waits for {tag!r} from a: a is lost ({death})" for tag in tags[1:]]
    assert outcome.results == {"b": ["still here", *heard]}
    assert outcome.kept == {("a", "sorting rows"): 7}


def test_a_sender_that_keeps_silent(tmp_path: Path) -> None:
    mark = tmp_path / "given up"
    programs: dict[str, Program[Any]] = {
        "a": Program(flows.sleep_until, {"mark": mark}),
        "b": Program(flows.hear_and_mark, {"sender": "a", "tag": "x/y", "mark": mark}),
    }
    outcome = process.run(programs, timeout=0.25)
    text = "a|b waits for 'x/y' from a: it is running but has sent nothing for 0.25 s"
    assert outcome.results == {"a": None, "b": [text]} and not outcome.lost


def test_two_that_wait_for_each_other() -> None:
    programs = {
        me: Program(flows.hear_all, {"sender": other, "tags": ["x/y"]})
        for me, other in (("a", "b"), ("b", "a"))
    }
    outcome = process.run(programs, timeout=0.25)
    assert all("waits for 'x/y'" in heard[0] for heard in outcome.results.values())


def test_an_error_like_those_of_the_line() -> None:
    outcome = process.run({"a": Program(flows.read_to_the_end, {})})
    assert str(outcome.lost["a"]) == "a failed while reading a file: EOFError"
    assert any("flows.py" in note for note in outcome.lost["a"].__notes__)
    assert "4711" not in "".join(outcome.lost["a"].__notes__)


def test_sixteen_parties() -> None:
    names = [f"party {i}" for i in range(16)]
    programs = {
        me: Program(flows.greet, {"me": me, "others": [o for o in names if o != me]})
        for me in names
    }
    outcome = process.run(programs)
    assert list(outcome.results) == names and len(outcome.ledger) == 16 * 15
    for me, found in outcome.results.items():
        assert found == [o for o in names if o != me]


def test_processes_of_their_own_that_share_the_cores() -> None:
    outcome = process.run({me: Program(flows.tell_process, {}) for me in "abc"})
    numbers = {number for number, _, _ in outcome.results.values()}
    assert len(numbers | {os.getpid()}) == 4
    fair = max(1, torch.get_num_threads() // 3)
    for _, threads, pools in outcome.results.values():
        assert threads == fair and all(p <= fair for p in pools)


def test_arguments_cross_through_shared_memory() -> None:
    rng = np.random.default_rng(0)
    table = Table.of(rng.normal(size=(50, 3)))
    array, tensor = rng.normal(size=100_000), torch.arange(5.0)
    arguments = {"table": table, "array": array, "tensor": tensor}
    found = process.run({"a": Program(flows.look, arguments)}).results["a"]
    assert found == (float(table.values.sum()), False, 10.0, "torch.float32")


def test_kernels_in_every_process() -> None:
    table = np.linspace(-1, 1, 100)[:, None]
    programs = {me: Program(flows.likelihood, {"table": table}) for me in "abc"}
    found, expected = process.run(programs).results, memory.run(programs).results
    for me in "abc":
        np.testing.assert_array_equal(found[me], expected[me])


def test_a_program_that_cannot_be_sent() -> None:
    def local() -> Any:
        yield from ()

    with pytest.raises(ProtocolError, match="program of b cannot be sent to a process"):
        good = Program(flows.look, {"table": np.ones(10), "array": 0, "tensor": 0})
        process.run({"a": good, "b": Program(local, {})})


@pytest.mark.parametrize(
    ("where", "what"), [("step", "'making a function'"), ("result", "its result")]
)
def test_a_value_that_cannot_be_sent(where: str, what: str) -> None:
    outcome = process.run({"a": Program(flows.unsendable, {"where": where})})
    assert what in str(outcome.lost["a"]) and "cannot leave the process" in str(outcome.lost["a"])


def test_a_program_with_wrong_arguments() -> None:
    program: Program[None] = Program(flows.sleep, {"minutes": 1})
    for run in (memory.run, process.run):
        lost = run({"a": program}).lost["a"]
        assert str(lost) == "a failed while its first step: TypeError"


def test_interruption_ends_everybody() -> None:
    began = time.monotonic()
    programs = {
        "a": Program(flows.interrupt, {"parent": os.getpid()}),
        "b": Program(flows.sleep, {"seconds": 120}),
    }
    with pytest.raises(KeyboardInterrupt):
        process.run(programs)
    assert time.monotonic() - began < 100


SCRIPT = """
import os
from pathlib import Path
from fedcircuits.engines import process
from fedcircuits.federation.flow import Program, compute

def forever():
    import time
    yield from compute("telling", lambda: print(os.getpid(), flush=True))
    yield from compute("sleeping", lambda: time.sleep(60))

mark = Path("guarded")
if not mark.exists():
    print(process.run({"a": Program(forever, {})}).lost["a"], flush=True)
if __name__ == "__main__":
    mark.touch()
    process.run({"a": Program(forever, {})})
"""


def test_scripts(tmp_path: Path) -> None:
    """One without guard is told so; parties end when the process that started them is killed."""
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        python(tmp_path / "script.py"),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None and script.stderr is not None
        told, number = script.stdout.readline(), int(script.stdout.readline())
        script.kill()
        assert "Traceback" not in script.stderr.read()  # one line, and not one a party
    assert "a died while being started (exit code 1)" in told and "__main__" in told
    deadline = time.monotonic() + 60
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < deadline, f"process {number} lives on"
        time.sleep(0.05)
