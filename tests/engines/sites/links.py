"""Links within one process, as bad as a test wants them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Receive = Callable[[str, bytes], None]


class Relay:
    """Carries packets between sites in one process: losing, doubling and delaying some of them."""

    def __init__(self, bad: float = 0.0, seed: int = 0) -> None:
        self.bad, self.rng = bad, random.Random(seed)
        self.receivers: dict[str, Receive] = {}
        self.seen: list[tuple[str, str, bytes]] = []
        self._queue: list[tuple[float, int, str, str, bytes]] = []
        self._count, self._changed = count(), threading.Condition()
        self._closed = False
        threading.Thread(target=self._carry, daemon=True).start()

    def join(self, site: str, receive: Receive) -> SiteLink:
        self.receivers[site] = receive
        return SiteLink(self, site)

    def put(self, sender: str, receiver: str, packet: bytes) -> None:
        self.seen.append((sender, receiver, packet))
        copies = 1
        if self.rng.random() < self.bad:
            copies = self.rng.choice([0, 2])
        with self._changed:
            for _ in range(copies):
                late = self.rng.random() * 0.05 if self.rng.random() < self.bad else 0.0
                due = (time.monotonic() + late, next(self._count), sender, receiver, packet)
                heappush(self._queue, due)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _carry(self) -> None:
        while True:
            with self._changed:
                wait = self._queue[0][0] - time.monotonic() if self._queue else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                if self._closed:
                    return
                if not self._queue or self._queue[0][0] > time.monotonic():
                    continue
                _, _, sender, receiver, packet = heappop(self._queue)
            if (receive := self.receivers.get(receiver)) is not None:
                receive(sender, packet)


class SiteLink:
    def __init__(self, relay: Relay, site: str) -> None:
        self.relay, self.site = relay, site

    def send(self, site: str, packet: bytes) -> None:
        self.relay.put(self.site, site, packet)
