"""End-to-end encryption of messages: a relay sees only tags, endpoints and sizes.

Every party has an identity, an Ed25519 key pair whose public half the others know beforehand. In a
first round all parties exchange keys for this run; then the program continues as before, and each
of its messages is sealed for its receiver.

    seal/hello   party → party: key of the run (32 bytes), signature (64)
    any tag      party → party: its number (8 bytes), the sealed message (16 bytes longer)

The key of a run is an X25519 key, signed with the party's identity. HKDF turns the shared secret,
the run, both names, both identities and both keys into two ChaCha20-Poly1305 keys, one for each
direction. Messages of one direction are numbered, and the number is the nonce, so none is used
twice under one key. The seal also covers the tag and the position among the messages with that tag,
which arrive in order; messages with different tags need not.

A message that was changed, dropped, replayed, moved to another tag or taken from another run is
refused. The keys of a run are discarded with it: learning an identity later does not reveal what
was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Annotated, ClassVar, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta

from fedcircuits.errors import FederationError, MessageError, PartyLostError, ProtocolError
from fedcircuits.federation.flow import (
    Effect,
    Flow,
    Program,
    Recv,
    Send,
    broadcast,
    receive,
    send,
    through,
)
from fedcircuits.federation.messages import Message
from fedcircuits.federation.recipes import fresh_key
from fedcircuits.privacy.identity import Identity, is_signed, joined
from fedcircuits.privacy.sharing.randomness import derived

VERSION = b"fedcircuits sealed messages, version 1"
KEY, SIGNATURE, NUMBER = 32, 64, 8  # bytes
T = TypeVar("T")


class RunKey(Message, frozen=True):
    """A party's key for a run, signed by its identity."""

    tag: ClassVar[str] = "seal/hello"
    reveals: ClassVar[str] = "its public key for this run, signed by its identity"

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
                f"the identity known of {other}: the key comes from another party or run, or its "
                f"public key has changed; ask {other} for its current key"
            )
        try:
            secret = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise MessageError(
                other, RunKey.tag, "public", "a key that yields no shared secret"
            ) from None
        public_bytes = self.private.public_key().public_bytes_raw()
        ends = sorted(
            [(self.me, self.identity.public, public_bytes), (other, self.known[other], public)]
        )
        both = [part for name, *keys in ends for part in (name.encode(), *keys)]
        salt = sha256(joined(VERSION, self.run.encode(), *both)).digest()
        return Session(
            self.me,
            other,
            _direction(secret, salt, self.me, other),
            _direction(secret, salt, other, self.me),
        )


def _signed(run: str, name: str, public: bytes) -> bytes:
    return joined(VERSION, run.encode(), name.encode(), public)


def _direction(secret: bytes, salt: bytes, sender: str, receiver: str) -> ChaCha20Poly1305:
    info = joined(sender.encode(), receiver.encode())
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
        cover = joined(tag.encode(), self.sent[tag].to_bytes(NUMBER, "little"))
        self.sent[tag] += 1
        body = self.outgoing.encrypt(bytes(12 - NUMBER) + number, data, cover)
        return Sealed(number, body)

    def unseal(self, tag: str, message: Sealed) -> bytes:
        number = message.number
        if number in self.numbers:
            raise ProtocolError(
                f"{tag!r} from {self.other} to {self.me} was received before: someone on the way "
                "replays messages"
            )
        cover = joined(tag.encode(), self.read[tag].to_bytes(NUMBER, "little"))
        try:
            plain = self.incoming.decrypt(bytes(12 - NUMBER) + number, message.body, cover)
        except (InvalidTag, ValueError):
            raise ProtocolError(
                f"{tag!r} from {self.other} to {self.me} has a broken seal: it was altered on the "
                "way, was exchanged for another message, or is from another run"
            ) from None
        self.numbers.add(number)
        self.read[tag] += 1
        return plain


# ---------------------------------------------------------------------- sealed flows


def sealed(
    program: Program[T],
    me: str,
    identity: Identity,
    known: Mapping[str, bytes],
    run: str,
    key: bytes | None = None,
) -> Flow[T]:
    """The same flow with all its messages sealed: ``Program(sealed, {"program": program, …})``.

    known    public keys of all parties of the run by name, as each has given it beforehand
    run      a name of the run that no other run of these parties has
    key      for this party and this run (``fresh_key()``); drawn when the flow begins if None
    """
    if known.get(me, identity.public) != identity.public:
        raise FederationError(f"the known public key of {me} does not match its identity")
    others = [party for party in known if party != me]
    hands = Handshake.of(me, identity, known, run, key or fresh_key())
    yield from broadcast(others, hands.hello())
    sessions, lost = {}, {}
    for party in others:
        try:
            sessions[party] = hands.session(party, (yield from receive(party, RunKey)))
        except PartyLostError as error:  # raised in the program when it waits for that party
            lost[party] = error
    ends = partial(_sealed, me=me, sessions=sessions, lost=lost)
    return (yield from through(program.start(), ends))


def _sealed(
    effect: Effect, me: str, sessions: Mapping[str, Session], lost: Mapping[str, PartyLostError]
) -> Flow[object]:
    if not isinstance(effect, Send | Recv):
        return (yield effect)
    other = effect.receiver if isinstance(effect, Send) else effect.sender
    if other in lost:
        if isinstance(effect, Send):
            return None  # there is no reader
        raise lost[other]
    if other not in sessions:
        raise FederationError(
            f"{me} has no public key of {other}, so {effect.tag!r} cannot be sealed: ask {other} "
            "for it and add it to the known keys"
        )
    session = sessions[other]
    if isinstance(effect, Send):
        body = session.seal(effect.tag, effect.data)
        yield from send(other, body, effect.tag, effect.reveals)
        return None
    return session.unseal(effect.tag, (yield from receive(other, Sealed, effect.tag)))
