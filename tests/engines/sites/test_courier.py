"""Frames between sites over a bad link: in order, once each, from whom they say, read by nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from secrets import token_bytes

import pytest

from fedcircuits.engines.sites import courier as couriers
from fedcircuits.engines.sites.courier import Courier, Data, Head
from fedcircuits.privacy.identity import Identity
from tests.engines.sites.links import Relay

Frames = SimpleQueue[tuple[str, Head, bytes]]
NAMES = ("north", "south")
IDENTITIES = {name: Identity.fresh() for name in (*NAMES, "stranger")}
KNOWN = {name: IDENTITIES[name].public for name in NAMES}


def site(
    relay: Relay,
    name: str,
    identity: Identity | None = None,
    restarted: Callable[[str], None] = lambda site: None,
) -> tuple[Courier, Frames]:
    frames: Frames = SimpleQueue()

    def hear(sender: str, head: Head, body: Data) -> None:
        frames.put((sender, head, bytes(body)))

    courier = Courier(name, identity or IDENTITIES[name], KNOWN, hear, restarted, patience=0.1)
    courier.start(relay.join(name, courier.receive))
    return courier, frames


@pytest.mark.parametrize("bad", [0.0, 0.3])
def test_frames_arrive_in_order_and_once_each(bad: float) -> None:
    relay = Relay(bad)
    (north, at_north), (south, at_south) = (site(relay, name) for name in NAMES)
    large = token_bytes(3 * couriers.PART + 17)
    for number in range(100):
        north.send("south", ["mail", number], large if number == 50 else b"x" * number)
        south.send("north", ["mail", number], b"")
    for number in range(100):
        sender, head, body = at_south.get(timeout=60)
        assert (sender, head) == ("north", ["mail", number])
        assert body == (large if number == 50 else b"x" * number)
        assert at_north.get(timeout=60) == ("south", ["mail", number], b"")
    time.sleep(0.3)
    assert at_south.empty() and at_north.empty()


def test_nobody_on_the_way_can_read_change_or_repeat_a_frame() -> None:
    relay = Relay()
    (north, _), (_, at_south) = (site(relay, name) for name in NAMES)
    secret = token_bytes(40)
    north.send("south", ["mail", "words of the head"], secret)
    assert at_south.get(timeout=60)[2] == secret
    seen = list(relay.seen)
    assert not any(secret in packet or b"words of" in packet for _, _, packet in seen)
    for sender, receiver, packet in seen:
        relay.put(sender, receiver, packet)
        for at in range(0, len(packet), 7):
            relay.put(sender, receiver, packet[:at] + bytes([packet[at] ^ 1]) + packet[at + 1 :])
    north.send("south", ["mail", 2])
    assert at_south.get(timeout=60)[1] == ["mail", 2]
    assert at_south.empty()


def test_a_site_with_another_identity_is_not_heard() -> None:
    relay = Relay()
    impostor, at_impostor = site(relay, "north", IDENTITIES["stranger"])
    south, at_south = site(relay, "south")
    impostor.send("south", ["mail", 1])
    south.send("north", ["mail", 2])
    for frames in (at_south, at_impostor):
        with pytest.raises(Empty):
            frames.get(timeout=0.7)


def test_a_site_that_starts_again_is_noticed_and_talked_to() -> None:
    relay, again = Relay(), SimpleQueue[str]()
    south, at_south = site(relay, "south", restarted=again.put)
    for turn in range(3):
        north, at_north = site(relay, "north")
        north.send("south", ["hello", turn])
        assert at_south.get(timeout=60)[1] == ["hello", turn]
        if turn:
            assert again.get(timeout=60) == "north"
        south.send("north", ["answer", turn])
        assert at_north.get(timeout=60)[1] == ["answer", turn]
        north.close()
        relay.receivers.pop("north")
    assert again.empty()
    south.send("north", ["to nobody"])  # waits, and is dropped when a new process greets
    north, at_north = site(relay, "north")
    north.send("south", ["hello", 3])
    assert at_south.get(timeout=60)[1] == ["hello", 3]
    assert again.get(timeout=60) == "north"
    with pytest.raises(Empty):
        at_north.get(timeout=0.7)
