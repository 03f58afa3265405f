"""What the dashboard shows of a training while it goes on, for tests of every engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedcircuits.app import events
from fedcircuits.app.dashboard.server import Shown
from fedcircuits.engines.watching import Callback, Progress
from tests.app.browser import served


def watched_live(train: Callable[[Callback], Any], folder: Path) -> Any:
    """The model. Its training waits while the page is asked what it shows of it: every party and
    what it does, phases, messages and bytes; at the end what crossed in all."""
    path = folder / "run.jsonl"
    with served(Shown(events=path)) as address, closing(_Page(address)) as page:
        with events.written(path) as writer:
            assert writer is not None

            def callback(progress: Progress) -> None:
                writer(progress)
                if progress.kind in ("step", "message", "round"):
                    page.read()

            model = train(callback)
            during = list(page.shown)
        page.read()
    begin, end = during[0], page.shown[-1]
    parties = set(begin["party"].split(", "))
    assert begin["kind"] == "begin" and len(parties) > 1
    acting = {e["party"] for e in during if e["kind"] in ("step", "message", "round", "wait")}
    assert acting >= parties, f"of {parties - acting} nothing was shown while they trained"
    kinds = {e["kind"] for e in during}
    assert {"step", "message"} <= kinds and "end" not in kinds
    assert any(e["phase"] for e in during) and during[-1]["bytes"] > 0
    assert (end["kind"], end["messages"], end["bytes"]) == (
        "end", len(model.ledger_), model.ledger_.bytes,
    )  # fmt: skip
    assert {e["party"] for e in page.shown if e["kind"] == "done"} == parties
    told, known = Counter[str](), Counter[str]()
    for before, event in pairwise(page.shown):  # as the page counts them
        told[event["phase"]] += event["bytes"] - before["bytes"]
    for entry in model.ledger_:
        known[entry.phase] += entry.bytes
    assert +told == +known
    return model


class _Page:
    """Reads on from where it was, as the page does."""

    def __init__(self, address: str) -> None:
        self.line = HTTPConnection(urlsplit(address).netloc, timeout=300)
        self.place, self.shown = 0, list[dict[str, Any]]()

    def close(self) -> None:
        self.line.close()

    def read(self) -> None:
        self.line.request("GET", f"/api/events?from={self.place}")
        found = json.loads(self.line.getresponse().read())
        self.place = found["next"]
        self.shown += found["events"]
