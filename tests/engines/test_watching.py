"""What is told of a training while it goes on: by every engine, and to whom."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.watching import Progress, Watch, size_words
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Tell
from tests.engines.live import watched_live
from tests.engines.sites.local import LocalSites
from tests.federation.cases import QUICK, mixed_table
from tests.forked import python

COLUMNS = fc.Table.of(
    np.random.default_rng(0).normal(range(4), size=(80, 4)), names=["a", "b", "c", "d"]
)
MIXTURE = fc.VerticalGaussianMixture(2, max_iter=6, tol=0.0, random_state=0)


def heard(model: Any, federation: fc.Federation, **settings: Any) -> list[Progress]:
    found: list[Progress] = []
    model.fit(federation, callback=found.append, **settings)
    return found


@pytest.mark.parametrize("engine", ["memory", "process"])
def test_every_message_round_and_party_is_told(engine: str) -> None:
    parties = fc.split(COLUMNS, ["north", "south", "west"], by="columns")
    with pytest.warns(UserWarning, match="EM has not converged"):
        found = heard(MIXTURE, parties, engine=engine)
    first, last = found[0], found[-1]
    assert first.kind == "begin" and {"north", "south", "west"} <= set(first.party.split(", "))
    assert (last.kind, last.messages) == ("end", len(MIXTURE.ledger_))
    assert last.bytes == MIXTURE.ledger_.bytes
    assert last.likelihood == MIXTURE.lower_bounds_[-1]
    rounds = [p for p in found if p.kind == "round" and p.phase == "em" and p.party == "north"]
    assert [p.round for p in rounds] == [1, 2, 3, 4, 5, 6] and {p.rounds for p in rounds} == {6}
    assert [p.likelihood for p in rounds] == list(MIXTURE.lower_bounds_)
    assert all(p.left is not None and p.left > 0 for p in rounds[1:-1])
    assert [p.left for p in found if p.kind == "round"][-1] == 0
    assert {p.party for p in found if p.kind == "done"} == set(first.party.split(", "))
    assert any(p.kind == "wait" and p.other for p in found)
    assert [p.bytes for p in found] == sorted(p.bytes for p in found)


def test_likelihoods_of_em_by_rows() -> None:
    model = fc.FedPC(QUICK, clusters=1, refine=3, random_state=0)
    parties = fc.split(mixed_table(), 2, by="rows", allow_collect=True)
    found = heard(model, parties)
    told = {p.round: p.likelihood for p in found if p.kind == "round" and p.phase == "em"}
    assert [told[t + 1] for t in range(len(told) - 1)] == list(model.history_)[: len(told) - 1]
    assert len(told) > 1
    assert {p.rounds for p in found if p.kind == "round" and p.phase == "learn"} == {1}


def test_at_sites_the_caller_hears_what_comes_to_it(tmp_path: Path) -> None:
    local = fc.split(COLUMNS, 2, by="columns")
    policy = Policy(share_target=True, share_clusters=True)
    sites = LocalSites({p.name: p for p in local}, tmp_path, policy=policy).federation()
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0)
    found = heard(model, sites)
    assert (found[-1].messages, found[-1].bytes) == (len(model.ledger_), model.ledger_.bytes)
    done = next(i for i, p in enumerate(found) if p.kind == "done")
    assert any(p.kind == "message" and p.other == "coordinator" for p in found[:done])
    assert any(p.kind == "step" and p.party == "party 1" for p in found[:done])
    assert all(p.party == "coordinator" for p in found if p.kind == "round"), "sites tell nothing"


@pytest.mark.parametrize("engine", ["memory", "process"])
def test_the_dashboard_shows_a_training_while_it_goes_on(engine: str, tmp_path: Path) -> None:
    """At sites, Ray and NVFlare: tests of these engines do the same."""
    parties = fc.split(COLUMNS, 2, by="columns")
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0)
    watched_live(lambda callback: model.fit(parties, engine=engine, callback=callback), tmp_path)


def test_a_callback_that_fails_is_not_called_again() -> None:
    calls = []

    def fails(progress: Progress) -> None:
        calls.append(progress)
        raise ValueError("no room")

    model = fc.FedPC(QUICK, clusters=1, random_state=0)
    with pytest.warns(UserWarning, match=r"the callback failed .* ValueError: no room"):
        model.fit(fc.split(COLUMNS, 2, by="rows"), callback=fails)
    assert len(calls) == 1 and "no room" in model.notes_[-1]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(FederationError, match="callback must be None or a function"):
        fc.FedPC().fit(fc.split(COLUMNS, 2, by="rows"), callback=3)  # type: ignore[arg-type]


def test_time_left() -> None:
    """Two clients with four rounds each: after three rounds in six seconds, ten more."""
    now, found = [0.0], list[Progress]()
    watch = Watch([found.append], clock=lambda: now[0])
    watch.begin(["a", "b", "coordinator"])
    watch.report("a", Tell("learn", 0, 4))
    assert found[-1].left is None
    now[0] = 6.0
    watch.report("a", Tell("learn", 3, 4))
    assert found[-1].left == pytest.approx(10.0)
    watch.report("b", Tell("learn", 4, 4, -1.5))
    assert found[-1].left == pytest.approx(6.0 / 7) and found[-1].likelihood == -1.5
    watch.report("coordinator", Tell("em", 0, 2))
    now[0] = 7.0
    watch.report("coordinator", Tell("em", 1, 2, math.nan))
    assert found[-1].left == pytest.approx(1.0) and found[-1].likelihood == -1.5
    assert found[-1].words() == "em, round 1 of 2 · coordinator · log-likelihood -1.5000"


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (2_340_000, "2.34 MB")]
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_words(size) == words


def test_training_is_logged_if_somebody_wants_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "fedcircuits"):
        fc.FedPC(QUICK, clusters=1, random_state=0).fit(fc.split(COLUMNS, 2, by="rows"))
    kinds = {r.getMessage().split()[0] for r in caplog.records if r.name == "fedcircuits.training"}
    assert {"begin", "step", "message", "round", "done", "end"} <= kinds


def members(group: int) -> list[Path]:
    """The processes of a group, where the system lists them."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((place / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                found.append(place)
    return found


TRAINING = """
import os
from fedcircuits.__main__ import main

if __name__ == "__main__":
    print(os.getpid(), flush=True)
    main()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed elsewhere")
@pytest.mark.parametrize("processes", [1, 6])
def test_ctrl_c_under_processes_is_one_line(tmp_path: Path, processes: int) -> None:
    """As a terminal sends it, to all processes at once, whatever they do: the server that parties
    are forked from loads, or three parties learn beside it and a tracker of resources."""
    rows = np.random.default_rng(0).normal(size=(60_000, 12))
    for name in ("north", "south"):
        pd.DataFrame(rows).add_prefix("x").to_parquet(tmp_path / f"{name}.parquet")
    files = ["north.parquet", "south.parquet"]
    (tmp_path / "training.py").write_text(TRAINING)
    words = ["train", *files, "--engine", "process", "-o", "model.fc"]
    command = python(tmp_path / "training.py", *words)
    process = subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    group = int(process.stdout.readline())
    while "who holds what" not in process.stdout.readline():
        assert process.poll() is None
    while len(members(group)) < processes:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(group, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "fedcircuits: stopped\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [*files, "training.py"]
