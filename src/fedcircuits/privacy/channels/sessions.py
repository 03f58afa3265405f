"""Two parties agree on keys for a run, and seal what they send each other with them.

Each says an X25519 key made for the run, signed with its identity. From the secret that both keys
give, the run, both names, both identities and both keys come two ChaCha20-Poly1305 keys, one for
each direction (HKDF). The number of a message counts those of one direction and is the nonce, so
none comes twice under one key. The seal covers the tag too, and the place among the messages under
it: messages under one tag arrive in order, under several they need not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.wire import Payload
from fedcircuits.privacy.arithmetic.field import Bytes
from fedcircuits.privacy.channels.identity import Identity, is_signed
from fedcircuits.privacy.sharing.randomness import derived

HELLO = "seal/hello"
VERSION = b"fedcircuits sealed messages, version 1"
KEY, NUMBER = 32, 8  # bytes


@dataclass(frozen=True, slots=True)
class Handshake:
    """One party's side of the first round of a run."""

    me: str
    identity: Identity
    known: Mapping[str, bytes]
    run: str
    private: X25519PrivateKey = field(repr=False)

    @classmethod
    def of(
        cls, me: str, identity: Identity, known: Mapping[str, bytes], run: str, key: bytes
    ) -> Handshake:
        """``key``: what the key of the run is made from; for this party and this run."""
        private = X25519PrivateKey.from_private_bytes(derived(key, f"seal/{me}"))
        return cls(me, identity, known, run, private)

    def hello(self) -> Bytes:
        public = self.private.public_key().public_bytes_raw()
        signature = self.identity.sign(_signed(self.run, self.me, public))
        return np.frombuffer(public + signature, np.uint8)

    def session(self, other: str, hello: Payload) -> Session:
        data = _bytes(hello, other, HELLO)
        public, signature = data[:KEY], data[KEY:]
        if not is_signed(self.known[other], signature, _signed(self.run, other, public)):
            raise ProtocolError(
                f"the key that {self.me} got from {other} for run {self.run!r} is not signed by "
                f"the identity known of {other}: it is another party or another run, or its "
                "public key has changed; ask it which key it has"
            )
        try:
            secret = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise ProtocolError(f"{other} sent a key under {HELLO!r} that is none") from None
        own = self.private.public_key().public_bytes_raw()
        ends = sorted([(self.me, self.identity.public, own), (other, self.known[other], public)])
        both = [part for name, *keys in ends for part in (name.encode(), *keys)]
        salt = sha256(_joined(VERSION, self.run.encode(), *both)).digest()
        return Session(
            self.me,
            other,
            _direction(secret, salt, self.me, other),
            _direction(secret, salt, other, self.me),
        )


def _joined(*parts: bytes) -> bytes:
    """One string of bytes for every list of them."""
    return b"".join(len(p).to_bytes(8, "little") + p for p in parts)


def _signed(run: str, name: str, public: bytes) -> bytes:
    return _joined(VERSION, run.encode(), name.encode(), public)


def _direction(secret: bytes, salt: bytes, sender: str, receiver: str) -> ChaCha20Poly1305:
    info = _joined(sender.encode(), receiver.encode())
    return ChaCha20Poly1305(HKDF(SHA256(), KEY, salt, info).derive(secret))


def _bytes(payload: Payload, sender: str, tag: str) -> bytes:
    if isinstance(payload, np.ndarray) and payload.dtype == np.uint8 and payload.ndim == 1:
        return payload.tobytes()
    raise ProtocolError(
        f"{sender} sent {tag!r} unsealed: all parties of a run must seal their messages"
    )


# ---------------------------------------------------------------------- messages


@dataclass(slots=True)
class Session:
    """Two parties in one run, at one of them."""

    me: str
    other: str
    outgoing: ChaCha20Poly1305 = field(repr=False)
    incoming: ChaCha20Poly1305 = field(repr=False)
    sent: Counter[str] = field(default_factory=Counter)  # by tag
    read: Counter[str] = field(default_factory=Counter)
    numbers: set[bytes] = field(default_factory=set)

    def seal(self, tag: str, data: bytes) -> Bytes:
        number = self.sent.total().to_bytes(NUMBER, "little")
        cover = _joined(tag.encode(), self.sent[tag].to_bytes(NUMBER, "little"))
        self.sent[tag] += 1
        body = self.outgoing.encrypt(bytes(12 - NUMBER) + number, data, cover)
        return np.frombuffer(number + body, np.uint8)

    def unseal(self, tag: str, payload: Payload) -> bytes:
        data = _bytes(payload, self.other, tag)
        number, body = data[:NUMBER], data[NUMBER:]
        if number in self.numbers:
            raise ProtocolError(
                f"{tag!r} from {self.other} to {self.me} has come before: somebody on the way "
                "sends messages again"
            )
        cover = _joined(tag.encode(), self.read[tag].to_bytes(NUMBER, "little"))
        try:
            found = self.incoming.decrypt(bytes(12 - NUMBER) + number, body, cover)
        except (InvalidTag, ValueError):
            raise ProtocolError(
                f"{tag!r} from {self.other} to {self.me} has a broken seal: it was changed on the "
                "way, stands in another's place, or is from another run"
            ) from None
        self.numbers.add(number)
        self.read[tag] += 1
        return found
