"""Sites as programs of their own that are killed, hang, or run something else, and a server that
is started again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError
from tests.engines.live import watched_live
from tests.engines.sites.programs import Programs, other_version
from tests.engines.sites.relays import needs_server
from tests.forked import python

pytest.importorskip("nats", reason="needs the extra sites")
pytestmark = needs_server

RNG = np.random.default_rng(0)
VALUES = (RNG.normal(size=(120, 1)) + RNG.normal(size=(120, 3))).round(3)
WHOLE = pd.DataFrame(VALUES, columns=["a", "b", "c"])
SITES = ("east", "north", "west")
TABLES = {
    name: pd.DataFrame({"row": np.arange(120), column: WHOLE[column]})
    for name, column in zip(SITES, WHOLE, strict=True)
}
SETTINGS: dict[str, Any] = {"random_state": 0, "clusters": 2, "ensemble": 1}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    made = Programs(tmp_path_factory.mktemp("kits"), TABLES)
    try:
        made.start_server()
        made.start(*SITES)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def expected() -> np.ndarray[Any, Any]:
    return fc.FedPC(**SETTINGS).fit(fc.Federation(TABLES, "row")).score_samples(WHOLE)


def connected(programs: Programs) -> fc.Federation:
    """A site that is started again may take as long as a busy machine makes it."""
    federation = fc.Federation.connect(programs.folder / "coordinator", timeout=60)
    engine: Any = federation.engine
    engine.patience = 300.0
    return federation


def test_a_member_is_one_program(programs: Programs) -> None:
    with connected(programs) as first, connected(programs) as second:
        assert first.engine is second.engine
    again = subprocess.run(
        python("-m", "fedcircuits", "site", "start", programs.folder / "north", "--yes"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 1
    assert "north is already connected from another program" in again.stderr


def test_the_dashboard_shows_a_training_while_it_goes_on(
    programs: Programs, expected: Any, tmp_path: Path
) -> None:
    federation = connected(programs)
    model = fc.FedPC(**SETTINGS)
    watched_live(lambda callback: model.fit(federation, callback=callback), tmp_path)
    assert np.array_equal(model.score_samples(WHOLE), expected)


def test_a_site_is_killed_twice_and_the_server_once(programs: Programs) -> None:
    federation = connected(programs)
    model, since = fc.FedPC(summation=fc.Secret(), **SETTINGS), len(programs.audit("north"))
    training = Thread(target=model.fit, args=(federation,))
    training.start()
    programs.wait_for("north", "agree/hello", since)
    programs.kill("north")
    programs.start("north")
    programs.wait_for("north", "count/sizes", since)
    programs.kill("server")
    programs.kill("north")
    programs.start_server()
    programs.start("north")
    training.join()
    secret = fc.FedPC(summation=fc.Secret(), **SETTINGS).fit(fc.Federation(TABLES, "row"))
    assert np.array_equal(model.score_samples(WHOLE), secret.score_samples(WHOLE))


def test_a_site_that_hangs_is_named_and_goes_on_later(programs: Programs, expected: Any) -> None:
    federation = connected(programs)
    fc.FedPC(**SETTINGS).fit(federation)  # what sites load at their first run is there
    engine: Any = federation.engine
    engine.patience = 5.0
    model = fc.FedPC(**SETTINGS)
    programs.signal("west", signal.SIGSTOP)
    try:
        with pytest.raises(PartyLostError, match="west is silent") as error:
            model.fit(federation)
        assert error.value.party == "west"
    finally:
        programs.signal("west", signal.SIGCONT)
    engine.patience = 300.0
    model.fit(federation, resume=True)
    assert np.array_equal(model.score_samples(WHOLE), expected)


def test_a_site_of_another_version_is_named(programs: Programs, tmp_path: Path) -> None:
    programs.kill("east")
    programs.start("east", source=other_version(tmp_path))
    with pytest.raises(FederationError, match=r"east runs fedcircuits 0\.0\.9, expected"):
        connected(programs)
