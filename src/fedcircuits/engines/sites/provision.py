"""Keys and certificates of a consortium: one authority, one kit per site.

    authority/      ca.crt, ca.key       stays with whoever leads the consortium
    server/         server.crt, server.key, ca.crt, nats.conf      for the NATS server
    <site>/         site.crt, site.key, ca.crt, identity, consortium.toml, site.toml   for one site
    coordinator/    the same for whoever trains and asks

``identity`` signs for a site towards the others, end to end; its public half stands in everybody's
consortium.toml. A kit holds private keys: it is handed over on a safe way, and only once.

The server knows a member by the name in its certificate, which has a part that is drawn with every
certificate. So an older one is refused as soon as the server reads its new nats.conf, and a member
that was taken off consortium.toml is refused by the server and by the other members.
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

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcircuits.engines.nvflare.kits import NvflareProject, make_nvflare_kits
from fedcircuits.engines.sites.files import CONSORTIUM, SITE, ConsortiumFile
from fedcircuits.engines.sites.nats import SUBJECT
from fedcircuits.engines.sites.store import write
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.privacy.channels.identity import Identity
from fedcircuits.tables.declared import DeclaredColumn

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
            raise FederationError(f"{folder} holds no authority of a consortium: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise FederationError(f"{folder / 'ca.key'} is no key of an authority made here")
        name = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return cls(str(name), key, certificate)

    def save(self, folder: Path) -> None:
        _write_key(folder / "ca.key", self.key)
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
        known_as = hosts or [f"{name}.{token_hex(8)}"]
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        made = (
            _builder(name, self.name, key.public_key(), lifetime)
            .add_extension(x509.SubjectAlternativeName(_hosts(known_as)), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False
            )
        )
        certificate = made.sign(self.key, hashes.SHA256())
        stem = "server" if hosts else "site"
        _write_key(folder / f"{stem}.key", key)
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
    names = _certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return str(names.value.get_values_for_type(x509.DNSName)[0])


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FederationError(f"{path} cannot be read as a certificate: {error}") from None


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
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    write(path, key.private_bytes(*form, serialization.NoEncryption()))
    path.chmod(0o600)


def provision(consortium: ConsortiumFile, folder: Path, renew: Collection[str] = ()) -> list[Path]:
    """Kits for the server, the coordinator and every site that has none yet; members to ``renew``
    get new keys, and the old ones are refused."""
    if unknown := set(renew) - set(consortium.members):
        raise FederationError(
            f"{consortium.name} has no member {min(unknown)!r}: there are "
            f"{', '.join(consortium.members)}"
        )
    if consortium.engine == "nvflare":
        if renew:
            raise FederationError("kits of NVFlare are renewed by its own provisioning")
        project = NvflareProject(consortium.name, consortium.server, consortium.members)
        made = make_nvflare_kits(project, folder)
    else:
        made = _nats_kits(consortium, folder, renew)
    identities = {}
    for name in consortium.members:
        kit = folder / name
        if not (kit / "identity").exists() or name in renew:
            write(kit / "identity", Identity.fresh().private.hex().encode())
            (kit / "identity").chmod(0o600)
        key = Identity(bytes.fromhex((kit / "identity").read_text().strip()))
        identities[name] = key.public.hex()
    text = _consortium_text(consortium, identities)
    for name in consortium.members:
        write(folder / name / CONSORTIUM, text.encode())
        if name != COORDINATOR and not (folder / name / SITE).exists():
            write(folder / name / SITE, SITE_TEXT.encode())
    return made


def _nats_kits(consortium: ConsortiumFile, folder: Path, renew: Collection[str]) -> list[Path]:
    """Certificates of the server and the members, and the server's file."""
    authority = _authority(consortium.name, folder / "authority")
    server = folder / "server"
    made = []
    if not server.exists():
        hosts = [urlsplit(consortium.server).hostname or "localhost"]
        authority.kit(server, "server", hosts)
        made.append(server)
    kits = {name: folder / name for name in consortium.members}
    for name, kit in kits.items():
        if not kit.exists() or name in renew:
            authority.kit(kit, name)
            made.append(kit)
    conf = server_conf(consortium.name, consortium.server, server.resolve(), kits)
    write(server / "nats.conf", conf.encode())
    return made


def valid_until(path: Path) -> datetime.datetime:
    """The end of a certificate."""
    return _certificate(path).not_valid_after_utc


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


SITE_TEXT = """\
# This site's own decisions. Nothing here is ever sent.

[data]
path = "data.csv"            # a csv or parquet file; or instead of it
# database = "postgresql://reader@localhost/clinic"
# query = "SELECT patient, age, sex FROM visits"
# row_id = "patient"         # the column that says which rows of different sites belong together

# [data.columns]             # the consortium's name = this site's name; others are left out
# age = "alter"
# [data.codes.sex]           # the consortium's value = this site's value
# female = "w"
# male = "m"
# [data.scale]               # numbers times this are in the consortium's unit
# weight = 0.45359237

[policy]
# roles = ["fedpc.*"]        # which roles it plays; fedcircuits site check lists them
least_rows = 50              # it takes part only with at least so many rows
least_count = 5              # nothing counted of its rows stands for fewer of them
never = []                   # columns that are never used
collect = false              # whether what it has learned may leave it
forget = true                # whether it deletes a model when the coordinator asks for that
share_target = false         # whether classes of shared rows are told to other sites
share_clusters = false       # whether other sites are told which shared rows lie together
share_columns = false        # whether whole columns may move to another site
private_rows = false         # whether rows are matched by private set intersection only
# askers = ["coordinator"]   # who may ask what it has learned
# questions_per_day = 100    # how many questions it answers a day
# most_questions = 10000     # how many rows of questions it answers about one model
# least_rows_behind = 10     # it answers only what at least so many of its rows are about
"""
