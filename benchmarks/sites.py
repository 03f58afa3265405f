"""Engines: what a round, a large message, the start of a run and of a site cost.

    python -m benchmarks.run sites

Each engine runs the same flows. "round": two parties send each other 1 kB and wait for it, 200
times. "hub": the caller sends every site as much and waits for all, median and 95th percentile.
"100 MB": one message. "run": a run in which nothing crosses. "EM": a Gaussian mixture
over the columns of four parties, 1,000 rows and exactly 50 rounds of EM, the whole fit. On
``sites`` and ``nvflare`` every party is a program of its own that talks through a server over
mutual TLS, and shows its results to the caller, as tests have them do. Ray and NVFlare are measured
where they can be imported.

What ``sites`` adds to a message is measured by itself: sealing and opening it (courier.py), and
writing it to the inbox from which a killed site goes on (store.py).
"""

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

import fedcircuits as fc
from benchmarks.runner import Cell, Json, print_table
from fedcircuits.engines.outcome import Engine
from fedcircuits.engines.sites.courier import PART
from fedcircuits.engines.sites.files import SITE, ConsortiumFile, Kit
from fedcircuits.engines.sites.provision import provision
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.engines.sites.run_folder import Inbox
from fedcircuits.engines.sites.serving import attach
from fedcircuits.estimators.engine_choice import engine_of
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.testing import trials

SITES = ("east", "north", "south", "west")
ROUNDS, SIZE, EM_ROUNDS = 200, 100_000_000, 50
TRIAL = '[data]\npath = "data.csv"\n\n[policy]\nresults = true\n'


def run() -> list[Json]:
    torch.set_num_threads(1)
    table: list[dict[str, Cell]] = []
    for name in ("memory", "process", "ray", "sites", "nvflare"):
        if name in ("ray", "nvflare") and find_spec(name) is None:
            table.append({"engine": name})
            continue
        with started(name) as (engine, seconds):
            table.append({"engine": name, "start of sites s": seconds, **measured(engine)})
    print("\nEngines, four parties")
    print_table(table)
    added = overhead()
    print("\nWhat sites add to a message")
    print_table(added)
    return [{**row} for row in (*table, *added)]


# ---------------------------------------------------------------------- engines


@contextmanager
def started(name: str) -> Iterator[tuple[Engine, float | None]]:
    """An engine that is ready, and how long its sites took to start, if it has any."""
    if name not in ("sites", "nvflare"):
        yield engine_of(name), None
        return
    with tempfile.TemporaryDirectory() as folder:
        kits, programs = Path(folder) / "kits", list[subprocess.Popen[str]]()
        server = f"tls://127.0.0.1:{14222 if name == 'sites' else 14322}"
        provision(ConsortiumFile("benchmark", server, SITES, name), kits)
        try:
            programs.append(_program(*server_words(name, kits)))
            time.sleep(1)
            begin = time.monotonic()
            for site in SITES:
                (kits / site / SITE).write_text(TRIAL)
                pd.DataFrame({"x": [0.5, 1.5]}).to_csv(kits / site / "data.csv", index=False)
                words = (sys.executable, "-m", "fedcircuits", "site", "start", str(kits / site))
                programs.append(_program(*words, "--yes"))
            for program in programs[1:]:
                assert program.stdout is not None and "serves" in program.stdout.readline()
            seconds = time.monotonic() - begin
            remote = Remote(_place, sites=SITES, trial=True, patience=300.0)
            attach(Kit(kits / COORDINATOR), remote)
            remote.describe_all(120.0)
            yield remote, seconds
            remote.close()
        finally:
            for program in programs:
                program.terminate()
            for program in programs:
                program.wait(30)


def server_words(name: str, kits: Path) -> tuple[str, ...]:
    if name == "nvflare":
        return ("bash", str(kits / "server" / "startup" / "sub_start.sh"), "--once")
    return ("nats-server", "-c", str(kits / "server" / "nats.conf"))


