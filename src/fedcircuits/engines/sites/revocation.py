"""Certificates that were taken back before their end: a list that the authority signs.

    authority/revoked.crl    an X.509 list; the server and every member have a copy

A certificate stands on it when its owner was given another one, or was taken off consortium.toml.
A member refuses a server whose certificate stands on it, and says so of its own before it connects.
The NATS server reads no such list and refuses members by their names (provision.py).
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcircuits.engines.sites.credentials import certificate_of
from fedcircuits.errors import FederationError

REVOKED = "revoked.crl"
LASTS = datetime.timedelta(days=3650)  # as the authority: an old list is better than none


def revoked_list(
    path: Path, serials: Iterable[int], authority: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> bytes:
    """The list as PEM: what stands on the one that is there, and these certificates."""
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    made = made.last_update(now).next_update(now + LASTS)
    old = _read(path) if path.exists() else None
    known = {} if old is None else {e.serial_number: e for e in old}
    for serial in sorted({*serials} - known.keys()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        known[serial] = entry.build()
    for revoked in known.values():
        made = made.add_revoked_certificate(revoked)
    if old is not None and len(old) == len(known):
        return path.read_bytes()
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def revoked_serials(path: Path) -> frozenset[int]:
    """Of the certificates on a list, none where there is no list."""
    return frozenset(e.serial_number for e in _read(path)) if path.exists() else frozenset()


def refuse_revoked(context: ssl.SSLContext, path: Path, own: Path, authority: Path) -> None:
    """The connection refuses a server that stands on the list; FederationError if this member does,
    or if the list is not the consortium's. A kit of an older version has none."""
    if not path.exists():
        return
    found, issuer = _read(path), certificate_of(authority).public_key()
    if not isinstance(issuer, ec.EllipticCurvePublicKey) or not found.is_signature_valid(issuer):
        raise FederationError(f"{path} is not signed by the authority in {authority}")
    if found.get_revoked_certificate_by_serial_number(certificate_of(own).serial_number):
        raise FederationError(
            f"{own} was taken back by the lead of the consortium, it stands in {path}: ask for a "
            "new kit"
        )
    context.load_verify_locations(path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(path: Path) -> x509.CertificateRevocationList:
    try:
        return x509.load_pem_x509_crl(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FederationError(f"{path} cannot be read as a revocation list: {error}") from None
