"""Checks of the credentials in a kit: files exist, are private, are valid today and are not
revoked.

    authority/revoked.crl    an X.509 revocation list, signed by the authority; the server and every
                             member have a copy

A certificate is revoked when its owner received a new one or was removed from consortium.toml. A
member refuses a server whose certificate is revoked, and reports that its own is before it
connects. The NATS server does not read the list; it refuses members by name (provision.py).
"""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcircuits.errors import FederationError

SOON = datetime.timedelta(days=30)
REVOKED = "revoked.crl"
LASTS = datetime.timedelta(days=3650)  # as the authority: an old list is better than none


def check_there(path: Path) -> None:
    if not path.is_file():
        raise FederationError(
            f"{path}: there is no such file; kits created by fedcircuits provision have one"
        )


def check_private(path: Path) -> None:
    """Refuse a private key that other users can read; a group may read a key of root."""
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if os.name == "posix" and mode & (0o037 if status.st_uid == 0 else 0o077):
        raise FederationError(
            f"{path} may be read by other users (mode {mode:03o}, expected 600): "
            f"chmod 600 {path}, and have the key renewed if someone may have read it"
        )


def certificate_of(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError, x509.InvalidVersion) as error:
        raise FederationError(f"{path} cannot be read as a certificate: {error}") from None


def valid_until(path: Path) -> datetime.datetime:
    """The end of a certificate."""
    return certificate_of(path).not_valid_after_utc


def check_dates(path: Path, now: datetime.datetime | None = None) -> None:
    """Refuse a certificate that has expired or is not yet valid by this machine's clock."""
    certificate, now = certificate_of(path), now or datetime.datetime.now(datetime.UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise FederationError(
            f"{path} expired on {ends:%Y-%m-%d} (this machine says {now:%Y-%m-%d %H:%M} UTC): "
            "ask the lead of the consortium to renew it (fedcircuits provision --renew)"
        )
    if now < begins:
        raise FederationError(
            f"{path} is valid from {begins:%Y-%m-%d %H:%M} UTC, but this machine's clock says "
            f"{now:%Y-%m-%d %H:%M}: is its clock right?"
        )


def ends_soon(path: Path) -> str:
    """A warning if a certificate ends within a month, else ""."""
    ends = valid_until(path)
    if ends - datetime.datetime.now(datetime.UTC) > SOON:
        return ""
    return f"the certificate expires on {ends:%Y-%m-%d}: ask the lead of the consortium to renew it"


# ---------------------------------------------------------------------- revocation


def revoked_list(
    path: Path, serials: Iterable[int], authority: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> bytes:
    """The list as PEM: the entries of the existing one, and these certificates."""
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
    """Serial numbers on a list; empty if there is no list."""
    return frozenset(e.serial_number for e in _read(path)) if path.exists() else frozenset()


def refuse_revoked(
    context: ssl.SSLContext, path: Path, certificate_file: Path, authority: Path
) -> None:
    """Make the connection refuse a revoked server; FederationError if this member is revoked, or if
    the list is not the consortium's. Kits of older versions have none."""
    if not path.exists():
        return
    revoked, issuer = _read(path), certificate_of(authority).public_key()
    if not isinstance(issuer, ec.EllipticCurvePublicKey) or not revoked.is_signature_valid(issuer):
        raise FederationError(f"{path} is not signed by the authority in {authority}")
    if revoked.get_revoked_certificate_by_serial_number(
        certificate_of(certificate_file).serial_number
    ):
        raise FederationError(
            f"{certificate_file} was revoked by the lead of the consortium (it is listed in "
            f"{path}): ask for a new kit"
        )
    context.load_verify_locations(path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(path: Path) -> x509.CertificateRevocationList:
    try:
        return x509.load_pem_x509_crl(path.read_bytes())
    except (OSError, ValueError, x509.InvalidVersion) as error:
        raise FederationError(f"{path} cannot be read as a revocation list: {error}") from None