def _program(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _place(party: str) -> str | None:
    return party if party in SITES else None


# ---------------------------------------------------------------------- flows


def measured(engine: Engine) -> dict[str, Cell]:
    done(engine, swapping(1))  # what is loaded once
    empty = least(
        lambda: done(engine, {name: Program(trials.keep, {"table": 0}) for name in SITES})
    )
    rounds = least(lambda: done(engine, swapping(ROUNDS)))
    programs: dict[str, Program[Any]] = {
        "east": Program(trials.give_and_change, {"to": "north", "size": SIZE // 8}),
        "north": Program(trials.weigh, {"sender": "east", "tag": "copy/array"}),
    }
    passed = least(lambda: done(engine, programs), 1)
    _em(engine, 1)
    return {
        "run ms": 1e3 * empty,
        "round ms": 1e3 * (rounds - empty) / ROUNDS,
        "100 MB s": passed,
        "MB/s": SIZE / 1e6 / passed,
        f"{EM_ROUNDS} rounds of EM s": least(partial(_em, engine, EM_ROUNDS), 2),
        **(through_hub(engine) if isinstance(engine, Remote) else {}),
    }


def through_hub(engine: Engine) -> dict[str, Cell]:
    """The caller plays a role itself, so that it can look at its clock in every round."""
    role = {"other": COORDINATOR, "payload": np.zeros(125), "rounds": ROUNDS}
    programs: dict[str, Program[Any]] = {site: Program(trials.swap, role) for site in SITES}
    programs[COORDINATOR] = Program(hub, {"rounds": ROUNDS})
    outcome = engine(programs)
    if outcome.lost:
        raise next(iter(outcome.lost.values()))
    took = sorted(outcome.results[COORDINATOR])
    return {"hub ms": 1e3 * took[ROUNDS // 2], "hub p95 ms": 1e3 * took[ROUNDS * 95 // 100]}


def hub(rounds: int) -> Flow[list[float]]:
    """Seconds of every round."""
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for site in SITES:
            yield from trials.say(site, "swap/payload", np.zeros(125))
        for site in SITES:
            yield from trials.hear(site, "swap/payload")
        took.append(time.perf_counter() - begin)
    return took


def swapping(rounds: int) -> dict[str, Program[Any]]:
    others = {"east": "north", "north": "east", "south": "west", "west": "south"}
    payload = np.zeros(125)
    return {
        me: Program(trials.swap, {"other": other, "payload": payload, "rounds": rounds})
        for me, other in others.items()
    }


def done(engine: Engine, programs: dict[str, Program[Any]]) -> None:
    outcome = engine(programs)
    if outcome.lost:
        raise next(iter(outcome.lost.values()))


def _em(engine: Engine, rounds: int) -> None:
    rng = np.random.default_rng(0)
    table = fc.Table.of(rng.normal(size=(1000, 1)) + rng.normal(size=(1000, 4)))
    local = fc.split(table, 4, by="columns")
    names = dict(zip(local.names, SITES, strict=True))
    federation = fc.Federation({names[p.name]: p.table for p in local})
    model = fc.VerticalGaussianMixture(3, max_iter=rounds, tol=0.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        model.fit(federation, engine=engine)
    assert model.n_iter_ == rounds, f"{model.n_iter_} rounds of EM instead of {rounds}"


def least(work: Callable[[], None], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.monotonic()
        work()
        seconds.append(time.monotonic() - begin)
    return min(seconds)


# ---------------------------------------------------------------------- what sites add


def overhead() -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    for title, size in (("1 kB", 1000), ("100 MB", SIZE)):
        data = bytes(size)
        times = 1000 if size < PART else 1
        sealing = least(partial(sealed, data, times)) / times
        with tempfile.TemporaryDirectory() as folder:
            journal = least(partial(journalled, data, times, Path(folder))) / times
        rows.append({"message": title, "sealing ms": 1e3 * sealing, "journal ms": 1e3 * journal})
    return rows


def sealed(data: bytes, times: int) -> None:
    """In parts, as a courier does; opened again."""
    key = ChaCha20Poly1305(bytes(32))
    for number in range(times):
        for at in range(0, len(data), PART):
            nonce = (number * len(data) + at).to_bytes(12, "little")
            key.decrypt(nonce, key.encrypt(nonce, data[at : at + PART], b"P"), b"P")


def journalled(data: bytes, times: int, folder: Path) -> None:
    inbox = Inbox(folder / "inbox")
    for number in range(times):
        inbox.add("north", number, "large/array", data)
    inbox.close()
    (folder / "inbox").unlink()
