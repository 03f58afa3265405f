"""A coordinator that asks sites for what it likes, frame by frame."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from secrets import token_hex
from typing import Any

from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.station import Head
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import pack
from tests.engines.sites.local import LocalSites


class Hostile:
    """Has the coordinator's keys, and none of its manners."""

    def __init__(self, sites: LocalSites) -> None:
        self.frames: SimpleQueue[tuple[str, Head, bytes]] = SimpleQueue()
        self.sites = sites
        self.courier = sites._courier(CALLER, lambda *frame: self.frames.put(frame))

    def answer(self, site: str, *kinds: str) -> Head:
        """The next of these frames of that site."""
        while True:
            sender, head, _ = self.frames.get(timeout=60)
            if sender == site and head[0] in kinds:
                return head

    def begin(
        self,
        site: str,
        program: Program[Any] | object,
        places: Mapping[str, str] | None = None,
        party: str = "",
        run: str = "",
        again: bool = False,
        kept: Mapping[str, object] | None = None,
    ) -> str:
        """What the site says to a recipe: "" if it is ready, else why not."""
        where = {site: site, CALLER: CALLER} if places is None else dict(places)
        head = ["begin", run or token_hex(8), party or site, "1", where, 1, 30.0, again]
        self.courier.send(site, head, pack((program, dict(kept or {}))))
        kind, *_, told = self.answer(site, "ready", "refused")
        return "" if kind == "ready" else str(told)

    def runs(self, site: str, program: Program[Any]) -> str:
        """Why the site does not end this role, or "": its messages arrive here unread."""
        run = token_hex(8)
        if refused := self.begin(site, program, run=run):
            return refused
        self.courier.send(site, ["go", run])
        kind, *facts = self.answer(site, "failed", "result")
        return str(facts[4]) if kind == "failed" else ""
