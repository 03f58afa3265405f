"""Keys and certificates of a consortium: one authority, one kit per site.

    authority/      ca.crt, ca.key       stays with the lead of the consortium
    server/         server.crt, server.key, ca.crt, nats.conf      for the NATS server
    <site>/         site.crt, site.key, ca.crt, identity, consortium.toml, site.toml   for one site
    coordinator/    the same for the coordinator, who trains and asks
    revoked.crl     in all of them: revoked certificates (credentials.py)

``identity`` authenticates a site to the others, end to end; its public half is in everybody's
consortium.toml. A kit holds private keys: it must be delivered over a secure channel, and only
once. A member that made its keys itself (joining.py) is the only one to have them: its kit here has
request.toml instead.

The server identifies a member by the name in its certificate, part of which is random for every
certificate. An older certificate is therefore refused as soon as the server reads its new
nats.conf. A member removed from consortium.toml is refused by the server and by the other members.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcircuits.engines.nvflare.kits import NvflareProject, make_nvflare_kits
from fedcircuits.engines.sites.credentials import (
    REVOKED,
    certificate_of,
    revoked_list,
    revoked_serials,
)
from fedcircuits.engines.sites.files import (
    CONSORTIUM,
    OTHERS,
    SITE,
    SITE_TEXT,
    ConsortiumFile,
    read_identity,
)
from fedcircuits.engines.sites.joining import (
    REQUEST,
    JoinRequest,
    read_request,
    write_key,
    write_private,
)
from fedcircuits.engines.sites.nats import SUBJECT
from fedcircuits.engines.sites.run_folder import write
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.privacy.identity import Identity
from fedcircuits.tables.declared import DeclaredColumn

SERVER = "server"
YEAR = datetime.timedelta(days=365)
CONF = """\
# The NATS server of the consortium {name}: nats-server -c nats.conf
listen: "{listen}"
max_payload: 1MB
tls {{
  cert_file: "{folder}/server.crt"
  key_file: "{folder}/server.key"
  ca_file: "{folder}/ca.crt"
  verify_and_map: true
  timeout: 5
}}
authorization {{
  users = [
{users}
  ]
}}
"""
USER = """\
    {{user: "{user}", permissions: {{
      publish: {{allow: ["{subject}.*.{site}"]}}
      subscribe: {{allow: ["{subject}.{site}.*", "_INBOX_{site}.>"]}}
    }}}}"""


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs the certificates of one consortium."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def fresh(cls, name: str, lifetime: datetime.timedelta = 10 * YEAR) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(name, name, key.public_key(), lifetime).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        return cls(name, key, made.add_extension(usage, critical=True).sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, folder: Path) -> Authority:
        try:
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise FederationError(
                f"{folder} does not hold the authority of a consortium: {error}"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise FederationError(f"{folder / 'ca.key'} is not a key of an authority created here")
        name = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return cls(str(name), key, certificate)

    def save(self, folder: Path) -> None:
        write_key(folder / "ca.key", self.key)
        write(folder / "ca.crt", self.pem)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def kit(
        self,
        folder: Path,
        name: str,
        hosts: Sequence[str] = (),
        lifetime: datetime.timedelta = YEAR,
    ) -> None:
        """A key and a signed certificate for a site, or with ``hosts`` for the server."""
        key = ec.generate_private_key(ec.SECP256R1())
        self.certify(folder, name, key.public_key(), hosts, lifetime)
        write_key(folder / f"{'server' if hosts else 'site'}.key", key)

    def certify(
        self,
        folder: Path,
        name: str,
        key: ec.EllipticCurvePublicKey,
        hosts: Sequence[str] = (),
        lifetime: datetime.timedelta = YEAR,
    ) -> None:
        """A signed certificate for a key that somebody else may have made."""
        known_as = hosts or [f"{name}.{token_hex(8)}"]
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        made = (
            _builder(name, self.name, key, lifetime)
            .add_extension(x509.SubjectAlternativeName(_hosts(known_as)), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False
            )
        )
        certificate = made.sign(self.key, hashes.SHA256())
        stem = "server" if hosts else "site"
        write(folder / f"{stem}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        write(folder / "ca.crt", self.pem)


def server_conf(name: str, address: str, folder: Path, kits: Mapping[str, Path]) -> str:
    """The file of the NATS server: who may publish and read what, by the members' kits."""
    port = urlsplit(address).port or 4222
    users = ",\n".join(
        USER.format(site=site, user=_user(kit / "site.crt"), subject=SUBJECT)
        for site, kit in kits.items()
    )
    host = urlsplit(address).hostname or ""
    listen = f"{host}:{port}" if host in ("127.0.0.1", "localhost") else f"0.0.0.0:{port}"
    return CONF.format(name=name, listen=listen, folder=folder, users=users)


