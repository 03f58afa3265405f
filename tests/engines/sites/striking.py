"""Sites of tests that die, and come back, when they have done something."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

from fedcircuits.engines.sites.station import Head
from tests.engines.sites.local import LocalSites


def phase_of(head: Head) -> str | None:
    """What a site does when it sends such a frame."""
    match head:
        case ["mail", _, _, _, _, str(tag)]:
            return tag
        case ["at", _, _, _, str(step)]:
            return step
        case ["ready" | "result" as word, *_]:
            return str(word)
    return None


class Striking:
    """Kills a site when it has done something, and starts it again, once for each such thing."""

    def __init__(self, site: str, at: Sequence[str]) -> None:
        self.site, self.at, self.done = site, list(at), list[str]()
        self.sites: LocalSites

    def __call__(self, site: str, head: Head) -> None:
        if site != self.site or (phase := phase_of(head)) is None:
            return
        self.done.append(phase)
        if self.at and phase == self.at[0]:
            self.at.pop(0)
            self.strike()

    def strike(self) -> None:
        self.sites.couriers[self.site].link = None  # nothing leaves it any more
        Thread(target=self.sites.restart, args=(self.site,), daemon=True).start()
