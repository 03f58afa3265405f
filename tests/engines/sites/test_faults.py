"""Sites that die and come back, are cut off, or never join: the same result, or an error with a
name."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.station import Head
from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FederationError, PartyLostError, SiteError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.methods.fedpc import training
from tests.engines.sites.links import Relay
from tests.engines.sites.local import LocalSites, Watch
from tests.engines.sites.striking import Striking, phase_of

RNG = np.random.default_rng(0)
LATENT = RNG.normal(size=(60, 1))
TABLE = fc.Table.of(LATENT + RNG.normal(size=(60, 4)))
OPEN = Policy()
SMALL: dict[str, Any] = {"random_state": 0, "clusters": 2, "ensemble": 1}
METHODS: dict[str, dict[str, Any]] = {
    "em": {**SMALL, "refine": 2},
    "secret em": {**SMALL, "summation": fc.Secret(), "refine": 2},
}


def local() -> fc.Federation:
    return fc.split(TABLE, 3, by="columns")


def started(folder: Path, **settings: Any) -> LocalSites:
    return LocalSites({p.name: p for p in local()}, folder, policy=OPEN, **settings)


def one_of_each(phases: Sequence[str]) -> list[str]:
    """The last of every kind, in order: rounds, and members that it speaks of, differ by a
    number."""
    last = {re.sub(r"\d+", "", phase): (at, phase) for at, phase in enumerate(phases)}
    return [phase for _, phase in sorted(last.values())]


def crossed(model: fc.FedPC) -> list[str]:
    return sorted(map(str, model.ledger_.entries))


@pytest.mark.parametrize("method", ["em", "secret em"])
def test_a_site_that_is_killed_in_any_phase_and_started_again_goes_on(
    tmp_path: Path, method: str
) -> None:
    """Every third phase of all in one run: it comes back several times."""

    def trained(name: str, at: Sequence[str]) -> tuple[fc.FedPC, Striking]:
        watch = Striking("party 2", at)
        watch.sites = sites = started(tmp_path / name, watch=watch)
        model = fc.FedPC(**METHODS[method]).fit(sites.federation())
        assert not watch.at, f"{watch.at} was never done"
        return model, watch

    undisturbed, watch = trained("undisturbed", [])
    phases = one_of_each(watch.done)
    assert len(phases) > 6
    expected = fc.FedPC(**METHODS[method]).fit(local()).score_samples(TABLE)
    assert np.array_equal(undisturbed.score_samples(TABLE), expected)
    for first in range(3):
        model, watch = trained(str(first), phases[first::3])
        assert crossed(model) == crossed(undisturbed), phases[first::3]
        assert np.array_equal(model.score_samples(TABLE), expected), phases[first::3]
        watch.sites.close()


def test_a_site_that_is_killed_while_it_is_asked_answers(tmp_path: Path) -> None:
    watch = Striking("party 2", [])
    watch.sites = sites = started(tmp_path, watch=watch)
    model = fc.FedPC(**SMALL).fit(sites.federation())
    expected = model.score_samples(TABLE)
    for phase in ("ready", "evaluating its leaves", "query/values", "result"):
        watch.at = [phase]
        assert np.array_equal(model.score_samples(TABLE), expected)
        assert not watch.at


def test_a_caller_that_is_stopped_in_any_phase_goes_on(tmp_path: Path) -> None:
    """By whoever holds its terminal; the sites live on."""
    phases, at, settings = list[str](), list[str](), METHODS["secret em"]

    def watch(site: str, head: Head) -> None:
        if site == "party 2" and (phase := phase_of(head)) is not None:
            phases.append(phase)
            if at and phase == at[0]:
                at.pop()
                os.kill(os.getpid(), signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    federation = started(tmp_path, watch=watch).federation()
    expected = fc.FedPC(**settings).fit(federation).score_samples(TABLE)
    for phase in one_of_each(phases):
        if phase in ("result", "query/values", "evaluating its leaves"):
            continue  # of a question, or too late
        at.append(phase)
        model = fc.FedPC(**settings)
        with pytest.raises(KeyboardInterrupt):
            model.fit(federation)
        model.fit(federation, resume=True)
        assert np.array_equal(model.score_samples(TABLE), expected), phase


def test_a_caller_that_is_cut_off_says_of_whom_and_goes_on_later(tmp_path: Path) -> None:
    watch: Watch = lambda site, head: (  # noqa: E731
        sites.couriers[CALLER].__setattr__("link", None)
        if phase_of(head) == "count/sizes" and site == "party 2"
        else None
    )
    sites = started(tmp_path, patience=2.0, watch=watch)
    model = fc.FedPC(**SMALL)
    with pytest.raises(PartyLostError, match=r"party \d is silent"):
        model.fit(sites.federation())
    sites.watch = lambda site, head: None
    sites.remote = sites.connect(60.0)  # another line, the same store
    model.fit(sites.federation(), resume=True)
    expected = fc.FedPC(**SMALL).fit(local()).score_samples(TABLE)
    assert np.array_equal(model.score_samples(TABLE), expected)


def test_a_run_does_not_go_on_with_rows_that_have_changed(tmp_path: Path) -> None:
    watch: Watch = lambda site, head: (  # noqa: E731
        sites.couriers[CALLER].__setattr__("link", None)
        if phase_of(head) == "count/sizes" and site == "party 2"
        else None
    )
    sites = started(tmp_path, patience=1.0, watch=watch)
    model = fc.FedPC(**SMALL)
    with pytest.raises(PartyLostError):
        model.fit(sites.federation())
    sites.watch = lambda site, head: None
    rows = sites.sites["party 2"]
    assert rows is not None
    values = rows.table.values.copy()
    values[7, 0] += 0.5
    sites.sites["party 2"] = Party("party 2", replace(rows.table, values=values))
    sites.restart("party 2")
    sites.remote = sites.connect(60.0)
    with pytest.raises(PartyLostError, match=r"party 2 .*the rows of this site have changed since"):
        model.fit(sites.federation(), resume=True)
    sites.sites["party 2"] = rows
    sites.restart("party 2")
    model.fit(sites.federation(), resume=True)
    expected = fc.FedPC(**SMALL).fit(local()).score_samples(TABLE)
    assert np.array_equal(model.score_samples(TABLE), expected)


def test_a_site_that_never_joins_is_named(tmp_path: Path) -> None:
    sites = started(tmp_path)
    federation = sites.federation()
    sites.kill("party 3")
    sites.remote.patience = 2.0
    with pytest.raises(PartyLostError, match="party 3 is silent") as error:
        fc.FedPC(**SMALL).fit(federation)
    assert error.value.party == "party 3"
    with pytest.raises(PartyLostError, match="party 3 has not answered for 1 s"):
        sites.remote.describe_all(1.0)


def test_a_site_that_is_busy_when_a_run_begins_is_not_given_up(tmp_path: Path) -> None:
    """As one that loads modules or reads its data: it takes packets, and says nothing."""
    sites = started(tmp_path, patience=3.0)
    federation, model = sites.federation(), fc.FedPC(**SMALL)
    fit = Thread(target=model.fit, args=(federation,))
    with sites.stations["party 3"]._lock:
        fit.start()
        fit.join(4.0)
        assert fit.is_alive()  # neither lost nor done
    fit.join()
    expected = fc.FedPC(**SMALL).fit(local()).score_samples(TABLE)
    assert np.array_equal(model.score_samples(TABLE), expected)


def test_mail_that_cannot_be_written_down_is_not_read(tmp_path: Path) -> None:
    """Else a run that goes on could be told something else, and answer under the same masks."""
    sites = started(tmp_path)
    station = sites.stations["party 1"]
    folder = Store(tmp_path / "party 1").run("odd", "party 1")
    folder.open(b"", False)
    about = {"party 1": "party 1", CALLER: CALLER}, Program(training.client, {}), {}, 1, 1.0, ""
    seat = station.seat("odd", "party 1", *about, folder)
    assert seat.inbox is not None
    seat.put(CALLER, 0, "first", b"1")
    seat.inbox._file.close()
    seat.inbox._file = Full()  # type: ignore[assignment]
    with pytest.raises(SiteError, match="its disk is full"):
        seat.put(CALLER, 1, "second", b"2")
    assert seat.mail.received(CALLER) == 1


class Full(io.BytesIO):
    """A file on a disk that has no room."""

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, "no room")


@pytest.mark.parametrize("method", ["em", "secret em"])
def test_messages_that_are_lost_doubled_late_and_reordered_change_nothing(
    tmp_path: Path, method: str
) -> None:
    sites = started(tmp_path, relay=Relay(0.15))
    model = fc.FedPC(**METHODS[method]).fit(sites.federation())
    expected = fc.FedPC(**METHODS[method]).fit(local())
    assert np.array_equal(model.score_samples(TABLE), expected.score_samples(TABLE))
    assert crossed(model) == crossed(expected)


def test_a_site_whose_columns_mean_something_else_is_named(tmp_path: Path) -> None:
    parties = {p.name: p for p in local()}
    odd = {"x0": ["low", "high"] * 30, "x9": [1.5, 2.0] * 30}
    parties["party 3"] = Party("party 3", fc.Table.of(odd))
    sites = LocalSites(parties, tmp_path, policy=OPEN)
    with pytest.raises(
        FederationError, match=r"'x0' is a real at party 2 and a category .* at party 3"
    ):
        sites.federation()


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own is mounted by root alone")
@pytest.mark.parametrize("size", ["8k", "12k", "24k"])
def test_a_full_disk_at_a_site_is_named_and_mended(tmp_path: Path, size: str) -> None:
    disk = tmp_path / "party 2"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        sites = started(tmp_path)
        federation = sites.federation()
        model = fc.FedPC(**SMALL)
        with pytest.raises(PartyLostError, match=r"party 2 .* its disk is full") as error:
            model.fit(federation)
        assert error.value.party == "party 2"
        again = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(again, capture_output=True, check=True)
        model.fit(federation, resume=True)
        expected = fc.FedPC(**SMALL).fit(local()).score_samples(TABLE)
        assert np.array_equal(model.score_samples(TABLE), expected)
        sites.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_two_trainings_at_once_are_those_apart(tmp_path: Path) -> None:
    federation = started(tmp_path).federation()
    models = [fc.FedPC(random_state=seed) for seed in (0, 1)]
    threads = [Thread(target=model.fit, args=(federation,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, model in enumerate(models):
        alone = fc.FedPC(random_state=seed).fit(local())
        assert np.array_equal(model.score_samples(TABLE), alone.score_samples(TABLE))
