"""A training that is watched in the browser to its end, while one of its parties is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import fedcircuits as fc
from fedcircuits.app import events
from fedcircuits.app.dashboard.server import Shown
from fedcircuits.engines.watching import Progress
from tests.app import browser
from tests.app.browser import WAIT, css, script, until
from tests.federation.cases import QUICK, mixed_table

NAMES = ["north", "south", "west"]


def with_a_party_killed(
    driver: Any, path: Path, engine: Any, process_of: Callable[[str], int]
) -> None:
    """The process of south is killed while it learns; the page tells, and follows to the end."""
    killed, seen = list[int](), Event()
    parties = fc.split(mixed_table(600), NAMES, by="rows", allow_collect=True)
    model = fc.FedPC(QUICK, clusters=1, refine=4, on_lost="continue", random_state=0)

    def train() -> None:
        with events.written(path) as writer:
            assert writer is not None

            def callback(progress: Progress) -> None:
                writer(progress)
                if not killed and progress.party == "south" and progress.kind == "step":
                    killed.append(process_of("south"))
                    os.kill(killed[0], signal.SIGKILL)
                    assert seen.wait(WAIT), "the page has shown no party"

            with pytest.warns(UserWarning, match="continuing without south"):
                model.fit(parties, engine=engine, callback=callback)

    with browser.served(Shown(events=path)) as address:
        driver.get(address)
        until(driver, lambda: f"Waiting for {path.name}" in css(driver, "#watch-state").text)
        training = Thread(target=train)
        training.start()
        until(driver, lambda: "south" in css(driver, "#parties").text)
        assert css(driver, "#watch-state").get_attribute("data-over") == "false"
        seen.set()
        until(driver, lambda: css(driver, "#watch-state").get_attribute("data-over") == "true")
        training.join()
        _check(driver, json.loads(path.read_text().splitlines()[-1]), model)
    assert "continuing without south" in model.notes_[0]


def _check(driver: Any, last: dict[str, Any], model: fc.FedPC) -> None:
    assert "south died while" in css(driver, "#faults").text
    assert css(driver, "tr[data-party='south']").get_attribute("class") == "lost"
    assert "has finished" in css(driver, "tr[data-party='north']").text
    assert last["likelihood"] == pytest.approx(model.history_[-1])
    assert f"{last['messages']:,} messages" in css(driver, "#watch-state").text
    shown = script(driver, "return Watch.likelihoods.filter((l) => l !== null).pop()")
    assert shown == pytest.approx(last["likelihood"])
    assert css(driver, "#likelihood canvas").is_displayed()
    timeline = css(driver, "#timeline").get_attribute("aria-label")
    assert "north waited" in timeline and timeline.count("and was lost after") == 1
    assert css(driver, "#timeline").size["height"] >= 4 * 20
    assert browser.complaints(driver) == []
