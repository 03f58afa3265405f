"""Frames between sites over an untrusted link that loses, repeats, delays and reorders packets.

A link carries packets to a site by name; what it says about their sender is not trusted. A courier
turns it into what runs need: frames (a head of plain values and a body) that arrive in order, once
each, from the site whose identity signed them, and that nobody on the way can read.

    greeting   epoch and key of the sender's process, the receiver's epoch as far as it is known,
               signed by the sender's identity
    part       number, up to ``PART`` bytes of a frame, sealed
    receipt    number of parts received so far, sealed

An epoch is drawn when a process starts. A greeting that names the receiver's epoch is fresh, so two
processes talk after three greetings. A site that greets from a new epoch was restarted: what waited
for its old process is dropped, and ``restarted`` is called (station.py sends again what the new one
lacks). Keys are derived from both epochs' X25519 keys and discarded with the process. Parts without
a receipt are sent again after ``patience`` seconds, then less often.

A relay learns who talks to whom, when, and how much.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from secrets import token_bytes
from typing import Protocol, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.messages import decode_plain, encode_plain
from fedcircuits.privacy.identity import Identity, is_signed, joined

Data: TypeAlias = bytes | memoryview
Head: TypeAlias = list[object]
Hear: TypeAlias = Callable[[str, Head, Data], None]
VERSION = b"fedcircuits sites, version 1"
EPOCH, KEY, SIGNATURE, SEAL = 16, 32, 64, 16  # bytes
GREETING, PART_OF, RECEIPT = b"G", b"P", b"R"
PART = 1 << 18  # bytes
WINDOW = 32  # parts on their way to one site
PATIENCE, RAREST, TICK = 1.0, 15.0, 0.25  # seconds
LARGEST = 1 << 33  # bytes of a frame
NUMBER = struct.Struct("<Q")
FRAME = struct.Struct("<IQ")  # sizes of head and body


class Link(Protocol):
    """What carries packets: it may lose and reorder them, and never waits."""

    def send(self, site: str, packet: bytes) -> None: ...


@dataclass(slots=True)
class _Sent:
    packet: bytes
    due: float  # when it is sent again
    wait: float


@dataclass(slots=True)
class _Peer:
    """Another site as seen from here."""

    name: str
    epoch: bytes = b""
    seals: tuple[ChaCha20Poly1305, ChaCha20Poly1305] | None = None  # outgoing, incoming
    greeted: float = 0.0
    number: int = 0  # of the next part
    unsent: deque[bytes] = field(default_factory=deque)
    sent: dict[int, _Sent] = field(default_factory=dict)
    expected: int = 0
    early: dict[int, bytes] = field(default_factory=dict)
    frame: bytearray = field(default_factory=bytearray)
    receipts: int = 0
    heard: float = 0.0  # when its last packet was opened
    frames: SimpleQueue[tuple[Head, Data] | None] = field(default_factory=SimpleQueue)


class Courier:
    """``known`` has the public identities of all sites; ``hear`` gets their frames."""

    def __init__(
        self,
        me: str,
        identity: Identity,
        known: Mapping[str, bytes],
        hear: Hear,
        restarted: Callable[[str], None] = lambda site: None,
        patience: float = PATIENCE,
    ) -> None:
        self.patience = patience
        self.me, self.identity, self.known = me, identity, dict(known)
        self.hear, self.restarted = hear, restarted
        self.epoch, self.private = token_bytes(EPOCH), X25519PrivateKey.generate()
        self.link: Link | None = None
        self._peers = {name: _Peer(name) for name in known if name != me}
        self._lock, self._closed = threading.RLock(), threading.Event()

    def start(self, link: Link) -> None:
        """Start sending packets and accepting them (``receive``)."""
        self.link = link
        for peer in self._peers.values():
            threading.Thread(target=self._deliver, args=(peer,), daemon=True).start()
        threading.Thread(target=self._insist, daemon=True).start()
        with self._lock:
            for peer in self._peers.values():  # peers of an older process learn of this one
                self._greet(peer, peer.epoch)

    def close(self) -> None:
        self._closed.set()
        for peer in self._peers.values():
            peer.frames.put(None)

    def heard(self, site: str) -> float:
        """When that site's process last gave a sign of life, by the monotonic clock: receipts come
        also while it is busy with a frame."""
        return self._peers[site].heard

    # ------------------------------------------------------------------ sending

    def send(self, site: str, head: Head, body: Data = b"") -> None:
        """At some time, if that site's process lives on; returns at once."""
        words = encode_plain(head)
        whole = memoryview(b"".join((FRAME.pack(len(words), len(body)), words, body)))
        with self._lock:
            peer = self._peers[site]
            peer.unsent.extend(bytes(whole[at : at + PART]) for at in range(0, len(whole), PART))
            self._push(peer)

    def _push(self, peer: _Peer) -> None:
        if peer.seals is None:
            self._greet_now_and_then(peer)
            return
        while peer.unsent and len(peer.sent) < WINDOW:
            number = NUMBER.pack(peer.number)
            sealed = peer.seals[0].encrypt(b"part" + number, peer.unsent.popleft(), PART_OF)
            packet = b"".join((PART_OF, number, sealed))
            peer.sent[peer.number] = _Sent(packet, time.monotonic() + self.patience, self.patience)
            peer.number += 1
            self._carry(peer.name, packet)

    def _carry(self, site: str, packet: bytes) -> None:
        if self.link is not None:
            self.link.send(site, packet)

    def _greet_now_and_then(self, peer: _Peer) -> None:
        if time.monotonic() - peer.greeted >= self.patience:
            self._greet(peer, peer.epoch)

    def _greet(self, peer: _Peer, epoch: bytes) -> None:
        peer.greeted = time.monotonic()
        public, known = self.private.public_key().public_bytes_raw(), epoch or bytes(EPOCH)
        signed = self.identity.sign(_signed(self.me, peer.name, self.epoch, public, known))
        self._carry(peer.name, b"".join((GREETING, self.epoch, public, known, signed)))

    def _insist(self) -> None:
        while not self._closed.wait(TICK):
            now = time.monotonic()
            with self._lock:
                for peer in self._peers.values():
                    if peer.seals is None and peer.unsent:
                        self._greet_now_and_then(peer)
                    late = [s for s in peer.sent.values() if s.due <= now]
                    for sent in late:
                        sent.wait = min(2 * sent.wait, RAREST)
                        sent.due = now + sent.wait
                        self._carry(peer.name, sent.packet)
                    if late:
                        self._greet_now_and_then(peer)  # it may have been started again

    # ------------------------------------------------------------------ receiving

    def receive(self, site: str, packet: bytes) -> None:
        """Called by the link; anything that is not a packet of that site is dropped."""
        with self._lock:
            peer = self._peers.get(site)
            if peer is None or not packet:
                return
            kind, rest = packet[:1], packet[1:]
            if kind == GREETING:
                self._greeted(peer, rest)
            elif peer.seals is not None and len(rest) >= NUMBER.size + SEAL:
                try:
                    self._opened(peer, kind, rest)
                except InvalidTag:
                    return  # of an older process, or of nobody
                peer.heard = time.monotonic()

    def _greeted(self, peer: _Peer, rest: bytes) -> None:
        if len(rest) != 2 * EPOCH + KEY + SIGNATURE:
            return
        epoch, public = rest[:EPOCH], rest[EPOCH : EPOCH + KEY]
        known, signature = rest[EPOCH + KEY : -SIGNATURE], rest[-SIGNATURE:]
        signed = _signed(peer.name, self.me, epoch, public, known)
        if not is_signed(self.known[peer.name], signature, signed):
            return
        if known != self.epoch:  # it does not know this process yet, or it is an old greeting
            self._greet(peer, epoch)
        elif epoch != peer.epoch or peer.seals is None:
            self._begin(peer, epoch, public)

    def _begin(self, peer: _Peer, epoch: bytes, public: bytes) -> None:
        again = bool(peer.epoch)
        try:
            secret = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a key that yields no shared secret
            return
        names = {self.epoch: self.me, epoch: peer.name}
        ends = [self.epoch, epoch]
        keys = [
            HKDF(SHA256(), KEY, joined(VERSION, a, b), names[a].encode()).derive(secret)
            for a, b in (ends, ends[::-1])
        ]
        peer.epoch, peer.seals = epoch, (ChaCha20Poly1305(keys[0]), ChaCha20Poly1305(keys[1]))
        peer.number = peer.expected = peer.receipts = 0
        peer.sent.clear()
        peer.early.clear()
        peer.frame.clear()
        if again:
            peer.unsent.clear()
        self._greet(peer, epoch)
        self._push(peer)
        if again:
            threading.Thread(target=self.restarted, args=(peer.name,), daemon=True).start()

    def _opened(self, peer: _Peer, kind: bytes, rest: bytes) -> None:
        assert peer.seals is not None
        number, sealed = rest[: NUMBER.size], rest[NUMBER.size :]
        if kind == RECEIPT:
            plain = peer.seals[1].decrypt(b"have" + number, sealed, RECEIPT)
            (count,) = NUMBER.unpack(plain)
            for old in [n for n in peer.sent if n < count]:
                del peer.sent[old]
            self._push(peer)
        elif kind == PART_OF:
            plain = peer.seals[1].decrypt(b"part" + number, sealed, PART_OF)
            (place,) = NUMBER.unpack(number)
            if peer.expected <= place < peer.expected + 2 * WINDOW:
                peer.early[place] = plain
            while (part := peer.early.pop(peer.expected, None)) is not None:
                peer.expected += 1
                self._add(peer, part)
            self._receipt(peer)

    def _receipt(self, peer: _Peer) -> None:
        assert peer.seals is not None
        number, count = NUMBER.pack(peer.receipts), NUMBER.pack(peer.expected)
        peer.receipts += 1
        sealed = peer.seals[0].encrypt(b"have" + number, count, RECEIPT)
        self._carry(peer.name, b"".join((RECEIPT, number, sealed)))

    def _add(self, peer: _Peer, part: bytes) -> None:
        """A part of the frame that is being put together."""
        peer.frame += part
        if len(peer.frame) < FRAME.size:
            return
        head, body = FRAME.unpack_from(peer.frame)
        size = FRAME.size + head + body
        if size > LARGEST:
            peer.frame.clear()
            return
        if len(peer.frame) >= size:
            whole = memoryview(bytes(peer.frame))
            peer.frame.clear()
            with suppress(ProtocolError):
                words = decode_plain(whole[FRAME.size : FRAME.size + head])
                if isinstance(words, list):
                    peer.frames.put((words, whole[FRAME.size + head :]))

    def _deliver(self, peer: _Peer) -> None:
        while (frame := peer.frames.get()) is not None:
            self.hear(peer.name, *frame)


def _signed(sender: str, receiver: str, *parts: bytes) -> bytes:
    return joined(VERSION, sender.encode(), receiver.encode(), *parts)
