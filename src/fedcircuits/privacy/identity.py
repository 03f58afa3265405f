"""Who a party is to the others: an Ed25519 key pair whose public half they know beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcircuits.errors import FederationError


@dataclass(frozen=True, slots=True)
class Identity:
    """A party's long-term key: the private half stays with it, ``public`` goes to the others.

    >>> identity = Identity.fresh()
    >>> len(identity.public)
    32
    """

    private: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.private) != 32:
            raise FederationError(
                f"a private key of {len(self.private)} bytes: expected 32, from Identity.fresh()"
            )

    @classmethod
    def fresh(cls) -> Identity:
        """A new one, from the operating system."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.private)


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def joined(*parts: bytes) -> bytes:
    """An injective concatenation, for what is signed or derives keys."""
    return b"".join(len(p).to_bytes(8, "little") + p for p in parts)
