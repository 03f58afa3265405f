"""Keys made where they are used: a member requests a certificate, the lead approves it.

    at the member   request: site.key, identity and site.toml in its own folder, and request.toml,
                    which holds only public halves and goes to the lead
    at the lead     provision with the request: site.crt, ca.crt, consortium.toml go back

The lead of the consortium never has a private key of such a member. A request proves that its
sender has both private keys: it is a signing request for the certificate's key, and its content is
signed by the identity. It does not prove who sent it: both sides compare its fingerprint over
another channel, such as the telephone.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedcircuits.engines.sites.files import SITE, SITE_TEXT, PublicKey, SiteName, read_toml
from fedcircuits.engines.sites.run_folder import write
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.privacy.identity import Identity, is_signed

REQUEST = "request.toml"


class JoinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a member sends the lead; none of it is secret."""

    name: SiteName
    certificate: str  # a signing request, as PEM
    identity: PublicKey
    proof: str  # the identity's signature of the fields above

    @property
    def fingerprint(self) -> str:
        """Short enough to be read out."""
        whole = sha256(self._said).hexdigest()[:32]
        return " ".join(whole[at : at + 4] for at in range(0, len(whole), 4))

    @property
    def _said(self) -> bytes:
        return "\n".join(("fedcircuits", self.name, self.certificate, self.identity)).encode()

    @property
    def key(self) -> ec.EllipticCurvePublicKey:
        """The public key of the requested certificate."""
        return _checked_key(self)

    @classmethod
    def of(cls, name: str, key: ec.EllipticCurvePrivateKey, identity: Identity) -> JoinRequest:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
        pem = asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        said = cls(name, pem.decode(), identity.public.hex(), "")
        return msgspec.structs.replace(said, proof=identity.sign(said._said).hex())

    def text(self) -> str:
        return (
            f"# A request to take part as {self.name}. It holds no secret: send it to the lead of\n"
            "# the consortium, and compare the fingerprint by another way, such as the telephone:\n"
            f"# {self.fingerprint}\n\n"
            f'name = "{self.name}"\nidentity = "{self.identity}"\nproof = "{self.proof}"\n'
            f'certificate = """\n{self.certificate}"""\n'
        )


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    write(path, data, rights=0o600)


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    write_private(path, key.private_bytes(*form, serialization.NoEncryption()))


def make_request(folder: Path, name: str) -> JoinRequest:
    """Private keys in ``folder``, and a request for the lead beside them."""
    if there := [f for f in ("site.key", "identity") if (folder / f).exists()]:
        raise FederationError(
            f"{folder / there[0]} already exists and is not overwritten: use an empty folder; "
            "store and site.toml of an older kit can be moved into it"
        )
    try:
        msgspec.convert(name, SiteName)
    except msgspec.ValidationError:
        raise FederationError(
            f"{name!r} is not a valid name of a member: use lower case letters, digits, - and _"
        ) from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key, identity = ec.generate_private_key(ec.SECP256R1()), Identity.fresh()
    request = JoinRequest.of(name, key, identity)
    write_key(folder / "site.key", key)
    write_private(folder / "identity", identity.private.hex().encode())
    write(folder / REQUEST, request.text().encode())
    if name != COORDINATOR and not (folder / SITE).exists():
        write(folder / SITE, SITE_TEXT.encode())
    return request


def read_request(path: Path) -> JoinRequest:
    """FederationError unless it proves that its sender has the keys that it names."""
    request = read_toml(path, JoinRequest)
    try:
        request.key  # noqa: B018 - whether it is one
        signed = is_signed(
            bytes.fromhex(request.identity), bytes.fromhex(request.proof), request._said
        )
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise FederationError(f"{path}: this is not a request of a member: {error}") from None
    if not signed:
        raise FederationError(
            f"{path}: it is not signed by the identity that it names; was it altered on the way?"
        )
    return request


def _checked_key(request: JoinRequest) -> ec.EllipticCurvePublicKey:
    asked = x509.load_pem_x509_csr(request.certificate.encode())
    key = asked.public_key()
    if not asked.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the signing request is not signed by its own key")
    if asked.public_bytes(serialization.Encoding.PEM).decode() != request.certificate:
        raise ValueError("it contains more than a signing request")  # it is written down here
    return key
