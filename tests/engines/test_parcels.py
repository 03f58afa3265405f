"""What comes back from a party's process: it runs nothing, and takes no room before it has come."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from socket import SHUT_WR, socketpair

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from fedcircuits.engines import process
from fedcircuits.engines.process import parcels
from fedcircuits.engines.process.parcels import SIZES, STEP, Line
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Program
from tests.engines import flows


@pytest.mark.parametrize("where", ["step", "result"])
def test_what_a_party_returns_runs_nothing(tmp_path: Path, where: str) -> None:
    """It was unpickled in the caller, and ran a command there."""
    mark = tmp_path / "planted"
    outcome = process.run({"a": Program(flows.plant, {"path": str(mark), "where": where})})
    assert "it holds posix.system, and nothing passed to this run" in str(outcome.lost["a"])
    assert not mark.exists() and not outcome.results


FORBIDDEN = [
    ("os", "system"), ("builtins", "eval"), ("builtins", "getattr"), ("functools", "partial"),
    ("operator", "attrgetter"), ("subprocess", "Popen"), ("antigravity", "webbrowser"),
    ("tests.engines.flows", "partial"), ("tests.engines.flows", "_end"), ("numpy", "load"),
    ("tests.engines.flows", "Doubling.__init__.__globals__"), ("torch", "load"),
    ("fedcircuits.engines.process.parcels", "SharedMemory"), ("fedcircuits.datasets", "load"),
    ("fedcircuits.federation.flow", "broadcast"), ("fedcircuits.tables.readers", "read"),
]  # fmt: skip


def named(module: str, name: str) -> bytes:
    """A pickle of whatever has this name."""
    parts = (b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    return b"\x80\x04" + b"".join(parts) + b"\x93."


@pytest.mark.parametrize(("module", "name"), FORBIDDEN)
def test_nothing_but_trusted_classes_is_made(module: str, name: str) -> None:
    with pytest.raises(ProtocolError):
        parcels.unpack(parcels.PICKLED, named(module, name), {"tests"})


def test_trusted_classes_are_made() -> None:
    data = named("tests.engines.flows", "Doubling")
    assert parcels.unpack(parcels.PICKLED, data, {"tests"}) is flows.Doubling
    with pytest.raises(ProtocolError, match=r"trusted=.'tests',."):
        parcels.unpack(parcels.PICKLED, data, {"sklearn"})


def test_learners_of_other_packages_come_back() -> None:
    """The caller has handed in one, so it trusts the package."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    given = {"learner": GaussianMixture(2, random_state=0), "rows": rows}
    found = process.run({"a": Program(flows.learned, given)}).results["a"]
    assert isinstance(found, GaussianMixture)
    np.testing.assert_array_equal(found.means_, GaussianMixture(2, random_state=0).fit(rows).means_)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (SIZES.pack(4, 2**60) + b'["x"', "a frame of 4 + 1,152,921,504,606,846,976 bytes"),
        (SIZES.pack(2**32 - 1, 0), "a frame of 4,294,967,295 + 0 bytes"),
        (SIZES.pack(4, 0) + b"\xff\xfe{]", "a frame whose head is no list in JSON"),
        (SIZES.pack(4, 0) + b"1.25", "a frame whose head is no list in JSON"),
        (SIZES.pack(3, 0) + b"[1]", "a frame whose head begins with no word"),
        (SIZES.pack(8, 0) + b'["kept"]', "'kept' with 0 fields, which nobody says"),
        (SIZES.pack(21, 0) + b'["mail","x","a/b",""]', "mail for 'x', which is not a party"),
    ],
)
def test_frames_that_are_none(data: bytes, problem: str) -> None:
    outcome = process.run({"a": Program(flows.babble, {"data": data})})
    assert problem in str(outcome.lost["a"]) and outcome.lost["a"].party == "a"


def test_room_is_made_for_what_has_come() -> None:
    ours, theirs = socketpair()
    with ours, theirs:
        theirs.sendall(SIZES.pack(5, 2**39) + b'["x"]')
        theirs.shutdown(SHUT_WR)
        tracemalloc.start()
        with pytest.raises(EOFError):
            Line(ours).receive()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3 * STEP
