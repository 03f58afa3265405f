"""Whether files of a kit can be used: they are there, private, and of today."""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

from cryptography import x509

from fedcircuits.errors import FederationError

SOON = datetime.timedelta(days=30)


def check_there(path: Path) -> None:
    if not path.is_file():
        raise FederationError(
            f"{path}: there is no such file; kits, made by fedcircuits provision, have one"
        )


def check_private(path: Path) -> None:
    """A private key that other users of the machine may read is none; a group may, of root's."""
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if os.name == "posix" and mode & (0o037 if status.st_uid == 0 else 0o077):
        raise FederationError(
            f"{path} may be read by others than its owner (rights {mode:03o}, expected 600): "
            f"chmod 600 {path}, and have the key renewed if it may have been read"
        )


def certificate_of(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FederationError(f"{path} cannot be read as a certificate: {error}") from None


def valid_until(path: Path) -> datetime.datetime:
    """The end of a certificate."""
    return certificate_of(path).not_valid_after_utc


def check_dates(path: Path, now: datetime.datetime | None = None) -> None:
    """A certificate that has ended, or that this machine's clock takes for one of tomorrow."""
    certificate, now = certificate_of(path), now or datetime.datetime.now(datetime.UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise FederationError(
            f"{path} has ended on {ends:%Y-%m-%d} (this machine says {now:%Y-%m-%d %H:%M} UTC): "
            "ask the lead of the consortium to renew it (fedcircuits provision --renew)"
        )
    if now < begins:
        raise FederationError(
            f"{path} begins on {begins:%Y-%m-%d %H:%M} UTC, and this machine says "
            f"{now:%Y-%m-%d %H:%M}: is its clock right?"
        )


def ends_soon(path: Path) -> str:
    """A word on a certificate that ends within a month, else nothing."""
    ends = valid_until(path)
    if ends - datetime.datetime.now(datetime.UTC) > SOON:
        return ""
    return f"the certificate ends on {ends:%Y-%m-%d}: ask the lead of the consortium to renew it"