def _user(path: Path) -> str:
    """The name by which the server knows the owner of a certificate."""
    names = certificate_of(path).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return str(names.value.get_values_for_type(x509.DNSName)[0])


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, lifetime: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (subject, issuer)]
    return (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _hosts(names: Sequence[str]) -> list[x509.GeneralName]:
    hosts: list[x509.GeneralName] = []
    for name in names:
        try:
            hosts.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            hosts.append(x509.DNSName(name))
    return hosts


def provision(
    consortium: ConsortiumFile,
    folder: Path,
    renew: Collection[str] = (),
    requests: Sequence[JoinRequest] = (),
) -> list[Path]:
    """Make kits for the server, the coordinator and every site that has none yet. Members to
    ``renew``, and members that had been revoked, get new keys, and the old ones are refused;
    members with ``requests`` keep theirs."""
    _check_members(consortium, folder, renew, requests)
    renew = {*renew, *_returning(consortium.members, folder)}
    for request in requests:
        write(folder / request.name / REQUEST, request.text().encode())
    if consortium.engine == "nvflare":
        project = NvflareProject(consortium.name, consortium.server, consortium.members)
        made = make_nvflare_kits(project, folder, renew)
    else:
        made = _nats_kits(consortium, folder, {*renew, *(r.name for r in requests)})
    identities = {name: _identity(folder / name, name in renew) for name in consortium.members}
    text = _consortium_text(consortium, identities)
    for name in consortium.members:
        write(folder / name / CONSORTIUM, text.encode())
        requested = (folder / name / REQUEST).exists()  # it has a site.toml already
        if name != COORDINATOR and not requested and not (folder / name / SITE).exists():
            write(folder / name / SITE, SITE_TEXT.encode())
    return made


def revoke(consortium: ConsortiumFile, folder: Path, names: Collection[str]) -> ConsortiumFile:
    """The consortium without these sites, whose certificates are on the list from then on. What
    they had asked for with keys of their own is forgotten here."""
    if unknown := {*names} - {*consortium.sites}:
        advice = f"; the keys of {min(unknown)} are renewed" if min(unknown) in OTHERS else ""
        raise FederationError(
            f"{consortium.name} has no site {min(unknown)!r}: there are "
            f"{', '.join(consortium.sites)}{advice}"
        )
    rest = tuple(site for site in consortium.sites if site not in names)
    if not rest:
        raise FederationError(f"{consortium.name} would have no site left")
    smaller = msgspec.structs.replace(consortium, sites=rest)
    provision(smaller, folder)
    for name in names:
        (folder / name / REQUEST).unlink(missing_ok=True)
    return smaller


def _returning(members: Collection[str], folder: Path) -> list[str]:
    """Members whose certificates were taken back when they left."""
    listed = revoked_serials(folder / "authority" / REVOKED)
    kits = {name: folder / name / "site.crt" for name in members}
    return [
        name
        for name, path in kits.items()
        if path.exists() and certificate_of(path).serial_number in listed
    ]


def _check_members(
    consortium: ConsortiumFile,
    folder: Path,
    renew: Collection[str],
    requests: Sequence[JoinRequest],
) -> None:
    known = {*consortium.members, SERVER}
    if unknown := ({*renew} - known) | ({r.name for r in requests} - {*consortium.members}):
        raise FederationError(
            f"{consortium.name} has no member {min(unknown)!r}: there are "
            f"{', '.join(consortium.members)}"
        )
    for request in requests:
        if (folder / request.name / "consortium.toml").exists() and request.name not in renew:
            raise FederationError(
                f"{request.name} already has a kit: if you have verified that it asks for a new "
                f"one, add --renew {request.name}"
            )


def _identity(kit: Path, renew: bool) -> str:
    """A member's public identity, by its request or by the private one made here."""
    if (kit / REQUEST).exists():
        for private in ("identity", "site.key"):  # of a kit that was made here before
            (kit / private).unlink(missing_ok=True)
        return read_request(kit / REQUEST).identity
    if not (kit / "identity").exists() or renew:
        write_private(kit / "identity", Identity.fresh().private.hex().encode())
    return read_identity(kit / "identity").public.hex()


def _nats_kits(consortium: ConsortiumFile, folder: Path, renew: Collection[str]) -> list[Path]:
    """Certificates of the server and the members, and the server's file."""
    authority = _authority(consortium.name, folder / "authority")
    server, kits = folder / SERVER, {name: folder / name for name in consortium.members}
    gone = _taken_back(folder, consortium.members, renew)
    made = []
    if not server.exists() or SERVER in renew:
        hosts = [urlsplit(consortium.server).hostname or "localhost"]
        authority.kit(server, SERVER, hosts)
        made.append(server)
    for name, kit in kits.items():
        if (kit / "site.crt").exists() and name not in renew:
            continue
        if (kit / REQUEST).exists():
            authority.certify(kit, name, read_request(kit / REQUEST).key)
        else:
            authority.kit(kit, name)
        made.append(kit)
    conf = server_conf(consortium.name, consortium.server, server.resolve(), kits)
    write(server / "nats.conf", conf.encode())
    path = folder / "authority" / REVOKED
    revoked = revoked_list(path, gone, authority.certificate, authority.key)
    for place in (path.parent, server, *kits.values()):
        write(place / REVOKED, revoked)
    return made


def _taken_back(folder: Path, members: Collection[str], renew: Collection[str]) -> list[int]:
    """Serial numbers of certificates that are renewed, or of former members."""
    kept = {*members, SERVER} - {*renew}
    old = [*folder.glob("*/site.crt"), *folder.glob(f"{SERVER}/server.crt")]
    return [certificate_of(path).serial_number for path in old if path.parent.name not in kept]


def _authority(name: str, folder: Path) -> Authority:
    if folder.exists():
        return Authority.read(folder)
    authority = Authority.fresh(name)
    authority.save(folder)
    return authority


def _consortium_text(consortium: ConsortiumFile, identities: Mapping[str, str]) -> str:
    names = ", ".join(f'"{site}"' for site in consortium.sites)
    engine = f'engine = "{consortium.engine}"\n' if consortium.engine != "sites" else ""
    keys = "\n".join(f'{name} = "{key}"' for name, key in identities.items())
    columns = "".join(_column_text(name, column) for name, column in consortium.columns.items())
    return (
        f'name = "{consortium.name}"\nserver = "{consortium.server}"\nsites = [{names}]\n{engine}\n'
        f"{columns}"
        f"[identities]  # public keys, by which members know each other\n{keys}\n"
    )


def _column_text(name: str, column: DeclaredColumn) -> str:
    """Texts and lists of JSON are those of TOML."""
    facts: dict[str, object] = {"kind": column.kind}
    facts |= {"categories": column.categories} if column.categories else {}
    facts |= {"unit": column.unit} if column.unit else {}
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items())
    return "\n".join([f"[columns.{json.dumps(name, ensure_ascii=False)}]", *lines]) + "\n\n"
