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
from typing import Annotated, ClassVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta

from fedcircuits.errors import MessageError, ProtocolError
from fedcircuits.federation.messages import Message
from fedcircuits.privacy.channels.identity import Identity, is_signed
from fedcircuits.privacy.sharing.randomness import derived

VERSION = b"fedcircuits sealed messages, version 1"
KEY, SIGNATURE, NUMBER = 32, 64, 8  # bytes


class RunKey(Message, frozen=True):
    """A party's key for a run, signed by its identity."""

    tag: ClassVar[str] = "seal/hello"
    reveals: ClassVar[str] = "a key for this run, and who it is"

    public: Annotated[bytes, Meta(min_length=KEY, max_length=KEY)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE, max_length=SIGNATURE)]


class Sealed(Message, frozen=True):
    """A message that only its receiver can read; it travels under the tag of what it holds."""

    number: Annotated[bytes, Meta(min_length=NUMBER, max_length=NUMBER)]
    body: bytes


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

    def hello(self) -> RunKey:
        public = self.private.public_key().public_bytes_raw()
        return RunKey(public, self.identity.sign(_signed(self.run, self.me, public)))

    def session(self, other: str, hello: RunKey) -> Session:
        public = hello.public
        if not is_signed(self.known[other], hello.signature, _signed(self.run, other, public)):
            raise ProtocolError(
                f"the key that {self.me} got from {other} for run {self.run!r} is not signed by "
                f"the identity known of {other}: it is another party or another run, or its "
                "public key has changed; ask it which key it has"
            )
        try:
            secret = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise MessageError(other, RunKey.tag, "public", "a key that gives no secret") from None
        public_bytes = self.private.public_key().public_bytes_raw()
        ends = sorted(
            [(self.me, self.identity.public, public_bytes), (other, self.known[other], public)]
        )
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

    def seal(self, tag: str, data: bytes) -> Sealed:
        number = self.sent.total().to_bytes(NUMBER, "little")
        cover = _joined(tag.encode(), self.sent[tag].to_bytes(NUMBER, "little"))
        self.sent[tag] += 1
        body = self.outgoing.encrypt(bytes(12 - NUMBER) + number, data, cover)
        return Sealed(number, body)

    def unseal(self, tag: str, message: Sealed) -> bytes:
        number = message.number
        if number in self.numbers:
            raise ProtocolError(
                f"{tag!r} from {self.other} to {self.me} has come before: somebody on the way "
                "sends messages again"
            )
        cover = _joined(tag.encode(), self.read[tag].to_bytes(NUMBER, "little"))
        try:
            plain = self.incoming.decrypt(bytes(12 - NUMBER) + number, message.body, cover)
        except (InvalidTag, ValueError):
            raise ProtocolError(
                f"{tag!r} from {self.other} to {self.me} has a broken seal: it was changed on the "
                "way, stands in another's place, or is from another run"
            ) from None
        self.numbers.add(number)
        self.read[tag] += 1
        return plain
